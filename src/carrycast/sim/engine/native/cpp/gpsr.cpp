#include "gpsr.h"

#include <algorithm>
#include <cmath>

namespace carrycast {

GpsrClasses gpsr_classes;

namespace {

bool is_finite(Point at) { return std::isfinite(at.x) && std::isfinite(at.y); }

Target read_place(PyObject* place) {
  Target target;
  target.object = Ref::borrow(place);
  target.at = read_point(item(place, 0));
  target.radius_m = to_double(item(place, 1));
  PyObject* node = item(place, 2);
  target.has_node = node != Py_None;
  if (target.has_node) target.node = to_int(node);
  return target;
}

Perimeter read_perimeter(PyObject* header) {
  Perimeter read;
  read.object = Ref::borrow(header);
  read.entry_node = to_int(item(header, 0));
  read.lp = read_point(item(header, 1));
  PyObject* lf = item(header, 2);
  read.lf = {to_double(item(lf, 0)), to_double(item(lf, 1))};
  PyObject* e0 = item(header, 3);
  read.e0[0] = to_int(item(e0, 0));
  read.e0[1] = to_int(item(e0, 1));
  return read;
}

Ref perimeter_object(const Perimeter& header) {
  if (header.object) return header.object;
  Ref lf = Ref::steal(Py_BuildValue("(dd)", header.lf.fraction, header.lf.lean));
  Ref e0 = Ref::steal(Py_BuildValue("(LL)", static_cast<long long>(header.e0[0]), static_cast<long long>(header.e0[1])));
  return named_tuple(gpsr_classes.perimeter_header,
                     {from_int(header.entry_node), position_of(header.lp), std::move(lf), std::move(e0)});
}

void put_place(SeenKey& key, const Target& place) {
  key.ids[2] = place.has_node ? place.node : INT64_MIN;
  // Zero is added so that 0.0 and -0.0 are one.
  key.numbers[0] = place.at.x + 0.0;
  key.numbers[1] = place.at.y + 0.0;
  key.numbers[2] = place.radius_m + 0.0;
}

}  // namespace

Gpsr::Gpsr(const GpsrSettings& settings, const RouterContext& context)
    : settings_(settings), core_(context.core), node_(context.node), host_(Ref::borrow(context.host)),
      asks_host_(context.asks_host), up_(Ref::borrow(context.up)), table_(settings.expiry_s, settings.max_neighbors),
      seen_(settings.seen_s, settings.max_seen), last_number_(context.incarnation << 32) {
  random_.take_over(context.generator);
}

int Gpsr::traverse(visitproc visit, void* arg) {
  Py_VISIT(host_.get());
  Py_VISIT(up_.get());
  return 0;
}

void Gpsr::clear() {
  host_ = Ref();
  up_ = Ref();
  unconfirmed_.clear();
}

// Positions.

Gpsr::Here Gpsr::ask_position() {
  Here here;
  if (asks_host_ || !core_.places) {
    Ref found = call_method(host_.get(), "position", core_.now_of(node_).get());
    if (found.get() == Py_None) return here;
    here.at = read_point(found.get());
    here.object = std::move(found);
  } else {
    Place place = core_.places->find(node_, core_.queue.now_s);
    here.at = {place.x_m, place.y_m};
  }
  here.is_known = is_finite(here.at);
  return here;
}

Gpsr::Here& Gpsr::find_position(double now) {
  if (!has_own_ || own_at_ != now) {
    own_ = ask_position();
    own_at_ = now;
    has_own_ = true;
  }
  return own_;
}

PyObject* Gpsr::position_object(Here& here) {
  if (!here.object) here.object = position_of(here.at);
  return here.object.get();
}

void Gpsr::update_neighbor(double now, int64_t sender, Point at) {
  const Here& here = find_position(now);
  if (!is_finite(at) || (here.is_known && squared_distance_m2(here.at, at) > settings_.max_range_m2)) {
    drop("absurd_position", nullptr, sender);
    return;
  }
  GeoNeighbors::Update update = table_.update(now, sender, at);
  if (update == GeoNeighbors::kFull) {
    drop("table_full", nullptr, sender);
  } else if (update == GeoNeighbors::kNew) {
    has_new_neighbor_ = true;
  }
}

// Beacons [GPSR00 §2.1].

void Gpsr::on_start(double) {
  core_.set_timer(node_, kRouting, gpsr_classes.beacon_key, settings_.beacon_s * random_.draw());
}

void Gpsr::on_stop(double) { core_.cancel_timer(node_, kRouting, gpsr_classes.beacon_key); }

void Gpsr::on_timer(double, PyObject*) {
  // `Random.uniform` of the least and the longest interval.
  double least = 1 - settings_.beacon_jitter, longest = 1 + settings_.beacon_jitter;
  double uniform = least + (longest - least) * random_.draw();
  core_.set_timer(node_, kRouting, gpsr_classes.beacon_key, settings_.beacon_s * uniform);
  Here here = ask_position();
  if (!here.is_known) return;
  if (may_skip_beacon(here)) {
    skipped_++;
  } else {
    skipped_ = 0;
    has_new_neighbor_ = false;
    has_beacon_ = true;
    last_beacon_ = here.at;
    Ref beacon = call(gpsr_classes.beacon, position_object(here));
    core_.transmit(node_, kNoTarget, kRouting, beacon.get(), nullptr, nullptr);
  }
  has_sent_packet_ = false;
}

bool Gpsr::may_skip_beacon(const Here& here) {
  if (settings_.suppress_beacons && has_sent_packet_ && (settings_.overhear || skipped_ == 0)) return true;
  if (skipped_ >= settings_.beacon_skips || has_new_neighbor_ || !has_beacon_) return false;
  return squared_distance_m2(here.at, last_beacon_) < settings_.beacon_error_m2;
}

// Received messages.

void Gpsr::on_message(double now, int64_t sender, PyObject* message) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(message));
  if (type == gpsr_classes.beacon) {
    update_neighbor(now, sender, read_point(gpsr_classes.beacon_position.get(message)));
    return;
  }
  bool is_bundle = type == gpsr_classes.bundle;
  if (!is_bundle && type != gpsr_classes.packet) throw std::runtime_error("GPSR has no such message");
  GeoTransit transit = read_packet(message, is_bundle, sender, now);
  if (transit.at && settings_.piggyback) update_neighbor(now, sender, *transit.at);
  if (!seen_.add(now, arrival_key(transit, sender))) {
    drop("repeated", fields.parcel_event.get(transit.parcel.get()), sender);
  } else if (is_bundle) {
    forward_each(now, split(message, transit));
  } else {
    forward(now, transit);
  }
}

void Gpsr::on_overheard(double now, int64_t sender, PyObject* message) {
  // [GPSR00 §2.1] Interfaces are in promiscuous mode: nodes in range learn the position of the forwarder.
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(message));
  bool is_bundle = type == gpsr_classes.bundle;
  if (!is_bundle && type != gpsr_classes.packet) return;
  PyObject* at = gpsr_classes.fields_of(is_bundle).at.get(message);
  if (at != Py_None && settings_.piggyback) update_neighbor(now, sender, read_point(at));
}

GeoTransit Gpsr::read_packet(PyObject* message, bool is_bundle, int64_t sender, double now) {
  const GeoPacketFields& packet = gpsr_classes.fields_of(is_bundle);
  GeoTransit transit;
  transit.parcel = Ref::borrow(packet.parcel.get(message));
  transit.origin = to_int(packet.origin.get(message));
  transit.number = to_int(packet.number.get(message));
  transit.place = read_place(packet.place.get(message));
  transit.hops = to_int(packet.hops.get(message));
  PyObject* at = packet.at.get(message);
  if (at != Py_None) transit.at = read_point(at);
  PyObject* perimeter = packet.perimeter.get(message);
  if (perimeter != Py_None) transit.perimeter = read_perimeter(perimeter);
  transit.target = transit.place.object;
  transit.previous_hop = sender;
  transit.received_at = now;
  return transit;
}

std::vector<GeoTransit> Gpsr::split(PyObject* message, const GeoTransit& first) {
  // `GeoBundle.split`: one greedy packet for each place, in order and without repetitions.
  std::vector<GeoTransit> packets{first};
  packets.front().perimeter.reset();
  PyObject* others = gpsr_classes.bundle_others.get(message);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(others); i++) {
    Target place = read_place(PyTuple_GET_ITEM(others, i));
    auto is_same = [&place](const GeoTransit& packet) { return packet.place == place; };
    if (std::any_of(packets.begin(), packets.end(), is_same)) continue;
    GeoTransit packet = packets.front();
    packet.target = place.object;
    packet.place = std::move(place);
    packets.push_back(std::move(packet));
  }
  return packets;
}

SeenKey Gpsr::delivery_key(const GeoTransit& transit) const {
  SeenKey key{};
  key.ids[0] = transit.origin;
  key.ids[1] = transit.number;
  put_place(key, transit.place);
  key.ids[8] = 1;
  return key;
}

SeenKey Gpsr::arrival_key(const GeoTransit& transit, int64_t sender) const {
  SeenKey key = delivery_key(transit);
  key.ids[3] = sender;
  key.ids[7] = settings_.stop_loops ? 0 : transit.hops;
  key.ids[8] = transit.perimeter ? 3 : 2;
  if (transit.perimeter) {
    key.ids[4] = transit.perimeter->entry_node;
    key.ids[5] = transit.perimeter->e0[0];
    key.ids[6] = transit.perimeter->e0[1];
    key.numbers[3] = transit.perimeter->lp.x + 0.0;
    key.numbers[4] = transit.perimeter->lp.y + 0.0;
    key.numbers[5] = transit.perimeter->lf.fraction + 0.0;
    key.numbers[6] = transit.perimeter->lf.lean + 0.0;
  }
  return key;
}

// Forwarding.

void Gpsr::on_route(double now, PyObject* target, PyObject* parcel) {
  std::optional<GeoTransit> transit = make_packet(now, target, parcel);
  if (transit) forward(now, *transit);
}

void Gpsr::on_route_each(double now, PyObject* targets, PyObject* parcel) {
  Ref sequence = Ref::steal(PySequence_Fast(targets, "targets are a sequence"));
  std::vector<GeoTransit> own;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); i++) {
    std::optional<GeoTransit> transit = make_packet(now, PySequence_Fast_GET_ITEM(sequence.get(), i), parcel);
    if (transit) own.push_back(std::move(*transit));
  }
  forward_each(now, own);
}

std::optional<GeoTransit> Gpsr::make_packet(double now, PyObject* target, PyObject* parcel) {
  GeoTransit transit;
  if (reinterpret_cast<PyObject*>(Py_TYPE(target)) == gpsr_classes.place) {
    transit.place = read_place(target);
  } else {
    table_.remove_expired(now);
    int64_t node = to_int(target);
    const GeoNeighbors::Entry* entry = table_.find(node);
    if (entry == nullptr) {
      // A node that is no neighbor can be routed to only by its last known position.
      drop("position_unknown", fields.parcel_event.get(parcel), node);
      call_method(up_.get(), "report_unreachable", target, parcel);
      return std::nullopt;
    }
    transit.place.at = entry->at;
    transit.place.has_node = true;
    transit.place.node = node;
    Ref radius_m = Ref::steal(PyFloat_FromDouble(0.0));
    transit.place.object = named_tuple(gpsr_classes.place, {position_of(entry->at), std::move(radius_m), Ref::borrow(target)});
  }
  transit.parcel = Ref::borrow(parcel);
  transit.origin = node_;
  transit.number = ++last_number_;
  transit.target = Ref::borrow(target);
  transit.received_at = now;
  return transit;
}

void Gpsr::forward_each(double now, const std::vector<GeoTransit>& transits) {
  Here here = find_position(now);
  std::vector<std::pair<int64_t, std::vector<const GeoTransit*>>> by_next_hop;
  if (here.is_known && transits.size() > 1) {
    table_.remove_expired(now);
    for (const GeoTransit& transit : transits) {
      double own_m2 = squared_distance_m2(here.at, transit.place.at);
      if (is_destination(transit.place, own_m2)) continue;
      int64_t next_hop = next_greedy_hop(transit.place, own_m2, true);
      if (next_hop < 0) continue;
      auto place = std::find_if(by_next_hop.begin(), by_next_hop.end(), [next_hop](auto& one) { return one.first == next_hop; });
      if (place == by_next_hop.end()) place = by_next_hop.insert(place, {next_hop, {}});
      place->second.push_back(&transit);
    }
  }
  std::vector<const Target*> sent;
  size_t most = static_cast<size_t>(settings_.max_others) + 1;
  for (const auto& [next_hop, group] : by_next_hop) {
    if (group.size() < 2) continue;
    for (size_t start = 0; start < group.size(); start += most) {
      auto from = group.begin() + static_cast<std::ptrdiff_t>(start);
      auto to = group.begin() + static_cast<std::ptrdiff_t>(std::min(start + most, group.size()));
      send_group(now, {from, to}, here, next_hop);
    }
    for (const GeoTransit* transit : group) sent.push_back(&transit->place);
  }
  for (const GeoTransit& transit : transits) {
    auto is_same = [&transit](const Target* place) { return *place == transit.place; };
    if (std::none_of(sent.begin(), sent.end(), is_same)) forward(now, transit);
  }
}

void Gpsr::forward(double now, const GeoTransit& transit) {
  Point destination = transit.place.at;
  Here& here = find_position(now);
  if (!here.is_known || !is_finite(destination)) {
    drop_packet(now, transit, interned("no_position"));
    return;
  }
  double own_m2 = squared_distance_m2(here.at, destination);
  // [003 §3.5] A node within the radius captures the packet; if there is none, the nearest node does.
  if (is_destination(transit.place, own_m2)) {
    deliver(now, transit);
    return;
  }
  table_.remove_expired(now);
  const Perimeter* header = transit.perimeter ? &*transit.perimeter : nullptr;
  if (header != nullptr && header->entry_node != node_ && own_m2 < squared_distance_m2(header->lp, destination)) {
    // [GPSR00 §2.3] Nearer than Lp: back to greedy mode. The entry node itself does not do this.
    header = nullptr;
  }
  int64_t next_hop = next_greedy_hop(transit.place, own_m2, header == nullptr);
  if (next_hop >= 0) {
    send(now, transit, here, next_hop, nullptr);
  } else {
    forward_by_perimeter(now, transit, here, header);
  }
}

bool Gpsr::is_destination(const Target& place, double own_m2) const {
  return place.has_node ? place.node == node_ : own_m2 <= place.radius_m * place.radius_m;
}

int64_t Gpsr::next_greedy_hop(const Target& place, double own_m2, bool is_greedy) {
  const GeoNeighbors::Entry* known = place.has_node ? table_.find(place.node) : nullptr;
  if (known != nullptr && settings_.direct) return place.node;
  if (!is_greedy) return -1;
  double nearest_m2 = 0.0;
  const GeoNeighbors::Entry* nearest = table_.find_nearest(place.at, nearest_m2);
  // [GPSR00 §2.1] The neighbor nearest to the destination, if it is nearer than this node.
  if (nearest != nullptr && nearest_m2 < own_m2) return nearest->node;
  // The target is as near as this node: usually both are at the same place.
  if (known != nullptr && squared_distance_m2(known->at, place.at) <= own_m2) return place.node;
  return -1;
}

const std::vector<PlanarEdge>& Gpsr::find_planar_edges(Point here) {
  if (!is_planar_known_ || planar_version_ != table_.version) {
    std::vector<PlanarEdge> neighbors;
    for (const GeoNeighbors::Entry& entry : table_.entries()) neighbors.push_back({entry.node, entry.at});
    planar_edges_ = planarize(node_, here, neighbors, settings_.is_rng);
    planar_version_ = table_.version;
    is_planar_known_ = true;
  }
  return planar_edges_;
}

void Gpsr::forward_by_perimeter(double now, const GeoTransit& transit, Here& here, const Perimeter* header) {
  Point destination = transit.place.at;
  if (here.at == destination || !settings_.recovers) {
    end_packet(now, transit, !transit.place.has_node, "local_minimum");
    return;
  }
  const std::vector<PlanarEdge>& edges = find_planar_edges(here.at);
  std::optional<Point> previous_hop;
  if (header != nullptr) {
    // The position of the previous hop, from the table as in the planar graph, else from the packet.
    const GeoNeighbors::Entry* entry = transit.previous_hop < 0 ? nullptr : table_.find(transit.previous_hop);
    previous_hop = entry == nullptr ? transit.at : entry->at;
  }
  if (header == nullptr || !previous_hop || *previous_hop == here.at) {
    // A previous hop at the same place gives no direction to turn from. The packet loses nothing by entering
    // perimeter mode here.
    if (edges.empty()) {
      end_packet(now, transit, !transit.place.has_node, "no_neighbor");
      return;
    }
    // [GPSR00 §2.3] Lp and Lf are here; e0 is the first edge counterclockwise from the line to D.
    int64_t next_hop = edges[first_counterclockwise(here.at, destination, edges, true)].node;
    Perimeter entered;
    entered.entry_node = node_;
    entered.lp = here.at;
    entered.e0[0] = node_;
    entered.e0[1] = next_hop;
    send(now, transit, here, next_hop, &entered);
    return;
  }
  std::optional<std::pair<int64_t, Perimeter>> step;
  if (!edges.empty()) step = follow_face(here.at, *previous_hop, destination, *header, edges);
  if (step) {
    send(now, transit, here, step->first, &step->second);
  } else {
    // [003 §3.5, GPSR00 §2.3] The face is toured: the entry node is the nearest, or the target is unreachable.
    end_packet(now, transit, !transit.place.has_node && header->entry_node == node_, "face_toured");
  }
}

std::optional<std::pair<int64_t, Perimeter>> Gpsr::follow_face(Point here, Point previous_hop, Point destination,
                                                               const Perimeter& header,
                                                               const std::vector<PlanarEdge>& edges) {
  PlanarEdge next = edges[first_counterclockwise(here, previous_hop, edges, false)];
  LinePoint lf = header.lf;
  for (size_t turn = 0; turn < edges.size(); turn++) {
    // The line begins at the entry node, so none of that node's edges crosses it, except if a node has moved.
    bool at_entry = header.entry_node == node_ || header.entry_node == next.node;
    std::optional<LinePoint> crossing;
    if (!at_entry) crossing = find_crossing(header.lp, destination, here, next.at);
    if (!crossing || *crossing <= lf) break;
    // Change to the next face: set Lf, and skip the edge that crosses the line.
    lf = *crossing;
    next = edges[first_counterclockwise(here, next.at, edges, false)];
  }
  Perimeter changed = header;
  if (!(lf == header.lf)) {
    changed.lf = lf;
  } else if (header.e0[0] == node_ && header.e0[1] == next.node) {
    return std::nullopt;
  } else if (header.e0[0] == node_ && std::none_of(edges.begin(), edges.end(), [&](const PlanarEdge& edge) {
               return edge.node == header.e0[1];
             })) {
    // e0 no longer exists, so the end of the tour would not be recognized.
  } else {
    return std::make_pair(next.node, header);
  }
  changed.object = Ref();
  changed.e0[0] = node_;
  changed.e0[1] = next.node;
  return std::make_pair(next.node, changed);
}

// Sending.

void Gpsr::send(double now, const GeoTransit& transit, Here& here, int64_t next_hop, const Perimeter* header) {
  if (transit.hops >= settings_.max_hops) {
    drop_packet(now, transit, interned("hops_exhausted"));
    return;
  }
  PyObject* at = settings_.piggyback || header != nullptr ? position_object(here) : Py_None;
  Ref perimeter = header == nullptr ? Ref::borrow(Py_None) : perimeter_object(*header);
  Ref parcel = aged_parcel(transit.parcel.get(), transit.received_at, now);
  Ref origin = from_int(transit.origin), number = from_int(transit.number), hops = from_int(transit.hops + 1);
  PyObject* values[] = {parcel.get(), origin.get(), number.get(), transit.place.object.get(), hops.get(), at, perimeter.get()};
  Ref sent = Ref::steal(PyObject_Vectorcall(gpsr_classes.packet, values, 1, gpsr_classes.packet_names));
  transmit(next_hop, sent.get(), {transit});
}

void Gpsr::send_group(double now, const std::vector<const GeoTransit*>& group, Here& here, int64_t next_hop) {
  const GeoTransit& first = *group.front();
  if (group.size() == 1 || first.hops >= settings_.max_hops) {
    for (const GeoTransit* transit : group) send(now, *transit, here, next_hop, nullptr);
    return;
  }
  Ref others = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(group.size()) - 1));
  for (size_t i = 1; i < group.size(); i++) {
    PyTuple_SET_ITEM(others.get(), static_cast<Py_ssize_t>(i) - 1, Py_NewRef(group[i]->place.object.get()));
  }
  PyObject* at = settings_.piggyback ? position_object(here) : Py_None;
  Ref parcel = aged_parcel(first.parcel.get(), first.received_at, now);
  Ref origin = from_int(first.origin), number = from_int(first.number), hops = from_int(first.hops + 1);
  PyObject* values[] = {parcel.get(), origin.get(), number.get(), first.place.object.get(), hops.get(), at, others.get()};
  Ref sent = Ref::steal(PyObject_Vectorcall(gpsr_classes.bundle, values, 1, gpsr_classes.bundle_names));
  std::vector<GeoTransit> copies;
  for (const GeoTransit* transit : group) copies.push_back(*transit);
  transmit(next_hop, sent.get(), std::move(copies));
}

void Gpsr::transmit(int64_t next_hop, PyObject* message, std::vector<GeoTransit> group) {
  int64_t token = ++last_token_;
  unconfirmed_.emplace(token, Unconfirmed{next_hop, std::move(group)});
  has_sent_packet_ = true;
  core_.transmit(node_, next_hop, kRouting, message, nullptr, from_int(token).get());
}

void Gpsr::deliver(double now, const GeoTransit& transit) {
  if (seen_.add(now, delivery_key(transit))) {
    Ref parcel = aged_parcel(transit.parcel.get(), transit.received_at, now);
    call_method(up_.get(), "deliver_packet", from_int(transit.origin).get(), parcel.get(), from_int(transit.hops).get());
  } else {
    // A sender whose acknowledgement was lost has sent the packet over another path too.
    drop("repeated", fields.parcel_event.get(transit.parcel.get()), transit.previous_hop);
  }
}

void Gpsr::end_packet(double now, const GeoTransit& transit, bool is_nearest, const char* reason) {
  if (is_nearest) {
    deliver(now, transit);
  } else {
    drop_packet(now, transit, interned(reason));
  }
}

// Failures.

void Gpsr::on_sent(double now, int64_t token, PyObject* failure) {
  auto place = unconfirmed_.find(token);
  if (place == unconfirmed_.end()) throw std::runtime_error("GPSR sent no message with this token");
  Unconfirmed sent = std::move(place->second);
  unconfirmed_.erase(place);
  if (failure == Py_None) return;
  if (failure == words.unreachable) {
    // [GPSR00 §2.4] Remove the neighbor and forward the packets again.
    table_.remove(sent.next_hop);
    PyObject* event = fields.parcel_event.get(sent.group.front().parcel.get());
    Ref fact = call(words.fact, interned("reroute"), event, from_int(sent.next_hop).get());
    core_.note(node_, kRouting, fact.get());
    forward_each(now, sent.group);
  } else {
    for (const GeoTransit& transit : sent.group) drop_packet(now, transit, failure);
  }
}

void Gpsr::drop_packet(double now, const GeoTransit& transit, PyObject* reason) {
  drop(reason, fields.parcel_event.get(transit.parcel.get()), transit.previous_hop);
  if (transit.origin == node_) {
    Ref parcel = aged_parcel(transit.parcel.get(), transit.received_at, now);
    call_method(up_.get(), "report_unreachable", transit.target.get(), parcel.get());
  }
}

void Gpsr::drop(const char* reason, PyObject* event, int64_t peer) { drop(interned(reason), event, peer); }

void Gpsr::drop(PyObject* reason, PyObject* event, int64_t peer) {
  Ref neighbor = peer < 0 ? Ref::borrow(Py_None) : from_int(peer);
  Ref fact = call(words.fact, interned("drop"), event == nullptr ? Py_None : event, neighbor.get(), reason);
  core_.note(node_, kRouting, fact.get());
}

// Links.

void Gpsr::on_link_up(double, PyObject* link) { links_.add(link); }

void Gpsr::on_link_down(double, PyObject* link) {
  int64_t neighbor = links_.remove(link);
  if (neighbor >= 0) table_.remove(neighbor);
}

int64_t Gpsr::hops_to(double now, int64_t node) const {
  if (node == node_) return 0;
  const GeoNeighbors::Entry* entry = table_.find(node);
  return entry != nullptr && entry->expires_at > now ? 1 : -1;
}

}  // namespace carrycast
