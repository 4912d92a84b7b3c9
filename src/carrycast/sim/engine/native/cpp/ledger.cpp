#include "ledger.h"

#include <algorithm>

namespace carrycast {

namespace {
constexpr uint8_t kMaxCopies = 255;
}

void Ledger::clear() {
  fail_ = Ref();
  records_.clear();
  free_.clear();
  places_ = PairTable();
  subscriptions_.clear();
  numbers_ = PairTable();
}

EventRecord* Ledger::find(int64_t source, int64_t sequence) {
  int64_t place = places_.find(source, sequence);
  return place < 0 ? nullptr : records_[static_cast<size_t>(place)].get();
}

void Ledger::on_event(PyObject* event, int64_t now_us, double expiry_s, bool counted, int64_t size_bytes) {
  PairId id = to_pair(fields.event_id.get(event));
  auto record = std::make_unique<EventRecord>(event, id, nodes_, subscriptions_.size());
  record->published_us = now_us;
  record->expiry_s = expiry_s;
  record->size_bytes = size_bytes;
  record->counted = counted;
  record->marks.at(static_cast<size_t>(id.first)) |= EventRecord::kHasIt;
  int64_t place = static_cast<int64_t>(records_.size());
  if (free_.empty()) {
    records_.push_back(std::move(record));
  } else {
    place = free_.back();
    free_.pop_back();
    records_[static_cast<size_t>(place)] = std::move(record);
  }
  places_.set(id.first, id.second, place);
}

void Ledger::set_eligible(PairId event, PyObject* nodes) {
  EventRecord* record = find(event.first, event.second);
  if (record == nullptr) return;
  Ref iterator = Ref::steal(PyObject_GetIter(nodes));
  while (PyObject* next = PyIter_Next(iterator.get())) {
    Ref node = Ref::steal(next);
    record->marks.at(static_cast<size_t>(to_int(node.get()))) |= EventRecord::kEligible;
  }
  if (PyErr_Occurred()) throw PythonError();
}

void Ledger::on_subscribe(PyObject* subscription, PairId id, int64_t interest, bool by_processor) {
  int64_t number = numbers_.find(id.first, id.second);
  if (number < 0) {
    number = static_cast<int64_t>(subscriptions_.size());
    numbers_.set(id.first, id.second, number);
    subscriptions_.emplace_back();
  }
  SubscriptionRecord& record = subscriptions_[static_cast<size_t>(number)];
  record.subscription = Ref::borrow(subscription);
  record.id = id;
  record.active = true;
  record.by_processor = by_processor;
  record.interest = interest;
}

void Ledger::on_unsubscribe(PairId id) {
  int64_t number = numbers_.find(id.first, id.second);
  if (number >= 0) subscriptions_[static_cast<size_t>(number)].active = false;
}

SubscriptionRecord* Ledger::find_subscription(PairId id) {
  int64_t number = numbers_.find(id.first, id.second);
  return number < 0 ? nullptr : &subscriptions_[static_cast<size_t>(number)];
}

void Ledger::on_frame(const Frame& frame, NodeSpan receivers, int64_t air_us) {
  int64_t copies = frame.copies(), transmissions = frame.attempts * copies;
  int traffic = frame.traffic;
  bytes[traffic] += transmissions * frame.size_bytes;
  sent[traffic] += transmissions;
  // The formula of `airtime_us` in trace/folds/traffic.py.
  int64_t frame_us = words.broadcast_us + frame.size_bytes * words.byte_us;
  if (frame.is_unicast()) {
    int64_t bits = (words.overhead_bytes + frame.size_bytes) * words.byte_us;
    frame_us = words.unicast_us + (bits + words.rate_mbps - 1) / words.rate_mbps;
  }
  airtime_us += air_us < 0 ? transmissions * frame_us : air_us;
  if (traffic != kBeacons) receptions += static_cast<int64_t>(receivers.size);
  if (!frame.has_event) return;
  EventRecord* record = find(frame.source, frame.sequence);
  if (record == nullptr) return;
  if (record->counted) forwards += copies;
  for (int32_t node : receivers) {
    uint8_t& mark = record->marks.at(static_cast<size_t>(node));
    if (mark & EventRecord::kHasIt) {
      duplicates++;
    } else {
      mark |= EventRecord::kHasIt;
    }
  }
}

void Ledger::on_deliver(int64_t now_us, double now_s, int64_t node, PairId id, PyObject* event, int64_t hop_count) {
  PyObject* event_id = fields.event_id.get(event);
  PairId named = to_pair(event_id);
  EventRecord* record = find(named.first, named.second);
  if (record == nullptr) fail(Violation::kUnknown, now_s, node, event_id, nullptr);
  if (record->event.get() != event) {
    int equal = PyObject_RichCompareBool(record->event.get(), event, Py_EQ);
    check_status(equal);
    if (equal == 0) fail(Violation::kAltered, now_s, node, event_id, nullptr);
  }
  if (now_s > record->expiry_s) fail(Violation::kPastLease, now_s, node, event_id, nullptr);
  int64_t number = numbers_.find(id.first, id.second);
  SubscriptionRecord* subscription = number < 0 ? nullptr : &subscriptions_[static_cast<size_t>(number)];
  if (subscription == nullptr || !subscription->active || id.first != node) {
    fail(Violation::kNoSubscription, now_s, node, event_id,
         Ref::steal(Py_BuildValue("LL", static_cast<long long>(id.first), static_cast<long long>(id.second))).get());
  }
  if (!fits(*record, *subscription)) {
    fail(Violation::kDoesNotFit, now_s, node, event_id, get_attribute(subscription->subscription.get(), "id").get());
  }
  deliver(now_us, now_s, node, *record, number, hop_count);
}

void Ledger::deliver(int64_t now_us, double now_s, int64_t node, EventRecord& record, int64_t number,
                     int64_t hop_count) {
  if (now_s > record.expiry_s) fail(Violation::kPastLease, now_s, node, record.id);
  uint16_t boots = crashes_.get(static_cast<size_t>(node));
  uint16_t& given = record.given.at(static_cast<size_t>(number));
  if (given > boots) {
    Ref to = get_attribute(subscription(number).subscription.get(), "id");
    fail(Violation::kSecondTime, now_s, node, get_attribute(record.event.get(), "id").get(), to.get());
  }
  given = static_cast<uint16_t>(boots + 1);
  if (!record.counted) return;
  uint8_t& mark = record.marks.at(static_cast<size_t>(node));
  if ((mark & (EventRecord::kEligible | EventRecord::kReached)) != EventRecord::kEligible) return;
  mark |= EventRecord::kReached;
  // Both times are whole microseconds, so this is the difference rounded to six decimals.
  delays_s.push_back(static_cast<double>(now_us - record.published_us) / 1e6);
  hops += hop_count;
}

bool Ledger::fits(EventRecord& record, const SubscriptionRecord& subscription) {
  constexpr uint8_t kNo = 1, kYes = 2;
  uint8_t known = record.serves.get(static_cast<size_t>(subscription.interest));
  if (known == 0) {
    Ref found = call(words.serves, record.event.get(), subscription.subscription.get());
    known = is_true(found.get()) ? kYes : kNo;
    record.serves.at(static_cast<size_t>(subscription.interest)) = known;
  }
  return known == kYes;
}

void Ledger::on_store(double now_s, int64_t node, PairId event) {
  EventRecord* record = find(event.first, event.second);
  if (record == nullptr || now_s > record->expiry_s) fail(Violation::kStoredPastLease, now_s, node, event);
  uint8_t& copies = record->copies.at(static_cast<size_t>(node));
  if (copies == kMaxCopies) fail(Violation::kTooManyCopies, now_s, node, event);
  copies++;
  record->stored_once = true;
  count_copies(node, 1);
}

void Ledger::on_evict(double now_s, int64_t node, PairId event) {
  EventRecord* record = find(event.first, event.second);
  if (record == nullptr || now_s > record->expiry_s) fail(Violation::kStoredPastLease, now_s, node, event);
  if (record->copies.get(static_cast<size_t>(node)) == 0) fail(Violation::kNotStored, now_s, node, event);
  record->copies.at(static_cast<size_t>(node))--;
  count_copies(node, -1);
}

void Ledger::count_copies(int64_t node, int change) {
  int32_t& stored = stored_.at(static_cast<size_t>(node));
  stored += change;
  buffer_peak = std::max<int64_t>(buffer_peak, stored);
}

void Ledger::on_crash(int64_t node) {
  size_t place = static_cast<size_t>(node);
  crashes_.at(place)++;
  stored_.at(place) = 0;
  for (const std::unique_ptr<EventRecord>& record : records_) {
    if (record && record->copies.get(place) > 0) record->copies.at(place) = 0;
  }
}

int64_t Ledger::on_expired(PairId event) {
  int64_t place = places_.find(event.first, event.second);
  if (place < 0) return -1;
  std::unique_ptr<EventRecord> record = std::move(records_[static_cast<size_t>(place)]);
  free_.push_back(place);
  places_.remove(event.first, event.second);
  int64_t holder = -1;
  record->copies.each([&holder](size_t node, uint8_t copies) {
    if (copies > 0 && (holder < 0 || static_cast<int64_t>(node) < holder)) holder = static_cast<int64_t>(node);
  });
  return holder;
}

bool Ledger::was_stored(PairId event) {
  EventRecord* record = find(event.first, event.second);
  return record != nullptr && record->stored_once;
}

void Ledger::fail(Violation violation, double now_s, int64_t node, PyObject* event, PyObject* subscription) {
  Ref number = from_int(static_cast<int64_t>(violation));
  Ref time = Ref::steal(PyFloat_FromDouble(now_s));
  Ref at = from_int(node);
  Ref event_id = Ref::borrow(event);
  call(fail_.get(), number.get(), time.get(), at.get(), event_id.get(), subscription == nullptr ? Py_None : subscription);
  PyErr_SetString(PyExc_AssertionError, "a violation raises");
  throw PythonError();
}

void Ledger::fail(Violation violation, double now_s, int64_t node, PairId event) {
  Ref id = Ref::steal(Py_BuildValue("LL", static_cast<long long>(event.first), static_cast<long long>(event.second)));
  fail(violation, now_s, node, id.get(), nullptr);
}

}  // namespace carrycast
