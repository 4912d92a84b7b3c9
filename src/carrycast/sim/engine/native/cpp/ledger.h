// The built-in folds and checkers of a run, as in trace/folds and sim/engine/observers/checkers.py.
//
// The ledger has the counts and marks that change with every frame, delivery and stored copy. Its Python half
// (sim/engine/native/recorder.py) decides once for each event which nodes are eligible, and computes the metrics.
#pragma once
#include <memory>
#include <vector>

#include "fingerprint.h"
#include "tables.h"

namespace carrycast {

// The records of one event, from its publication until its lease and the slack have expired.
struct EventRecord {
  static constexpr uint8_t kHasIt = 1, kEligible = 2, kReached = 4;

  EventRecord(PyObject* event, PairId id, size_t nodes, size_t subscriptions)
      : event(Ref::borrow(event)), id(id), marks(nodes), copies(nodes), given(subscriptions) {}

  Ref event;
  PairId id;
  int64_t published_us = 0;
  double expiry_s = 0.0;    // After this time no node may hold the event.
  int64_t size_bytes = 0;   // Encoded, as a part of messages.
  bool counted = false;      // Published in the measured window.
  bool stored_once = false;  // Whether any node has stored it.
  IndexTable<uint8_t> marks;   // By node: has it, is eligible, was reached.
  IndexTable<uint8_t> copies;  // By node: the number of stored copies.
  IndexTable<uint16_t> given;  // By subscription: 0 if it was not delivered, else 1 plus the crashes of the node before.
  IndexTable<uint8_t> serves;  // By interest: 1 if it does not match, 2 if it does, 0 if that is not known yet.
};

struct SubscriptionRecord {
  Ref subscription;
  PairId id{0, 0};
  bool active = false;
  bool by_processor = false;  // Deliveries to it are checked and counted in Python.
  int64_t interest = 0;       // Subscriptions with the same filter and attributes have the same number.
};

// Why a run must end. The texts are in checkers.py.
enum class Violation { kUnknown, kAltered, kPastLease, kNoSubscription, kDoesNotFit, kSecondTime, kStoredPastLease,
                       kTooManyCopies, kNotStored };

class Ledger {
 public:
  explicit Ledger(size_t nodes) : nodes_(nodes), stored_(nodes) {}

  // `fail` is called with a violation and its facts, and raises.
  void set_fail(PyObject* fail) { fail_ = Ref::borrow(fail); }
  void clear();

  EventRecord* find(int64_t source, int64_t sequence);
  size_t events() const { return records_.size() - free_.size(); }

  void on_event(PyObject* event, int64_t now_us, double expiry_s, bool counted, int64_t size_bytes);
  void set_eligible(PairId event, PyObject* nodes);
  void on_subscribe(PyObject* subscription, PairId id, int64_t interest, bool by_processor);
  void on_unsubscribe(PairId id);
  SubscriptionRecord* find_subscription(PairId id);
  // The number of a subscription, -1 if it is unknown.
  int64_t number_of(PairId id) const { return numbers_.find(id.first, id.second); }
  const SubscriptionRecord& subscription(int64_t number) const { return subscriptions_[static_cast<size_t>(number)]; }
  PairId id_of(int64_t number) const { return subscription(number).id; }

  // `air_us` is the airtime of the frame, -1 if its medium has none.
  void on_frame(const Frame& frame, NodeSpan receivers, int64_t air_us);
  // Checks and counts a delivery to a subscription without a processor.
  void on_deliver(int64_t now_us, double now_s, int64_t node, PairId subscription, PyObject* event, int64_t hops);
  // The same for an event and a subscription that are known to exist and to match.
  void deliver(int64_t now_us, double now_s, int64_t node, EventRecord& record, int64_t number, int64_t hops);
  bool fits(EventRecord& record, const SubscriptionRecord& subscription);
  void on_store(double now_s, int64_t node, PairId event);
  void on_evict(double now_s, int64_t node, PairId event);
  void on_crash(int64_t node);
  // An event has expired. Returns the lowest node that still stores it, -1 if none does.
  int64_t on_expired(PairId event);
  bool was_stored(PairId event);

  // The sums of the traffic fold, by class of traffic.
  int64_t sent[kTraffics] = {}, bytes[kTraffics] = {}, airtime_us = 0, receptions = 0;
  int64_t forwards = 0, duplicates = 0;
  int64_t hops = 0;
  std::vector<double> delays_s;
  int64_t buffer_peak = 0;

 private:
  [[noreturn]] void fail(Violation violation, double now_s, int64_t node, PyObject* event, PyObject* subscription);
  [[noreturn]] void fail(Violation violation, double now_s, int64_t node, PairId event);
  void count_copies(int64_t node, int change);

  size_t nodes_;
  Ref fail_;
  std::vector<std::unique_ptr<EventRecord>> records_;
  std::vector<int64_t> free_;  // Places in `records_` that are empty.
  PairTable places_;           // Id of an event -> its place in `records_`.
  std::vector<SubscriptionRecord> subscriptions_;
  PairTable numbers_;  // Id of a subscription -> its place in `subscriptions_`. Ended subscriptions keep theirs.
  IndexTable<int32_t> stored_;    // By node: the number of stored copies.
  IndexTable<uint16_t> crashes_;  // By node.
};

}  // namespace carrycast
