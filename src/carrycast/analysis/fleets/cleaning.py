"""Cleaning: each step gives a reason to the rows that it rejects. No row is dropped.

Steps that check one row alone run when rows are partitioned (`partitions`). The steps here compare all rows of a node.
Rows that a simulator wrote (`stated`) are not checked for gaps and speeds: those rules are for measured positions.
"""

from math import hypot
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from carrycast.sim.mobility import Floats, Integers

# A million kilometers: the same limit as in trace files.
MAX_COORDINATE_M = 1e9
DAY_S = 86_400.0
MAX_CLOCK_ERROR_DAYS = 366.0
"""A time farther from the fleet's median time is a wrong clock. Receivers that lost their clock report 1970, 1980 or,
at a rollover of the GPS week number, a date about twenty years ago."""
MIN_RUN_ROWS = 3
"""Fewer rows between two jumps, or between a jump and a gap, may be errors of the receiver (`find_wrong_runs`). With
more rows, the node really was there."""


class CleaningRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits beyond which a row is rejected. The defaults suit road vehicles that report every minute or two."""

    max_speed_mps: Annotated[float, Meta(gt=0, description="faster is a jump (m/s)")] = 70.0
    """252 km/h: faster than any road vehicle and most trains."""
    gap_s: Annotated[float, Meta(gt=0, description="a node silent for longer is absent meanwhile (s)")] = 300.0
    from_s: float | None = None
    until_s: float | None = None
    """The user asked to leave out rows before `from_s`, and from `until_s` on; in seconds as the file counts."""
    every_s: Annotated[float, Meta(gt=0, description="a row for each node so often (s)")] | None = None
    disordered: Annotated[float, Meta(ge=0, le=1)] = 0.05
    """A log with a larger share of steps back in time is not sorted by time: its steps back are not rejected."""


REASONS = {
    "unreadable": "no node, position or time can be read",
    "no_place": "no position on earth or on the map",
    "clock": "the receiver's clock was wrong",
    "outside": "outside of --from and --until",
    "duplicate": "the same row again",
    "conflict": "another position at the same time",
    "jump": "reached faster than the limit",
}
# If most rows are rejected for one reason, a column or a unit is wrong.
HINTS = {
    "unreadable": "see --columns, --header, --time-format, --time-zone and --decimal-comma",
    "no_place": "are longitude and latitude swapped, or are they meters? See --swap and --columns",
    "clock": "is the time in other units? See --time-unit, --time-format and --columns",
    "conflict": "are several vehicles taken for one? See --columns node=",
    "jump": "are the units right? A faster fleet needs --max-speed",
}
FINE = 0
CODES = {reason: code for code, reason in enumerate(REASONS, 1)}
"""The number of each reason; 0 (`FINE`) means that the row is kept."""
NOTHING = -(2**62)
"""Marks a missing integer."""

Flags = np.ndarray[Any, np.dtype[np.bool_]]


class FleetRows(NamedTuple):
    """Rows of a fleet as columns."""

    log: Integers
    place: Integers
    clock_s: Floats
    x_m: Floats
    y_m: Floats
    longitude: Floats
    latitude: Floats
    stated: Integers
    reason: Integers

    def take(self, chosen: "Integers | np.ndarray[Any, np.dtype[np.bool_]]") -> "FleetRows":
        """Select rows by their indices or by flags."""
        return FleetRows(**{name: column[chosen] for name, column in self._asdict().items()})


def clean_rows(rows: FleetRows, node: Integers, rules: CleaningRules) -> tuple[FleetRows, Integers]:
    """Return all rows with their reasons, sorted by node and time, and the track of each kept row.

    `node` is the node of each log.
    """
    rows = rows.take(np.lexsort((rows.place, rows.log)))
    _mark(rows, _find_out_of_order(rows, rules), "clock")
    inside = ~(rows.clock_s < _value_or(rules.from_s, -np.inf)) & ~(rows.clock_s >= _value_or(rules.until_s, np.inf))
    _mark(rows, ~inside, "outside")
    rows = rows.take(np.lexsort((rows.place, rows.log, rows.stated, rows.clock_s, node[rows.log])))
    owner = node[rows.log]
    _mark_repetitions(rows, owner)
    _mark_jumps(rows, owner, rules)
    return rows, _number_tracks(rows, owner, rules)


def _value_or(value: float | None, other: float) -> float:
    return other if value is None else value


def _mark(rows: FleetRows, wrong: Flags, reason: str) -> None:
    rows.reason[wrong & (rows.reason == FINE)] = CODES[reason]


def _is_first(owner: Integers) -> Flags:
    """Whether a row is the first of its owner."""
    return np.append(True, np.diff(owner) != 0)[: len(owner)]


def _find_out_of_order(rows: FleetRows, rules: CleaningRules) -> Flags:
    """Find single rows out of order in logs that are sorted by time. The rows stand in the order of their logs."""
    now = np.where((rows.reason == FINE) & (rows.stated == NOTHING), rows.clock_s, np.nan)

    def shift_times(by: int) -> Floats:
        """The time of the row that many places away in the same log; NaN beyond its ends."""
        found = np.full(len(now), np.nan)
        if abs(by) < len(now):
            here, there = (slice(-by, None), slice(None, by)) if by < 0 else (slice(None, -by), slice(by, None))
            found[here] = np.where(rows.log[here] == rows.log[there], now[there], np.nan)
        return found

    before, after, later = shift_times(-1), shift_times(1), shift_times(2)
    # Comparisons with NaN are false.
    back = now < before
    share = (np.bincount(rows.log, weights=back) / np.maximum(np.bincount(rows.log), 1))[rows.log]
    dips = back & ((after >= before) | np.isnan(after))
    # If either of two rows could be the wrong one, the second is rejected.
    peaks = (now > after) & ~(later >= now) & ((before <= after) | np.isnan(before))
    found: Flags = (share > 0) & (share <= rules.disordered) & (dips | peaks)
    return found


def _fine_rows(rows: FleetRows, owner: Integers) -> tuple[Integers, Integers]:
    """The rows that are fine so far, and the row before each; -1 for the first row of a node."""
    fine = np.flatnonzero(rows.reason == FINE)
    before = np.append(-1, fine[:-1])[: len(fine)]
    return fine, np.where(_is_first(owner[fine]), -1, before)


def _mark_repetitions(rows: FleetRows, owner: Integers) -> None:
    """Mark further rows of a node at the same time: duplicates at the same place, conflicts elsewhere."""
    fine, before = _fine_rows(rows, owner)
    again = (before >= 0) & (rows.stated[fine] == NOTHING) & (rows.clock_s[fine] == rows.clock_s[before])
    same = (rows.x_m[fine] == rows.x_m[before]) & (rows.y_m[fine] == rows.y_m[before])
    rows.reason[fine[again & same]] = CODES["duplicate"]
    rows.reason[fine[again & ~same]] = CODES["conflict"]


def _is_too_fast(rows: FleetRows, fine: Integers, before: Integers, rules: CleaningRules) -> Flags:
    """Whether a row is reached faster than the limit. `_mark_repetitions` handles rows with equal times."""
    away_m = np.hypot(rows.x_m[fine] - rows.x_m[before], rows.y_m[fine] - rows.y_m[before])
    apart_s = rows.clock_s[fine] - rows.clock_s[before]
    speed = np.divide(away_m, apart_s, out=np.zeros(len(fine)), where=apart_s != 0)
    found: Flags = (before >= 0) & (speed > rules.max_speed_mps)
    return found


def _mark_jumps(rows: FleetRows, owner: Integers, rules: CleaningRules) -> None:
    """Mark short runs of rows that could only be reached, or left, faster than the limit."""
    fine, before = _fine_rows(rows, owner)
    if not len(fine):
        return
    measured = rows.stated[fine] == NOTHING
    leap = measured & _is_too_fast(rows, fine, before, rules)
    first = _is_first(owner[fine])
    begins = np.flatnonzero(first | leap | (measured & _is_silent(rows, fine, before, rules)))
    ends = np.append(begins[1:], len(fine)) - 1
    run = np.repeat(np.arange(len(begins)), ends - begins + 1)
    length = np.bincount(run, weights=measured).astype(np.int64)
    head, last = fine[begins], fine[ends]
    places = (column[row] for row in (head, last) for column in (rows.clock_s, rows.x_m, rows.y_m))
    wrong = find_wrong_runs(RowRuns(owner[head], length, leap[begins], *places), rules)
    rows.reason[fine[measured & wrong[run]]] = CODES["jump"]


def _is_silent(rows: FleetRows, fine: Integers, before: Integers, rules: CleaningRules) -> Flags:
    """Whether a row follows a gap: its node had no row for longer than `gap_s`."""
    found: Flags = (before >= 0) & (rows.clock_s[fine] - rows.clock_s[before] > rules.gap_s)
    return found


def _number_tracks(rows: FleetRows, owner: Integers, rules: CleaningRules) -> Integers:
    """Number the track of each kept row.

    A track begins after a gap, at a place that the node cannot have reached, or where the format says so.
    """
    fine, before = _fine_rows(rows, owner)
    silent = _is_silent(rows, fine, before, rules)
    joined = (rows.stated[fine] == rows.stated[before]) & (rows.log[fine] == rows.log[before])
    measured = rows.stated[fine] == NOTHING
    apart = (before >= 0) & np.where(measured, silent | _is_too_fast(rows, fine, before, rules), ~joined)
    count = np.cumsum(apart)
    first = np.flatnonzero(_is_first(owner[fine]))
    track = np.zeros(len(rows.log), dtype=np.int64)
    track[fine] = count - np.repeat(count[first], np.diff(np.append(first, len(fine))))
    return track


class RowRuns(NamedTuple):
    """Runs of rows, sorted by node and time: their length, whether they begin with a leap, first and last row."""

    node: Integers
    rows: Integers
    leap: Flags
    first_s: Floats
    first_x_m: Floats
    first_y_m: Floats
    last_s: Floats
    last_x_m: Floats
    last_y_m: Floats


def find_wrong_runs(runs: RowRuns, rules: CleaningRules) -> Flags:
    """Find the runs that are jumps of the receiver.

    A run of fewer than `MIN_RUN_ROWS` rows that begins or ends with a leap is in doubt. It is kept if the last kept run
    before it reaches it within the speed limit, or if it reaches the next run that is not in doubt. Two runs with a gap
    between them do not confirm each other.
    """
    same = np.diff(runs.node) == 0
    left = np.append(runs.leap[1:] & same, False)[: len(runs.leap)]
    doubtful: Flags = (runs.leap | left) & (runs.rows < MIN_RUN_ROWS)
    wrong = np.zeros(len(doubtful), dtype=np.bool_)
    # The next run that is not in doubt. It may be of another node; `_reaches` checks that.
    sure = np.flatnonzero(~doubtful)
    following = np.append(sure, len(doubtful))[np.searchsorted(sure, np.arange(len(doubtful)))]
    # The last kept run before the current one.
    right = -1
    for run in np.flatnonzero(doubtful).tolist():
        if run == 0 or not wrong[run - 1]:
            right = run - 1
        after = int(following[run])
        wrong[run] = not (_reaches(runs, right, run, rules) or _reaches(runs, run, after, rules))
    return wrong


def _reaches(runs: RowRuns, one: int, other: int, rules: CleaningRules) -> bool:
    """Whether a node can move from the end of a run to the beginning of another, without a gap between them."""
    if one < 0 or other >= len(runs.node) or runs.node[one] != runs.node[other]:
        return False
    apart_s = float(runs.first_s[other] - runs.last_s[one])
    away_m = hypot(runs.first_x_m[other] - runs.last_x_m[one], runs.first_y_m[other] - runs.last_y_m[one])
    return apart_s <= rules.gap_s and away_m <= rules.max_speed_mps * apart_s
