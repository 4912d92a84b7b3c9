// The state of the CSMA radio for each node and each transmission, as in sim/radio/station.py.
#pragma once
#include <deque>
#include <vector>

#include "frame.h"
#include "node_bits.h"
#include "topology.h"

namespace carrycast {

constexpr int64_t kNeverUs = int64_t{1} << 61;  // Later than the end of any run.
constexpr int64_t kLongAgoUs = -kNeverUs;

enum FrameKind { kBroadcast, kDataFrame, kAck, kRts, kCts };

// The parameters of one radio, from `Dot11` of sim/radio/dot11.py.
struct CsmaSettings {
  int64_t slot_us, sifs_us, difs_us, eifs_us, sense_us;
  int64_t rts_us, cts_us, sifs_ack_us, cts_timeout_us, ack_timeout_us;
  int64_t cw_min, cw_max, retry_limit, long_retry_limit;
  int64_t plcp_us, overhead_bytes, rts_threshold_bytes, queue;
  double data_rate_bps, basic_rate_bps;
  double capture;  // The ratio of squared distances from which a frame is captured; 0: without capture.
  double cost_s;
  bool routing_first, busy_slot_counts;
};

// The transmitter of one node.
struct CsmaStation {
  int64_t node = 0;
  std::deque<FrameRef> queue;  // The frames to send; the first is being sent.
  int64_t epoch = 0;           // The number of crashes. Transmissions of an earlier epoch have no outcome.
  int64_t nav_us = kLongAgoUs;
  int64_t window = 0, short_retries = 0, long_retries = 0;
  int64_t heard = 0;  // The attempt at which the target received the frame; 0 if it has not.
  bool rts_answered = false;
  PyObject* failure = nullptr;  // An interned string or a member of Failure.
  int64_t slots = 0;            // The remaining slots of the backoff.
  int64_t idle_from_us = 0;     // With an empty queue they count from here on.
  int64_t access_us = kNeverUs;
  uint64_t group = 0;  // The number of the group of stations with one queue entry for their next access.

  void reset(int64_t new_window) {
    window = new_window;
    short_retries = long_retries = heard = 0;
    rts_answered = false;
    failure = nullptr;
  }
};

// A transmission with the nodes that can receive it, sense it, and are interfered with by it.
struct Transmission {
  explicit Transmission(size_t nodes)
      : receivers(nodes), sensed(nodes), interfered(nodes), frozen(nodes), collided(nodes), sending(nodes),
        eifs_nodes(nodes) {}

  FrameKind kind = kBroadcast;
  int64_t sender = 0;
  CsmaStation* owner = nullptr;  // The station whose frame is exchanged, also if the other side sends the answer.
  int64_t epoch = 0;
  FrameRef frame;
  int64_t start_us = 0, end_us = 0;
  bool has_collided = false;
  NodeBits receivers, sensed, interfered;
  NodeBits frozen;      // The stations that wait for its end.
  NodeBits collided;    // The receivers at which it collides with another transmission.
  NodeBits sending;     // Those of `collided` that were sending meanwhile.
  NodeBits eifs_nodes;  // The nodes that received it with errors and wait EIFS, set at its end.
};

}  // namespace carrycast
