// Python's random numbers: the Mersenne Twister (Matsumoto and Nishimura 1998) from the state of a `random.Random`.
#pragma once
#include <cstdint>

#include "python.h"

namespace carrycast {

class Random {
 public:
  // Continues the stream of a Python generator, which must not be used any more.
  void take_over(PyObject* generator) {
    Ref state = call_method(generator, "getstate");
    PyObject* numbers = PyTuple_GetItem(state.get(), 1);  // (version, the numbers and the index, gauss_next)
    check(numbers);
    for (int i = 0; i < kSize; i++) state_[i] = static_cast<uint32_t>(to_int(check(PyTuple_GetItem(numbers, i))));
    index_ = static_cast<int>(to_int(check(PyTuple_GetItem(numbers, kSize))));
  }

  // The next number of `random()`: 53 bits, 0 <= number < 1.
  double draw() {
    uint32_t a = next() >> 5, b = next() >> 6;
    return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0);
  }

  uint32_t next() {
    if (index_ >= kSize) twist();
    uint32_t y = state_[index_++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }

 private:
  static constexpr int kSize = 624, kShift = 397;

  void twist() {
    for (int i = 0; i < kSize; i++) {
      uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kSize] & 0x7fffffffu);
      state_[i] = state_[(i + kShift) % kSize] ^ (y >> 1) ^ ((y & 1u) != 0 ? 0x9908b0dfu : 0u);
    }
    index_ = 0;
  }

  uint32_t state_[kSize] = {};
  int index_ = kSize;
};

}  // namespace carrycast
