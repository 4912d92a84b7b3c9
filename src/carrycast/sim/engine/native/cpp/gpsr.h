// GPSR: greedy perimeter stateless routing (Karp and Kung, MobiCom 2000), as in routers/gpsr.
#pragma once
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gpsr_geometry.h"
#include "router_parts.h"
#include "random.h"
#include "router.h"
#include "tables.h"

namespace carrycast {

struct GpsrSettings {
  double beacon_s, beacon_jitter, expiry_s, seen_s, max_range_m2, beacon_error_m2;
  int64_t max_hops, max_seen, max_neighbors, beacon_skips, max_others;
  bool piggyback, overhear, suppress_beacons, is_rng, recovers, direct, stop_loops;
};

// A place as the protocol interface has it.
struct Target {
  Ref object;  // carrycast.core.protocol.Place
  Point at{};
  double radius_m = 0.0;
  bool has_node = false;
  int64_t node = 0;

  bool operator==(const Target& other) const {
    return at == other.at && radius_m == other.radius_m && has_node == other.has_node && node == other.node;
  }
};

// The fields of a packet in perimeter mode [GPSR00 Table 1].
struct Perimeter {
  Ref object;  // PerimeterHeader; null for a header that was just made.
  int64_t entry_node = 0;
  Point lp{};
  LinePoint lf{};
  int64_t e0[2] = {0, 0};
};

// A packet on its way through this node, as it was received: GeoPacketInTransit with its GeoPacket.
struct GeoTransit {
  Ref parcel;
  int64_t origin = 0, number = 0, hops = 0;
  Target place;
  std::optional<Point> at;
  std::optional<Perimeter> perimeter;
  Ref target;                // The target as the layer above of this node gave it.
  int64_t previous_hop = -1;  // The neighbor that sent the packet; -1 if this node is its origin.
  double received_at = 0.0;
};

// The neighbor table [GPSR00 §2.1], ordered by the neighbors' ids.
class GeoNeighbors {
 public:
  struct Entry {
    int64_t node;
    Point at;
    double expires_at;
  };
  enum Update { kKnown, kNew, kFull };

  int64_t version = 0;

  GeoNeighbors(double expiry_s, int64_t max_neighbors) : expiry_s_(expiry_s), most_(max_neighbors) {}
  const std::vector<Entry>& entries() const { return entries_; }
  const Entry* find(int64_t node) const;
  Update update(double now, int64_t node, Point at);
  bool remove(int64_t node);
  void remove_expired(double now);
  // The neighbor nearest to a position, and its squared distance; of equals the lowest id.
  const Entry* find_nearest(Point destination, double& distance_m2) const;

 private:
  std::vector<Entry>::iterator place_of(int64_t node);

  double expiry_s_;
  int64_t most_;
  std::vector<Entry> entries_;
  double next_expiry_;
  bool expires_ = false;  // Whether `next_expiry_` is set.
};

// What identifies a packet that has come by, or has been delivered.
struct SeenKey {
  int64_t ids[9];     // origin, number, node of the place, sender, entry node, e0, hops, kind
  double numbers[7];  // place, radius, Lp, Lf
  bool operator==(const SeenKey& other) const;
};
struct SeenHash {
  size_t operator()(const SeenKey& key) const;
};

// The packets that came by recently, of two periods.
class SeenPackets {
 public:
  SeenPackets(double period_s, int64_t max_packets) : period_s_(period_s), most_(max_packets) {}
  bool add(double now, const SeenKey& key);

 private:
  double period_s_;
  int64_t most_;
  std::unordered_set<SeenKey, SeenHash> recent_, older_;
  double period_end_ = -1.0;
  bool has_period_ = false;
};

class Gpsr : public NativeRouter {
 public:
  Gpsr(const GpsrSettings& settings, const RouterContext& context);

  void on_start(double now) override;
  void on_stop(double now) override;
  void on_timer(double now, PyObject* key) override;
  void on_message(double now, int64_t sender, PyObject* message) override;
  void on_overheard(double now, int64_t sender, PyObject* message) override;
  void on_sent(double now, int64_t token, PyObject* failure) override;
  void on_link_up(double now, PyObject* link) override;
  void on_link_down(double now, PyObject* link) override;
  void on_route(double now, PyObject* target, PyObject* parcel) override;
  void on_route_each(double now, PyObject* targets, PyObject* parcel) override;
  int64_t hops_to(double now, int64_t node) const override;
  int traverse(visitproc visit, void* arg) override;
  void clear() override;

 private:
  struct Unconfirmed {
    int64_t next_hop;
    std::vector<GeoTransit> group;
  };
  struct Here {
    bool is_known = false;
    Point at{};
    Ref object;  // Made when it is needed.
  };

  // The position of this node; not known while it is absent.
  Here ask_position();
  Here& find_position(double now);
  PyObject* position_object(Here& here);
  void update_neighbor(double now, int64_t sender, Point at);
  bool may_skip_beacon(const Here& here);

  GeoTransit read_packet(PyObject* message, bool is_bundle, int64_t sender, double now);
  std::vector<GeoTransit> split(PyObject* message, const GeoTransit& first);
  SeenKey delivery_key(const GeoTransit& transit) const;
  SeenKey arrival_key(const GeoTransit& transit, int64_t sender) const;
  std::optional<GeoTransit> make_packet(double now, PyObject* target, PyObject* parcel);
  void forward(double now, const GeoTransit& transit);
  void forward_each(double now, const std::vector<GeoTransit>& transits);
  bool is_destination(const Target& place, double own_m2) const;
  // The next hop of greedy forwarding; -1 at a local minimum.
  int64_t next_greedy_hop(const Target& place, double own_m2, bool is_greedy);
  void forward_by_perimeter(double now, const GeoTransit& transit, Here& here, const Perimeter* header);
  const std::vector<PlanarEdge>& find_planar_edges(Point here);
  std::optional<std::pair<int64_t, Perimeter>> follow_face(Point here, Point previous_hop, Point destination,
                                                           const Perimeter& header,
                                                           const std::vector<PlanarEdge>& edges);
  void send(double now, const GeoTransit& transit, Here& here, int64_t next_hop, const Perimeter* header);
  void send_group(double now, const std::vector<const GeoTransit*>& group, Here& here, int64_t next_hop);
  void transmit(int64_t next_hop, PyObject* message, std::vector<GeoTransit> group);
  void deliver(double now, const GeoTransit& transit);
  void end_packet(double now, const GeoTransit& transit, bool is_nearest, const char* reason);
  void drop_packet(double now, const GeoTransit& transit, PyObject* reason);
  void drop(PyObject* reason, PyObject* event, int64_t peer);
  void drop(const char* reason, PyObject* event, int64_t peer);

  const GpsrSettings settings_;
  Core& core_;
  int64_t node_;
  Ref host_;
  bool asks_host_;
  Random random_;
  Ref up_;
  LinkedNeighbors links_;
  GeoNeighbors table_;
  SeenPackets seen_;
  int64_t last_number_;
  int64_t last_token_ = 0;
  std::unordered_map<int64_t, Unconfirmed> unconfirmed_;
  bool has_own_ = false;
  double own_at_ = 0.0;
  Here own_;
  bool is_planar_known_ = false;
  int64_t planar_version_ = 0;
  std::vector<PlanarEdge> planar_edges_;
  // Beacons.
  bool has_beacon_ = false, has_sent_packet_ = false, has_new_neighbor_ = false;
  Point last_beacon_{};
  int64_t skipped_ = 0;
};

}  // namespace carrycast
