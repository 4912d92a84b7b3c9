"""Cleaning a bucket: the steps of `cleaning` that look at more than one row, on the columns of all rows of some nodes.

The same as there, in a seventh of the CPU of a whole ingest: tests hold both to the same rows.
"""

from typing import Any

import numpy as np

from carrycast.analysis.fleets.buckets import CODES, FINE, NOTHING, Rows
from carrycast.analysis.fleets.cleaning import Rules
from carrycast.analysis.fleets.runs import Runs, wrong_runs
from carrycast.sim.mobility.trajectory import Floats, Integers

Flags = np.ndarray[Any, np.dtype[np.bool_]]


def cleaned_rows(rows: Rows, node: Integers, rules: Rules) -> tuple[Rows, Integers]:
    """All rows with their reasons, by node and time, and the track of each that is fine. `node` is that of each log."""
    rows = rows.take(np.lexsort((rows.place, rows.log)))
    _mark(rows, _out_of_order(rows, rules), "clock")
    inside = ~(rows.clock_s < _or(rules.from_s, -np.inf)) & ~(rows.clock_s >= _or(rules.until_s, np.inf))
    _mark(rows, ~inside, "outside")
    rows = rows.take(np.lexsort((rows.place, rows.log, rows.stated, rows.clock_s, node[rows.log])))
    owner = node[rows.log]
    _mark_again(rows, owner)
    _mark_jumps(rows, owner, rules)
    return rows, _tracks(rows, owner, rules)


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _mark(rows: Rows, wrong: Flags, reason: str) -> None:
    rows.reason[wrong & (rows.reason == FINE)] = CODES[reason]


def _begins(owner: Integers) -> Flags:
    """Whether a row is the first of its owner."""
    return np.append(True, np.diff(owner) != 0)[: len(owner)]


def _out_of_order(rows: Rows, rules: Rules) -> Flags:
    """Single rows out of order in a log that is in the order of time; rows stand in the order of their logs."""
    now = np.where((rows.reason == FINE) & (rows.stated == NOTHING), rows.clock_s, np.nan)

    def shifted(by: int) -> Floats:
        """The time of another row of the same log; none beyond its ends."""
        found = np.full(len(now), np.nan)
        if abs(by) < len(now):
            here, there = (slice(-by, None), slice(None, by)) if by < 0 else (slice(None, -by), slice(by, None))
            found[here] = np.where(rows.log[here] == rows.log[there], now[there], np.nan)
        return found

    before, after, later = shifted(-1), shifted(1), shifted(2)
    # Comparisons with what is not there are false.
    back = now < before
    share = (np.bincount(rows.log, weights=back) / np.maximum(np.bincount(rows.log), 1))[rows.log]
    dips = back & ((after >= before) | np.isnan(after))
    # Where either of two could be the wrong one, the second is.
    peaks = (now > after) & ~(later >= now) & ((before <= after) | np.isnan(before))
    found: Flags = (share > 0) & (share <= rules.disordered) & (dips | peaks)
    return found


def _fine(rows: Rows, owner: Integers) -> tuple[Integers, Integers]:
    """The rows that are fine so far, and for each the one before it; -1 where it is the first of its node."""
    fine = np.flatnonzero(rows.reason == FINE)
    before = np.append(-1, fine[:-1])[: len(fine)]
    return fine, np.where(_begins(owner[fine]), -1, before)


def _mark_again(rows: Rows, owner: Integers) -> None:
    """The same node at the same time again: at the same place a duplicate, elsewhere a conflict. The first stays."""
    fine, before = _fine(rows, owner)
    again = (before >= 0) & (rows.stated[fine] == NOTHING) & (rows.clock_s[fine] == rows.clock_s[before])
    same = (rows.x_m[fine] == rows.x_m[before]) & (rows.y_m[fine] == rows.y_m[before])
    rows.reason[fine[again & same]] = CODES["duplicate"]
    rows.reason[fine[again & ~same]] = CODES["conflict"]


def _too_fast(rows: Rows, fine: Integers, before: Integers, rules: Rules) -> Flags:
    """Whether a row is reached faster than the limit. Those of no time apart are told by the step on duplicates."""
    away_m = np.hypot(rows.x_m[fine] - rows.x_m[before], rows.y_m[fine] - rows.y_m[before])
    apart_s = rows.clock_s[fine] - rows.clock_s[before]
    speed = np.divide(away_m, apart_s, out=np.zeros(len(fine)), where=apart_s != 0)
    found: Flags = (before >= 0) & (speed > rules.max_speed_mps)
    return found


def _mark_jumps(rows: Rows, owner: Integers, rules: Rules) -> None:
    """A few rows that could be reached, or left, only faster than the limit. The rows around them stay."""
    fine, before = _fine(rows, owner)
    if not len(fine):
        return
    measured = rows.stated[fine] == NOTHING
    leap = measured & _too_fast(rows, fine, before, rules)
    first = _begins(owner[fine])
    begins = np.flatnonzero(first | leap | (measured & _silent(rows, fine, before, rules)))
    ends = np.append(begins[1:], len(fine)) - 1
    run = np.repeat(np.arange(len(begins)), ends - begins + 1)
    length = np.bincount(run, weights=measured).astype(np.int64)
    head, last = fine[begins], fine[ends]
    places = (column[row] for row in (head, last) for column in (rows.clock_s, rows.x_m, rows.y_m))
    wrong = wrong_runs(Runs(owner[head], length, leap[begins], *places), rules)
    rows.reason[fine[measured & wrong[run]]] = CODES["jump"]


def _silent(rows: Rows, fine: Integers, before: Integers, rules: Rules) -> Flags:
    """Whether nothing was heard of a row's node for too long before it."""
    found: Flags = (before >= 0) & (rows.clock_s[fine] - rows.clock_s[before] > rules.gap_s)
    return found


def _tracks(rows: Rows, owner: Integers, rules: Rules) -> Integers:
    """The track of each row that is fine: a new one where the node was silent for too long, where it was told from
    elsewhere than it can have come from, or where the format says so."""
    fine, before = _fine(rows, owner)
    silent = _silent(rows, fine, before, rules)
    joined = (rows.stated[fine] == rows.stated[before]) & (rows.log[fine] == rows.log[before])
    measured = rows.stated[fine] == NOTHING
    apart = (before >= 0) & np.where(measured, silent | _too_fast(rows, fine, before, rules), ~joined)
    count = np.cumsum(apart)
    first = np.flatnonzero(_begins(owner[fine]))
    track = np.zeros(len(rows.log), dtype=np.int64)
    track[fine] = count - np.repeat(count[first], np.diff(np.append(first, len(fine))))
    return track
