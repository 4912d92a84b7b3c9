// Epidemic routing, as in protocols/epidemic, for workloads whose events fit every bound of the protocol: no buffer is
// full, no window is exhausted, and all ids fit in one message. So nothing is evicted, deferred or split.
#pragma once
#include <unordered_map>

#include "protocol.h"
#include "queue.h"

namespace carrycast {

class EpidemicProtocol : public NativeProtocol {
 public:
  EpidemicProtocol(Core& core, PyObject* settings, PyObject* make_rng, PyObject* messages);

  void on_message(int64_t node, const Frame& frame, double remaining_s) override;
  void on_sent(const Frame& frame, bool failed) override;
  void on_link_up(int64_t node, int64_t neighbor) override;
  void on_link_down(int64_t node, int64_t neighbor) override;

 protected:
  void on_publish(int64_t node, int32_t event) override;

 private:
  using Nodes = std::vector<int32_t>;
  using Events = std::vector<int32_t>;

  struct Buffered {
    int32_t event, hops;
    double until_s;
  };
  // Nodes in the order in which they were added, for one event.
  struct EventNodes {
    int32_t event;
    Nodes nodes;
  };
  // A requested event: from which neighbor, when to request it again, how often it was requested.
  struct Pending {
    int32_t event, neighbor;
    int32_t times;
    double due_s;
  };
  // The state of one node. Dictionaries of the Python class are vectors in the order of insertion.
  struct State {
    Nodes neighbors, uninformed;
    std::vector<Buffered> buffer;
    std::vector<EventNodes> missing, holders;
    std::vector<Pending> pending;
    double lease_s = 0.0;  // When the lease timer is due.
    uint32_t lease_number = 0;  // Tells the armed lease timer from those it replaced.
    bool lease_armed = false, retry_armed = false, repeat_armed = false;
  };
  // An id that a node remembers after the event expired: until when, and its number among those that it remembered.
  struct Seen {
    double until_s = 0.0;
    uint64_t number = 0;
  };
  // The latest id that a node remembered: when, and its number.
  struct Latest {
    double time_s = 0.0;
    uint64_t number = 0;
  };
  struct EventState {
    explicit EventState(size_t nodes) : status(nodes) {}
    IndexTable<uint8_t> status;  // By node: kBuffered, kSeen.
    std::unordered_map<int32_t, Seen> seen;
  };
  static constexpr uint8_t kBuffered = 1, kSeen = 2;
  enum TimerKind : uint64_t { kLease = 0, kRetry = 1, kRepeat = 2 };

  class TimerAction : public Action {
   public:
    explicit TimerAction(EpidemicProtocol& protocol) : protocol_(protocol) {}
    void fire(void* data) override { protocol_.on_timer(reinterpret_cast<uint64_t>(data)); }
    void discard(void*) override {}

   private:
    EpidemicProtocol& protocol_;
  };

  State& state(int64_t node) { return states_[static_cast<size_t>(node)]; }
  bool is_buffered(int64_t node, int32_t event) const;
  bool is_new(int64_t node, int32_t event) const;
  const Buffered* find_buffered(const State& node, int32_t event) const;

  void on_summary(int64_t node, int64_t sender, const Frame& frame);
  void on_transfer(int64_t node, const Frame& frame, double remaining_s);
  void on_request(int64_t node, const Frame& frame);
  void accept(int64_t node, int32_t event, int64_t hops, double remaining_s);
  void advertise(int64_t node, int32_t event);
  void start_session(int64_t node, int32_t neighbor);
  void send_ids(int64_t node, int64_t target, uint16_t tag, const Events& ids, bool wants_outcome, bool complete);
  void mark_informed(State& node, int32_t neighbor, int32_t event);
  void add_missing_of_others(State& node, int32_t neighbor, const Frame& frame);
  void request(int64_t node, int32_t neighbor, const Events& ids, int32_t times);
  void retry(int64_t node, const Events& ids);
  void arm_retry(int64_t node);
  void watch_leases(int64_t node, bool again);
  void expire(int64_t node);
  void forget(int64_t node, const Buffered& stored);
  void repeat_summaries(int64_t node);
  void arm(int64_t node, TimerKind kind, double delay_s, uint32_t number);
  void on_timer(uint64_t data);

  double max_lease_s_, seen_grace_s_, ask_again_s_, tell_again_s_;
  int32_t asks_;
  std::vector<State> states_;
  std::vector<EventState> event_states_;
  // As in `SeenCache`, a node forgets ids whose time has come when it remembers another one.
  bool is_remembered(int64_t node, const Seen& seen) const;

  std::unordered_map<int64_t, Latest> latest_;  // By node.
  TimerAction on_timer_{*this};
};

}  // namespace carrycast
