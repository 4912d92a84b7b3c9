// Where nodes are at a time, from the legs of their trajectories, as in sim/mobility/trajectory.py.
#pragma once
#include <vector>

#include "python.h"

namespace carrycast {

struct Place {
  double x_m, y_m;
};

// All legs of all nodes, sorted by node and start.
struct Legs {
  std::vector<int64_t> first;  // Node -> its first leg; the last entry is the number of legs.
  std::vector<double> start_s, end_s, x_m, y_m, vx_mps, vy_mps;
};

class Places {
 public:
  explicit Places(Legs legs);

  // Not a number while the node is absent, so that no comparison of distances holds.
  Place find(int64_t node, double time_s);

 private:
  Legs legs_;
  std::vector<int64_t> lately_;  // Node -> the last leg that was found. Most searches find it again.
};

}  // namespace carrycast
