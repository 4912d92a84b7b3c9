#include "places.h"

#include <algorithm>
#include <limits>

namespace carrycast {

Places::Places(Legs legs) : legs_(std::move(legs)) {
  lately_.assign(legs_.first.begin(), legs_.first.end());
  lately_.pop_back();
}

Place Places::find(int64_t node, double time_s) {
  size_t at = static_cast<size_t>(node);
  int64_t first = legs_.first[at], last = legs_.first[at + 1], leg = lately_[at];
  if (leg >= last || !(legs_.start_s[static_cast<size_t>(leg)] <= time_s && time_s < legs_.end_s[static_cast<size_t>(leg)])) {
    auto begin = legs_.start_s.begin();
    leg = std::upper_bound(begin + first, begin + last, time_s) - begin - 1;
    if (leg < first || !(time_s <= legs_.end_s[static_cast<size_t>(leg)])) {
      double nowhere = std::numeric_limits<double>::quiet_NaN();
      return {nowhere, nowhere};
    }
    lately_[at] = leg;
  }
  size_t found = static_cast<size_t>(leg);
  double elapsed_s = time_s - legs_.start_s[found];
  return {legs_.x_m[found] + legs_.vx_mps[found] * elapsed_s, legs_.y_m[found] + legs_.vy_mps[found] * elapsed_s};
}

}  // namespace carrycast
