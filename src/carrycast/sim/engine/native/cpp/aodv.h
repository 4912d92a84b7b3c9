// AODV: ad hoc on-demand distance vector routing (RFC 3561), as in routers/aodv.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "aodv_table.h"
#include "random.h"
#include "router.h"
#include "router_parts.h"
#include "tables.h"

namespace carrycast {

struct AodvSettings {
  double active_route_timeout_s, my_route_timeout_s, node_traversal_s, net_traversal_s, delete_period_s, rest_s;
  double path_discovery_s, reverse_route_s, hello_interval_s, hello_jitter, max_repair_share, forward_jitter_s;
  double buffer_s;
  int64_t net_diameter, ttl_start, ttl_increment, ttl_threshold, timeout_buffer, request_retries, request_rate;
  int64_t error_rate, hello_loss, local_add_ttl, buffer, max_hops, max_routes, max_requests;
  bool backs_off_binary, detects_by_hello, repairs_near_target, repairs_past_half, rebuffer, raise_on_reply;
  bool destination_only, gratuitous, reboot_wait;
  int64_t max_others, max_unreachable, max_hop_count, max_jump, max_sequence, max_precursors;
};

// A packet on its way through this node: AodvPacketInTransit with its Packet.
struct AodvTransit {
  Ref parcel;
  int64_t origin = 0, destination = 0, hops = 0;
  Ref target;                 // The target as the layer above of this node gave it.
  int64_t previous_hop = -1;  // The neighbor that sent the packet; -1 if this node is its origin.
  double received_at = 0.0;
  double buffered_until = 0.0;
};

// A RREQ [RFC 5.1].
struct Rreq {
  int64_t originator, originator_sequence, id, destination, destination_sequence, hop_count, ttl;
  bool gratuitous, destination_only;
};

// A RREP [RFC 5.2].
struct Rrep {
  int64_t originator, destination, destination_sequence, hop_count, lifetime_ms;
};

// At most `per_s` messages in any second [RFC 6.3, 6.11].
class MessageRateLimit {
 public:
  explicit MessageRateLimit(int64_t per_s) : per_s_(per_s) {}
  double wait_s(double now);
  bool take(double now);

 private:
  int64_t per_s_;
  std::deque<double> times_;
};

// The RREQs for one destination that are still to be sent.
struct PendingDiscovery {
  std::vector<std::pair<int64_t, double>> attempts;  // TTL and time-out.
  size_t sent = 0;
  int64_t repair_hop_count = -1;  // Of a local repair: the hop count before the break.
};

class Aodv : public NativeRouter {
 public:
  Aodv(const AodvSettings& settings, const RouterContext& context);

  void on_start(double now) override;
  void on_stop(double now) override;
  void on_timer(double now, PyObject* key) override;
  void on_message(double now, int64_t sender, PyObject* message) override;
  void on_sent(double now, int64_t token, PyObject* failure) override;
  void on_link_up(double now, PyObject* link) override;
  void on_link_down(double now, PyObject* link) override;
  void on_route(double now, PyObject* target, PyObject* parcel) override;
  void on_route_each(double now, PyObject* targets, PyObject* parcel) override;
  int64_t hops_to(double now, int64_t node) const override;
  int traverse(visitproc visit, void* arg) override;
  void clear() override;

 private:
  using Transits = std::vector<AodvTransit>;
  using Routes = std::vector<RouteEntry*>;
  struct Unconfirmed {
    int64_t neighbor;
    Transits packets;
  };

  // Packets (aodv.cpp).
  // Adds the packet for one target, unless the target is this node or none.
  void add_packet(double now, PyObject* target, PyObject* parcel, Transits& packets);
  void on_packet(double now, int64_t sender, PyObject* message, bool is_bundle);
  void extend_reverse_routes(double now, int64_t sender, int64_t origin);
  void forward_each(double now, const Transits& transits);
  void send_group(double now, int64_t next_hop, const std::vector<const AodvTransit*>& group);
  void forward(double now, const AodvTransit& transit);
  void buffer_packet(double now, const AodvTransit& transit);
  void drop_expired(double now);
  Transits take_buffered(int64_t destination);
  void drop_packet(double now, const AodvTransit& transit, PyObject* reason);
  void send_buffered(double now, int64_t destination);
  void on_discovery_failed(double now, int64_t destination, const PendingDiscovery& discovery);
  void on_link_broken(double now, int64_t neighbor, const Transits& packets);
  bool try_local_repair(double now, const AodvTransit& transit);

  // The state that the parts share (aodv.cpp).
  int64_t increment_sequence(int64_t least);
  bool is_forged(double now, int64_t node, int64_t sequence);
  void send(int64_t neighbor, PyObject* message, Transits packets);
  void broadcast(double now, PyObject* message);
  void drop(PyObject* reason, int64_t peer, PyObject* event);
  void drop(const char* reason, int64_t peer) { drop(interned(reason), peer, nullptr); }
  void set_timer(const char* kind, int64_t number, double delay_s);
  void cancel_timer(const char* kind, int64_t number);
  void set_timer(const char* key, double delay_s) { core_.set_timer(node_, kRouting, interned(key), delay_s); }
  void cancel_timer(const char* key) { core_.cancel_timer(node_, kRouting, interned(key)); }

  // Route discovery [RFC 6.3 to 6.8, 6.12, 6.13] (aodv_discovery.cpp).
  bool is_pending(int64_t destination) const { return pending_.count(destination) != 0; }
  void start_reboot_wait();
  void start_discovery(double now, int64_t destination);
  void start_local_repair(double now, int64_t destination, int64_t ttl, int64_t hop_count);
  std::vector<std::pair<int64_t, double>> plan_ring_search(int64_t known_hop_count) const;
  double ring_traversal_time_s(int64_t ttl) const;
  // The discovery if it has failed.
  std::optional<PendingDiscovery> send_next_rreq(double now, int64_t destination);
  std::optional<PendingDiscovery> finish_discovery(int64_t destination);
  void broadcast_rreq(double now, int64_t destination, int64_t ttl);
  void on_reply_failed(double now, int64_t neighbor);
  void on_request(double now, int64_t sender, const Rreq& request);
  bool accept_request(double now, int64_t sender, const Rreq& request);
  MessageRateLimit& limit_of(int64_t originator);
  void reply_as_destination(const Rreq& request, const RouteEntry* reverse);
  bool reply_as_intermediate(double now, int64_t sender, const Rreq& request, RouteEntry* reverse);
  void send_reply(const RouteEntry* route, const Rrep& reply);
  void forward_request(double now, Rreq request, int64_t hop_count);
  void broadcast_delayed(double now, int64_t number);
  void on_reply(double now, int64_t sender, const Rrep& reply);
  void forward_reply(double now, int64_t sender, const Rrep& reply, int64_t hop_count);

  // Route maintenance [RFC 6.9, 6.11] (aodv_maintenance.cpp).
  std::vector<int64_t> notify_precursors(double now, const Routes& routes, bool no_delete);
  void notify_sender(double now, int64_t sender, int64_t destination);
  void on_error(double now, int64_t sender, PyObject* message);
  void send_errors(double now, const std::vector<int64_t>& receivers,
                   const std::vector<std::pair<int64_t, int64_t>>& unreachable, bool no_delete);
  void start_hellos();
  void send_hello(double now);
  void on_hello(double now, int64_t sender, int64_t sequence);
  void restart_neighbor_timer(int64_t sender);
  void forget_neighbor(int64_t neighbor);
  double allowed_silence_s() const {
    return settings_.hello_interval_s * (static_cast<double>(settings_.hello_loss) + settings_.hello_jitter);
  }

  const AodvSettings settings_;
  Core& core_;
  int64_t node_;
  int64_t incarnation_;
  Random random_;
  Ref up_;
  RouteTable table_;
  LinkedNeighbors links_;
  int64_t sequence_;
  double last_broadcast_s_ = 0.0;
  int64_t last_token_ = 0;
  std::unordered_map<int64_t, Unconfirmed> unconfirmed_;
  Transits buffer_;
  // Route discovery.
  std::map<int64_t, PendingDiscovery> pending_;
  std::unordered_map<int64_t, double> rests_;
  bool waits_after_reboot_ = false;
  int64_t next_rreq_id_;
  MessageRateLimit rreq_limit_;
  struct SeenRreq {
    int64_t originator, id;
    double until;
  };
  std::deque<SeenRreq> seen_order_;  // The oldest ends first.
  PairTable seen_;
  std::unordered_map<int64_t, MessageRateLimit> limits_;
  std::map<int64_t, Rreq> delayed_;
  int64_t last_delayed_ = 0;
  std::unordered_map<int64_t, double> blacklist_;
  // Route maintenance.
  MessageRateLimit error_limit_;
  std::map<int64_t, bool> monitored_;
};

struct AodvPacketFields {
  Field parcel, origin, destination, hops;
};

// The classes of routers/aodv/messages.py, and their fields.
struct AodvClasses {
  PyObject *request = nullptr, *reply = nullptr, *error = nullptr, *hello = nullptr, *packet = nullptr;
  PyObject *bundle = nullptr, *place = nullptr, *packet_names = nullptr, *bundle_names = nullptr;
  Field request_fields[9], reply_fields[5], error_unreachable, error_no_delete, hello_sequence, bundle_others;
  AodvPacketFields packet_fields, bundle_fields;
};
extern AodvClasses aodv_classes;

}  // namespace carrycast
