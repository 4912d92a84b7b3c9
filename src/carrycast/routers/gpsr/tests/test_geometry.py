"""Signs against exact arithmetic, and turns worked by hand."""

from fractions import Fraction

from hypothesis import example, given, strategies as st

from carrycast.core.model import Position
from carrycast.routers.gpsr.geometry import (
    dot_sign,
    find_crossing,
    first_counterclockwise,
    is_shorter,
    orientation,
    squared_distance_m2,
)

O, E, N, W, S = Position(0, 0), Position(1, 0), Position(0, 1), Position(-1, 0), Position(0, -1)  # noqa: E741
# Few values, so that points coincide and lie on lines and circles; and values next to each other.
coordinates = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(-1e9, 1e9),
    st.sampled_from([0.1, 0.2, 0.30000000000000004, 0.3, 1e-300, 5e-324, 1e9, 1 + 2**-52]),
)
points = st.builds(Position, coordinates, coordinates)


def exact(point: Position) -> tuple[Fraction, Fraction]:
    return Fraction(point.x_m), Fraction(point.y_m)


def sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)


@given(points, points, points)
@example(Position(0.1, 0.1), Position(0.2, 0.2), Position(0.3, 0.3))
@example(Position(0, 0), Position(1e-300, 0), Position(0, 1e-300))
def test_orientation_and_dot_sign_equal_exact_arithmetic(o: Position, a: Position, b: Position) -> None:
    (ox, oy), (ax, ay), (bx, by) = exact(o), exact(a), exact(b)
    assert orientation(o, a, b) == sign((ax - ox) * (by - oy) - (ay - oy) * (bx - ox))
    assert dot_sign(o, a, b) == sign((ax - ox) * (bx - ox) + (ay - oy) * (by - oy))
    assert dot_sign(o, a, b) == dot_sign(o, b, a)


@given(points, points, points, points)
def test_lengths_compare_as_in_exact_arithmetic(a: Position, b: Position, c: Position, d: Position) -> None:
    def length(p: Position, q: Position) -> Fraction:
        (px, py), (qx, qy) = exact(p), exact(q)
        return (px - qx) ** 2 + (py - qy) ** 2

    assert is_shorter(a, b, c, d) == (length(a, b) < length(c, d))
    assert squared_distance_m2(a, b) == squared_distance_m2(b, a)


def test_the_first_point_counterclockwise_from_east() -> None:
    order = [Position(1, 1), N, Position(-1, 1), W, Position(-1, -1), S, Position(1, -1), Position(2, 0)]
    for place, first in enumerate(order):
        for later in order[place + 1 :]:
            assert first_counterclockwise(O, E, [first, later], straight_first=False) == 0
            assert first_counterclockwise(O, E, [later, first], straight_first=False) == 1
    assert first_counterclockwise(O, E, [Position(2, 0), Position(1, 1)], straight_first=True) == 0


def test_an_edge_crosses_a_line_at_a_fraction_of_it() -> None:
    start, end = O, Position(10, 0)
    assert find_crossing(start, end, Position(4, 1), Position(4, -1)) == (0.4, 0.0)
    assert find_crossing(start, end, Position(11, 1), Position(11, -1)) is None
    assert find_crossing(start, end, Position(-1, 1), Position(-1, -1)) is None
    assert find_crossing(start, end, Position(4, 1), Position(5, 2)) is None


def test_points_on_the_line_count_as_left_of_it() -> None:
    start, end, on = O, Position(10, 0), Position(4, 0)
    assert find_crossing(start, end, on, Position(4, 1)) is None
    assert find_crossing(start, end, on, Position(8, 0)) is None
    straight_down = find_crossing(start, end, on, Position(4, -1))
    forward = find_crossing(start, end, on, Position(6, -1))
    backward = find_crossing(start, end, on, Position(2, -1))
    assert (backward, straight_down, forward) == ((0.4, -2.0), (0.4, 0.0), (0.4, 2.0))
    assert find_crossing(start, end, start, Position(4, -1)) is None, "the edges of the start itself"


@given(points, points, points, points)
def test_the_two_ends_of_an_edge_agree_to_the_bit(a: Position, b: Position, c: Position, d: Position) -> None:
    found = find_crossing(a, b, c, d)
    assert found == find_crossing(a, b, d, c)
    if found is not None:
        assert 0 <= found[0] <= 1
        assert abs(found[1]) <= 1e18
