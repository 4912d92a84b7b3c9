// The contended radio: 802.11's distributed coordination function, as in sim/radio/csma.py.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "contention.h"
#include "medium.h"

namespace carrycast {

// The contacts within one range: their changes in the order of their times.
struct ContactChanges {
  std::vector<int64_t> time_us;
  std::vector<int32_t> a, b;
  std::vector<uint8_t> up;
};

// The nodes within one range of each node, kept up to date by a contact plan of that range.
class Vicinity {
 public:
  Vicinity(size_t nodes, Queue& queue, ContactChanges changes);

  // Adds the node and all nodes within range of it.
  void add_around(int64_t node, NodeBits& bits) const;

 private:
  class PlayAction : public Action {
   public:
    explicit PlayAction(Vicinity& vicinity) : vicinity_(vicinity) {}
    void fire(void*) override { vicinity_.play(); }
    void discard(void*) override {}

   private:
    Vicinity& vicinity_;
  };

  void play();
  void set_contact(int32_t a, int32_t b, bool up);

  std::vector<std::vector<int32_t>> others_;
  Queue& queue_;
  ContactChanges changes_;
  size_t next_ = 0;
  PlayAction on_change_{*this};
};

// Reads the settings from a dictionary with the names of their fields.
CsmaSettings read_csma_settings(PyObject* named);

class CsmaMedium : public Medium, private Sender {
 public:
  // The contacts that are sensed and, if these differ, those that interfere. `places` may be null without capture.
  CsmaMedium(const CsmaSettings& settings, PyObject* interface, size_t nodes, Queue& queue, MediumUpcalls& air,
             PyObject* generator, Places* places, ContactChanges sensed,
             std::unique_ptr<ContactChanges> interfering);

  void transmit(FrameRef frame) override;
  double cost_s() const override { return settings_.cost_s; }
  int64_t airtime_us(const Frame& frame) const override;

 private:
  // An attempt whose answer does not come.
  struct Attempt {
    CsmaStation* station;
    int64_t epoch;
  };
  class EndAction : public Action {
   public:
    explicit EndAction(CsmaMedium& medium) : medium_(medium) {}
    void fire(void* data) override { medium_.end(*static_cast<Transmission*>(data)); }
    void discard(void*) override {}

   private:
    CsmaMedium& medium_;
  };
  class TimeoutAction : public Action {
   public:
    explicit TimeoutAction(CsmaMedium& medium) : medium_(medium) {}
    void fire(void* data) override;
    void discard(void* data) override { delete static_cast<Attempt*>(data); }

   private:
    CsmaMedium& medium_;
  };
  class RefusalAction : public Action {
   public:
    explicit RefusalAction(CsmaMedium& medium) : medium_(medium) {}
    void fire(void* data) override;
    void discard(void* data) override { FrameRef(static_cast<Frame*>(data)); }

   private:
    CsmaMedium& medium_;
  };

  // Discards the queue of a node that crashes. Outcomes are not reported, since no sender is left.
  void forget(int64_t node);
  void send(CsmaStation& station) override;
  int64_t message_us(const Frame& frame, double rate_bps) const;
  int64_t unicast_us(const Frame& frame) const { return message_us(frame, settings_.data_rate_bps); }
  // Whether an RTS precedes a unicast.
  bool uses_rts(const Frame& frame) const {
    return frame.size_bytes + settings_.overhead_bytes > settings_.rts_threshold_bytes;
  }
  void begin(FrameKind kind, int64_t sender, CsmaStation& owner, const FrameRef& frame, int64_t start_us,
             int64_t airtime_us);
  void end(Transmission& transmission);
  void end_broadcast(Transmission& transmission);
  void end_data(Transmission& transmission);
  void end_ack(Transmission& transmission);
  void end_rts(Transmission& transmission);
  void end_cts(Transmission& transmission);
  // The reason why a node did not receive a transmission; null if it did.
  PyObject* find_failure(const Transmission& transmission, int64_t node) const;
  // Sets the NAV of all other receivers to the end of the exchange.
  void reserve(const Transmission& transmission, int64_t partner, int64_t until_us);
  void await_timeout(const Transmission& transmission, PyObject* failure, int64_t timeout_us);
  void fail(CsmaStation& station, int64_t epoch);
  void finish(CsmaStation& station, PyObject* failure);
  std::vector<FrameRef> withdraw(CsmaStation& station, int64_t target);
  void advance(CsmaStation& station);
  CsmaStation& station_of(int64_t node) { return stations_[static_cast<size_t>(node)]; }

  const CsmaSettings settings_;
  Queue& queue_;
  MediumUpcalls& air_;
  std::vector<CsmaStation> stations_;
  Vicinity sensing_;
  std::unique_ptr<Vicinity> interference_;  // Null if it is that of sensing.
  Ether ether_;
  Contention contention_;
  Ref collision_reason_, reserved_reason_, sender_down_reason_;
  EndAction on_end_{*this};
  TimeoutAction on_timeout_{*this};
  RefusalAction on_refusal_{*this};
};

}  // namespace carrycast
