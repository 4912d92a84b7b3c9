#include "beacons.h"

#include <algorithm>

#include "core.h"

namespace carrycast {

namespace {
constexpr size_t kMaxNeighbors = 4096;  // MAX_NEIGHBORS of discovery.
}

Beacons::Beacons(Core& core, const BeaconSettings& settings, PyObject* beacon_class)
    : core_(core), settings_(settings), beacon_class_(Ref::borrow(beacon_class)), states_(core.nodes.size()) {}

void Beacons::start(int64_t node, double now_s, int64_t incarnation, PyObject* generator,
                    std::vector<Medium*> interfaces) {
  auto made = std::make_unique<State>();
  made->boot = ++boots_;
  made->incarnation = incarnation;
  made->interfaces = std::move(interfaces);
  made->random.take_over(generator);
  Ref period = Ref::steal(PyFloat_FromDouble(settings_.period_s));
  made->beacon = call(beacon_class_.get(), period.get(), from_int(incarnation).get());
  made->body = call(core_.codecs[kDiscovery].encode_body.get(), made->beacon.get());
  states_[static_cast<size_t>(node)] = std::move(made);
  // The first beacon is sent at a random time in the first period.
  schedule_beacon(node, now_s, settings_.period_s * state(node)->random.draw());
}

void Beacons::stop(int64_t node) { states_[static_cast<size_t>(node)].reset(); }

void Beacons::on_timer(const Due& due) {
  State* mine = state(due.node);
  if (mine == nullptr || mine->boot != due.boot) return;
  double now_s = core_.seconds_of(due.node);
  if (now_s - mine->due_s > settings_.period_s) extend_deadlines(*mine, now_s);
  if (due.kind == kBeacon) {
    send_beacon(due.node, now_s);
  } else {
    mine->watching = false;
    drop_expired(due.node, now_s);
  }
  report_changes(due.node, now_s);
}

void Beacons::on_beacon(int64_t node, double now_s, const Frame& frame) {
  State& mine = *state(node);
  const Medium* medium = core_.media.size() == 1 ? core_.media.front().get() : core_.medium_named(frame.interface);
  auto find = [&] {
    return std::find_if(mine.neighbors.begin(), mine.neighbors.end(), [&](const Neighbor& one) {
      return one.id == frame.sender && one.medium == medium;
    });
  };
  auto known = find();
  if (known != mine.neighbors.end() && known->incarnation != frame.hops) {
    // A restarted neighbor has lost its state, however short the outage: it is a new neighbor.
    lose(mine, frame.sender, medium, words.restarted);
    known = mine.neighbors.end();
  }
  if (known == mine.neighbors.end() && mine.neighbors.size() >= kMaxNeighbors) {
    note(node, frame.sender, "beacon_too_many_neighbors", nullptr);
    report_changes(node, now_s);
    return;
  }
  double believed_s = limit_period_s(frame.remaining_s);
  double deadline_s = now_s + believed_s * settings_.missed;
  if (known != mine.neighbors.end()) {
    known->deadline_s = deadline_s;
  } else {
    if (believed_s < frame.remaining_s) note(node, frame.sender, "beacon_period_too_long", &frame.remaining_s);
    Medium* over = core_.medium_named(frame.interface);
    Ref link = core_.make_link(node, frame.sender, *over);
    mine.neighbors.push_back({frame.sender, over, deadline_s, frame.hops, link});
    mine.changes.push_back({frame.sender, link, nullptr});
  }
  watch(node, now_s);
  if (!mine.changes.empty()) report_changes(node, now_s);
}

void Beacons::on_neighbor_failed(int64_t node, int64_t neighbor, PyObject* interface, PyObject* cause) {
  State* mine = state(node);
  if (mine == nullptr) return;
  lose(*mine, neighbor, core_.medium_named(interface), cause);
  report_changes(node, core_.seconds_of(node));
}

bool Beacons::knows(int64_t node, int64_t neighbor, PyObject* interface) const {
  const State* mine = state(node);
  const Medium* medium = core_.medium_named(interface);
  return mine != nullptr && std::any_of(mine->neighbors.begin(), mine->neighbors.end(), [&](const Neighbor& one) {
           return one.id == neighbor && one.medium == medium;
         });
}

double Beacons::limit_period_s(double period_s) const {
  return std::min(period_s, std::max(settings_.believed_s, settings_.period_s));
}

void Beacons::extend_deadlines(State& mine, double now_s) {
  double late_s = now_s - mine.due_s;
  mine.due_s = now_s;
  double latest_s = now_s + settings_.period_s * settings_.missed;
  for (Neighbor& one : mine.neighbors) {
    one.deadline_s = std::max(one.deadline_s, std::min(one.deadline_s + late_s, latest_s));
  }
}

void Beacons::send_beacon(int64_t node, double now_s) {
  State& mine = *state(node);
  for (Medium* medium : mine.interfaces) {
    const MessageKind& kind = MessageKind::of(mine.beacon.get());
    FrameRef frame = make_native_frame(node, kNoTarget, kind, nullptr, nullptr);
    frame->layer = kDiscovery;
    frame->codec = &core_.codecs[kDiscovery];
    frame->message = Py_NewRef(mine.beacon.get());
    frame->body = Py_NewRef(mine.body.get());
    frame->interface = Py_NewRef(medium->interface.get());
    frame->size_bytes = words.header_bytes + static_cast<int64_t>(PyBytes_GET_SIZE(mine.body.get()));
    frame->sent_us = core_.queue.now_us;
    frame->remaining_s = settings_.period_s;
    frame->hops = mine.incarnation;
    medium->transmit(std::move(frame));
  }
  double spread = settings_.jitter * (2 * mine.random.draw() - 1);
  schedule_beacon(node, now_s, settings_.period_s * (1 + spread));
}

void Beacons::schedule_beacon(int64_t node, double now_s, double delay_s) {
  state(node)->due_s = now_s + delay_s;
  arm(node, kBeacon, delay_s);
}

void Beacons::watch(int64_t node, double now_s) {
  State& mine = *state(node);
  if (mine.watching || mine.neighbors.empty()) return;
  mine.watching = true;
  double first_s = mine.neighbors.front().deadline_s;
  for (const Neighbor& one : mine.neighbors) first_s = std::min(first_s, one.deadline_s);
  arm(node, kSilence, std::max(0.0, first_s - now_s));
}

void Beacons::drop_expired(int64_t node, double now_s) {
  State& mine = *state(node);
  std::vector<std::pair<int64_t, Medium*>> expired;
  for (const Neighbor& one : mine.neighbors) {
    if (one.deadline_s <= now_s) expired.emplace_back(one.id, one.medium);
  }
  for (auto [neighbor, medium] : expired) lose(mine, neighbor, medium, words.silent);
  watch(node, now_s);
}

void Beacons::lose(State& mine, int64_t neighbor, const Medium* medium, PyObject* cause) {
  auto place = std::find_if(mine.neighbors.begin(), mine.neighbors.end(), [&](const Neighbor& one) {
    return one.id == neighbor && one.medium == medium;
  });
  if (place == mine.neighbors.end()) return;
  mine.changes.push_back({neighbor, place->link, cause});
  mine.neighbors.erase(place);
}

void Beacons::arm(int64_t node, TimerKind kind, double delay_s) {
  core_.queue.at(core_.queue.now_us + delay_us(core_.stretch(node, delay_s)), &on_timer_,
                 new Due{node, kind, state(node)->boot});
}

void Beacons::report_changes(int64_t node, double now_s) {
  State* mine = state(node);
  if (mine == nullptr || mine->changes.empty()) return;
  std::vector<Change> changes = std::move(mine->changes);
  mine->changes.clear();
  Ref time = Ref::steal(PyFloat_FromDouble(now_s));
  for (const Change& change : changes) {
    core_.record_link(node, change.link.get(), change.neighbor, change.cause);
    core_.call_link_handlers(node, time.get(), change.link.get(), change.cause);
  }
  core_.run_queued_of(node, time.get());
}

void Beacons::note(int64_t node, int64_t sender, const char* reason, const double* value) {
  Ref kind = Ref::steal(PyUnicode_InternFromString("drop"));
  Ref peer = from_int(sender);
  Ref why = Ref::steal(PyUnicode_FromString(reason));
  Ref amount = value == nullptr ? Ref::borrow(Py_None) : Ref::steal(PyFloat_FromDouble(*value));
  Ref fact = call(words.fact, kind.get(), Py_None, peer.get(), why.get(), amount.get());
  core_.note(node, kDiscovery, fact.get());
}

}  // namespace carrycast
