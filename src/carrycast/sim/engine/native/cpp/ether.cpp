#include "ether.h"

#include <algorithm>

namespace carrycast {

namespace {
// As REMEMBERED of sim/radio/ether.py.
constexpr size_t kRemembered = 1024;
}  // namespace

Ether::Ether(const CsmaSettings& settings, size_t nodes, const Queue& queue, Places* places)
    : settings_(settings), nodes_(nodes), queue_(queue), places_(places),
      calming_us_(settings.eifs_us + settings.cw_min * settings.slot_us) {}

Transmission* Ether::make() {
  if (spare_.empty()) {
    owned_.push_back(std::make_unique<Transmission>(nodes_));
    return owned_.back().get();
  }
  Transmission* made = spare_.back();
  spare_.pop_back();
  return made;
}

void Ether::release(Transmission* transmission) {
  transmission->frame = FrameRef();
  transmission->has_collided = false;
  for (NodeBits* bits : {&transmission->receivers, &transmission->sensed, &transmission->interfered,
                         &transmission->frozen, &transmission->collided, &transmission->sending,
                         &transmission->eifs_nodes}) {
    bits->clear();
  }
  spare_.push_back(transmission);
}

void Ether::begin(Transmission& added) {
  for (Transmission* other : on_air) {
    // A transmission that ends in the microsecond in which the new one begins is over.
    if (other->end_us > added.start_us) collide(added, *other);
  }
  if (on_air.empty() && !ended_.empty()) {
    int64_t last_us = past(0).end_us;
    if (added.start_us - last_us >= calming_us_) calm_us = last_us;
  }
  on_air.push_back(&added);
}

void Ether::collide(Transmission& added, Transmission& other) {
  bool captures = settings_.capture > 0;
  double now_s = queue_.now_s;
  Place from_added{}, from_other{};
  bool located = false;
  for (size_t i = 0; i < added.receivers.size(); i++) {
    uint64_t at_added = added.receivers[i] & other.interfered[i];
    uint64_t at_other = other.receivers[i] & added.interfered[i];
    if ((at_added | at_other) == 0) continue;
    if (captures) {
      if (!located) {
        from_added = places_->find(added.sender, now_s);
        from_other = places_->find(other.sender, now_s);
        located = true;
      }
      uint64_t lost_added = 0, lost_other = 0;
      NodeBits::visit_word(i, at_added | at_other, [&](int64_t node) {
        Place at = places_->find(node, now_s);
        double added_m2 = (at.x_m - from_added.x_m) * (at.x_m - from_added.x_m) +
                          (at.y_m - from_added.y_m) * (at.y_m - from_added.y_m);
        double other_m2 = (at.x_m - from_other.x_m) * (at.x_m - from_other.x_m) +
                          (at.y_m - from_other.y_m) * (at.y_m - from_other.y_m);
        uint64_t bit = uint64_t{1} << (static_cast<uint64_t>(node) & 63);
        if (other_m2 < settings_.capture * added_m2 || node == other.sender) lost_added |= bit;
        if (added_m2 < settings_.capture * other_m2 || node == added.sender) lost_other |= bit;
      });
      at_added &= lost_added;
      at_other &= lost_other;
    }
    added.collided[i] |= at_added;
    other.collided[i] |= at_other;
    added.has_collided = added.has_collided || at_added != 0;
    other.has_collided = other.has_collided || at_other != 0;
  }
  if (added.collided.has(other.sender)) added.sending.add(other.sender);
  if (other.collided.has(added.sender)) other.sending.add(added.sender);
}

void Ether::end(Transmission& old) {
  on_air.erase(std::find(on_air.begin(), on_air.end(), &old));
  if (old.has_collided) {
    // [IEEE 802.11-1999 §9.2.3.4] EIFS follows a reception with errors. A sending node received nothing.
    for (size_t i = 0; i < old.collided.size(); i++) old.eifs_nodes[i] |= old.collided[i] & ~old.sending[i];
  }
  if (ended_.size() < kRemembered) {
    ended_.push_back({old.start_us, old.end_us, old.sensed, old.eifs_nodes});
    next_ = ended_.size() % kRemembered;
  } else {
    ended_[next_] = {old.start_us, old.end_us, old.sensed, old.eifs_nodes};
    next_ = (next_ + 1) % kRemembered;
  }
}

void Ether::hand_over(Transmission& old) {
  for (Transmission* other : on_air) {
    bool ends_together = other->end_us == old.end_us;
    for (size_t i = 0; i < old.frozen.size(); i++) {
      uint64_t held = old.frozen[i] & other->sensed[i];
      old.frozen[i] ^= held;
      other->frozen[i] |= held;
      // If two end together, the one that could be received decides between EIFS and DIFS.
      if (ends_together) other->eifs_nodes[i] |= held & old.eifs_nodes[i] & ~other->receivers[i];
    }
  }
}

Transmission* Ether::find_blocking(int64_t node) {
  Transmission* last = nullptr;
  for (Transmission* transmission : on_air) {
    if (transmission->sensed.has(node) && (last == nullptr || transmission->end_us > last->end_us)) last = transmission;
  }
  return last;
}

bool Ether::is_busy(int64_t node, int64_t now_us) const {
  int64_t before_us = now_us - settings_.sense_us;
  return std::any_of(on_air.begin(), on_air.end(), [&](const Transmission* transmission) {
    return transmission->sensed.has(node) && (transmission->start_us <= before_us || transmission->sender == node);
  });
}

int64_t Ether::free_us(int64_t node, int64_t now_us) const {
  int64_t horizon_us = now_us - settings_.eifs_us;
  for (size_t later = 0; later < ended_.size(); later++) {
    const Ended& ended = past(later);
    if (ended.end_us < horizon_us) break;
    if (ended.sensed.has(node)) return ended.end_us + space_us(ended, node);
  }
  return 0;
}

Ether::SlotsLeft Ether::count_slots_left(const CsmaStation& station, int64_t now_us) const {
  int64_t node = station.node, slots = station.slots, since_us = station.idle_from_us, edge_us = now_us;
  for (const Transmission* transmission : on_air) {
    if (transmission->start_us < edge_us && transmission->sensed.has(node)) edge_us = transmission->start_us;
  }
  bool quiet = edge_us == now_us;
  int64_t from_us = since_us;
  // From the latest end backwards, so that the time between an end and the edge is idle.
  for (size_t later = 0; later < ended_.size(); later++) {
    const Ended& ended = past(later);
    bool early = ended.end_us <= since_us;
    int64_t free_us = since_us;
    if (ended.sensed.has(node)) {
      free_us = std::max(ended.end_us + space_us(ended, node), since_us);
    } else if (!early) {
      continue;
    }
    if (quiet) {
      quiet = false;
      from_us = free_us;
    } else if (edge_us > free_us) {
      slots -= (edge_us - free_us) / settings_.slot_us;
    }
    if (ended.start_us < edge_us) edge_us = ended.start_us;
    if (slots <= 0) return {0, from_us};
    if (early) return {slots, from_us};
  }
  // The backoff began before the oldest transmission that is kept.
  return {ended_.size() == kRemembered ? 0 : slots, from_us};
}

}  // namespace carrycast
