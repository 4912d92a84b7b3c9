// The current and the most recent transmissions, as in sim/radio/ether.py.
#pragma once
#include <memory>
#include <vector>

#include "csma_state.h"
#include "places.h"
#include "queue.h"

namespace carrycast {

class Ether {
 public:
  // `places` may be null without capture.
  Ether(const CsmaSettings& settings, size_t nodes, const Queue& queue, Places* places);

  std::vector<Transmission*> on_air;
  int64_t calm_us = 0;  // Every backoff without a frame that began before this time is over.

  // A transmission without content, from a pool.
  Transmission* make();
  // Returns it to the pool.
  void release(Transmission* transmission);
  // Adds a transmission. It and the transmissions that it overlaps collide where both are strong enough.
  void begin(Transmission& added);
  // Moves a transmission from the current to the past ones.
  void end(Transmission& old);
  // Lets the stations that waited for an ended transmission and sense another one wait for that one.
  void hand_over(Transmission& old);
  // The sensed transmission that ends last, also if it is an answer that has not begun; null if there is none.
  Transmission* find_blocking(int64_t node);
  // Whether a node senses a transmission that began at least `sense_us` ago, or sends itself.
  bool is_busy(int64_t node, int64_t now_us) const;
  // The time from which a node that senses nothing may send.
  int64_t free_us(int64_t node, int64_t now_us) const;
  // The slots left of a backoff without a frame, and the time from which they count.
  struct SlotsLeft {
    int64_t slots, from_us;
  };
  SlotsLeft count_slots_left(const CsmaStation& station, int64_t now_us) const;

 private:
  // A past transmission.
  struct Ended {
    int64_t start_us, end_us;
    NodeBits sensed, eifs_nodes;
  };
  void collide(Transmission& added, Transmission& other);
  int64_t space_us(const Ended& ended, int64_t node) const {
    return ended.eifs_nodes.has(node) ? settings_.eifs_us : settings_.difs_us;
  }
  // The past transmission before which there are `later` later ones.
  const Ended& past(size_t later) const { return ended_[(next_ + ended_.size() - 1 - later) % ended_.size()]; }

  const CsmaSettings& settings_;
  size_t nodes_;
  const Queue& queue_;
  Places* places_;
  int64_t calming_us_;
  std::vector<Ended> ended_;  // A ring, ordered by their ends.
  size_t next_ = 0;           // The place of the next one.
  std::vector<std::unique_ptr<Transmission>> owned_;
  std::vector<Transmission*> spare_;
};

}  // namespace carrycast
