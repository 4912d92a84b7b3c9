#include "contention.h"

#include <algorithm>

namespace carrycast {

Contention::Contention(const CsmaSettings& settings, std::vector<CsmaStation>& stations, Ether& ether, Queue& queue,
                       PyObject* generator, Sender& sender)
    : settings_(settings), stations_(stations), ether_(ether), queue_(queue), sender_(sender),
      counting_(stations.size()) {
  random_.take_over(generator);
}

Contention::Group* Contention::make_group() {
  if (spare_.empty()) {
    owned_.push_back(std::make_unique<Group>());
    spare_.push_back(owned_.back().get());
  }
  Group* group = spare_.back();
  spare_.pop_back();
  group->number = ++groups_;
  group->stations.clear();
  return group;
}

void Contention::forget(CsmaStation& station) {
  station.access_us = kNeverUs;
  station.slots = 0;
  station.nav_us = kLongAgoUs;
  counting_.remove(station.node);
  for (Transmission* transmission : ether_.on_air) transmission->frozen.remove(station.node);
}

void Contention::rest(CsmaStation& station, int64_t slots) {
  station.slots = slots;
  station.idle_from_us = std::max(queue_.now_us, station.nav_us + settings_.difs_us);
}

void Contention::reserve(CsmaStation& station, int64_t until_us) {
  station.nav_us = until_us;
  station.slots = slots_left(station).slots;
  station.idle_from_us = until_us + settings_.difs_us;
}

Ether::SlotsLeft Contention::slots_left(const CsmaStation& station) const {
  if (station.idle_from_us <= ether_.calm_us) return {0, station.idle_from_us};
  return ether_.count_slots_left(station, queue_.now_us);
}

void Contention::wake(CsmaStation& station) {
  int64_t now_us = queue_.now_us;
  if (station.slots != 0) {
    // The backoff after its last frame may not be over.
    auto [slots, from_us] = slots_left(station);
    if (slots != 0 && ether_.find_blocking(station.node) != nullptr) {
      contend(station, slots);
      return;
    }
    if (slots != 0 && from_us + slots * settings_.slot_us > now_us) {
      station.slots = slots;
      count_down(station, from_us);
      return;
    }
  }
  bool reserved = station.nav_us + settings_.difs_us > now_us;
  if (reserved || free_us(station, now_us) > now_us || ether_.is_busy(station.node, now_us)) {
    contend(station, draw(station.window));
  } else {
    grant(station);
  }
}

int64_t Contention::free_us(const CsmaStation& station, int64_t now_us) const {
  if (ending_ != nullptr && ending_->sensed.has(station.node)) {
    return now_us + (ending_->eifs_nodes.has(station.node) ? settings_.eifs_us : settings_.difs_us);
  }
  return ether_.free_us(station.node, now_us);
}

void Contention::contend(CsmaStation& station, int64_t slots) {
  station.slots = slots;
  Transmission* blocking = ether_.find_blocking(station.node);
  if (blocking != nullptr) {
    blocking->frozen.add(station.node);
    return;
  }
  int64_t now_us = queue_.now_us;
  count_down(station, std::max(now_us, free_us(station, now_us)));
}

void Contention::count_down(CsmaStation& station, int64_t from_us) {
  from_us = std::max(from_us, station.nav_us + settings_.difs_us);
  station.access_us = from_us + station.slots * settings_.slot_us;
  counting_.add(station.node);
  if (gathering_ == nullptr) {
    Group* group = make_group();
    station.group = group->number;
    group->stations.push_back(&station);
    queue_.at(station.access_us, &on_access_, group);
  } else {
    station.group = gathering_->number;
    gathering_->stations.push_back(&station);
  }
}

void Contention::freeze(Transmission& by) {
  int64_t too_late_us = by.start_us + settings_.sense_us, slot_us = settings_.slot_us;
  for (size_t i = 0; i < counting_.size(); i++) {
    uint64_t frozen = counting_[i] & by.sensed[i];
    NodeBits::visit_word(i, frozen, [&](int64_t node) {
      CsmaStation& station = stations_[static_cast<size_t>(node)];
      if (station.access_us < too_late_us) {
        // The station sends in the same slot, before it can sense the transmission.
        frozen ^= uint64_t{1} << (static_cast<uint64_t>(node) & 63);
        return;
      }
      // Rounded up: an unfinished slot counts as not elapsed.
      int64_t left = (station.access_us - by.start_us + slot_us - 1) / slot_us;
      if (left < station.slots) station.slots = left;
      if (settings_.busy_slot_counts && station.slots != 0) station.slots--;
      station.access_us = kNeverUs;
    });
    by.frozen[i] = frozen;
    counting_[i] ^= frozen;
  }
}

void Contention::gather(Transmission& ending) {
  ending_ = &ending;
  gathering_ = make_group();
}

void Contention::resume(Transmission& after) {
  int64_t now_us = after.end_us, next_us = kNeverUs;
  Group* group = gathering_;
  ending_ = nullptr;
  gathering_ = nullptr;
  for (const CsmaStation* station : group->stations) next_us = std::min(next_us, station->access_us);
  ether_.hand_over(after);
  for (size_t i = 0; i < counting_.size(); i++) {
    counting_[i] |= after.frozen[i];
    NodeBits::visit_word(i, after.frozen[i], [&](int64_t node) {
      CsmaStation& station = stations_[static_cast<size_t>(node)];
      int64_t from_us = now_us + (after.eifs_nodes.has(node) ? settings_.eifs_us : settings_.difs_us);
      from_us = std::max(from_us, station.nav_us + settings_.difs_us);
      station.access_us = from_us + station.slots * settings_.slot_us;
      station.group = group->number;
      group->stations.push_back(&station);
      next_us = std::min(next_us, station.access_us);
    });
  }
  if (next_us < kNeverUs) {
    queue_.at(next_us, &on_access_, group);
  } else {
    spare_.push_back(group);
  }
}

void Contention::reach_access(Group* group) {
  int64_t now_us = queue_.now_us;
  // Of its own, because a station that sends may call for another group. By id, as in the Python engine.
  std::vector<CsmaStation*> due = std::move(due_);
  due.clear();
  for (CsmaStation* station : group->stations) {
    if (station->access_us == now_us) due.push_back(station);
  }
  std::sort(due.begin(), due.end(), [](const CsmaStation* a, const CsmaStation* b) { return a->node < b->node; });
  for (CsmaStation* station : due) {
    if (station->access_us == now_us) grant(*station);
  }
  due_ = std::move(due);
  int64_t next_us = kNeverUs;
  std::vector<CsmaStation*>& stations = group->stations;
  stations.erase(std::remove_if(stations.begin(), stations.end(),
                                [group](const CsmaStation* station) {
                                  return station->access_us >= kNeverUs || station->group != group->number;
                                }),
                 stations.end());
  for (const CsmaStation* station : stations) next_us = std::min(next_us, station->access_us);
  if (next_us < kNeverUs) {
    queue_.at(next_us, &on_access_, group);
  } else {
    spare_.push_back(group);
  }
}

void Contention::grant(CsmaStation& station) {
  counting_.remove(station.node);
  station.access_us = kNeverUs;
  station.slots = 0;
  sender_.send(station);
}

}  // namespace carrycast
