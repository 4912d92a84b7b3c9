"""What the `claims.py` of several experiments share: values by seed, their differences and ratios, and claims."""

from collections.abc import Mapping, Sequence

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
    return {seed: value for seed, value in results.selected(selector, metric).items() if value is not None}


def difference_interval(left: SeedValues, right: SeedValues, metric: str, exact: bool = False) -> Interval:
    """left - right of a metric, seed by seed."""
    return confidence_interval(paired_differences(left, right), metric_bounds(metric, difference=True), exact)


def ratios_by_seed(left: SeedValues, right: SeedValues) -> list[float]:
    """left / right, seed by seed, where right is not 0."""
    return [left[seed] / right[seed] for seed in left if right.get(seed)]


def ratio_of_seeds(left: SeedValues, right: SeedValues) -> Interval:
    """The mean of left / right, seed by seed."""
    return confidence_interval(ratios_by_seed(left, right))


class ClaimBuilder:
    """Makes the claims of one experiment. Each experiment derives a class that knows its axes."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def select(self, selector: Selector, metric: str) -> dict[int, float]:
        """A metric by seed, where it exists."""
        return values_by_seed(self.results, selector, metric)

    def claim(
        self,
        figure: str,
        statement: str,
        cases: Sequence[ClaimCase],
        relation: Relation,
        value: float,
        *,
        tolerance: float = 0.0,
        note: str = "",
        paper: float | None = None,
        calibration: bool = False,
    ) -> Claim:
        """A claim that all its cases must meet. The decisive case stands for all."""
        return make_claim_over_cases(
            self.results,
            figure,
            self.full_statement(statement),
            cases,
            relation,
            value,
            tolerance=tolerance,
            notes=self.notes(note, tolerance),
            paper=paper,
            calibration=calibration,
        )

    def full_statement(self, statement: str) -> str:
        """The statement as the report shows it."""
        return statement

    def notes(self, note: str, tolerance: float) -> tuple[str, ...]:
        """What a claim says about itself, besides its decisive case."""
        return (note,)
