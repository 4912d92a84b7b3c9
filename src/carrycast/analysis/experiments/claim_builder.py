"""Shared by the `claims.py` of the experiments: metrics by seed, their differences and ratios, and a claim builder."""

from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack, cast

from carrycast.analysis.spark import (
    Claim,
    ClaimCase,
    Interval,
    Relation,
    Results,
    Selector,
    confidence_interval,
    make_claim_over_cases,
    metric_bounds,
    paired_differences,
)

SeedValues = Mapping[int, float]
"""A value for each seed that has one."""


def values_by_seed(results: Results, selector: Selector, metric: str) -> dict[int, float]:
    """A metric of a selection of points by seed; seeds without a value are left out."""
    return {seed: value for seed, value in results.select(selector, metric).items() if value is not None}


def difference_interval(left: SeedValues, right: SeedValues, metric: str, exact: bool = False) -> Interval:
    """The mean of left - right of a metric, paired by seed."""
    return confidence_interval(paired_differences(left, right), metric_bounds(metric, difference=True), exact)


def ratios_by_seed(left: SeedValues, right: SeedValues) -> list[float]:
    """left / right for every seed at which both exist and right is not 0."""
    return [left[seed] / right[seed] for seed in left if right.get(seed)]


def ratio_of_seeds(left: SeedValues, right: SeedValues) -> Interval:
    """The mean of left / right, paired by seed."""
    return confidence_interval(ratios_by_seed(left, right))


class Requirement(TypedDict, total=False):
    """The keywords of `ClaimBuilder.claim` that state which values its cases must have. A claim has exactly one."""

    above: float
    at_least: float
    below: float
    at_most: float
    equals: float


_RELATIONS: dict[str, Relation] = {"above": ">", "at_least": ">=", "below": "<", "at_most": "<=", "equals": "="}


class ClaimBuilder:
    """Builds the claims of one experiment. Each experiment derives a class that knows its axes."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def select(self, selector: Selector, metric: str) -> dict[int, float]:
        """Return a metric of the selected points by seed; seeds without a value are left out."""
        return values_by_seed(self.results, selector, metric)

    def claim(
        self,
        figure: str,
        statement: str,
        cases: Sequence[ClaimCase],
        *,
        tolerance: float = 0.0,
        note: str = "",
        paper: float | None = None,
        calibration: bool = False,
        **required: Unpack[Requirement],
    ) -> Claim:
        """Build a claim that holds if all its cases meet the requirement. The report shows the decisive case."""
        ((name, value),) = required.items()
        return make_claim_over_cases(
            self.results,
            figure,
            self.full_statement(statement),
            cases,
            _RELATIONS[name],
            cast("float", value),
            tolerance=tolerance,
            notes=self.notes(note, tolerance),
            paper=paper,
            calibration=calibration,
        )

    def full_statement(self, statement: str) -> str:
        """The statement as the report shows it."""
        return statement

    def notes(self, note: str, tolerance: float) -> tuple[str, ...]:
        """The notes of a claim, besides the name of its decisive case."""
        return (note,)
