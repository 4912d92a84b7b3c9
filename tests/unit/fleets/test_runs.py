"""A jump rejects the rows that jumped, and no others."""

import numpy as np
from hypothesis import assume, given, settings, strategies as st

from carrycast.analysis.fleets.cleaning import CODES, FINE, NOTHING, CleaningRules, FleetRows, clean_rows

ROWS = 40


def reasons(x_m: np.ndarray, time_s: np.ndarray) -> list[int]:
    """The reasons of the rows of one node that moves on a line."""
    count = len(x_m)
    zeros, none = np.zeros(count, dtype=np.int64), np.full(count, np.nan)
    stated = np.full(count, NOTHING)
    rows = FleetRows(zeros, np.arange(count), time_s, x_m, np.zeros(count), none, none, stated, np.full(count, FINE))
    cleaned, _ = clean_rows(rows, np.zeros(1, dtype=np.int64), CleaningRules())
    found: list[int] = cleaned.reason[np.argsort(cleaned.place)].tolist()
    return found


@given(
    st.dictionaries(st.integers(0, ROWS - 1), st.integers(1, 9), max_size=12),
    st.integers(0, ROWS),
    st.sampled_from([0.0, 1000.0, 30_000.0]),
)
@settings(max_examples=300, deadline=None)
def test_only_the_rows_that_jumped_are_rejected(far: dict[int, int], night: int, lasts_s: float) -> None:
    """A walk at 10 m/s with rows at distant positions, and perhaps a gap."""
    step = np.arange(ROWS)
    time_s, x_m = 10.0 * step + lasts_s * (step >= night), 100.0 * step
    for row, times in far.items():
        x_m[row] = 1e7 * times + 1e5 * row
    good = np.isin(step, list(far), invert=True)
    # Three correct rows in sequence are needed on either side of a gap.
    for side in (good[:night], good[night:]):
        assume(not len(side) or (side[:-2] & side[1:-1] & side[2:]).any())
    assert reasons(x_m, time_s) == np.where(good, FINE, CODES["jump"]).tolist()


def test_two_vehicles_taken_for_one_do_nothing_but_jump() -> None:
    """So many runs that a quadratic loop would not finish."""
    rows = 200_000
    x_m = np.where(np.arange(rows) % 2 == 0, 0.0, 1e6)
    assert set(reasons(x_m, np.arange(rows, dtype=np.float64))) == {CODES["jump"]}
