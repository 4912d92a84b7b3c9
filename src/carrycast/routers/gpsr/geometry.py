"""Decisions about points, by products and never by angles, so that every machine decides alike.

The sign of a product is taken as floats have it where rounding cannot have changed it, and from exact fractions where
it could: points on a line, on a circle or at the same place are recognized as such.
"""

from collections.abc import Sequence
from fractions import Fraction

from carrycast.core.model import Position

CLEARLY = 3.4e-16
"""Shewchuk's bound for (a - o) x (b - o) is (3 + 16e) e with e = 2^-53, times the sum of the products' sizes,"""
TINY = 1e-280
"""and products smaller than this may have lost digits altogether."""


def square_m2(a: Position, b: Position) -> float:
    """The square of a distance. The same two points give the same bits, in whatever order."""
    x, y = a[0] - b[0], a[1] - b[1]
    return x * x + y * y


def turn(o: Position, a: Position, b: Position) -> int:
    """1 if going from o to a and then to b is a turn to the left, -1 to the right, 0 if the three are on a line."""
    left = (a[0] - o[0]) * (b[1] - o[1])
    right = (a[1] - o[1]) * (b[0] - o[0])
    found = left - right
    if abs(found) > CLEARLY * (abs(left) + abs(right)) + TINY:
        return 1 if found > 0 else -1
    if a == b or o in (a, b):
        return 0
    ox, oy, ax, ay, bx, by = map(Fraction, (*o, *a, *b))
    return _sign((ax - ox) * (by - oy) - (ay - oy) * (bx - ox))


def facing(w: Position, u: Position, v: Position) -> int:
    """1 if u and v are in about the same direction from w (an angle below 90 degrees), -1 above, 0 at a right angle.

    So it is -1 for w inside the circle whose diameter is from u to v, and 0 for w on it.
    """
    one = (u[0] - w[0]) * (v[0] - w[0])
    other = (u[1] - w[1]) * (v[1] - w[1])
    found = one + other
    if abs(found) > CLEARLY * (abs(one) + abs(other)) + TINY:
        return 1 if found > 0 else -1
    wx, wy, ux, uy, vx, vy = map(Fraction, (*w, *u, *v))
    return _sign((ux - wx) * (vx - wx) + (uy - wy) * (vy - wy))


def is_shorter(a: Position, b: Position, c: Position, d: Position) -> bool:
    """Whether from a to b is less far than from c to d."""
    one, other = square_m2(a, b), square_m2(c, d)
    if abs(one - other) > 2 * CLEARLY * (one + other) + TINY:
        return one < other
    ax, ay, bx, by, cx, cy, dx, dy = map(Fraction, (*a, *b, *c, *d))
    return (ax - bx) ** 2 + (ay - by) ** 2 < (cx - dx) ** 2 + (cy - dy) ** 2


def _sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)


def first_met(center: Position, toward: Position, points: Sequence[Position], straight_first: bool) -> int:
    """Which of some points turning counterclockwise from one direction meets first, by its number; the first of equals.

    What lies in the very direction is met at once (`straight_first`), or only after a full turn.
    """
    best, least = 0, _sector(center, toward, points[0], straight_first)
    for number in range(1, len(points)):
        found = _sector(center, toward, points[number], straight_first)
        if found < least or (found == least and turn(center, points[number], points[best]) > 0):
            best, least = number, found
    return best


def _sector(center: Position, toward: Position, point: Position, straight_first: bool) -> int:
    side = turn(center, toward, point)
    if side != 0:
        return 1 if side > 0 else 3
    if facing(center, toward, point) < 0:
        return 2
    return 0 if straight_first else 4


Progress = tuple[float, float]
"""How far along a line it is crossed, from 0 at its start to 1 at its end; and which of the edges that meet in one
point of the line comes first: how much an edge leans forward to the right of it."""

_MOST_LEAN = 1e18


def crossing(start: Position, end: Position, a: Position, b: Position) -> Progress | None:
    """Where the edge between a and b crosses the line from start to end, if it does.

    Points on the line count as left of it, as if the line were turned to the right about its start by less than
    anything that matters; so an edge is crossed or not, and never touched. The order of a and b makes no difference, to
    the bit.
    """
    side_a, side_b = turn(start, end, a), turn(start, end, b)
    if (side_a >= 0) == (side_b >= 0):
        return None
    if turn(a, b, start) * turn(a, b, end) >= 0:
        # Before its start or beyond its end, or one of them is on the edge.
        return None
    along_x, along_y = end[0] - start[0], end[1] - start[1]
    if side_a == 0 or side_b == 0:
        on, right = (a, b) if side_a == 0 else (b, a)
        edge_x, edge_y = right[0] - on[0], right[1] - on[1]
        covered = along_x * (on[0] - start[0]) + along_y * (on[1] - start[1])
        depth = abs(along_x * edge_y - along_y * edge_x)
        lean = (along_x * edge_x + along_y * edge_y) / depth if depth > 0 else 0.0
        return _share(covered, along_x * along_x + along_y * along_y), min(max(lean, -_MOST_LEAN), _MOST_LEAN)
    if b < a:
        a, b = b, a
    edge_x, edge_y = b[0] - a[0], b[1] - a[1]
    covered = (a[0] - start[0]) * edge_y - (a[1] - start[1]) * edge_x
    return _share(covered, along_x * edge_y - along_y * edge_x), 0.0


def _share(part: float, whole: float) -> float:
    """From 0 to 1; the products may have come out as nothing."""
    return min(max(part / whole, 0.0), 1.0) if whole != 0 else 0.0
