// Medium access: carrier sense and backoff [IEEE 802.11-1999 §9.2.4, §9.2.5], as in sim/radio/contention.py.
#pragma once
#include <memory>
#include <vector>

#include "ether.h"
#include "random.h"

namespace carrycast {

// Sends the first frame of a station whose backoff has ended.
class Sender {
 public:
  virtual ~Sender() = default;
  virtual void send(CsmaStation& station) = 0;
};

// The backoffs of all stations.
class Contention {
 public:
  Contention(const CsmaSettings& settings, std::vector<CsmaStation>& stations, Ether& ether, Queue& queue,
             PyObject* generator, Sender& sender);

  // Resets a station whose node has crashed: no backoff, no reservation (NAV).
  void forget(CsmaStation& station);
  // Draws a backoff of 0 to `window` slots.
  int64_t draw(int64_t window) { return static_cast<int64_t>(random_.draw() * static_cast<double>(window + 1)); }
  // Starts a backoff without a frame to send: now, or when the reservation of others ends.
  void rest(CsmaStation& station, int64_t slots);
  // Freezes a backoff without a frame to send, because others have reserved the medium (NAV).
  void reserve(CsmaStation& station, int64_t until_us);
  // A node with an empty queue has a new frame: sends it at once, or contends for the medium.
  void wake(CsmaStation& station);
  // Waits until the medium is idle, and then for a number of slots.
  void contend(CsmaStation& station, int64_t slots);
  // Freezes the backoffs of all stations that sense a new transmission, until it ends.
  void freeze(Transmission& by);
  // Begins to process the end of a transmission; `resume` must follow.
  void gather(Transmission& ending);
  // Continues the backoffs that a transmission froze, after an interframe space, unless another one is sensed.
  void resume(Transmission& after);

 private:
  // Stations that share one queue entry for their next access.
  struct Group {
    uint64_t number;
    std::vector<CsmaStation*> stations;
  };
  class AccessAction : public Action {
   public:
    explicit AccessAction(Contention& contention) : contention_(contention) {}
    void fire(void* data) override { contention_.reach_access(static_cast<Group*>(data)); }
    void discard(void*) override {}

   private:
    Contention& contention_;
  };

  Group* make_group();
  Ether::SlotsLeft slots_left(const CsmaStation& station) const;
  int64_t free_us(const CsmaStation& station, int64_t now_us) const;
  void count_down(CsmaStation& station, int64_t from_us);
  void reach_access(Group* group);
  void grant(CsmaStation& station);

  const CsmaSettings& settings_;
  std::vector<CsmaStation>& stations_;
  Ether& ether_;
  Queue& queue_;
  Random random_;
  Sender& sender_;
  NodeBits counting_;                // The stations that count down.
  Transmission* ending_ = nullptr;   // The transmission whose end is being processed.
  Group* gathering_ = nullptr;       // The stations that start to count down meanwhile.
  uint64_t groups_ = 0;
  std::vector<std::unique_ptr<Group>> owned_;
  std::vector<Group*> spare_;
  std::vector<CsmaStation*> due_;
  AccessAction on_access_{*this};
};

}  // namespace carrycast
