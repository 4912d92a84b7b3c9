#include "csma.h"

#include <algorithm>
#include <cmath>

namespace carrycast {

namespace {

// Whether a frame is a router's own message and not a packet that it carries.
bool is_routing(const Frame& frame) {
  return frame.layer == kRouting && frame.kind->carries != MessageKind::kParcel;
}

Ref reason(const char* text) { return Ref::steal(PyUnicode_InternFromString(text)); }

}  // namespace

CsmaSettings read_csma_settings(PyObject* named) {
  auto find = [named](const char* name) {
    PyObject* found = PyDict_GetItemString(named, name);
    if (found == nullptr) {
      PyErr_Format(PyExc_KeyError, "the setting %s is missing", name);
      throw PythonError();
    }
    return found;
  };
  CsmaSettings settings{};
  const std::pair<int64_t*, const char*> integers[] = {
      {&settings.slot_us, "slot_us"},
      {&settings.sifs_us, "sifs_us"},
      {&settings.difs_us, "difs_us"},
      {&settings.eifs_us, "eifs_us"},
      {&settings.sense_us, "sense_us"},
      {&settings.rts_us, "rts_us"},
      {&settings.cts_us, "cts_us"},
      {&settings.sifs_ack_us, "sifs_ack_us"},
      {&settings.cts_timeout_us, "cts_timeout_us"},
      {&settings.ack_timeout_us, "ack_timeout_us"},
      {&settings.cw_min, "cw_min"},
      {&settings.cw_max, "cw_max"},
      {&settings.retry_limit, "retry_limit"},
      {&settings.long_retry_limit, "long_retry_limit"},
      {&settings.plcp_us, "plcp_us"},
      {&settings.overhead_bytes, "overhead_bytes"},
      {&settings.rts_threshold_bytes, "rts_threshold_bytes"},
      {&settings.queue, "queue"}};
  for (const auto& [place, name] : integers) *place = to_int(find(name));
  const std::pair<double*, const char*> reals[] = {{&settings.data_rate_bps, "data_rate_bps"},
                                                   {&settings.basic_rate_bps, "basic_rate_bps"},
                                                   {&settings.capture, "capture"},
                                                   {&settings.cost_s, "cost_s"}};
  for (const auto& [place, name] : reals) *place = to_double(find(name));
  settings.routing_first = is_true(find("routing_first"));
  settings.busy_slot_counts = is_true(find("busy_slot_counts"));
  return settings;
}

Vicinity::Vicinity(size_t nodes, Queue& queue, ContactChanges changes)
    : others_(nodes), queue_(queue), changes_(std::move(changes)) {
  play();
}

void Vicinity::add_around(int64_t node, NodeBits& bits) const {
  bits.add(node);
  for (int32_t other : others_[static_cast<size_t>(node)]) bits.add(other);
}

void Vicinity::play() {
  for (; next_ < changes_.time_us.size(); next_++) {
    if (changes_.time_us[next_] > queue_.now_us) {
      queue_.at(changes_.time_us[next_], &on_change_, nullptr);
      return;
    }
    set_contact(changes_.a[next_], changes_.b[next_], changes_.up[next_] != 0);
  }
}

void Vicinity::set_contact(int32_t a, int32_t b, bool up) {
  auto change = [this, up](int32_t node, int32_t other) {
    std::vector<int32_t>& others = others_[static_cast<size_t>(node)];
    auto place = std::find(others.begin(), others.end(), other);
    if (up && place == others.end()) {
      others.push_back(other);
    } else if (!up && place != others.end()) {
      *place = others.back();
      others.pop_back();
    }
  };
  change(a, b);
  change(b, a);
}

CsmaMedium::CsmaMedium(const CsmaSettings& settings, PyObject* interface, size_t nodes, Queue& queue,
                       MediumUpcalls& air, PyObject* generator, Places* places, ContactChanges sensed,
                       std::unique_ptr<ContactChanges> interfering)
    : Medium(interface, nodes), settings_(settings), queue_(queue), air_(air), stations_(nodes),
      sensing_(nodes, queue, std::move(sensed)),
      interference_(interfering ? std::make_unique<Vicinity>(nodes, queue, std::move(*interfering)) : nullptr),
      ether_(settings_, nodes, queue, places),
      contention_(settings_, stations_, ether_, queue, generator, *this) {
  for (size_t node = 0; node < nodes; node++) {
    stations_[node].node = static_cast<int64_t>(node);
    stations_[node].reset(settings_.cw_min);
  }
  collision_reason_ = reason("collision");
  reserved_reason_ = reason("reserved");
  sender_down_reason_ = reason("sender_down");
  topology.on_node_down = [this](int64_t node) { forget(node); };
}

void CsmaMedium::transmit(FrameRef frame) {
  CsmaStation& station = station_of(frame->sender);
  std::deque<FrameRef>& queue = station.queue;
  bool ahead = settings_.routing_first && is_routing(*frame);
  if (static_cast<int64_t>(queue.size()) > settings_.queue) {
    // [ns-2.35: queue/priqueue.cc] A frame with priority replaces the last one of the queue.
    FrameRef refused = frame;
    if (ahead) {
      refused = queue.back();
      queue.pop_back();
    }
    air_.on_lost(*refused, refused->sender, words.queue_full);
    // Reported from the event queue, because a handler must not be re-entered while it is sending.
    if (refused->token != nullptr) queue_.at(queue_.now_us, &on_refusal_, refused.release());
    if (!ahead) return;
  }
  frame->attempts = 0;
  if (ahead && !queue.empty()) {
    // Behind the frame being sent, which has already left a real interface queue.
    queue.insert(queue.begin() + 1, std::move(frame));
    return;
  }
  queue.push_back(std::move(frame));
  if (queue.size() == 1) contention_.wake(station);
}

void CsmaMedium::forget(int64_t node) {
  CsmaStation& station = station_of(node);
  for (const FrameRef& frame : station.queue) air_.on_lost(*frame, node, sender_down_reason_.get());
  station.queue.clear();
  station.epoch++;
  station.reset(settings_.cw_min);
  contention_.forget(station);
}

// Transmissions.

int64_t CsmaMedium::message_us(const Frame& frame, double rate_bps) const {
  double bytes = static_cast<double>(frame.size_bytes + settings_.overhead_bytes);
  return settings_.plcp_us + static_cast<int64_t>(std::ceil(bytes * 8e6 / rate_bps));
}

int64_t CsmaMedium::airtime_us(const Frame& frame) const {
  if (!frame.has_target()) return message_us(frame, settings_.basic_rate_bps);
  int64_t attempt_us = unicast_us(frame) + settings_.sifs_ack_us;
  if (uses_rts(frame)) attempt_us += settings_.rts_us + settings_.cts_us + 2 * settings_.sifs_us;
  return frame.attempts * attempt_us;
}

void CsmaMedium::send(CsmaStation& station) {
  FrameRef frame = station.queue.front();
  int64_t now_us = queue_.now_us;
  if (!frame->has_target()) {
    int64_t broadcast_us = message_us(*frame, settings_.basic_rate_bps);
    begin(kBroadcast, station.node, station, frame, now_us, broadcast_us);
  } else if (uses_rts(*frame)) {
    begin(kRts, station.node, station, frame, now_us, settings_.rts_us);
  } else {
    begin(kDataFrame, station.node, station, frame, now_us, unicast_us(*frame));
  }
}

void CsmaMedium::begin(FrameKind kind, int64_t sender, CsmaStation& owner, const FrameRef& frame, int64_t start_us,
                       int64_t airtime_us) {
  Transmission& made = *ether_.make();
  made.kind = kind;
  made.sender = sender;
  made.owner = &owner;
  made.epoch = owner.epoch;
  made.frame = frame;
  made.start_us = start_us;
  made.end_us = start_us + airtime_us;
  for (int32_t node : topology.reach(sender)) made.receivers.add(node);
  sensing_.add_around(sender, made.sensed);
  if (interference_) {
    interference_->add_around(sender, made.interfered);
  } else {
    made.interfered = made.sensed;
  }
  if (kind <= kDataFrame) frame->attempts++;
  ether_.begin(made);
  contention_.freeze(made);
  queue_.at(made.end_us, &on_end_, &made);
}

void CsmaMedium::end(Transmission& transmission) {
  ether_.end(transmission);
  contention_.gather(transmission);
  if (transmission.epoch == transmission.owner->epoch) {
    switch (transmission.kind) {
      case kBroadcast: end_broadcast(transmission); break;
      case kDataFrame: end_data(transmission); break;
      case kAck: end_ack(transmission); break;
      case kRts: end_rts(transmission); break;
      case kCts: end_cts(transmission); break;
    }
  }
  contention_.resume(transmission);
  ether_.release(&transmission);
}

void CsmaMedium::end_broadcast(Transmission& transmission) {
  Frame& frame = *transmission.frame;
  advance(*transmission.owner);
  NodeSpan reach = topology.reach(transmission.sender);
  if (!transmission.has_collided) {
    air_.on_received(frame, reach);
    return;
  }
  std::vector<int32_t> missed, heard;
  for (int32_t node : reach) (transmission.collided.has(node) ? missed : heard).push_back(node);
  if (!missed.empty()) air_.on_missed(frame, {missed.data(), missed.size()}, collision_reason_.get());
  air_.on_received(frame, {heard.data(), heard.size()});
}

void CsmaMedium::end_data(Transmission& transmission) {
  FrameRef frame = transmission.frame;
  CsmaStation& station = *transmission.owner;
  PyObject* failure = find_failure(transmission, frame->target);
  reserve(transmission, frame->target, transmission.end_us + settings_.sifs_ack_us);
  if (promiscuous) {
    std::vector<int32_t> others;
    for (int32_t node : topology.reach(transmission.sender)) {
      if (node != frame->target && !transmission.collided.has(node)) others.push_back(node);
    }
    air_.on_overheard(*frame, {others.data(), others.size()});
  }
  if (failure != nullptr) {
    await_timeout(transmission, failure, settings_.ack_timeout_us);
    return;
  }
  int64_t start_us = transmission.end_us + settings_.sifs_us;
  begin(kAck, frame->target, station, frame, start_us, settings_.sifs_ack_us - settings_.sifs_us);
  if (station.heard == 0) {
    // Only the first reception is passed up; a retransmission after a lost ACK is not.
    station.heard = frame->attempts;
    int32_t target = static_cast<int32_t>(frame->target);
    air_.on_received(*frame, {&target, 1});
  }
}

void CsmaMedium::end_ack(Transmission& transmission) {
  CsmaStation& station = *transmission.owner;
  station.failure = find_failure(transmission, station.node);
  if (station.failure != nullptr) {
    fail(station, transmission.epoch);
  } else {
    finish(station, nullptr);
  }
}

void CsmaMedium::end_rts(Transmission& transmission) {
  CsmaStation& station = *transmission.owner;
  int64_t target = transmission.frame->target, end_us = transmission.end_us;
  PyObject* failure = find_failure(transmission, target);
  int64_t after_us = settings_.sifs_us + unicast_us(*transmission.frame) + settings_.sifs_ack_us;
  // The NAV of the target before this RTS decides.
  if (failure == nullptr && station_of(target).nav_us > end_us) failure = reserved_reason_.get();
  reserve(transmission, target, end_us + settings_.sifs_us + settings_.cts_us + after_us);
  if (failure != nullptr) {
    await_timeout(transmission, failure, settings_.cts_timeout_us);
    return;
  }
  begin(kCts, target, station, transmission.frame, end_us + settings_.sifs_us, settings_.cts_us);
}

void CsmaMedium::end_cts(Transmission& transmission) {
  CsmaStation& station = *transmission.owner;
  int64_t data_us = unicast_us(*transmission.frame);
  reserve(transmission, station.node, transmission.end_us + settings_.sifs_us + data_us + settings_.sifs_ack_us);
  station.failure = find_failure(transmission, station.node);
  if (station.failure != nullptr) {
    fail(station, transmission.epoch);
    return;
  }
  // [IEEE 802.11-1999 §9.2.5.3] The RTS has been answered: the retry counter is reset, the window is not.
  station.rts_answered = true;
  station.short_retries = 0;
  begin(kDataFrame, station.node, station, transmission.frame, transmission.end_us + settings_.sifs_us, data_us);
}

PyObject* CsmaMedium::find_failure(const Transmission& transmission, int64_t node) const {
  if (!topology.is_linked(transmission.sender, node)) return words.out_of_reach;
  return transmission.collided.has(node) ? collision_reason_.get() : nullptr;
}

void CsmaMedium::reserve(const Transmission& transmission, int64_t partner, int64_t until_us) {
  for (size_t i = 0; i < transmission.receivers.size(); i++) {
    uint64_t receivers = transmission.receivers[i] & ~transmission.collided[i];
    NodeBits::visit_word(i, receivers, [&](int64_t node) {
      CsmaStation& station = station_of(node);
      if (station.nav_us >= until_us || node == partner) return;
      if (station.slots != 0 && station.queue.empty()) {
        contention_.reserve(station, until_us);
      } else {
        station.nav_us = until_us;
      }
    });
  }
}

// Outcomes.

void CsmaMedium::await_timeout(const Transmission& transmission, PyObject* failure, int64_t timeout_us) {
  transmission.owner->failure = failure;
  if (timeout_us == 0) {
    fail(*transmission.owner, transmission.epoch);
  } else {
    queue_.at(transmission.end_us + timeout_us, &on_timeout_, new Attempt{transmission.owner, transmission.epoch});
  }
}

void CsmaMedium::TimeoutAction::fire(void* data) {
  std::unique_ptr<Attempt> attempt(static_cast<Attempt*>(data));
  medium_.fail(*attempt->station, attempt->epoch);
}

void CsmaMedium::fail(CsmaStation& station, int64_t epoch) {
  if (epoch != station.epoch) return;
  (station.rts_answered ? station.long_retries : station.short_retries)++;
  station.rts_answered = false;
  if (station.short_retries >= settings_.retry_limit || station.long_retries >= settings_.long_retry_limit) {
    finish(station, words.unreachable);
    return;
  }
  station.window = std::min(2 * station.window + 1, settings_.cw_max);
  contention_.contend(station, contention_.draw(station.window));
}

std::vector<FrameRef> CsmaMedium::withdraw(CsmaStation& station, int64_t target) {
  std::vector<FrameRef> waited;
  std::deque<FrameRef> kept{station.queue.front()};
  for (size_t i = 1; i < station.queue.size(); i++) {
    FrameRef& behind = station.queue[i];
    if (behind->target == target) {
      waited.push_back(std::move(behind));
    } else {
      kept.push_back(std::move(behind));
    }
  }
  station.queue = std::move(kept);
  return waited;
}

void CsmaMedium::finish(CsmaStation& station, PyObject* failure) {
  FrameRef frame = station.queue.front();
  int64_t heard = station.heard;
  PyObject* last_failure = station.failure;
  std::vector<FrameRef> waited;
  if (failure != nullptr) waited = withdraw(station, frame->target);
  station.reset(settings_.cw_min);
  advance(station);
  if (heard == 0) {
    frame->lost = true;
    air_.on_lost(*frame, frame->target, last_failure);
    if (frame->attempts != 0) air_.on_received(*frame, {});
  } else if (frame->attempts > heard) {
    // A copy that stands for the attempts after the target received the frame.
    FrameRef again = frame_to(*frame, frame->target);
    again->attempts = frame->attempts - heard;
    air_.on_received(*again, {});
  }
  if (failure != nullptr) {
    for (const FrameRef& behind : waited) air_.on_lost(*behind, station.node, failure);
    waited.insert(waited.begin(), frame);
    air_.on_unreachable(waited);
  } else if (frame->token != nullptr) {
    air_.on_outcome(*frame, nullptr);
  }
}

void CsmaMedium::advance(CsmaStation& station) {
  station.queue.pop_front();
  int64_t slots = contention_.draw(station.window);
  if (station.queue.empty()) {
    contention_.rest(station, slots);
  } else {
    contention_.contend(station, slots);
  }
}

void CsmaMedium::RefusalAction::fire(void* data) {
  FrameRef refused(static_cast<Frame*>(data));
  medium_.air_.on_outcome(*refused, words.queue_full);
}

}  // namespace carrycast
