// The route table of AODV [RFC 2, 6.1, 6.2], as in routers/aodv/route_table.py.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace carrycast {

// A route table entry [RFC 2].
struct RouteEntry {
  int64_t destination, next_hop, hop_count, sequence;
  double expires_at;
  bool valid = true;
  std::vector<int64_t> precursors;  // In the order of their arrival.
  uint64_t number = 0;              // The order of creation.

  void add_precursor(int64_t neighbor, int64_t most);
  void remove_precursor(int64_t neighbor);
};

class RouteTable {
 public:
  // What became of a received route.
  enum Update { kInstalled, kAsGood, kFull };

  RouteTable(double delete_period_s, int64_t max_entries, int64_t max_sequence)
      : delete_period_s_(delete_period_s), most_(max_entries), max_sequence_(max_sequence),
        purge_at_(delete_period_s) {}

  // The entry of a destination if packets may use its route, else null.
  RouteEntry* find_valid(double now, int64_t destination) const;
  // The entry of a destination, valid or invalid. A route whose lifetime is over becomes invalid.
  RouteEntry* find(double now, int64_t destination);
  bool has_active_route(double now) const;
  // [RFC 6.5, 6.7] False if the table is full.
  bool update_previous_hop(double now, int64_t neighbor, double expires_at);
  // [RFC 6.2, 6.5, 6.7]
  Update update(double now, int64_t destination, int64_t sequence, int64_t hop_count, int64_t next_hop,
                double expires_at);
  void extend_lifetime(double now, int64_t destination, double expires_at);
  // [RFC 6.11] The entries of the routes over a neighbor, which become invalid, in the order of their creation.
  std::vector<RouteEntry*> invalidate_next_hop(double now, int64_t neighbor);
  void invalidate(double now, RouteEntry& entry, int64_t sequence);

 private:
  void invalidate_at(RouteEntry& entry, double at);
  void replace(RouteEntry& entry, int64_t next_hop, int64_t hop_count, int64_t sequence, double expires_at);
  bool create(double now, RouteEntry entry);
  void purge(double now);

  double delete_period_s_;
  int64_t most_, max_sequence_;
  std::unordered_map<int64_t, std::unique_ptr<RouteEntry>> entries_;
  double purge_at_, full_purge_at_ = 0.0;
  uint64_t created_ = 0;
};

}  // namespace carrycast
