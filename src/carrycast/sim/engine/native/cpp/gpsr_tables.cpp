// The neighbor table and the memory of packets, as in routers/gpsr/neighbor_table.py and packets.py.
#include <algorithm>
#include <cstring>
#include <limits>

#include "gpsr.h"

namespace carrycast {

std::vector<GeoNeighbors::Entry>::iterator GeoNeighbors::place_of(int64_t node) {
  return std::lower_bound(entries_.begin(), entries_.end(), node,
                          [](const Entry& entry, int64_t wanted) { return entry.node < wanted; });
}

const GeoNeighbors::Entry* GeoNeighbors::find(int64_t node) const {
  auto place = const_cast<GeoNeighbors*>(this)->place_of(node);
  return place != entries_.end() && place->node == node ? &*place : nullptr;
}

GeoNeighbors::Update GeoNeighbors::update(double now, int64_t node, Point at) {
  double expires_at = now + expiry_s_;
  auto place = place_of(node);
  if (place != entries_.end() && place->node == node) {
    if (!(place->at == at)) version++;
    // `next_expiry_` stays a lower bound, since this entry expires later than before.
    place->at = at;
    place->expires_at = expires_at;
    return kKnown;
  }
  if (static_cast<int64_t>(entries_.size()) >= most_) return kFull;
  entries_.insert(place, Entry{node, at, expires_at});
  version++;
  next_expiry_ = expires_ ? std::min(next_expiry_, expires_at) : expires_at;
  expires_ = true;
  return kNew;
}

bool GeoNeighbors::remove(int64_t node) {
  auto place = place_of(node);
  if (place == entries_.end() || place->node != node) return false;
  entries_.erase(place);
  version++;
  return true;
}

void GeoNeighbors::remove_expired(double now) {
  if (!expires_ || now < next_expiry_) return;
  auto kept = std::remove_if(entries_.begin(), entries_.end(), [now](const Entry& entry) { return entry.expires_at <= now; });
  version += entries_.end() - kept;
  entries_.erase(kept, entries_.end());
  expires_ = !entries_.empty();
  next_expiry_ = std::numeric_limits<double>::infinity();
  for (const Entry& entry : entries_) next_expiry_ = std::min(next_expiry_, entry.expires_at);
}

const GeoNeighbors::Entry* GeoNeighbors::find_nearest(Point destination, double& distance_m2) const {
  const Entry* best = nullptr;
  for (const Entry& entry : entries_) {
    double found_m2 = squared_distance_m2(entry.at, destination);
    // Ids ascend, so that of equals the lowest stays.
    if (best == nullptr || found_m2 < distance_m2) {
      best = &entry;
      distance_m2 = found_m2;
    }
  }
  return best;
}

bool SeenKey::operator==(const SeenKey& other) const {
  return std::memcmp(ids, other.ids, sizeof(ids)) == 0 && std::memcmp(numbers, other.numbers, sizeof(numbers)) == 0;
}

size_t SeenHash::operator()(const SeenKey& key) const {
  uint64_t hash = 0;
  for (int64_t id : key.ids) hash = mix(hash, static_cast<uint64_t>(id));
  for (double number : key.numbers) {
    uint64_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    hash = mix(hash, bits);
  }
  return static_cast<size_t>(hash ^ hash >> 32);
}

bool SeenPackets::add(double now, const SeenKey& key) {
  if (!has_period_ || now >= period_end_ || static_cast<int64_t>(recent_.size()) >= most_) {
    // After more than a period without packets, both are forgotten.
    bool follows = has_period_ && now < period_end_ + period_s_;
    older_ = follows ? std::move(recent_) : std::unordered_set<SeenKey, SeenHash>();
    recent_ = {};
    period_end_ = now + period_s_;
    has_period_ = true;
  }
  if (older_.count(key) != 0) return false;
  return recent_.insert(key).second;
}

}  // namespace carrycast
