// Flooding and gossip, as in core/parts/flood.py, protocols/flooding and protocols/gossip.
#pragma once
#include "protocol.h"
#include "queue.h"

namespace carrycast {

class FloodProtocol : public NativeProtocol {
 public:
  FloodProtocol(Core& core, const char* name, PyObject* settings, PyObject* make_rng, PyObject* messages);

  void on_message(int64_t node, const Frame& frame, double remaining_s) override;

 protected:
  void on_publish(int64_t node, int32_t event) override;

 private:
  // A rebroadcast that waits.
  struct Delayed {
    int64_t node;
    int32_t event;
    int64_t hops;
    double remaining_s, since_s;
  };
  class RelayAction : public Action {
   public:
    explicit RelayAction(FloodProtocol& flood) : flood_(flood) {}
    void fire(void* data) override;
    void discard(void* data) override { delete static_cast<Delayed*>(data); }

   private:
    FloodProtocol& flood_;
  };

  bool is_seen(int64_t node, int32_t event) const;
  // Remembers and delivers an event; false if it is a duplicate.
  bool accept(int64_t node, int32_t event, int64_t hops);
  void forward(int64_t node, int32_t event, int64_t hops, double remaining_s);
  void relay(const Delayed& delayed);
  double bound_lease_s(int32_t event, double remaining_s) const;
  void broadcast(int64_t node, int32_t event, int64_t hops, double remaining_s);

  bool draws_;  // Gossip draws whether to forward; flooding always forwards.
  double remembered_s_, flood_s_, jitter_s_, p_ = 1.0, forever_s_;
  int64_t max_hops_, sure_hops_ = 0;
  // By event and node: 1 plus the microsecond of its reception; 0 if the node never received it. A reception is
  // forgotten when it is older than `remembered_s` and the node then remembers another event, as in `SeenCache`.
  std::vector<IndexTable<int64_t>> received_us_;
  std::vector<double> purged_s_;  // By node: when it last remembered an event.
  RelayAction on_relay_{*this};
};

}  // namespace carrycast
