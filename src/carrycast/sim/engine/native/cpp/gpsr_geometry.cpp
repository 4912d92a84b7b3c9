#include "gpsr_geometry.h"

#include <algorithm>
#include <cmath>

namespace carrycast {

ExactGeometry exact_geometry;

namespace {

// Shewchuk's bound and the bound of underflow, as in routers/gpsr/geometry.py.
constexpr double kErrorBound = 3.4e-16, kUnderflowBound = 1e-280, kMaxLean = 1e18;

Ref position(Point at) { return Ref::steal(Py_BuildValue("(dd)", at.x, at.y)); }

int ask(PyObject* function, Point a, Point b, Point c) {
  return static_cast<int>(to_int(call(function, position(a).get(), position(b).get(), position(c).get()).get()));
}

int sector(Point center, Point toward, Point point, bool straight_first) {
  int side = orientation(center, toward, point);
  if (side != 0) return side > 0 ? 1 : 3;
  if (dot_sign(center, toward, point) < 0) return 2;
  return straight_first ? 0 : 4;
}

double clamp_fraction(double part, double whole) {
  return whole != 0 ? std::min(std::max(part / whole, 0.0), 1.0) : 0.0;
}

bool has_witness(Point u, Point v, const std::vector<PlanarEdge>& places, bool is_rng) {
  for (const PlanarEdge& other : places) {
    Point w = other.at;
    if (w == v) continue;
    // By either rule a witness is nearer to u than v.
    if (dot_sign(w, u, v) <= 0) return true;
    if (is_rng && is_shorter(u, w, u, v) && is_shorter(w, v, u, v)) return true;
  }
  return false;
}

}  // namespace

int orientation(Point o, Point a, Point b) {
  double left = (a.x - o.x) * (b.y - o.y), right = (a.y - o.y) * (b.x - o.x), found = left - right;
  if (std::fabs(found) > kErrorBound * (std::fabs(left) + std::fabs(right)) + kUnderflowBound) return found > 0 ? 1 : -1;
  // On streets most points are on a line: both products are exactly 0, or two points are one.
  if (a == b || ((a.x == o.x || b.y == o.y) && (a.y == o.y || b.x == o.x))) return 0;
  return ask(exact_geometry.orientation, o, a, b);
}

int dot_sign(Point w, Point u, Point v) {
  double one = (u.x - w.x) * (v.x - w.x), other = (u.y - w.y) * (v.y - w.y), found = one + other;
  if (std::fabs(found) > kErrorBound * (std::fabs(one) + std::fabs(other)) + kUnderflowBound) return found > 0 ? 1 : -1;
  if ((u.x == w.x || v.x == w.x) && (u.y == w.y || v.y == w.y)) return 0;
  return ask(exact_geometry.dot_sign, w, u, v);
}

bool is_shorter(Point a, Point b, Point c, Point d) {
  double one = squared_distance_m2(a, b), other = squared_distance_m2(c, d);
  if (std::fabs(one - other) > 2 * kErrorBound * (one + other) + kUnderflowBound) return one < other;
  return is_true(call(exact_geometry.is_shorter, position(a).get(), position(b).get(), position(c).get(),
                      position(d).get())
                     .get());
}

size_t first_counterclockwise(Point center, Point toward, const std::vector<PlanarEdge>& edges, bool straight_first) {
  size_t best = 0;
  int least = sector(center, toward, edges[0].at, straight_first);
  for (size_t index = 1; index < edges.size(); index++) {
    int found = sector(center, toward, edges[index].at, straight_first);
    if (found < least || (found == least && orientation(center, edges[index].at, edges[best].at) > 0)) {
      best = index;
      least = found;
    }
  }
  return best;
}

std::optional<LinePoint> find_crossing(Point start, Point end, Point a, Point b) {
  int side_a = orientation(start, end, a), side_b = orientation(start, end, b);
  if ((side_a >= 0) == (side_b >= 0)) return std::nullopt;
  // Otherwise the crossing is before the start or beyond the end, or one of these is on the edge.
  if (orientation(a, b, start) * orientation(a, b, end) >= 0) return std::nullopt;
  double along_x = end.x - start.x, along_y = end.y - start.y;
  if (side_a == 0 || side_b == 0) {
    Point on = side_a == 0 ? a : b, right = side_a == 0 ? b : a;
    double edge_x = right.x - on.x, edge_y = right.y - on.y;
    double covered = along_x * (on.x - start.x) + along_y * (on.y - start.y);
    double depth = std::fabs(along_x * edge_y - along_y * edge_x);
    double lean = depth > 0 ? (along_x * edge_x + along_y * edge_y) / depth : 0.0;
    return LinePoint{clamp_fraction(covered, along_x * along_x + along_y * along_y),
                     std::min(std::max(lean, -kMaxLean), kMaxLean)};
  }
  if (b.x < a.x || (b.x == a.x && b.y < a.y)) std::swap(a, b);
  double edge_x = b.x - a.x, edge_y = b.y - a.y;
  double covered = (a.x - start.x) * edge_y - (a.y - start.y) * edge_x;
  return LinePoint{clamp_fraction(covered, along_x * edge_y - along_y * edge_x), 0.0};
}

std::vector<PlanarEdge> planarize(int64_t node, Point here, const std::vector<PlanarEdge>& neighbors, bool is_rng) {
  // Of several nodes at one place the one with the lowest id represents all; the others have an edge only to it.
  std::vector<PlanarEdge> places, edges;
  for (const PlanarEdge& neighbor : neighbors) {
    if (neighbor.at == here) {
      if (neighbor.node < node) return {{neighbor.node, here}};
      continue;
    }
    bool is_taken = std::any_of(places.begin(), places.end(), [&](const PlanarEdge& known) { return known.at == neighbor.at; });
    if (!is_taken) places.push_back(neighbor);
  }
  for (const PlanarEdge& place : places) {
    if (!has_witness(here, place.at, places, is_rng)) edges.push_back(place);
  }
  return edges;
}

}  // namespace carrycast
