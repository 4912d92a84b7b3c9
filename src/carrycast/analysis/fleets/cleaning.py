"""Cleaning: each step gives the rows that it finds wrong a reason. No row is dropped.

The steps that look at one row alone run when rows are partitioned (`partitions`); those here look at all rows of a
node. What a simulator states (`stated`) is taken as it is: gaps and speeds are rules for what was measured.
"""

from math import hypot
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from carrycast.sim.mobility import Floats, Integers

# A million kilometers, as trace files have it.
MAX_COORDINATE_M = 1e9
DAY_S = 86_400.0


class CleaningRules(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as wrong. The defaults suit vehicles on roads that report at least every minute or two."""

    max_speed_mps: Annotated[float, Meta(gt=0, description="faster is a jump (m/s)")] = 70.0
    """252 km/h: no road vehicle, and few trains."""
    gap_s: Annotated[float, Meta(gt=0, description="a node silent for longer is absent meanwhile (s)")] = 300.0
    clock_days: Annotated[float, Meta(gt=0, description="farther from the fleet's median time is a wrong clock")] = (
        366.0
    )
    """Receivers that lost their clock say 1970, 1980 or, at a rollover of their weeks, twenty years ago."""
    from_s: float | None = None
    until_s: float | None = None
    """Times outside of these, in seconds as the file counts, are left out by wish."""
    least_run: Annotated[int, Meta(ge=1)] = 3
    """Rows between two jumps, or a jump and a silence, are in doubt if they are fewer; more, and the node really was
    there. Those in doubt are right if they can be reached from the last right row before, or reach the next."""
    every_s: Annotated[float, Meta(gt=0, description="a row for each node so often (s)")] | None = None
    disordered: Annotated[float, Meta(ge=0, le=1)] = 0.05
    """A log with a larger share of steps back in time is no log in the order of time: then no row is wrong for it."""


REASONS = {
    "unreadable": "no node, place and time can be read",
    "no_place": "no place on earth or on the map",
    "clock": "the receiver's clock was wrong",
    "outside": "outside the times asked for",
    "duplicate": "said before",
    "conflict": "elsewhere at the same time",
    "jump": "reached faster than the limit",
}
# Where most rows are wrong, it is a column or a unit that is.
HINTS = {
    "unreadable": "see --columns, --header, --time-format and --decimal-comma",
    "no_place": "are longitude and latitude swapped, or are they meters? See --swap and --columns",
    "clock": "is the time in other units? See --time-unit, --time-format and --columns",
    "conflict": "are several vehicles taken for one? See --columns node=",
    "jump": "are the units right? A faster fleet needs --max-speed",
}
FINE = 0
CODES = {reason: code for code, reason in enumerate(REASONS, 1)}
"""Reasons as numbers; 0 is fine."""
NOTHING = -(2**62)
"""Stands where an integer is missing."""

Flags = np.ndarray[Any, np.dtype[np.bool_]]


class FleetRows(NamedTuple):
    """Columns of rows."""

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
        """Some of them, or another order."""
        return FleetRows(**{name: column[chosen] for name, column in self._asdict().items()})


def clean_rows(rows: FleetRows, node: Integers, rules: CleaningRules) -> tuple[FleetRows, Integers]:
    """All rows with their reasons, by node and time, and the track of each that is fine. `node` is that of each log."""
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
    """Single rows out of order in a log that is in the order of time; rows stand in the order of their logs."""
    now = np.where((rows.reason == FINE) & (rows.stated == NOTHING), rows.clock_s, np.nan)

    def shift_times(by: int) -> Floats:
        """The time of another row of the same log; none beyond its ends."""
        found = np.full(len(now), np.nan)
        if abs(by) < len(now):
            here, there = (slice(-by, None), slice(None, by)) if by < 0 else (slice(None, -by), slice(by, None))
            found[here] = np.where(rows.log[here] == rows.log[there], now[there], np.nan)
        return found

    before, after, later = shift_times(-1), shift_times(1), shift_times(2)
    # Comparisons with what is not there are false.
    back = now < before
    share = (np.bincount(rows.log, weights=back) / np.maximum(np.bincount(rows.log), 1))[rows.log]
    dips = back & ((after >= before) | np.isnan(after))
    # Where either of two could be the wrong one, the second is.
    peaks = (now > after) & ~(later >= now) & ((before <= after) | np.isnan(before))
    found: Flags = (share > 0) & (share <= rules.disordered) & (dips | peaks)
    return found


def _fine_rows(rows: FleetRows, owner: Integers) -> tuple[Integers, Integers]:
    """The rows that are fine so far, and for each the one before it; -1 where it is the first of its node."""
    fine = np.flatnonzero(rows.reason == FINE)
    before = np.append(-1, fine[:-1])[: len(fine)]
    return fine, np.where(_is_first(owner[fine]), -1, before)


def _mark_repetitions(rows: FleetRows, owner: Integers) -> None:
    """The same node at the same time again: at the same place a duplicate, elsewhere a conflict. The first stays."""
    fine, before = _fine_rows(rows, owner)
    again = (before >= 0) & (rows.stated[fine] == NOTHING) & (rows.clock_s[fine] == rows.clock_s[before])
    same = (rows.x_m[fine] == rows.x_m[before]) & (rows.y_m[fine] == rows.y_m[before])
    rows.reason[fine[again & same]] = CODES["duplicate"]
    rows.reason[fine[again & ~same]] = CODES["conflict"]


def _is_too_fast(rows: FleetRows, fine: Integers, before: Integers, rules: CleaningRules) -> Flags:
    """Whether a row is reached faster than the limit. Those of no time apart are told by the step on duplicates."""
    away_m = np.hypot(rows.x_m[fine] - rows.x_m[before], rows.y_m[fine] - rows.y_m[before])
    apart_s = rows.clock_s[fine] - rows.clock_s[before]
    speed = np.divide(away_m, apart_s, out=np.zeros(len(fine)), where=apart_s != 0)
    found: Flags = (before >= 0) & (speed > rules.max_speed_mps)
    return found


def _mark_jumps(rows: FleetRows, owner: Integers, rules: CleaningRules) -> None:
    """A few rows that could be reached, or left, only faster than the limit. The rows around them stay."""
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
    """Whether nothing was heard of a row's node for too long before it."""
    found: Flags = (before >= 0) & (rows.clock_s[fine] - rows.clock_s[before] > rules.gap_s)
    return found


def _number_tracks(rows: FleetRows, owner: Integers, rules: CleaningRules) -> Integers:
    """The track of each row that is fine: a new one where the node was silent for too long, where it was told from
    elsewhere than it can have come from, or where the format says so."""
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
    """Runs by node and time: the rows of each, whether it begins with a leap, and its first and last row."""

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
    """Which runs are jumps.

    A run of fewer than `least_run` rows that begins with a leap, or is left with one, is in doubt. It is right if the
    last right run before it reaches it within the limit, or if it reaches the next run that is not in doubt; a silence
    in between says nothing.
    """
    same = np.diff(runs.node) == 0
    left = np.append(runs.leap[1:] & same, False)[: len(runs.leap)]
    doubtful: Flags = (runs.leap | left) & (runs.rows < rules.least_run)
    wrong = np.zeros(len(doubtful), dtype=np.bool_)
    # The next run that is not in doubt, of the same node or of another.
    sure = np.flatnonzero(~doubtful)
    following = np.append(sure, len(doubtful))[np.searchsorted(sure, np.arange(len(doubtful)))]
    # The last run that is right before the one at hand, where that before it is wrong.
    right = -1
    for run in np.flatnonzero(doubtful).tolist():
        if run == 0 or not wrong[run - 1]:
            right = run - 1
        after = int(following[run])
        wrong[run] = not (_reaches(runs, right, run, rules) or _reaches(runs, run, after, rules))
    return wrong


def _reaches(runs: RowRuns, one: int, other: int, rules: CleaningRules) -> bool:
    """Whether the end of a run reaches the beginning of another, of the same node and without a silence."""
    if one < 0 or other >= len(runs.node) or runs.node[one] != runs.node[other]:
        return False
    apart_s = float(runs.first_s[other] - runs.last_s[one])
    away_m = hypot(runs.first_x_m[other] - runs.last_x_m[one], runs.first_y_m[other] - runs.last_y_m[one])
    return apart_s <= rules.gap_s and away_m <= rules.max_speed_mps * apart_s
