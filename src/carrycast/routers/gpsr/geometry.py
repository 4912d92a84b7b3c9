"""Geometric predicates by the signs of products, never by angles, so that every machine decides alike.

The sign of a product is that of the floating-point result where rounding cannot have changed it, and is otherwise
computed in exact fractions (Shewchuk, "Adaptive precision floating-point arithmetic and fast robust geometric
predicates", 1997). Points on a line, on a circle or at the same place are therefore recognized as such.
"""

from collections.abc import Sequence
from fractions import Fraction

from carrycast.core.model import Position

ERROR_BOUND = 3.4e-16
"""Shewchuk's bound for (a - o) x (b - o) is (3 + 16e) e with e = 2^-53, times the sum of the sizes of the products."""
UNDERFLOW_BOUND = 1e-280
"""Products smaller than this may have lost all their digits."""


def squared_distance_m2(a: Position, b: Position) -> float:
    """The squared distance of two points. Their order makes no difference, to the bit."""
    x, y = a[0] - b[0], a[1] - b[1]
    return x * x + y * y


def orientation(o: Position, a: Position, b: Position) -> int:
    """The sign of (a - o) x (b - o): 1 if o, a, b turn counterclockwise, -1 if clockwise, 0 if they are on a line."""
    left = (a[0] - o[0]) * (b[1] - o[1])
    right = (a[1] - o[1]) * (b[0] - o[0])
    found = left - right
    if abs(found) > ERROR_BOUND * (abs(left) + abs(right)) + UNDERFLOW_BOUND:
        return 1 if found > 0 else -1
    if a == b or o in (a, b):
        return 0
    ox, oy, ax, ay, bx, by = map(Fraction, (*o, *a, *b))
    return _sign((ax - ox) * (by - oy) - (ay - oy) * (bx - ox))


def dot_sign(w: Position, u: Position, v: Position) -> int:
    """The sign of (u - w) · (v - w): 1 if the angle at w is below 90 degrees, -1 above, 0 at a right angle.

    So it is -1 for w inside the circle with the diameter from u to v, and 0 for w on it.
    """
    one = (u[0] - w[0]) * (v[0] - w[0])
    other = (u[1] - w[1]) * (v[1] - w[1])
    found = one + other
    if abs(found) > ERROR_BOUND * (abs(one) + abs(other)) + UNDERFLOW_BOUND:
        return 1 if found > 0 else -1
    wx, wy, ux, uy, vx, vy = map(Fraction, (*w, *u, *v))
    return _sign((ux - wx) * (vx - wx) + (uy - wy) * (vy - wy))


def is_shorter(a: Position, b: Position, c: Position, d: Position) -> bool:
    """Whether the distance from a to b is below that from c to d."""
    one, other = squared_distance_m2(a, b), squared_distance_m2(c, d)
    if abs(one - other) > 2 * ERROR_BOUND * (one + other) + UNDERFLOW_BOUND:
        return one < other
    ax, ay, bx, by, cx, cy, dx, dy = map(Fraction, (*a, *b, *c, *d))
    return (ax - bx) ** 2 + (ay - by) ** 2 < (cx - dx) ** 2 + (cy - dy) ** 2


def _sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)


def first_counterclockwise(center: Position, toward: Position, points: Sequence[Position], straight_first: bool) -> int:
    """The index of the first point counterclockwise about `center` from the direction `toward`; of equals the first.

    A point in this very direction comes first (`straight_first`), or last, after a full turn.
    """
    best, least = 0, _sector(center, toward, points[0], straight_first)
    for index in range(1, len(points)):
        found = _sector(center, toward, points[index], straight_first)
        if found < least or (found == least and orientation(center, points[index], points[best]) > 0):
            best, least = index, found
    return best


def _sector(center: Position, toward: Position, point: Position, straight_first: bool) -> int:
    side = orientation(center, toward, point)
    if side != 0:
        return 1 if side > 0 else 3
    if dot_sign(center, toward, point) < 0:
        return 2
    return 0 if straight_first else 4


LinePoint = tuple[float, float]
"""A point at which an edge crosses a line: the fraction of the line, from 0 at its start to 1 at its end; and, to order
edges that meet in the same point, how much the edge leans forward to the right of the line."""

_MAX_LEAN = 1e18


def find_crossing(start: Position, end: Position, a: Position, b: Position) -> LinePoint | None:
    """The point at which the edge between a and b crosses the line from start to end; None if it does not.

    Points on the line count as left of it, as if the line were rotated to the right about its start by an infinitesimal
    angle. So an edge crosses the line or not, and never touches it. The order of a and b makes no difference, to the
    bit.
    """
    side_a, side_b = orientation(start, end, a), orientation(start, end, b)
    if (side_a >= 0) == (side_b >= 0):
        return None
    if orientation(a, b, start) * orientation(a, b, end) >= 0:
        # The crossing is before the start or beyond the end, or one of these is on the edge.
        return None
    along_x, along_y = end[0] - start[0], end[1] - start[1]
    if side_a == 0 or side_b == 0:
        on, right = (a, b) if side_a == 0 else (b, a)
        edge_x, edge_y = right[0] - on[0], right[1] - on[1]
        covered = along_x * (on[0] - start[0]) + along_y * (on[1] - start[1])
        depth = abs(along_x * edge_y - along_y * edge_x)
        lean = (along_x * edge_x + along_y * edge_y) / depth if depth > 0 else 0.0
        return _fraction(covered, along_x * along_x + along_y * along_y), min(max(lean, -_MAX_LEAN), _MAX_LEAN)
    if b < a:
        a, b = b, a
    edge_x, edge_y = b[0] - a[0], b[1] - a[1]
    covered = (a[0] - start[0]) * edge_y - (a[1] - start[1]) * edge_x
    return _fraction(covered, along_x * edge_y - along_y * edge_x), 0.0


def _fraction(part: float, whole: float) -> float:
    """A quotient between 0 and 1. The products may have underflowed to 0."""
    return min(max(part / whole, 0.0), 1.0) if whole != 0 else 0.0
