#include "aodv_table.h"

#include <algorithm>

namespace carrycast {

void RouteEntry::add_precursor(int64_t neighbor, int64_t most) {
  if (static_cast<int64_t>(precursors.size()) >= most) return;
  if (std::find(precursors.begin(), precursors.end(), neighbor) == precursors.end()) precursors.push_back(neighbor);
}

void RouteEntry::remove_precursor(int64_t neighbor) {
  precursors.erase(std::remove(precursors.begin(), precursors.end(), neighbor), precursors.end());
}

RouteEntry* RouteTable::find_valid(double now, int64_t destination) const {
  auto place = entries_.find(destination);
  if (place == entries_.end() || !place->second->valid || !(place->second->expires_at > now)) return nullptr;
  return place->second.get();
}

RouteEntry* RouteTable::find(double now, int64_t destination) {
  auto place = entries_.find(destination);
  if (place == entries_.end()) return nullptr;
  RouteEntry& entry = *place->second;
  if (entry.valid && entry.expires_at <= now) invalidate_at(entry, entry.expires_at);
  if (!entry.valid && entry.expires_at <= now) {
    entries_.erase(place);
    return nullptr;
  }
  return &entry;
}

bool RouteTable::has_active_route(double now) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [now](const auto& one) { return one.second->valid && one.second->expires_at > now; });
}

bool RouteTable::update_previous_hop(double now, int64_t neighbor, double expires_at) {
  RouteEntry* entry = find(now, neighbor);
  if (entry == nullptr) return create(now, RouteEntry{neighbor, neighbor, 1, 0, expires_at});
  if (entry->valid && entry->next_hop == neighbor) {
    entry->expires_at = std::max(entry->expires_at, expires_at);
  } else {
    replace(*entry, neighbor, 1, entry->sequence, expires_at);
  }
  return true;
}

RouteTable::Update RouteTable::update(double now, int64_t destination, int64_t sequence, int64_t hop_count,
                                      int64_t next_hop, double expires_at) {
  RouteEntry* entry = find(now, destination);
  if (entry == nullptr) {
    bool created = create(now, RouteEntry{destination, next_hop, hop_count, sequence, expires_at});
    return created ? kInstalled : kFull;
  }
  // `is_better_route`: an unknown own number is 0, which is below every other.
  bool is_better = sequence > entry->sequence ||
                   (sequence == entry->sequence && (!entry->valid || hop_count < entry->hop_count));
  if (!is_better) return kAsGood;
  replace(*entry, next_hop, hop_count, sequence, expires_at);
  return kInstalled;
}

void RouteTable::extend_lifetime(double now, int64_t destination, double expires_at) {
  RouteEntry* entry = find(now, destination);
  if (entry == nullptr) return;
  entry->expires_at = std::max(entry->expires_at, entry->valid ? expires_at : now + delete_period_s_);
}

std::vector<RouteEntry*> RouteTable::invalidate_next_hop(double now, int64_t neighbor) {
  std::vector<RouteEntry*> invalidated;
  for (auto& [destination, entry] : entries_) {
    entry->remove_precursor(neighbor);
    if (entry->next_hop == neighbor && entry->valid && entry->expires_at > now) {
      invalidate_at(*entry, now);
      invalidated.push_back(entry.get());
    }
  }
  std::sort(invalidated.begin(), invalidated.end(),
            [](const RouteEntry* a, const RouteEntry* b) { return a->number < b->number; });
  return invalidated;
}

void RouteTable::invalidate(double now, RouteEntry& entry, int64_t sequence) {
  invalidate_at(entry, now);
  entry.sequence = std::max(entry.sequence, sequence);
}

void RouteTable::invalidate_at(RouteEntry& entry, double at) {
  entry.valid = false;
  // [RFC 6.1, 6.11] The sequence number of a broken or expired route grows by one.
  if (entry.sequence != 0 && entry.sequence < max_sequence_) entry.sequence++;
  entry.expires_at = at + delete_period_s_;
}

void RouteTable::replace(RouteEntry& entry, int64_t next_hop, int64_t hop_count, int64_t sequence, double expires_at) {
  bool same_hop = entry.valid && entry.next_hop == next_hop;
  entry.expires_at = same_hop ? std::max(entry.expires_at, expires_at) : expires_at;
  entry.next_hop = next_hop;
  entry.hop_count = hop_count;
  entry.sequence = sequence;
  entry.valid = true;
}

bool RouteTable::create(double now, RouteEntry entry) {
  if (now >= (static_cast<int64_t>(entries_.size()) < most_ ? purge_at_ : full_purge_at_)) purge(now);
  if (static_cast<int64_t>(entries_.size()) >= most_) return false;
  entry.number = ++created_;
  int64_t destination = entry.destination;
  entries_[destination] = std::make_unique<RouteEntry>(std::move(entry));
  return true;
}

void RouteTable::purge(double now) {
  purge_at_ = now + delete_period_s_ / 2;
  full_purge_at_ = now + 1.0;
  std::vector<int64_t> destinations;
  for (const auto& one : entries_) destinations.push_back(one.first);
  for (int64_t destination : destinations) find(now, destination);
}

}  // namespace carrycast
