// The event queue: entries ordered by (time, sequence), as in sim/engine/kernel.py.
#pragma once
#include <vector>
#include <unordered_map>
#include <queue>

#include "python.h"

namespace carrycast {

constexpr int64_t kUsPerSecond = 1'000'000;

// A delay rounded up to microseconds, as `delay_us` of the kernel.
int64_t delay_us(double delay_s);

// What happens at the time of an entry. `data` belongs to the entry: exactly one of the two methods is called.
class Action {
 public:
  virtual ~Action() = default;
  virtual void fire(void* data) = 0;
  virtual void discard(void* data) = 0;
  // Whether the entry was cancelled; then it leaves the queue early.
  virtual bool is_cancelled(void*) const { return false; }
};

struct Entry {
  int64_t time_us;
  uint64_t sequence;
  Action* action;
  void* data;
};

// Entries due in the current second are in a heap, later ones unsorted by their second (R. Brown, CACM 1988).
class Queue {
 public:
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() { clear(); }

  int64_t now_us = 0;
  double now_s = 0.0;
  int64_t popped = 0;

  void at(int64_t time_us, Action* action, void* data);
  // Runs all entries up to and including a time, and sets the clock to that time.
  void run(int64_t until_us);
  // Called when an entry was cancelled. Cancelled entries are removed once they are most of the queue.
  void on_cancelled();
  // Called when a cancelled entry has left the queue at its time.
  void on_cancelled_popped() { cancelled_--; }
  size_t size() const { return heap_.size() + waiting_; }
  void clear();

 private:
  struct IsLater {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.time_us != b.time_us ? a.time_us > b.time_us : a.sequence > b.sequence;
    }
  };
  bool begin_second(int64_t until_us);
  void set_time(int64_t time_us) {
    if (time_us != now_us) {
      now_us = time_us;
      now_s = static_cast<double>(time_us) / kUsPerSecond;
    }
  }
  void remove_cancelled();

  std::vector<Entry> heap_;
  int64_t horizon_us_ = kUsPerSecond;  // Entries before this time are in `heap_`.
  std::unordered_map<int64_t, std::vector<Entry>> later_;
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<int64_t>> seconds_;  // The keys of `later_`.
  size_t waiting_ = 0;
  uint64_t sequence_ = 0;
  size_t cancelled_ = 0;
};

}  // namespace carrycast
