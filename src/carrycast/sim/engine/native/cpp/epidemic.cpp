#include "epidemic.h"

#include <algorithm>

#include "core.h"

namespace carrycast {

namespace {
constexpr uint16_t kSummary = 1, kRequest = 2, kTransfer = 3;
constexpr int64_t kMaxHops = 65'535;

template <class Vector, class Value>
bool has(const Vector& values, Value value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

template <class Vector, class Value>
void drop(Vector& values, Value value) {
  auto place = std::find(values.begin(), values.end(), value);
  if (place != values.end()) values.erase(place);
}

// The entry of an event in a vector that stands for a dictionary.
template <class Entries>
auto entry_of(Entries& entries, int32_t event) {
  return std::find_if(entries.begin(), entries.end(), [event](const auto& one) { return one.event == event; });
}
}  // namespace

EpidemicProtocol::EpidemicProtocol(Core& core, PyObject* settings, PyObject* make_rng, PyObject* messages)
    : NativeProtocol(core, make_rng, messages),
      max_lease_s_(setting(settings, "max_lease_s")),
      seen_grace_s_(setting(settings, "seen_grace_s")),
      ask_again_s_(setting(settings, "ask_again_s")),
      tell_again_s_(setting(settings, "tell_again_s")),
      asks_(static_cast<int32_t>(setting(settings, "asks"))),
      states_(core.nodes.size()) {}

bool EpidemicProtocol::is_buffered(int64_t node, int32_t event) const {
  return (event_states_[static_cast<size_t>(event)].status.get(static_cast<size_t>(node)) & kBuffered) != 0;
}

bool EpidemicProtocol::is_new(int64_t node, int32_t event) const {
  const EventState& of_event = event_states_[static_cast<size_t>(event)];
  uint8_t status = of_event.status.get(static_cast<size_t>(node));
  if ((status & kBuffered) != 0) return false;
  if ((status & kSeen) == 0) return true;
  return !is_remembered(node, of_event.seen.at(static_cast<int32_t>(node)));
}

bool EpidemicProtocol::is_remembered(int64_t node, const Seen& seen) const {
  const Latest& latest = latest_.at(node);
  return latest.number <= seen.number || seen.until_s > latest.time_s;
}

const EpidemicProtocol::Buffered* EpidemicProtocol::find_buffered(const State& node, int32_t event) const {
  auto place = entry_of(node.buffer, event);
  return place == node.buffer.end() ? nullptr : &*place;
}

// Inputs.

void EpidemicProtocol::on_publish(int64_t node, int32_t event) {
  event_states_.emplace_back(core_.nodes.size());
  accept(node, event, 0, events_[static_cast<size_t>(event)].lease_s);
}

void EpidemicProtocol::on_link_up(int64_t node, int64_t neighbor) {
  State& mine = state(node);
  mine.neighbors.push_back(static_cast<int32_t>(neighbor));
  start_session(node, static_cast<int32_t>(neighbor));
  if (!mine.repeat_armed) {
    mine.repeat_armed = true;
    arm(node, kRepeat, tell_again_s_, 0);
  }
}

void EpidemicProtocol::on_link_down(int64_t node, int64_t neighbor) {
  State& mine = state(node);
  int32_t gone = static_cast<int32_t>(neighbor);
  drop(mine.neighbors, gone);
  drop(mine.uninformed, gone);
  for (EventNodes& missing : mine.missing) drop(missing.nodes, gone);
  for (EventNodes& holders : mine.holders) drop(holders.nodes, gone);
  for (std::vector<EventNodes>* table : {&mine.missing, &mine.holders}) {
    auto is_empty = [](const EventNodes& one) { return one.nodes.empty(); };
    table->erase(std::remove_if(table->begin(), table->end(), is_empty), table->end());
  }
  Events requested;
  for (const Pending& pending : mine.pending) {
    if (pending.neighbor == gone) requested.push_back(pending.event);
  }
  retry(node, requested);
}

void EpidemicProtocol::on_message(int64_t node, const Frame& frame, double remaining_s) {
  switch (frame.kind->tag) {
    case kSummary: return on_summary(node, frame.sender, frame);
    case kTransfer: return on_transfer(node, frame, remaining_s);
    default: return on_request(node, frame);
  }
}

void EpidemicProtocol::on_summary(int64_t node, int64_t sender, const Frame& frame) {
  State& mine = state(node);
  int32_t neighbor = static_cast<int32_t>(sender);
  NodeSpan ids = frame.ids();
  if (!mine.missing.empty()) {
    for (int32_t event : ids) mark_informed(mine, neighbor, event);
  }
  if (ids.size == 1 && is_buffered(node, *ids.data)) return;
  bool linked = has(mine.neighbors, neighbor);
  Events requested;
  for (int32_t event : ids) {
    if (!is_new(node, event)) continue;
    if (linked) {
      auto holders = entry_of(mine.holders, event);
      if (holders == mine.holders.end()) {
        mine.holders.push_back({event, {neighbor}});
      } else if (!has(holders->nodes, neighbor)) {
        holders->nodes.push_back(neighbor);
      }
    }
    if (entry_of(mine.pending, event) == mine.pending.end()) requested.push_back(event);
  }
  if (!requested.empty()) request(node, neighbor, requested, 1);
}

void EpidemicProtocol::on_transfer(int64_t node, const Frame& frame, double remaining_s) {
  State& mine = state(node);
  int32_t event = frame.number, sender = static_cast<int32_t>(frame.sender);
  auto pending = entry_of(mine.pending, event);
  if (pending != mine.pending.end()) mine.pending.erase(pending);
  if (!is_new(node, event)) return;
  if (has(mine.neighbors, sender)) {
    auto holders = entry_of(mine.holders, event);
    if (holders == mine.holders.end()) {
      mine.holders.push_back({event, {sender}});
    } else if (!has(holders->nodes, sender)) {
      holders->nodes.push_back(sender);
    }
  }
  accept(node, event, frame.hops, remaining_s);
}

void EpidemicProtocol::on_request(int64_t node, const Frame& frame) {
  State& mine = state(node);
  int32_t neighbor = static_cast<int32_t>(frame.sender);
  Events held;
  for (int32_t event : frame.ids()) {
    if (is_buffered(node, event)) held.push_back(event);
  }
  if (!mine.missing.empty()) {
    for (int32_t event : held) mark_informed(mine, neighbor, event);
  }
  double now_s = core_.queue.now_s;
  for (int32_t event : held) {
    const Buffered* stored = find_buffered(mine, event);
    if (!(stored->until_s > now_s)) continue;
    int64_t hops = std::min<int64_t>(stored->hops + 1, kMaxHops);
    send(node, neighbor, make_event_frame(node, neighbor, kTransfer, event, hops, stored->until_s - now_s));
  }
}

void EpidemicProtocol::on_sent(const Frame& frame, bool failed) {
  State& mine = state(frame.sender);
  int32_t neighbor = static_cast<int32_t>(frame.target);
  if (failed || !has(mine.neighbors, neighbor)) return;
  if (frame.complete && has(mine.uninformed, neighbor)) {
    drop(mine.uninformed, neighbor);
    if (frame.ids().size != mine.buffer.size()) add_missing_of_others(mine, neighbor, frame);
  } else if (!mine.missing.empty()) {
    for (int32_t event : frame.ids()) mark_informed(mine, neighbor, event);
  }
}

void EpidemicProtocol::add_missing_of_others(State& mine, int32_t neighbor, const Frame& frame) {
  // Python iterates a set of ids here, whose order is that of its hash table: so a Python set decides.
  Ref buffered = Ref::steal(PyDict_New());
  Ref numbers = Ref::steal(PyDict_New());
  for (const Buffered& stored : mine.buffer) {
    PyObject* id = events_[static_cast<size_t>(stored.event)].id_object.get();
    check_status(PyDict_SetItem(buffered.get(), id, Py_None));
    check_status(PyDict_SetItem(numbers.get(), id, from_int(stored.event).get()));
  }
  Ref sent = frame.ids_tuple();
  Ref all = Ref::steal(PySet_New(buffered.get()));
  Ref others = call_method(all.get(), "difference", sent.get());
  Ref iterator = Ref::steal(PyObject_GetIter(others.get()));
  while (PyObject* next = PyIter_Next(iterator.get())) {
    Ref id = Ref::steal(next);
    int32_t event = static_cast<int32_t>(to_int(PyDict_GetItem(numbers.get(), id.get())));
    auto missing = entry_of(mine.missing, event);
    if (missing == mine.missing.end()) {
      mine.missing.push_back({event, {neighbor}});
    } else if (!has(missing->nodes, neighbor)) {
      missing->nodes.push_back(neighbor);
    }
  }
  if (PyErr_Occurred()) throw PythonError();
}

// Events.

void EpidemicProtocol::accept(int64_t node, int32_t event, int64_t hops, double remaining_s) {
  State& mine = state(node);
  const EventInfo& info = events_[static_cast<size_t>(event)];
  double until_s = core_.queue.now_s + std::min({remaining_s, info.lease_s, max_lease_s_});
  deliver(node, event, hops);
  mine.buffer.push_back({event, static_cast<int32_t>(hops), until_s});
  event_states_[static_cast<size_t>(event)].status.at(static_cast<size_t>(node)) = kBuffered;
  note(node, words.code_store, "store", event, -1, nullptr);
  watch_leases(node, false);
  advertise(node, event);
}

void EpidemicProtocol::advertise(int64_t node, int32_t event) {
  State& mine = state(node);
  Nodes holders;
  auto known = entry_of(mine.holders, event);
  if (known != mine.holders.end()) {
    holders = std::move(known->nodes);
    mine.holders.erase(known);
  }
  Nodes missing;
  size_t others = 0;
  int32_t first = -1;
  for (int32_t neighbor : mine.neighbors) {
    if (has(holders, neighbor)) continue;
    if (others++ == 0) first = neighbor;
    if (!has(mine.uninformed, neighbor)) missing.push_back(neighbor);
  }
  if (others == 0) return;
  if (!missing.empty()) mine.missing.push_back({event, std::move(missing)});
  if (others == 1) {
    send_ids(node, first, kSummary, {event}, true, false);
  } else {
    send_ids(node, kNoTarget, kSummary, {event}, false, false);
  }
}

void EpidemicProtocol::start_session(int64_t node, int32_t neighbor) {
  State& mine = state(node);
  if (mine.buffer.empty()) return;
  Events ids;
  for (const Buffered& stored : mine.buffer) ids.push_back(stored.event);
  if (!has(mine.uninformed, neighbor)) mine.uninformed.push_back(neighbor);
  send_ids(node, neighbor, kSummary, ids, true, true);
}

void EpidemicProtocol::send_ids(int64_t node, int64_t target, uint16_t tag, const Events& ids, bool wants_outcome,
                                bool complete) {
  if (ids.empty()) return;
  FrameRef frame = make_native_frame(node, target, kind_of(tag), class_of(tag), &events_);
  frame->complete = complete;
  frame->set_ids(ids);
  if (wants_outcome) frame->token = Py_NewRef(Py_True);
  send(node, target, std::move(frame));
}

void EpidemicProtocol::mark_informed(State& node, int32_t neighbor, int32_t event) {
  auto missing = entry_of(node.missing, event);
  if (missing == node.missing.end()) return;
  drop(missing->nodes, neighbor);
  if (missing->nodes.empty()) node.missing.erase(missing);
}

// Requests.

void EpidemicProtocol::request(int64_t node, int32_t neighbor, const Events& ids, int32_t times) {
  State& mine = state(node);
  double due_s = core_.queue.now_s + ask_again_s_;
  for (int32_t event : ids) mine.pending.push_back({event, neighbor, times, due_s});
  send_ids(node, neighbor, kRequest, ids, false, false);
  arm_retry(node);
}

void EpidemicProtocol::arm_retry(int64_t node) {
  State& mine = state(node);
  if (mine.pending.empty() || mine.retry_armed) return;
  mine.retry_armed = true;
  arm(node, kRetry, ask_again_s_, 0);
}

void EpidemicProtocol::retry(int64_t node, const Events& ids) {
  struct Group {
    int32_t neighbor, times;
    Events ids;
  };
  State& mine = state(node);
  std::vector<Group> groups;
  std::vector<std::pair<int32_t, int32_t>> given_up;
  for (int32_t event : ids) {
    auto place = entry_of(mine.pending, event);
    Pending before = *place;
    mine.pending.erase(place);
    auto holders = entry_of(mine.holders, event);
    if (holders != mine.holders.end() && before.times < asks_) {
      int32_t chosen = holders->nodes.front();
      for (int32_t neighbor : holders->nodes) {
        if (neighbor != before.neighbor) {
          chosen = neighbor;
          break;
        }
      }
      auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& one) {
        return one.neighbor == chosen && one.times == before.times + 1;
      });
      if (group == groups.end()) {
        groups.push_back({chosen, before.times + 1, {event}});
      } else {
        group->ids.push_back(event);
      }
      continue;
    }
    if (holders != mine.holders.end()) mine.holders.erase(holders);
    if (before.times >= asks_) given_up.emplace_back(event, before.neighbor);
  }
  for (auto [event, neighbor] : given_up) note(node, words.code_drop, "drop", event, neighbor, "asks_exhausted");
  for (const Group& group : groups) request(node, group.neighbor, group.ids, group.times);
  arm_retry(node);
}

// Timers.

void EpidemicProtocol::arm(int64_t node, TimerKind kind, double delay_s, uint32_t number) {
  uint64_t data = static_cast<uint64_t>(node) << 32 | static_cast<uint64_t>(number & 0x3fffffff) << 2 | kind;
  core_.queue.at(core_.queue.now_us + delay_us(delay_s), &on_timer_, reinterpret_cast<void*>(data));
}

void EpidemicProtocol::on_timer(uint64_t data) {
  int64_t node = static_cast<int64_t>(data >> 32);
  State& mine = state(node);
  switch (static_cast<TimerKind>(data & 3)) {
    case kLease:
      // Otherwise the timer was armed again, for an earlier lease.
      if ((mine.lease_number & 0x3fffffff) == (data >> 2 & 0x3fffffff)) expire(node);
      return;
    case kRetry: {
      mine.retry_armed = false;
      Events overdue;
      for (const Pending& pending : mine.pending) {
        if (pending.due_s <= core_.queue.now_s) overdue.push_back(pending.event);
      }
      retry(node, overdue);
      return;
    }
    case kRepeat: return repeat_summaries(node);
  }
}

void EpidemicProtocol::watch_leases(int64_t node, bool again) {
  State& mine = state(node);
  if (again) mine.lease_armed = false;
  if (mine.buffer.empty()) return;
  double end_s = mine.lease_armed ? std::min(mine.lease_s, mine.buffer.back().until_s) : mine.buffer.front().until_s;
  if (!mine.lease_armed) {
    for (const Buffered& stored : mine.buffer) end_s = std::min(end_s, stored.until_s);
  }
  if (mine.lease_armed && !(end_s < mine.lease_s)) return;
  mine.lease_armed = true;
  mine.lease_s = end_s;
  arm(node, kLease, std::max(0.0, end_s - core_.queue.now_s), ++mine.lease_number);
}

void EpidemicProtocol::expire(int64_t node) {
  State& mine = state(node);
  double now_s = core_.queue.now_s;
  std::vector<Buffered> expired;
  for (const Buffered& stored : mine.buffer) {
    if (stored.until_s <= now_s) expired.push_back(stored);
  }
  // In the order of their ends, then of their ids.
  std::stable_sort(expired.begin(), expired.end(), [this](const Buffered& a, const Buffered& b) {
    if (a.until_s != b.until_s) return a.until_s < b.until_s;
    const PairId &one = events_[static_cast<size_t>(a.event)].id, &other = events_[static_cast<size_t>(b.event)].id;
    return one.first != other.first ? one.first < other.first : one.second < other.second;
  });
  auto is_expired = [now_s](const Buffered& stored) { return stored.until_s <= now_s; };
  mine.buffer.erase(std::remove_if(mine.buffer.begin(), mine.buffer.end(), is_expired), mine.buffer.end());
  for (const Buffered& stored : expired) forget(node, stored);
  watch_leases(node, true);
}

void EpidemicProtocol::forget(int64_t node, const Buffered& stored) {
  State& mine = state(node);
  EventState& of_event = event_states_[static_cast<size_t>(stored.event)];
  uint8_t& status = of_event.status.at(static_cast<size_t>(node));
  Latest& latest = latest_[node];
  auto [seen, is_first] = of_event.seen.try_emplace(static_cast<int32_t>(node));
  // An id that is still remembered keeps its end.
  bool keeps = !is_first && is_remembered(node, seen->second) && seen->second.until_s > core_.queue.now_s;
  latest = {core_.queue.now_s, latest.number + 1};
  if (!keeps) seen->second = {stored.until_s + seen_grace_s_, latest.number};
  status = kSeen;
  note(node, words.code_evict, "evict", stored.event, -1, "lease_over");
  auto missing = entry_of(mine.missing, stored.event);
  if (missing != mine.missing.end()) mine.missing.erase(missing);
}

void EpidemicProtocol::repeat_summaries(int64_t node) {
  State& mine = state(node);
  mine.repeat_armed = !mine.neighbors.empty();
  if (mine.repeat_armed) arm(node, kRepeat, tell_again_s_, 0);
  // Sending changes no neighbor.
  for (int32_t neighbor : mine.neighbors) {
    if (has(mine.uninformed, neighbor)) {
      start_session(node, neighbor);
    } else if (!mine.missing.empty()) {
      Events ids;
      for (const EventNodes& missing : mine.missing) {
        if (has(missing.nodes, neighbor)) ids.push_back(missing.event);
      }
      send_ids(node, neighbor, kSummary, ids, true, false);
    }
  }
}

}  // namespace carrycast
