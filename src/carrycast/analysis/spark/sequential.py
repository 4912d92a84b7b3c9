"""Sequential tests: look at the claims of an experiment while its runs grow, and keep the error rate.

A test that is repeated at every look decides wrongly more often than once. So the error rate is spent over the looks by
an alpha spending function (Lan and DeMets, Biometrika 70, 1983), here the power family with exponent 2 (Kim and DeMets,
Biometrika 74, 1987; Jennison and Turnbull, "Group Sequential Methods", 2000, 7.2). At look k a claim is decided only if
its p-value is at most the share alpha_k, and the shares add up to 5 %. By Boole's inequality the rate then holds for
any dependence of the looks, for any test that is valid at each of them, and for any rule that stops the runs.

The intervals at level 1 - alpha_k are repeated confidence intervals: with 95 % confidence all of them contain the mean
(Jennison and Turnbull, JRSS B 51, 1989).
"""

from typing import NamedTuple

from carrycast.analysis.spark.statistics import CONFIDENCE

FIRST_LOOK = 5
"""The smallest number of runs whose intervals have been measured (docs/statistics.md)."""
EXPONENT = 2
"""Of the spending function alpha t^2. It lies between 1, like Pocock's constant boundary, and 3, like O'Brien and
Fleming's (Jennison and Turnbull 2000, 7.2): little is spent on the first looks, so the last one loses little power."""


class Look(NamedTuple):
    """A look at the claims."""

    runs: int
    """The seeds that it uses."""
    spent: float
    """The largest p-value that decides a claim at this look."""


def plan_looks(most: int) -> list[Look]:
    """Return the looks of an experiment with at most so many seeds: from the last one, half as many each.

    With doubling numbers a point has at most about twice the runs that its claims needed.
    """
    runs = [most]
    while runs[0] >= 2 * FIRST_LOOK:
        runs.insert(0, -(-runs[0] // 2))
    spent = [(1 - CONFIDENCE) * (count / most) ** EXPONENT for count in runs]
    return [Look(count, now - before) for count, now, before in zip(runs, spent, [0.0, *spent], strict=False)]


def sequential_chance(chance: float, look: Look) -> float:
    """Return the p-value of a decision at one of several looks: it is at most 5 % if the look decides alone."""
    return min(1.0, chance * (1 - CONFIDENCE) / look.spent)
