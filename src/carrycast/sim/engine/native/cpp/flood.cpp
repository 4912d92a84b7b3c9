#include "flood.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core.h"

namespace carrycast {

namespace {
constexpr uint16_t kTag = 1;  // Of FloodedEvent and of GossipedEvent.
}

FloodProtocol::FloodProtocol(Core& core, const char* name, PyObject* settings, PyObject* make_rng, PyObject* messages)
    : NativeProtocol(core, make_rng, messages),
      draws_(std::strcmp(name, "gossip") == 0),
      remembered_s_(setting(settings, "remembered_s")),
      flood_s_(setting(settings, "flood_s")),
      jitter_s_(setting(settings, "jitter_s")),
      forever_s_(setting(settings, "forever_s")),
      max_hops_(static_cast<int64_t>(setting(settings, "max_hops"))),
      purged_s_(core.nodes.size(), -std::numeric_limits<double>::infinity()) {
  if (draws_) {
    p_ = setting(settings, "p");
    sure_hops_ = static_cast<int64_t>(setting(settings, "sure_hops"));
  }
}

void FloodProtocol::on_publish(int64_t node, int32_t event) {
  received_us_.emplace_back(core_.nodes.size());
  if (accept(node, event, 0)) {
    forward(node, event, 1, bound_lease_s(event, events_[static_cast<size_t>(event)].lease_s));
  }
}

void FloodProtocol::on_message(int64_t node, const Frame& frame, double remaining_s) {
  int32_t event = frame.number;
  if (is_seen(node, event)) return;
  double lease_s = events_[static_cast<size_t>(event)].lease_s;
  if (lease_s < forever_s_ && lease_s - remaining_s >= flood_s_) {
    // Other nodes may have forgotten the event, and would take it for new.
    note(node, words.code_drop, "drop", event, -1, "flood_over");
    return;
  }
  if (!accept(node, event, frame.hops)) return;
  // One draw per event whatever the hops, as in gossip's Python class.
  bool drawn = !draws_ || random_of(node).draw() < p_;
  if (drawn || frame.hops <= sure_hops_) forward(node, event, frame.hops + 1, bound_lease_s(event, remaining_s));
}

bool FloodProtocol::is_seen(int64_t node, int32_t event) const {
  int64_t received = received_us_[static_cast<size_t>(event)].get(static_cast<size_t>(node));
  if (received == 0) return false;
  double until_s = static_cast<double>(received - 1) / kUsPerSecond + remembered_s_;
  return until_s > purged_s_[static_cast<size_t>(node)];
}

bool FloodProtocol::accept(int64_t node, int32_t event, int64_t hops) {
  purged_s_[static_cast<size_t>(node)] = core_.queue.now_s;
  if (is_seen(node, event)) return false;
  received_us_[static_cast<size_t>(event)].at(static_cast<size_t>(node)) = core_.queue.now_us + 1;
  deliver(node, event, hops);
  return true;
}

double FloodProtocol::bound_lease_s(int32_t event, double remaining_s) const {
  return events_[static_cast<size_t>(event)].lease_s < forever_s_ ? remaining_s : std::min(remaining_s, flood_s_);
}

void FloodProtocol::forward(int64_t node, int32_t event, int64_t hops, double remaining_s) {
  if (hops > max_hops_) {
    note(node, words.code_drop, "drop", event, -1, "too_many_hops");
    return;
  }
  if (jitter_s_ == 0) {
    broadcast(node, event, hops, remaining_s);
    return;
  }
  double delay_s = jitter_s_ * random_of(node).draw();
  auto* delayed = new Delayed{node, event, hops, remaining_s, core_.queue.now_s};
  core_.queue.at(core_.queue.now_us + delay_us(delay_s), &on_relay_, delayed);
}

void FloodProtocol::RelayAction::fire(void* data) {
  std::unique_ptr<Delayed> delayed(static_cast<Delayed*>(data));
  flood_.relay(*delayed);
}

void FloodProtocol::relay(const Delayed& delayed) {
  double waited_s = core_.queue.now_s - delayed.since_s;
  double left_s = waited_s == 0.0 ? delayed.remaining_s : delayed.remaining_s - waited_s;
  if (waited_s != 0.0 && !(left_s > 0)) {
    note(delayed.node, words.code_drop, "drop", delayed.event, -1, "lease_over");
  } else {
    broadcast(delayed.node, delayed.event, delayed.hops, left_s);
  }
}

void FloodProtocol::broadcast(int64_t node, int32_t event, int64_t hops, double remaining_s) {
  send(node, kNoTarget, make_event_frame(node, kNoTarget, kTag, event, hops, remaining_s));
}

}  // namespace carrycast
