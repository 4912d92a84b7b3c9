"""The sliding window of received sequence numbers."""

from hypothesis import given, strategies as st

from carrycast.core.parts.sequence_window import SequenceWindow


@given(st.lists(st.integers(0, 60), max_size=80))
def test_within_the_window_it_is_a_set(numbers: list[int]) -> None:
    window, met = SequenceWindow(width=100), set[int]()
    for number in numbers:
        assert window.add(number) == (number not in met)
        met.add(number)
        assert all((one in window) == (one in met) for one in range(70))


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(1, 20))
def test_no_number_is_ever_new_twice(numbers: list[int], width: int) -> None:
    window = SequenceWindow(width)
    new = [number for number in numbers if window.add(number)]
    assert len(new) == len(set(new))
    assert window.first == numbers[0]
    assert window.highest == max(numbers)


def test_what_lies_below_the_window_counts_as_met() -> None:
    window = SequenceWindow(width=4)
    window.add(10)
    assert not window.add(6)
    assert window.add(7)


def test_a_far_jump_forgets_the_past_at_once() -> None:
    window = SequenceWindow()
    window.add(3)
    window.add(1 << 40)
    assert not window.add(4)
    assert window.add((1 << 40) - 1)


def test_settled_is_where_the_first_gap_begins() -> None:
    window = SequenceWindow()
    for number in (3, 4, 5, 7, 8):
        window.add(number)
    assert [window.find_cumulative(after) for after in (3, 4, 5, 6, 8, 20)] == [5, 5, 5, 8, 8, 20]
