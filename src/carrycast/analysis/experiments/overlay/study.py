"""The runs of the overlay's experiment, asked in the terms of its claims: values by seed, and what becomes of two."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from carrycast.analysis.experiments.claim_builder import ClaimBuilder
from carrycast.analysis.spark import (
    Bounds,
    Claim,
    ClaimCase,
    Interval,
    Relation,
    Selector,
    confidence_interval,
    series_value,
)

Values: TypeAlias = Mapping[int, float]
"""Of each seed that has one."""
Samples: TypeAlias = Mapping[int, Mapping[float, float]]
"""Of each seed, by time."""
MET = 0.1
"""A number of the paper is met within this share of it."""


class OverlayClaims(ClaimBuilder):
    """The claims about the four parts of the experiment. A setting that is not named is that of the base."""

    def brokers(self, scheme: str, metric: str, update: str = "50", case: str = "base") -> Values:
        """Of the broker network alone."""
        return self.select({"part": "brokers", "scheme": scheme, "update": update, "case": case}, metric)

    def clients(self, scheme: str, metric: str = "client_path", look: str = "10", case: str = "base") -> Values:
        """Of producers and consumers."""
        return self.select({"part": "clients", "scheme": scheme, "look": look, "case": case}, metric)

    def emulation(self, scheme: str, case: str, metric: str) -> Values:
        """Of brokers with work to do."""
        return self.select({"part": "emulation", "scheme": scheme, "case": case}, metric)

    def testbed(self, scheme: str, case: str, metric: str = "delay_mean_s") -> Values:
        """Of flood watch."""
        return self.select({"part": "testbed", "scheme": scheme, "case": case}, metric)

    def samples(self, chosen: Selector, metric: str) -> Samples:
        """A sampled metric of the one point that a selection names, by seed and time."""
        names = {point.name for point in self.results.points(chosen)}
        found: dict[int, dict[float, float]] = {}
        for record in self.results.records:
            if record["experiment"] == self.results.experiment.name and record["point"] in names:
                seed = record["seed"]
                assert isinstance(seed, int)
                found[seed] = {time: value for time, value in series_value(record, metric) if value is not None}
        return found

    def paper_number(
        self, figure: str, statement: str, found: Values, paper: float, calibration: bool = False
    ) -> Claim | None:
        """A number of the paper."""
        cases = [ClaimCase("", confidence_interval(found.values()))]
        return self.claim_if_run(
            figure, statement, cases, "=", paper, tolerance=MET * paper, paper=paper, calibration=calibration
        )

    def claim_if_run(
        self,
        figure: str,
        statement: str,
        cases: Sequence[ClaimCase],
        relation: Relation,
        value: float,
        *,
        tolerance: float = 0.0,
        paper: float | None = None,
        calibration: bool = False,
    ) -> Claim | None:
        """A claim that all its cases must meet; none if one of them has no runs."""
        if not cases or any(case.found.n == 0 for case in cases):
            return None
        return self.claim(
            figure, statement, cases, relation, value, tolerance=tolerance, paper=paper, calibration=calibration
        )


def minus(left: Values, right: Values) -> Values:
    """left - right, seed by seed."""
    return {seed: left[seed] - right[seed] for seed in left if seed in right}


def difference(left: Values, right: Values, *, bounds: Bounds | None = None) -> Interval:
    """The same, and where its mean lies."""
    return confidence_interval(minus(left, right).values(), bounds)


def ratio(left: Values, right: Values) -> Interval:
    """left / right, seed by seed."""
    return confidence_interval(left[seed] / right[seed] for seed in left if right.get(seed))


def first_difference(left: Samples, right: Samples) -> list[float]:
    """Of each seed, left - right at the first time at which both have a value."""
    return [found[0] for found in _compared(left, right, lambda one, other: one - other) if found]


def share_below(left: Samples, right: Samples, after_s: float) -> list[float]:
    """Of each seed, at which share of the times after one the left is below the right."""
    late = {seed: _after(times, after_s) for seed, times in left.items()}
    return [sum(found) / len(found) for found in _compared(late, right, lambda one, other: float(one < other)) if found]


def largest(left: Samples, right: Samples, compare: Callable[[float, float], float]) -> list[float]:
    """Of each seed, the largest of what comparing the two at each time gives."""
    return [max(found) for found in _compared(left, right, compare) if found]


def _compared(left: Samples, right: Samples, compare: Callable[[float, float], float]) -> list[list[float]]:
    return [
        [compare(left[seed][time], right[seed][time]) for time in sorted(left[seed]) if time in right[seed]]
        for seed in left
        if seed in right
    ]


def _after(times: Mapping[float, float], after_s: float) -> dict[float, float]:
    return {time: value for time, value in times.items() if time > after_s}
