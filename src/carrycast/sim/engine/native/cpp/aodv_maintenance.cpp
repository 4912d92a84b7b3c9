// Route maintenance [RFC 6.9, 6.11], as in routers/aodv/route_maintenance.py.
#include <algorithm>

#include "aodv.h"

namespace carrycast {

namespace {

void add_once(std::vector<int64_t>& nodes, int64_t node) {
  if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
}

}  // namespace

std::vector<int64_t> Aodv::notify_precursors(double now, const Routes& routes, bool no_delete) {
  std::vector<int64_t> receivers;
  std::vector<std::pair<int64_t, int64_t>> unreachable;
  for (const RouteEntry* route : routes) {
    if (route->precursors.empty()) continue;
    for (int64_t neighbor : route->precursors) add_once(receivers, neighbor);
    unreachable.emplace_back(route->destination, route->sequence);
  }
  send_errors(now, receivers, unreachable, no_delete);
  if (!no_delete) {
    for (RouteEntry* route : routes) route->precursors.clear();
  }
  return receivers;
}

// [RFC 6.11 (ii)] A packet came for a destination without a valid route.
void Aodv::notify_sender(double now, int64_t sender, int64_t destination) {
  const RouteEntry* entry = table_.find(now, destination);
  std::vector<int64_t> receivers{sender};
  if (entry != nullptr) {
    for (int64_t neighbor : entry->precursors) add_once(receivers, neighbor);
  }
  send_errors(now, receivers, {{destination, entry == nullptr ? 0 : entry->sequence}}, false);
}

// [RFC 6.11 (iii)]
void Aodv::on_error(double now, int64_t sender, PyObject* message) {
  PyObject* unreachable = aodv_classes.error_unreachable.get(message);
  bool no_delete = is_true(aodv_classes.error_no_delete.get(message));
  Routes affected;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(unreachable); i++) {
    PyObject* pair = PyTuple_GET_ITEM(unreachable, i);
    int64_t destination = to_int(item(pair, 0)), sequence = to_int(item(pair, 1));
    RouteEntry* route = table_.find_valid(now, destination);
    if (route == nullptr || route->next_hop != sender) continue;
    if (no_delete) {
      affected.push_back(route);
    } else if (0 < sequence && sequence <= route->sequence) {
      // The own route was made after the break.
      drop("error_stale", sender);
    } else {
      bool forged = sequence > 0 && is_forged(now, destination, sequence);
      if (forged) drop("sequence_forged", sender);
      // Whatever the number, the next hop says that it does not forward packets to the destination.
      table_.invalidate(now, *route, forged ? 0 : sequence);
      affected.push_back(route);
    }
  }
  notify_precursors(now, affected, no_delete);
}

void Aodv::send_errors(double now, const std::vector<int64_t>& receivers,
                       const std::vector<std::pair<int64_t, int64_t>>& unreachable, bool no_delete) {
  if (receivers.empty()) return;
  size_t most = static_cast<size_t>(settings_.max_unreachable);
  for (size_t start = 0; start < unreachable.size(); start += most) {
    if (!error_limit_.take(now)) {
      // [RFC 6.11] RERR_RATELIMIT
      drop("error_rate", -1);
      return;
    }
    size_t end = std::min(start + most, unreachable.size());
    Ref lost = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(end - start)));
    for (size_t i = start; i < end; i++) {
      PyObject* pair = check(PyTuple_Pack(2, from_int(unreachable[i].first).get(), from_int(unreachable[i].second).get()));
      PyTuple_SET_ITEM(lost.get(), static_cast<Py_ssize_t>(i - start), pair);
    }
    Ref error = call(aodv_classes.error, lost.get(), no_delete ? Py_True : Py_False);
    // [RFC 6.11] Unicast to a single precursor, else broadcast.
    if (receivers.size() == 1) {
      core_.transmit(node_, receivers.front(), kRouting, error.get(), nullptr, nullptr);
    } else {
      broadcast(now, error.get());
    }
  }
}

// HELLOs [RFC 6.9].

void Aodv::start_hellos() {
  if (settings_.detects_by_hello) set_timer("hello", settings_.hello_interval_s * random_.draw());
}

void Aodv::send_hello(double now) {
  bool has_broadcast = last_broadcast_s_ > now - settings_.hello_interval_s && last_broadcast_s_ > 0;
  if (!has_broadcast && table_.has_active_route(now)) {
    Ref hello = call(aodv_classes.hello, from_int(sequence_).get());
    broadcast(now, hello.get());
  }
  double jitter = settings_.hello_jitter, factor = 1.0;
  if (jitter != 0) {
    double least = 1 - jitter, longest = 1 + jitter;
    factor = least + (longest - least) * random_.draw();
  }
  set_timer("hello", settings_.hello_interval_s * factor);
}

void Aodv::on_hello(double now, int64_t sender, int64_t sequence) {
  double expires_at = now + allowed_silence_s();
  if (is_forged(now, sender, sequence)) {
    drop("sequence_forged", sender);
  } else if (table_.update(now, sender, sequence, 1, sender, expires_at) == RouteTable::kFull) {
    drop("table_full", sender);
  } else if (settings_.detects_by_hello) {
    monitored_[sender] = true;
    restart_neighbor_timer(sender);
  }
}

void Aodv::restart_neighbor_timer(int64_t sender) {
  if (monitored_.count(sender) != 0) set_timer("neighbor", sender, allowed_silence_s());
}

void Aodv::forget_neighbor(int64_t neighbor) {
  if (monitored_.erase(neighbor) != 0) cancel_timer("neighbor", neighbor);
}

}  // namespace carrycast
