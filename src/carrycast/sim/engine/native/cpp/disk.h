// The disk radio, as in sim/radio/disk.py: all nodes within range receive a frame after a delay; nothing collides.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "medium.h"
#include "random.h"

namespace carrycast {

struct DiskSettings {
  int64_t delay_us = 0;
  double rate_bps = 0.0;  // 0: frames take no time.
  int64_t queue = 0;
  double loss = 0.0;
  int64_t retries = 0;
};

class DiskMedium : public Medium {
 public:
  DiskMedium(const DiskSettings& settings, PyObject* interface, size_t nodes, Queue& queue, MediumUpcalls& air,
             PyObject* generator);

  void transmit(FrameRef frame) override;
  void transmit_each(FrameRef batch) override;
  double cost_s() const override;
  int64_t airtime_us(const Frame& frame) const override;

 private:
  // A frame that waits for the transmitter of its node.
  struct Waiting {
    FrameRef frame;
    int64_t start_us;  // -1 after the frame was withdrawn.
    int64_t airtime_us;
  };
  using WaitingRef = std::shared_ptr<Waiting>;
  struct Due {
    WaitingRef entry;
    int64_t start_us;
  };

  // An action whose data is an owned frame.
  template <void (DiskMedium::*Handler)(Frame&)>
  class FrameAction : public Action {
   public:
    explicit FrameAction(DiskMedium& medium) : medium_(medium) {}
    void fire(void* data) override {
      FrameRef frame(static_cast<Frame*>(data));
      (medium_.*Handler)(*frame);
    }
    void discard(void* data) override { FrameRef(static_cast<Frame*>(data)); }

   private:
    DiskMedium& medium_;
  };
  class WaitedAction : public Action {
   public:
    explicit WaitedAction(DiskMedium& medium) : medium_(medium) {}
    void fire(void* data) override;
    void discard(void* data) override { delete static_cast<Due*>(data); }

   private:
    DiskMedium& medium_;
  };

  void arrive(Frame& frame);
  void arrive_each(Frame& batch);
  void refuse(Frame& frame);
  void draw_attempts(Frame& frame);
  void overhear(Frame& frame);
  std::deque<WaitingRef>& remove_started(int64_t sender);
  void schedule(const WaitingRef& entry);
  std::vector<FrameRef> withdraw(int64_t sender, int64_t target);

  DiskSettings settings_;
  Queue& queue_;
  MediumUpcalls& air_;
  Random random_;
  Ref loss_reason_;
  std::vector<int64_t> free_us_;  // The time at which each node's transmitter will be idle.
  std::vector<std::deque<WaitingRef>> waiting_;
  FrameAction<&DiskMedium::arrive> on_arrival_{*this};
  FrameAction<&DiskMedium::arrive_each> on_batch_{*this};
  FrameAction<&DiskMedium::refuse> on_refusal_{*this};
  WaitedAction on_waited_{*this};
};

}  // namespace carrycast
