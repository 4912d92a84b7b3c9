"""Runs of a node's rows, parted by jumps and silences: which of them are wrong."""

from math import hypot
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from carrycast.sim.mobility.trajectory import Floats, Integers

if TYPE_CHECKING:
    from carrycast.analysis.fleets.cleaning import Rules

Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Runs(NamedTuple):
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


def wrong_runs(runs: Runs, rules: "Rules") -> Flags:
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


def _reaches(runs: Runs, one: int, other: int, rules: "Rules") -> bool:
    """Whether the end of a run reaches the beginning of another, of the same node and without a silence."""
    if one < 0 or other >= len(runs.node) or runs.node[one] != runs.node[other]:
        return False
    apart_s = float(runs.first_s[other] - runs.last_s[one])
    away_m = hypot(runs.first_x_m[other] - runs.last_x_m[one], runs.first_y_m[other] - runs.last_y_m[one])
    return apart_s <= rules.gap_s and away_m <= rules.max_speed_mps * apart_s
