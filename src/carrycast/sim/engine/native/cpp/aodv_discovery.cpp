// Route discovery [RFC 6.3 to 6.8, 6.12, 6.13], as in routers/aodv/route_discovery.py and rules.py.
#include <algorithm>
#include <cmath>

#include "aodv.h"

namespace carrycast {

namespace {

Ref request_object(const Rreq& request) {
  Ref values[] = {from_int(request.originator),  from_int(request.originator_sequence),
                  from_int(request.id),          from_int(request.destination),
                  from_int(request.destination_sequence), from_int(request.hop_count),
                  from_int(request.ttl)};
  PyObject* arguments[9];
  for (int i = 0; i < 7; i++) arguments[i] = values[i].get();
  arguments[7] = request.gratuitous ? Py_True : Py_False;
  arguments[8] = request.destination_only ? Py_True : Py_False;
  return Ref::steal(PyObject_Vectorcall(aodv_classes.request, arguments, 9, nullptr));
}

Ref reply_object(const Rrep& reply) {
  return call(aodv_classes.reply, from_int(reply.originator).get(), from_int(reply.destination).get(),
              from_int(reply.destination_sequence).get(), from_int(reply.hop_count).get(),
              from_int(reply.lifetime_ms).get());
}

// `round` of Python.
int64_t milliseconds(double time_s) { return static_cast<int64_t>(std::nearbyint(1000 * time_s)); }

}  // namespace

double MessageRateLimit::wait_s(double now) {
  while (!times_.empty() && times_.front() <= now - 1.0) times_.pop_front();
  return static_cast<int64_t>(times_.size()) < per_s_ ? 0.0 : times_.front() + 1.0 - now;
}

bool MessageRateLimit::take(double now) {
  if (wait_s(now) > 0) return false;
  times_.push_back(now);
  return true;
}

// [RFC 6.13] "each node on reboot waits for DELETE_PERIOD before transmitting any route discovery messages"
void Aodv::start_reboot_wait() {
  waits_after_reboot_ = true;
  set_timer("reboot", settings_.delete_period_s);
}

void Aodv::start_discovery(double now, int64_t destination) {
  if (is_pending(destination) || waits_after_reboot_) return;
  const RouteEntry* entry = table_.find(now, destination);
  PendingDiscovery discovery;
  discovery.attempts = plan_ring_search(entry == nullptr ? -1 : entry->hop_count);
  pending_[destination] = std::move(discovery);
  double rest_s = 0.0;
  auto rest = rests_.find(destination);
  if (rest != rests_.end()) {
    rest_s = rest->second - now;
    rests_.erase(rest);
  }
  if (rest_s > 0) {
    set_timer("discovery", destination, rest_s);
  } else {
    send_next_rreq(now, destination);
  }
}

// [RFC 6.12]
void Aodv::start_local_repair(double now, int64_t destination, int64_t ttl, int64_t hop_count) {
  PendingDiscovery discovery;
  discovery.attempts = {{ttl, ring_traversal_time_s(ttl)}};
  discovery.repair_hop_count = hop_count;
  pending_[destination] = std::move(discovery);
  send_next_rreq(now, destination);
}

// [RFC 6.3, 6.4] Expanding ring search.
std::vector<std::pair<int64_t, double>> Aodv::plan_ring_search(int64_t known_hop_count) const {
  std::vector<std::pair<int64_t, double>> attempts;
  int64_t ttl = known_hop_count < 0 ? settings_.ttl_start : known_hop_count + settings_.ttl_increment;
  while (ttl < settings_.net_diameter) {
    attempts.emplace_back(ttl, ring_traversal_time_s(ttl));
    ttl += settings_.ttl_increment;
    if (ttl > settings_.ttl_threshold) break;
  }
  for (int64_t retry = 0; retry <= settings_.request_retries; retry++) {
    int64_t factor = settings_.backs_off_binary ? int64_t{1} << retry : retry + 1;
    attempts.emplace_back(settings_.net_diameter, static_cast<double>(factor) * settings_.net_traversal_s);
  }
  return attempts;
}

// [RFC 10] RING_TRAVERSAL_TIME = 2 NODE_TRAVERSAL_TIME (TTL_VALUE + TIMEOUT_BUFFER)
double Aodv::ring_traversal_time_s(int64_t ttl) const {
  return 2 * settings_.node_traversal_s * static_cast<double>(ttl + settings_.timeout_buffer);
}

std::optional<PendingDiscovery> Aodv::send_next_rreq(double now, int64_t destination) {
  auto place = pending_.find(destination);
  if (place == pending_.end()) throw std::runtime_error("AODV has no discovery of this destination");
  PendingDiscovery& discovery = place->second;
  if (discovery.sent == discovery.attempts.size()) {
    PendingDiscovery failed = std::move(discovery);
    pending_.erase(place);
    if (settings_.rest_s > 0 && failed.repair_hop_count < 0) {
      for (auto rest = rests_.begin(); rest != rests_.end();) rest = rest->second > now ? std::next(rest) : rests_.erase(rest);
      rests_[destination] = now + settings_.rest_s;
    }
    return failed;
  }
  double wait_s = rreq_limit_.wait_s(now);
  if (wait_s > 0) {
    // [RFC 6.3] RREQ_RATELIMIT
    set_timer("discovery", destination, wait_s);
    return std::nullopt;
  }
  rreq_limit_.take(now);
  auto [ttl, timeout_s] = discovery.attempts[discovery.sent++];
  broadcast_rreq(now, destination, ttl);
  set_timer("discovery", destination, timeout_s);
  return std::nullopt;
}

std::optional<PendingDiscovery> Aodv::finish_discovery(int64_t destination) {
  auto place = pending_.find(destination);
  if (place == pending_.end()) return std::nullopt;
  PendingDiscovery finished = std::move(place->second);
  pending_.erase(place);
  cancel_timer("discovery", destination);
  return finished;
}

void Aodv::broadcast_rreq(double now, int64_t destination, int64_t ttl) {
  const RouteEntry* entry = table_.find(now, destination);
  int64_t known = entry == nullptr ? 0 : entry->sequence;
  // [RFC 6.1, 6.3] The own sequence number grows before each RREQ. That of the destination is the last known.
  int64_t own = increment_sequence(0);
  Rreq request{node_, own, next_rreq_id_++, destination, known, 0, ttl, settings_.gratuitous, settings_.destination_only};
  broadcast(now, request_object(request).get());
}

// [RFC 6.8] BLACKLIST_TIMEOUT = RREQ_RETRIES NET_TRAVERSAL_TIME
void Aodv::on_reply_failed(double now, int64_t neighbor) {
  for (auto place = blacklist_.begin(); place != blacklist_.end();) {
    place = place->second > now ? std::next(place) : blacklist_.erase(place);
  }
  double retries = static_cast<double>(std::max<int64_t>(settings_.request_retries, 1));
  blacklist_[neighbor] = now + retries * settings_.net_traversal_s;
}

// [RFC 6.5]
void Aodv::on_request(double now, int64_t sender, const Rreq& request) {
  if (request.originator == node_ || !accept_request(now, sender, request)) return;
  if (request.hop_count >= settings_.max_hop_count) {
    drop("hops_exhausted", sender);
    return;
  }
  int64_t hop_count = request.hop_count + 1;
  if (is_forged(now, request.originator, request.originator_sequence) ||
      is_forged(now, request.destination, request.destination_sequence)) {
    drop("sequence_forged", sender);
    return;
  }
  // [RFC 6.5] MinimalLifetime = now + 2 NET_TRAVERSAL_TIME - 2 HopCount NODE_TRAVERSAL_TIME
  double least_s = settings_.reverse_route_s - static_cast<double>(2 * hop_count) * settings_.node_traversal_s;
  double expires_at = now + std::max(least_s, settings_.node_traversal_s);
  RouteTable::Update updated =
      table_.update(now, request.originator, request.originator_sequence, hop_count, sender, expires_at);
  if (updated == RouteTable::kFull) {
    drop("table_full", sender);
    return;
  }
  RouteEntry* reverse = table_.find_valid(now, request.originator);
  if (request.destination == node_) {
    reply_as_destination(request, reverse);
  } else if (!reply_as_intermediate(now, sender, request, reverse)) {
    forward_request(now, request, hop_count);
  }
}

// [RFC 6.5] A RREQ with the same originator and RREQ ID within PATH_DISCOVERY_TIME is discarded, without a record.
bool Aodv::accept_request(double now, int64_t sender, const Rreq& request) {
  while (!seen_order_.empty() && !(seen_order_.front().until > now)) {
    seen_.remove(seen_order_.front().originator, seen_order_.front().id);
    seen_order_.pop_front();
  }
  if (seen_.find(request.originator, request.id) >= 0) return false;
  auto blacklisted = blacklist_.find(sender);
  if (blacklisted != blacklist_.end() && blacklisted->second > now) {
    drop("one_way_link", sender);
    return false;
  }
  if (static_cast<int64_t>(seen_order_.size()) >= settings_.max_requests) {
    drop("request_storm", sender);
    return false;
  }
  seen_.set(request.originator, request.id, 1);
  seen_order_.push_back({request.originator, request.id, now + settings_.path_discovery_s});
  if (!limit_of(request.originator).take(now)) {
    drop("request_rate", sender);
    return false;
  }
  return true;
}

MessageRateLimit& Aodv::limit_of(int64_t originator) {
  auto place = limits_.find(originator);
  if (place != limits_.end()) return place->second;
  if (static_cast<int64_t>(limits_.size()) >= settings_.max_requests) limits_.clear();
  // Twice the rate of an honest node, since queues may bring its RREQs close together.
  return limits_.emplace(originator, MessageRateLimit(2 * settings_.request_rate)).first->second;
}

// [RFC 6.6.1]
void Aodv::reply_as_destination(const Rreq& request, const RouteEntry* reverse) {
  int64_t known = request.destination_sequence;
  if (settings_.raise_on_reply || request.destination_only) {
    // ns-2: max(own number, number in the RREQ) + 1; with flag D too.
    increment_sequence(known < settings_.max_sequence ? known + 1 : known);
  } else if (known > sequence_) {
    // [RFC 6.1] "the maximum of its current number and the number in the RREQ"
    increment_sequence(known);
  }
  send_reply(reverse, {request.originator, node_, sequence_, 0, milliseconds(settings_.my_route_timeout_s)});
}

// [RFC 6.6.2, 6.6.3]
bool Aodv::reply_as_intermediate(double now, int64_t sender, const Rreq& request, RouteEntry* reverse) {
  RouteEntry* forward = table_.find_valid(now, request.destination);
  if (forward == nullptr || forward->sequence == 0 || forward->sequence < request.destination_sequence) return false;
  if (request.destination_only || waits_after_reboot_) return false;
  // The sender has lost the route that this node has learned from it, or it would not forward the RREQ.
  if (forward->next_hop == sender) return false;
  forward->add_precursor(sender, settings_.max_precursors);
  if (reverse != nullptr) reverse->add_precursor(forward->next_hop, settings_.max_precursors);
  send_reply(reverse, {request.originator, request.destination, forward->sequence, forward->hop_count,
                       milliseconds(forward->expires_at - now)});
  if (request.gratuitous && reverse != nullptr && reverse->sequence > 0) {
    send_reply(forward, {request.destination, request.originator, reverse->sequence, reverse->hop_count,
                         milliseconds(reverse->expires_at - now)});
  }
  return true;
}

void Aodv::send_reply(const RouteEntry* route, const Rrep& reply) {
  if (route == nullptr) {
    drop("no_way_back", -1);
  } else {
    send(route->next_hop, reply_object(reply).get(), {});
  }
}

// [RFC 6.5] If the TTL is above 1, it is decremented, the hop count is incremented, and the destination sequence number
// becomes the greatest one known.
void Aodv::forward_request(double now, Rreq request, int64_t hop_count) {
  int64_t ttl = std::min(request.ttl, settings_.net_diameter) - 1;
  // [RFC 6.13] A node that has just restarted forwards no RREQ.
  if (ttl < 1 || waits_after_reboot_) return;
  const RouteEntry* entry = table_.find(now, request.destination);
  if (entry != nullptr) request.destination_sequence = std::max(request.destination_sequence, entry->sequence);
  request.hop_count = hop_count;
  request.ttl = ttl;
  if (settings_.forward_jitter_s == 0) {
    broadcast(now, request_object(request).get());
    return;
  }
  delayed_.emplace(++last_delayed_, request);
  set_timer("forward", last_delayed_, settings_.forward_jitter_s * random_.draw());
}

void Aodv::broadcast_delayed(double now, int64_t number) {
  auto place = delayed_.find(number);
  if (place == delayed_.end()) throw std::runtime_error("AODV has no delayed RREQ with this number");
  Rreq request = place->second;
  delayed_.erase(place);
  broadcast(now, request_object(request).get());
}

// [RFC 6.7]
void Aodv::on_reply(double now, int64_t sender, const Rrep& reply) {
  if (reply.destination == node_) {
    drop("route_to_self", sender);
    return;
  }
  if (is_forged(now, reply.destination, reply.destination_sequence)) {
    drop("sequence_forged", sender);
    return;
  }
  if (reply.hop_count >= settings_.max_hop_count) {
    // Hop counts that cannot grow any more would not order routes.
    drop("hops_exhausted", sender);
    return;
  }
  int64_t hop_count = reply.hop_count + 1;
  // No node may prolong a route beyond the lifetime that its destination would give it.
  double max_lifetime_s = std::max(settings_.my_route_timeout_s, settings_.active_route_timeout_s);
  double expires_at = now + std::min(static_cast<double>(reply.lifetime_ms) / 1000, max_lifetime_s);
  RouteTable::Update updated =
      table_.update(now, reply.destination, reply.destination_sequence, hop_count, sender, expires_at);
  if (updated == RouteTable::kFull) drop("table_full", sender);
  if (updated == RouteTable::kInstalled && reply.originator != node_) forward_reply(now, sender, reply, hop_count);
}

// [RFC 6.7]
void Aodv::forward_reply(double now, int64_t sender, const Rrep& reply, int64_t hop_count) {
  // "the (reverse) route used to forward a RREP has its lifetime changed"
  table_.extend_lifetime(now, reply.originator, now + settings_.active_route_timeout_s);
  const RouteEntry* reverse = table_.find_valid(now, reply.originator);
  if (reverse == nullptr || waits_after_reboot_) {
    drop("no_way_back", sender);
    return;
  }
  for (RouteEntry* route : {table_.find_valid(now, reply.destination), table_.find_valid(now, sender)}) {
    if (route != nullptr) route->add_precursor(reverse->next_hop, settings_.max_precursors);
  }
  Rrep onward = reply;
  onward.hop_count = hop_count;
  send(reverse->next_hop, reply_object(onward).get(), {});
}

}  // namespace carrycast
