// Packets, and reactions to broken links, as in routers/aodv/router.py and state.py.
#include "aodv.h"

#include <algorithm>

namespace carrycast {

AodvClasses aodv_classes;

namespace {

PyObject* event_of(const AodvTransit& transit) { return fields.parcel_event.get(transit.parcel.get()); }

// One more than a sequence number, unless it is the last one.
int64_t after(int64_t sequence, int64_t most) { return sequence < most ? sequence + 1 : most; }

}  // namespace

Aodv::Aodv(const AodvSettings& settings, const RouterContext& context)
    : settings_(settings), core_(context.core), node_(context.node), incarnation_(context.incarnation),
      up_(Ref::borrow(context.up)), table_(settings.delete_period_s, settings.max_routes, settings.max_sequence),
      sequence_((context.incarnation << 32) + 1), next_rreq_id_((context.incarnation << 32) + 1),
      rreq_limit_(settings.request_rate), error_limit_(settings.error_rate) {
  random_.take_over(context.generator);
}

int Aodv::traverse(visitproc visit, void* arg) {
  Py_VISIT(up_.get());
  return 0;
}

void Aodv::clear() {
  up_ = Ref();
  unconfirmed_.clear();
  buffer_.clear();
}

void Aodv::on_start(double) {
  if (settings_.reboot_wait && incarnation_ > 0) start_reboot_wait();
  start_hellos();
}

void Aodv::on_stop(double) {
  while (!pending_.empty()) finish_discovery(pending_.begin()->first);
  cancel_timer("reboot");
  for (const auto& delayed : delayed_) cancel_timer("forward", delayed.first);
  delayed_.clear();
  cancel_timer("hello");
  for (const auto& monitored : monitored_) cancel_timer("neighbor", monitored.first);
  monitored_.clear();
}

int64_t Aodv::hops_to(double now, int64_t node) const {
  if (node == node_) return 0;
  const RouteEntry* entry = table_.find_valid(now, node);
  return entry == nullptr ? -1 : entry->hop_count;
}

// Packets.

void Aodv::on_route(double now, PyObject* target, PyObject* parcel) {
  Transits own;
  add_packet(now, target, parcel, own);
  forward_each(now, own);
}

void Aodv::on_route_each(double now, PyObject* targets, PyObject* parcel) {
  Ref sequence = Ref::steal(PySequence_Fast(targets, "targets are a sequence"));
  Transits own;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); i++) {
    add_packet(now, PySequence_Fast_GET_ITEM(sequence.get(), i), parcel, own);
  }
  forward_each(now, own);
}

void Aodv::add_packet(double now, PyObject* target, PyObject* parcel, Transits& packets) {
  bool is_place = reinterpret_cast<PyObject*>(Py_TYPE(target)) == aodv_classes.place;
  PyObject* named = is_place ? item(target, 2) : target;
  if (named == Py_None) {
    drop(interned("place_without_node"), -1, fields.parcel_event.get(parcel));
    call_method(up_.get(), "report_unreachable", target, parcel);
    return;
  }
  int64_t node = to_int(named);
  if (node == node_) {
    call_method(up_.get(), "deliver_packet", named, parcel, from_int(0).get());
    return;
  }
  AodvTransit transit;
  transit.parcel = Ref::borrow(parcel);
  transit.origin = node_;
  transit.destination = node;
  transit.hops = 1;
  transit.target = Ref::borrow(target);
  transit.received_at = now;
  transit.buffered_until = now + settings_.buffer_s;
  packets.push_back(std::move(transit));
}

void Aodv::on_packet(double now, int64_t sender, PyObject* message, bool is_bundle) {
  const AodvPacketFields& packet = is_bundle ? aodv_classes.bundle_fields : aodv_classes.packet_fields;
  Ref parcel = Ref::borrow(packet.parcel.get(message));
  PyObject* event = fields.parcel_event.get(parcel.get());
  int64_t origin = to_int(packet.origin.get(message)), hops = to_int(packet.hops.get(message));
  if (origin == node_) {
    drop(interned("packet_returned"), sender, event);
    return;
  }
  std::vector<int64_t> destinations{to_int(packet.destination.get(message))};
  if (is_bundle) {
    PyObject* others = aodv_classes.bundle_others.get(message);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(others); i++) {
      int64_t other = to_int(PyTuple_GET_ITEM(others, i));
      if (std::find(destinations.begin(), destinations.end(), other) == destinations.end()) destinations.push_back(other);
    }
  }
  auto own = std::find(destinations.begin(), destinations.end(), node_);
  if (own != destinations.end()) {
    destinations.erase(own);
    extend_reverse_routes(now, sender, origin);
    call_method(up_.get(), "deliver_packet", from_int(origin).get(), parcel.get(), from_int(hops).get());
  }
  if (destinations.empty()) return;
  if (hops >= settings_.max_hops) {
    drop(interned("hops_exhausted"), sender, event);
    return;
  }
  extend_reverse_routes(now, sender, origin);
  Transits onward;
  for (int64_t destination : destinations) {
    AodvTransit transit;
    transit.parcel = parcel;
    transit.origin = origin;
    transit.destination = destination;
    transit.hops = hops + 1;
    transit.target = from_int(destination);
    transit.previous_hop = sender;
    transit.received_at = now;
    transit.buffered_until = now + settings_.buffer_s;
    onward.push_back(std::move(transit));
  }
  forward_each(now, onward);
}

// [RFC 6.2] A packet prolongs the routes to its origin and to the previous hop.
void Aodv::extend_reverse_routes(double now, int64_t sender, int64_t origin) {
  double expires_at = now + settings_.active_route_timeout_s;
  table_.extend_lifetime(now, sender, expires_at);
  const RouteEntry* reverse = table_.find(now, origin);
  if (reverse != nullptr && (!reverse->valid || reverse->next_hop == sender)) {
    table_.extend_lifetime(now, origin, expires_at);
  }
}

void Aodv::forward_each(double now, const Transits& transits) {
  if (transits.size() == 1) {
    forward(now, transits.front());
    return;
  }
  std::vector<std::pair<int64_t, std::vector<const AodvTransit*>>> by_next_hop;
  for (const AodvTransit& transit : transits) {
    const RouteEntry* route = table_.find_valid(now, transit.destination);
    if (route == nullptr) continue;
    int64_t next_hop = route->next_hop;
    auto place = std::find_if(by_next_hop.begin(), by_next_hop.end(), [next_hop](auto& one) { return one.first == next_hop; });
    if (place == by_next_hop.end()) place = by_next_hop.insert(place, {next_hop, {}});
    place->second.push_back(&transit);
  }
  std::vector<int64_t> sent;
  size_t most = static_cast<size_t>(settings_.max_others) + 1;
  for (const auto& [next_hop, group] : by_next_hop) {
    if (group.size() < 2) continue;
    for (size_t start = 0; start < group.size(); start += most) {
      auto from = group.begin() + static_cast<std::ptrdiff_t>(start);
      auto to = group.begin() + static_cast<std::ptrdiff_t>(std::min(start + most, group.size()));
      send_group(now, next_hop, {from, to});
    }
    for (const AodvTransit* transit : group) sent.push_back(transit->destination);
  }
  for (const AodvTransit& transit : transits) {
    if (std::find(sent.begin(), sent.end(), transit.destination) == sent.end()) forward(now, transit);
  }
}

namespace {

// A Packet, or a Bundle with `others`.
Ref make_packet(const AodvTransit& transit, double now, PyObject* others) {
  Ref parcel = aged_parcel(transit.parcel.get(), transit.received_at, now);
  Ref origin = from_int(transit.origin), destination = from_int(transit.destination), hops = from_int(transit.hops);
  PyObject* values[] = {parcel.get(), origin.get(), destination.get(), hops.get(), others};
  PyObject* type = others == nullptr ? aodv_classes.packet : aodv_classes.bundle;
  PyObject* names = others == nullptr ? aodv_classes.packet_names : aodv_classes.bundle_names;
  return Ref::steal(PyObject_Vectorcall(type, values, 1, names));
}

}  // namespace

void Aodv::send_group(double now, int64_t next_hop, const std::vector<const AodvTransit*>& group) {
  double expires_at = now + settings_.active_route_timeout_s;
  for (const AodvTransit* transit : group) table_.extend_lifetime(now, transit->destination, expires_at);
  table_.extend_lifetime(now, next_hop, expires_at);
  Ref others;
  if (group.size() > 1) {
    others = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(group.size()) - 1));
    for (size_t i = 1; i < group.size(); i++) {
      PyTuple_SET_ITEM(others.get(), static_cast<Py_ssize_t>(i) - 1, from_int(group[i]->destination).release());
    }
  }
  Ref sent = make_packet(*group.front(), now, others.get());
  Transits packets;
  for (const AodvTransit* transit : group) packets.push_back(*transit);
  send(next_hop, sent.get(), std::move(packets));
}

void Aodv::forward(double now, const AodvTransit& transit) {
  int64_t destination = transit.destination;
  double expires_at = now + settings_.active_route_timeout_s;
  table_.extend_lifetime(now, destination, expires_at);
  const RouteEntry* route = table_.find_valid(now, destination);
  if (route != nullptr) {
    // [RFC 6.2] A packet also prolongs the routes to its destination and to the next hop.
    int64_t next_hop = route->next_hop;
    table_.extend_lifetime(now, next_hop, expires_at);
    send(next_hop, make_packet(transit, now, nullptr).get(), {transit});
  } else if (transit.previous_hop < 0) {
    buffer_packet(now, transit);
    start_discovery(now, destination);
  } else if (is_pending(destination)) {
    buffer_packet(now, transit);
  } else {
    // [RFC 6.13] Another node still routes over this one, which has lost its routes: the wait starts again.
    if (waits_after_reboot_) start_reboot_wait();
    notify_sender(now, transit.previous_hop, destination);
    drop_packet(now, transit, interned("no_route"));
  }
}

void Aodv::buffer_packet(double now, const AodvTransit& transit) {
  drop_expired(now);
  buffer_.push_back(transit);
  if (static_cast<int64_t>(buffer_.size()) > settings_.buffer) {
    AodvTransit evicted = std::move(buffer_.front());
    buffer_.erase(buffer_.begin());
    drop_packet(now, evicted, interned("buffer_full"));
  }
}

void Aodv::drop_expired(double now) {
  Transits expired, kept;
  for (AodvTransit& waiting : buffer_) {
    (waiting.buffered_until <= now ? expired : kept).push_back(std::move(waiting));
  }
  buffer_ = std::move(kept);
  for (const AodvTransit& transit : expired) drop_packet(now, transit, interned("buffer_timeout"));
}

Aodv::Transits Aodv::take_buffered(int64_t destination) {
  Transits found, kept;
  for (AodvTransit& waiting : buffer_) {
    (waiting.destination == destination ? found : kept).push_back(std::move(waiting));
  }
  buffer_ = std::move(kept);
  return found;
}

void Aodv::drop_packet(double now, const AodvTransit& transit, PyObject* reason) {
  drop(reason, -1, event_of(transit));
  if (transit.previous_hop < 0) {
    Ref parcel = aged_parcel(transit.parcel.get(), transit.received_at, now);
    call_method(up_.get(), "report_unreachable", transit.target.get(), parcel.get());
  }
}

// Control messages and route discoveries.

void Aodv::on_message(double now, int64_t sender, PyObject* message) {
  restart_neighbor_timer(sender);
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(message));
  const AodvClasses& classes = aodv_classes;
  if (type == classes.packet || type == classes.bundle) {
    on_packet(now, sender, message, type == classes.bundle);
    return;
  }
  if (!table_.update_previous_hop(now, sender, now + settings_.active_route_timeout_s)) {
    drop("table_full", sender);
    return;
  }
  if (type == classes.request) {
    const Field* values = classes.request_fields;
    auto number = [&](int place) { return to_int(values[place].get(message)); };
    Rreq request{number(0), number(1), number(2), number(3), number(4), number(5), number(6),
                 is_true(values[7].get(message)), is_true(values[8].get(message))};
    on_request(now, sender, request);
    send_buffered(now, request.originator);
  } else if (type == classes.reply) {
    const Field* values = classes.reply_fields;
    auto number = [&](int place) { return to_int(values[place].get(message)); };
    Rrep reply{number(0), number(1), number(2), number(3), number(4)};
    on_reply(now, sender, reply);
    send_buffered(now, reply.destination);
  } else if (type == classes.error) {
    on_error(now, sender, message);
  } else if (type == classes.hello) {
    on_hello(now, sender, to_int(classes.hello_sequence.get(message)));
  } else {
    throw std::runtime_error("AODV has no such message");
  }
  send_buffered(now, sender);
}

void Aodv::send_buffered(double now, int64_t destination) {
  if (!is_pending(destination)) return;
  RouteEntry* route = table_.find_valid(now, destination);
  if (route == nullptr) return;
  std::optional<PendingDiscovery> discovery = finish_discovery(destination);
  if (discovery->repair_hop_count >= 0 && route->hop_count > discovery->repair_hop_count) {
    // [RFC 6.12] Flag N: upstream nodes may look for a shorter route, and keep theirs.
    notify_precursors(now, {route}, true);
  }
  drop_expired(now);
  for (const AodvTransit& transit : take_buffered(destination)) forward(now, transit);
}

void Aodv::on_timer(double now, PyObject* key) {
  if (!PyTuple_Check(key)) {
    if (key == interned("hello") || PyUnicode_CompareWithASCIIString(key, "hello") == 0) {
      send_hello(now);
      return;
    }
    waits_after_reboot_ = false;
    std::vector<int64_t> destinations;
    for (const AodvTransit& waiting : buffer_) {
      if (std::find(destinations.begin(), destinations.end(), waiting.destination) == destinations.end()) {
        destinations.push_back(waiting.destination);
      }
    }
    for (int64_t destination : destinations) start_discovery(now, destination);
    return;
  }
  PyObject* kind = item(key, 0);
  int64_t number = to_int(item(key, 1));
  if (kind == interned("discovery")) {
    drop_expired(now);
    std::optional<PendingDiscovery> failed = send_next_rreq(now, number);
    if (failed) on_discovery_failed(now, number, *failed);
  } else if (kind == interned("forward")) {
    broadcast_delayed(now, number);
  } else {
    on_link_broken(now, number, {});
  }
}

void Aodv::on_discovery_failed(double now, int64_t destination, const PendingDiscovery& discovery) {
  Transits waiting = take_buffered(destination);
  if (discovery.repair_hop_count < 0) {
    for (const AodvTransit& transit : waiting) drop_packet(now, transit, interned("not_found"));
    return;
  }
  // [RFC 6.12] After a failed local repair the precursors get a RERR, and packets of other nodes are dropped.
  RouteEntry* route = table_.find(now, destination);
  if (route != nullptr) notify_precursors(now, {route}, false);
  for (const AodvTransit& transit : waiting) {
    if (transit.previous_hop >= 0) {
      drop_packet(now, transit, interned("not_repaired"));
    } else {
      forward(now, transit);
    }
  }
}

// Broken links.

void Aodv::on_sent(double now, int64_t token, PyObject* failure) {
  auto place = unconfirmed_.find(token);
  if (place == unconfirmed_.end()) throw std::runtime_error("AODV sent no message with this token");
  Unconfirmed sent = std::move(place->second);
  unconfirmed_.erase(place);
  if (failure == Py_None) return;
  bool unreachable = failure == words.unreachable;
  if (unreachable && sent.packets.empty()) on_reply_failed(now, sent.neighbor);
  if (unreachable && !settings_.detects_by_hello) {
    on_link_broken(now, sent.neighbor, sent.packets);
  } else {
    for (const AodvTransit& transit : sent.packets) drop_packet(now, transit, failure);
  }
}

void Aodv::on_link_up(double, PyObject* link) { links_.add(link); }

void Aodv::on_link_down(double now, PyObject* link) {
  int64_t neighbor = links_.remove(link);
  if (neighbor >= 0 && !settings_.detects_by_hello) on_link_broken(now, neighbor, {});
}

// [RFC 6.11 (i)]
void Aodv::on_link_broken(double now, int64_t neighbor, const Transits& packets) {
  forget_neighbor(neighbor);
  Routes broken = table_.invalidate_next_hop(now, neighbor);
  // [RFC 6.12] While a route is being repaired, its precursors get no RERR.
  std::vector<int64_t> repairing;
  for (const AodvTransit& transit : packets) {
    if (try_local_repair(now, transit)) repairing.push_back(transit.destination);
  }
  broken.erase(std::remove_if(broken.begin(), broken.end(),
                              [&repairing](const RouteEntry* route) {
                                return std::find(repairing.begin(), repairing.end(), route->destination) != repairing.end();
                              }),
               broken.end());
  std::vector<int64_t> notified = notify_precursors(now, broken, false);
  for (const AodvTransit& transit : packets) {
    bool has_route = table_.find_valid(now, transit.destination) != nullptr;
    bool may_retry = transit.previous_hop >= 0 || settings_.rebuffer;
    bool is_notified = transit.previous_hop >= 0 &&
                       std::find(notified.begin(), notified.end(), transit.previous_hop) != notified.end();
    if (may_retry && (has_route || !is_notified)) {
      forward(now, transit);
    } else {
      drop_packet(now, transit, words.unreachable);
    }
  }
}

bool Aodv::try_local_repair(double now, const AodvTransit& transit) {
  const RouteEntry* route = table_.find(now, transit.destination);
  if (transit.previous_hop < 0 || route == nullptr || route->valid) return false;
  int64_t hops_done = transit.hops - 1, hops_left = route->hop_count;
  bool may_repair = settings_.repairs_past_half && hops_done > hops_left;
  if (settings_.repairs_near_target) {
    may_repair = static_cast<double>(hops_left) <= settings_.max_repair_share * static_cast<double>(settings_.net_diameter);
  }
  if (!is_pending(transit.destination) && may_repair) {
    int64_t ttl = std::min(std::max(hops_left, hops_done / 2) + settings_.local_add_ttl, settings_.net_diameter);
    start_local_repair(now, transit.destination, ttl, hops_left);
  }
  return is_pending(transit.destination);
}

// The state that the parts share.

int64_t Aodv::increment_sequence(int64_t least) {
  sequence_ = std::min(std::max(after(sequence_, settings_.max_sequence), least), settings_.max_sequence);
  return sequence_;
}

bool Aodv::is_forged(double now, int64_t node, int64_t sequence) {
  if (node == node_) return sequence > sequence_ && sequence - sequence_ > settings_.max_jump;
  const RouteEntry* entry = table_.find(now, node);
  if (entry == nullptr || entry->sequence <= 0) return false;
  bool is_plausible = sequence >> 32 != entry->sequence >> 32 || sequence - entry->sequence <= settings_.max_jump;
  return !is_plausible;
}

void Aodv::send(int64_t neighbor, PyObject* message, Transits packets) {
  int64_t token = ++last_token_;
  unconfirmed_.emplace(token, Unconfirmed{neighbor, std::move(packets)});
  core_.transmit(node_, neighbor, kRouting, message, nullptr, from_int(token).get());
}

void Aodv::broadcast(double now, PyObject* message) {
  last_broadcast_s_ = now;
  core_.transmit(node_, kNoTarget, kRouting, message, nullptr, nullptr);
}

void Aodv::drop(PyObject* reason, int64_t peer, PyObject* event) {
  Ref neighbor = peer < 0 ? Ref::borrow(Py_None) : from_int(peer);
  Ref fact = call(words.fact, interned("drop"), event == nullptr ? Py_None : event, neighbor.get(), reason);
  core_.note(node_, kRouting, fact.get());
}

void Aodv::set_timer(const char* kind, int64_t number, double delay_s) {
  Ref key = Ref::steal(PyTuple_Pack(2, interned(kind), from_int(number).get()));
  core_.set_timer(node_, kRouting, key.get(), delay_s);
}

void Aodv::cancel_timer(const char* kind, int64_t number) {
  Ref key = Ref::steal(PyTuple_Pack(2, interned(kind), from_int(number).get()));
  core_.cancel_timer(node_, kRouting, key.get());
}

}  // namespace carrycast
