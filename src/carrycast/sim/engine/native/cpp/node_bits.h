// A set of nodes with one bit for each node, as the integers of sim/radio/station.py.
#pragma once
#include <cstdint>
#include <vector>

namespace carrycast {

class NodeBits {
 public:
  explicit NodeBits(size_t nodes = 0) : words_((nodes + 63) / 64) {}

  size_t size() const { return words_.size(); }
  uint64_t& operator[](size_t word) { return words_[word]; }
  uint64_t operator[](size_t word) const { return words_[word]; }

  bool has(int64_t node) const { return (words_[word_of(node)] >> bit_of(node) & 1) != 0; }
  void add(int64_t node) { words_[word_of(node)] |= uint64_t{1} << bit_of(node); }
  void remove(int64_t node) { words_[word_of(node)] &= ~(uint64_t{1} << bit_of(node)); }
  void clear() {
    for (uint64_t& word : words_) word = 0;
  }

  bool meets(const NodeBits& other) const {
    for (size_t i = 0; i < words_.size(); i++) {
      if ((words_[i] & other.words_[i]) != 0) return true;
    }
    return false;
  }

  // Calls `visit(node)` in ascending order.
  template <class Visit>
  void each(Visit&& visit) const {
    for (size_t i = 0; i < words_.size(); i++) visit_word(i, words_[i], visit);
  }
  template <class Visit>
  static void visit_word(size_t place, uint64_t word, Visit&& visit) {
    for (; word != 0; word &= word - 1) visit(static_cast<int64_t>(place * 64) + __builtin_ctzll(word));
  }

 private:
  static size_t word_of(int64_t node) { return static_cast<size_t>(node) >> 6; }
  static unsigned bit_of(int64_t node) { return static_cast<unsigned>(node) & 63; }

  std::vector<uint64_t> words_;
};

}  // namespace carrycast
