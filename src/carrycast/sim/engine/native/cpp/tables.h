// Tables by small numbers and by pairs of ids, whose memory follows their content.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace carrycast {

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t hash = a * 0x9E3779B97F4A7C15u ^ (b + 0x7F4A7C159E3779B9u) * 0xC2B2AE3D27D4EB4Fu;
  return hash ^ (hash >> 29);
}

// Values by index, 0 where none was set: a hash table as long as that is smaller than an array.
template <class T>
class IndexTable {
 public:
  // The number of indices that are expected; more are possible.
  explicit IndexTable(size_t size = 0) : size_(size) {}

  T get(size_t index) const {
    if (!slots_.empty()) {
      for (size_t place = start(index);; place = (place + 1) & (slots_.size() - 1)) {
        if (slots_[place].key == index) return slots_[place].value;
        if (slots_[place].key == kEmpty) return T();
      }
    }
    return index < dense_.size() ? dense_[index] : T();
  }

  // The value at an index, to be changed before the next call.
  T& at(size_t index) {
    if (dense_.empty()) {
      if ((used_ + 1) * 2 > slots_.size()) grow();
      if (dense_.empty()) {
        size_t place = start(index);
        while (slots_[place].key != kEmpty) {
          if (slots_[place].key == index) return slots_[place].value;
          place = (place + 1) & (slots_.size() - 1);
        }
        used_++;
        slots_[place].key = index;
        return slots_[place].value;
      }
    }
    if (index >= dense_.size()) dense_.resize(index + 1 > size_ ? index + 1 : size_);
    return dense_[index];
  }

  // Calls `visit(index, value)` for values that may differ from 0, in no particular order.
  template <class Visit>
  void each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.key != kEmpty) visit(slot.key, slot.value);
    }
    for (size_t index = 0; index < dense_.size(); index++) visit(index, dense_[index]);
  }

 private:
  static constexpr size_t kEmpty = ~size_t{0};
  struct Slot {
    size_t key = kEmpty;
    T value = T();
  };

  size_t start(size_t index) const { return mix(index, 0) & (slots_.size() - 1); }

  void grow() {
    size_t wanted = slots_.empty() ? 8 : 2 * slots_.size();
    std::vector<Slot> old = std::move(slots_);
    slots_.clear();
    if (wanted * sizeof(Slot) >= size_ * sizeof(T)) {
      dense_.resize(size_ > 0 ? size_ : 1);
      for (const Slot& slot : old) {
        if (slot.key == kEmpty) continue;
        if (slot.key >= dense_.size()) dense_.resize(slot.key + 1);
        dense_[slot.key] = slot.value;
      }
      return;
    }
    slots_.resize(wanted);
    for (const Slot& slot : old) {
      if (slot.key == kEmpty) continue;
      size_t place = start(slot.key);
      while (slots_[place].key != kEmpty) place = (place + 1) & (slots_.size() - 1);
      slots_[place] = slot;
    }
  }

  size_t size_;
  size_t used_ = 0;
  std::vector<Slot> slots_;
  std::vector<T> dense_;
};

// Pairs of ids -> a number that is not negative. Entries are never moved out: a removed one keeps its place as a gap.
class PairTable {
 public:
  // The number of a pair, -1 if there is none.
  int64_t find(int64_t a, int64_t b) const {
    if (slots_.empty()) return -1;
    for (size_t place = start(a, b);; place = (place + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[place];
      if (slot.value == kNever) return -1;
      if (slot.a == a && slot.b == b && slot.value >= 0) return slot.value;
    }
  }

  void set(int64_t a, int64_t b, int64_t value) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    size_t place = start(a, b);
    while (slots_[place].value != kNever) {
      if (slots_[place].a == a && slots_[place].b == b && slots_[place].value >= 0) {
        slots_[place].value = value;
        return;
      }
      place = (place + 1) & (slots_.size() - 1);
    }
    used_++;
    slots_[place] = Slot{a, b, value};
  }

  void remove(int64_t a, int64_t b) {
    if (slots_.empty()) return;
    for (size_t place = start(a, b);; place = (place + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[place];
      if (slot.value == kNever) return;
      if (slot.a == a && slot.b == b && slot.value >= 0) {
        slot.value = kRemoved;
        return;
      }
    }
  }

 private:
  static constexpr int64_t kNever = -2, kRemoved = -1;
  struct Slot {
    int64_t a = 0, b = 0, value = kNever;
  };

  size_t start(int64_t a, int64_t b) const {
    return mix(static_cast<uint64_t>(a), static_cast<uint64_t>(b)) & (slots_.size() - 1);
  }

  void grow() {
    std::vector<Slot> old = std::move(slots_);
    size_t present = 0;
    for (const Slot& slot : old) present += slot.value >= 0;
    size_t wanted = 16;
    while (wanted < 4 * (present + 1)) wanted *= 2;
    slots_.assign(wanted, Slot());
    used_ = 0;
    for (const Slot& slot : old) {
      if (slot.value >= 0) set(slot.a, slot.b, slot.value);
    }
  }

  size_t used_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace carrycast
