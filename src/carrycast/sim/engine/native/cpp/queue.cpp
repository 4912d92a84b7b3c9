#include "queue.h"

#include <algorithm>
#include <cmath>

namespace carrycast {

namespace {
constexpr double kNeverS = 1e12;
constexpr size_t kCompactFrom = 1024;
// So many entries are run between two checks for Ctrl-C.
constexpr int64_t kSignalEvery = 4096;
}  // namespace

int64_t delay_us(double delay_s) {
  if (!(delay_s > 0)) return 0;
  double whole_us = std::ceil((delay_s < kNeverS ? delay_s : kNeverS) * static_cast<double>(kUsPerSecond) - 1e-3);
  return whole_us > 1 ? static_cast<int64_t>(whole_us) : 1;
}

void Queue::at(int64_t time_us, Action* action, void* data) {
  Entry entry{time_us, ++sequence_, action, data};
  if (time_us < horizon_us_) {
    heap_.push_back(entry);
    std::push_heap(heap_.begin(), heap_.end(), IsLater());
    return;
  }
  int64_t second = time_us / kUsPerSecond;
  auto [place, is_new] = later_.try_emplace(second);
  if (is_new) seconds_.push(second);
  place->second.push_back(entry);
  waiting_++;
}

void Queue::run(int64_t until_us) {
  while (!heap_.empty() || begin_second(until_us)) {
    if (heap_.front().time_us > until_us) break;
    std::pop_heap(heap_.begin(), heap_.end(), IsLater());
    Entry entry = heap_.back();
    heap_.pop_back();
    set_time(entry.time_us);
    popped++;
    if (popped % kSignalEvery == 0 && PyErr_CheckSignals() < 0) {
      entry.action->discard(entry.data);
      throw PythonError();
    }
    entry.action->fire(entry.data);
  }
  set_time(until_us);
}

bool Queue::begin_second(int64_t until_us) {
  if (seconds_.empty() || seconds_.top() * kUsPerSecond > until_us) return false;
  int64_t second = seconds_.top();
  seconds_.pop();
  horizon_us_ = (second + 1) * kUsPerSecond;
  auto place = later_.find(second);
  heap_ = std::move(place->second);
  later_.erase(place);
  waiting_ -= heap_.size();
  std::make_heap(heap_.begin(), heap_.end(), IsLater());
  return true;
}

void Queue::on_cancelled() {
  cancelled_++;
  if (cancelled_ > kCompactFrom && 2 * cancelled_ > size()) remove_cancelled();
}

void Queue::remove_cancelled() {
  auto keep_pending = [](std::vector<Entry>& entries) {
    size_t kept = 0;
    for (Entry& entry : entries) {
      if (entry.action->is_cancelled(entry.data)) {
        entry.action->discard(entry.data);
      } else {
        entries[kept++] = entry;
      }
    }
    entries.resize(kept);
  };
  keep_pending(heap_);
  std::make_heap(heap_.begin(), heap_.end(), IsLater());
  seconds_ = {};
  waiting_ = 0;
  for (auto place = later_.begin(); place != later_.end();) {
    keep_pending(place->second);
    if (place->second.empty()) {
      // `run` relies on a second that begins to have an entry.
      place = later_.erase(place);
      continue;
    }
    seconds_.push(place->first);
    waiting_ += place->second.size();
    ++place;
  }
  cancelled_ = 0;
}

void Queue::clear() {
  // Discarding an entry may release Python objects, whose destructors must not find it again.
  std::vector<Entry> entries = std::move(heap_);
  heap_.clear();
  for (auto& [second, waiting] : later_) entries.insert(entries.end(), waiting.begin(), waiting.end());
  later_.clear();
  seconds_ = {};
  waiting_ = 0;
  cancelled_ = 0;
  for (Entry& entry : entries) entry.action->discard(entry.data);
}

}  // namespace carrycast
