"""The user's objective: limits on metrics, and one metric to minimize or maximize.

Examples: `delivery >= 0.95, least bytes` and `delay_p95_s <= 60, bytes <= 2e6, most delivery`.
"""

import difflib
import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from carrycast.errors import UserError
from carrycast.sim.scenario import metric_meanings

SHORT = {
    "delivery": "delivery_ratio",
    "bytes": "total_bytes",
    "delay": "delay_p50_s",
    "frames": "transmissions",
    "hops": "hops_mean",
    "buffer": "buffer_peak",
}
"""Short names of metrics."""
FORM = "write limits and one goal, such as 'delivery >= 0.95, least bytes'"
_LIMIT = re.compile(r"(\w+)\s*(>=|<=|>|<|=)\s*(\S+)")
_GOAL = re.compile(r"(least|most)\s+(\w+)")


class Limit(NamedTuple):
    """A metric that must not be below a value (`at_least`), or not above it."""

    metric: str
    at_least: bool
    value: float

    def excess(self, found: float | None) -> float:
        """The violation relative to the limit's value; 0 if the limit holds, inf without a measurement."""
        if found is None:
            return math.inf
        over = self.value - found if self.at_least else found - self.value
        return max(0.0, over / (abs(self.value) or 1.0))

    @property
    def text(self) -> str:
        """The limit as users write it."""
        return f"{self.metric} {'>=' if self.at_least else '<='} {self.value:g}"


class Objective(NamedTuple):
    """Limits and a goal."""

    limits: tuple[Limit, ...]
    goal: str
    """The metric to minimize (`least`) or maximize."""
    least: bool

    @property
    def metrics(self) -> list[str]:
        """The metrics of the limits and of the goal."""
        return list(dict.fromkeys([*(limit.metric for limit in self.limits), self.goal]))

    @property
    def text(self) -> str:
        """The objective as users write it."""
        return ", ".join([*(limit.text for limit in self.limits), f"{'least' if self.least else 'most'} {self.goal}"])

    def excess(self, means: Mapping[str, float | None]) -> float:
        """The sum of the violations of all limits."""
        return sum(limit.excess(means.get(limit.metric)) for limit in self.limits)

    def cost(self, value: float | None) -> float:
        """The goal as a cost, of which less is better; inf without a measurement."""
        if value is None:
            return math.inf
        return value if self.least else -value


def parse_objective(text: str, where: str = "--objective") -> Objective:
    """Parse an objective; a UserError says what is wrong with it."""
    limits: list[Limit] = []
    goals: list[tuple[str, bool]] = []
    for item in (part.strip() for part in text.split(",")):
        if (limit := _LIMIT.fullmatch(item)) is not None:
            limits.append(_parse_limit(limit[1], limit[2], limit[3], where))
        elif (goal := _GOAL.fullmatch(item)) is not None:
            goals.append((_find_metric(goal[2], where), goal[1] == "least"))
        else:
            raise UserError(f"{where}: {item!r} is neither a limit nor a goal; {FORM}")
    if len(goals) != 1:
        raise UserError(f"{where}: has {len(goals) or 'no'} goals, and needs one; {FORM}")
    named = [(limit.metric, limit.at_least) for limit in limits]
    for metric, at_least in named:
        if named.count((metric, at_least)) > 1:
            raise UserError(f"{where}: limits {metric} twice in the same direction")
    return Objective(tuple(limits), *goals[0])


def _parse_limit(name: str, sign: str, written: str, where: str) -> Limit:
    metric = _find_metric(name, where)
    if sign not in (">=", "<="):
        raise UserError(f"{where}: {name} {sign} {written}: a limit says >= or <=; {FORM}")
    try:
        value = float(written)
    except ValueError:
        raise UserError(f"{where}: {name} {sign} {written}: {written!r} is not a number") from None
    if not math.isfinite(value):
        raise UserError(f"{where}: {name} {sign} {written}: a limit is a finite number")
    if metric == "delivery_ratio" and not 0 <= value <= 1:
        raise UserError(f"{where}: {name} {sign} {written}: a delivery ratio lies between 0 and 1")
    return Limit(metric, sign == ">=", value)


def _find_metric(name: str, where: str) -> str:
    metric = SHORT.get(name, name)
    if metric in metric_meanings():
        return metric
    known = [*SHORT, *metric_meanings()]
    close = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise UserError(f"{where}: there is no metric {name!r}{hint} There are {', '.join(known)}")
