// The geometry of GPSR, as in routers/gpsr/geometry.py and perimeter.py: the same signs, the same choices to the bit.
#pragma once
#include <optional>
#include <vector>

#include "python.h"

namespace carrycast {

struct Point {
  double x, y;
  bool operator==(const Point& other) const { return x == other.x && y == other.y; }
};

// The Python functions that decide in exact fractions where rounding could matter.
struct ExactGeometry {
  PyObject* orientation = nullptr;
  PyObject* dot_sign = nullptr;
  PyObject* is_shorter = nullptr;
};
extern ExactGeometry exact_geometry;

// A point of the line from Lp to the destination: a fraction of the line, and an order among edges that meet there.
struct LinePoint {
  double fraction, lean;
  bool operator==(const LinePoint& other) const { return fraction == other.fraction && lean == other.lean; }
  bool operator<=(const LinePoint& other) const {
    return fraction != other.fraction ? fraction < other.fraction : lean <= other.lean;
  }
};

// An edge from a node to a neighbor.
struct PlanarEdge {
  int64_t node;
  Point at;
};

inline double squared_distance_m2(Point a, Point b) {
  double x = a.x - b.x, y = a.y - b.y;
  return x * x + y * y;
}

int orientation(Point o, Point a, Point b);
int dot_sign(Point w, Point u, Point v);
bool is_shorter(Point a, Point b, Point c, Point d);
// The index of the first edge counterclockwise about `center` from the direction `toward`; of equals the first.
size_t first_counterclockwise(Point center, Point toward, const std::vector<PlanarEdge>& edges, bool straight_first);
std::optional<LinePoint> find_crossing(Point start, Point end, Point a, Point b);
// The edges of one node in the planar graph, ordered by the neighbors' ids. The neighbors are ordered too.
std::vector<PlanarEdge> planarize(int64_t node, Point here, const std::vector<PlanarEdge>& neighbors, bool is_rng);

}  // namespace carrycast
