"""The main comparisons of paper 004, once for each reading of it. Tolerances are those of the experiment `adaptive`."""

from collections.abc import Iterator
from typing import NamedTuple

from carrycast.analysis.experiments.claim_builder import difference_interval, ratio_of_seeds, values_by_seed
from carrycast.analysis.spark import (
    UNDECIDED,
    Claim,
    Interval,
    Relation,
    Results,
    Selector,
    confidence_interval,
    decide,
    make_claim,
    metric_bounds,
)

NEAR = 0.1
"""The largest difference from a ratio of the paper."""
ALIKE = 0.05
"""The largest difference from a delivery ratio of the paper."""
COUNT_NEAR = 0.2
"""The largest relative difference from a count of the paper."""
PAPER_NODES = 200
"""With fewer nodes, as in a quick run, the numbers of the paper cannot be reproduced."""

READINGS = {
    "base": "10 groups, 16 travelers, one timer for each node, to everyone, random order, any interest",
    "5 g": "5 groups",
    "20 g": "20 groups",
    "50 g": "50 groups, about nine neighbors",
    "copy": "each stored event is tried every 60 s from its own arrival on",
    "copy, 5 g": "the same with 5 groups",
    "8 t": "8 travelers",
    "32 t": "32 travelers",
    "new": "stored events only to neighbors not known to hold them",
    "fixed": "oldest link first among equal utilities",
    "lowest": "lowest node id first among equal utilities",
    "one": "an event counts for one of its interests",
    "rec": "recursive neighborhood utilities",
    "both": "recursive neighborhood utilities and fixed order",
    "echo": "a node's own utilities count when a neighbor tells of them",
}
SIMPLER = {"fixed": "base", "lowest": "base", "one": "base", "rec": "base", "both": "fixed", "echo": "base"}
"""For each reading, the one with the same results at settings that the reading does not affect."""
INDIFFERENT = {
    "fixed": ("spcast", "spcast, no limit"),
    "lowest": ("spcast", "spcast, no limit"),
    "one": ("spcast", "spcast, no limit"),
    "rec": ("spcast", "no neighborhood"),
    "both": ("spcast", "no neighborhood"),
    "echo": ("spcast", "no neighborhood"),
}
"""The settings that a reading does not affect."""


class SettingComparison(NamedTuple):
    """A statement of the paper about two settings."""

    figure: str
    statement: str
    metric: str
    left: str
    right: str | None
    """None: the left setting alone is compared with the value."""
    relation: Relation
    paper: float | None = None
    share: bool = False
    """left / right instead of left - right."""
    value: float = 0.0
    tolerance: float = 0.0

    @property
    def sides(self) -> tuple[str, ...]:
        """The settings that are compared."""
        return (self.left,) if self.right is None else (self.left, self.right)


COMPARISONS = (
    SettingComparison(
        "neighborhood",
        "neighborhood utilities save forwards (ratio)",
        metric="forwards_in_window",
        left="adaptive",
        right="no neighborhood",
        relation="<",
        paper=279_904 / 378_621,
        share=True,
        value=1.0,
    ),
    SettingComparison(
        "weights",
        "change degree contributes to delivery",
        metric="delivery_ratio",
        left="adaptive, no limit",
        right="0 : 1, no limit",
        relation=">",
        paper=0.9224 - 0.8685,
    ),
    SettingComparison(
        "weights",
        "co-location contributes to delivery",
        metric="delivery_ratio",
        left="adaptive, no limit",
        right="1 : 0, no limit",
        relation=">",
        paper=0.9224 - 0.8747,
    ),
    SettingComparison(
        "small-buffer",
        "at β = 100 adaptive delivers more than spcast",
        metric="delivery_ratio",
        left="adaptive",
        right="spcast",
        relation=">",
    ),
    SettingComparison(
        "small-buffer",
        "at β = 100 delivery falls from σ = 0.4 to 0",
        metric="delivery_ratio",
        left="σ = 0",
        right="adaptive",
        relation="<",
    ),
    SettingComparison(
        "no-limit",
        "without a limit delivery rises from σ = 0.4 to 0",
        metric="delivery_ratio",
        left="σ = 0, no limit",
        right="adaptive, no limit",
        relation=">",
    ),
    SettingComparison(
        "no-limit",
        "without a limit delivery reaches 100 % at σ = 0",
        metric="delivery_ratio",
        left="σ = 0, no limit",
        right=None,
        relation="=",
        paper=1.0,
        value=1.0,
        tolerance=ALIKE,
    ),
    SettingComparison(
        "no-limit",
        "without a limit adaptive delivers less than spcast",
        metric="delivery_ratio",
        left="adaptive, no limit",
        right="spcast, no limit",
        relation="<",
    ),
    SettingComparison(
        "no-limit-forwards",
        "without a limit adaptive forwards less than spcast (ratio)",
        metric="forwards_in_window",
        left="adaptive, no limit",
        right="spcast, no limit",
        relation="<",
        share=True,
        value=1.0,
    ),
    SettingComparison(
        "no-limit-forwards",
        "at σ = 0 without a limit adaptive forwards less than spcast (ratio)",
        metric="forwards_in_window",
        left="σ = 0, no limit",
        right="spcast, no limit",
        relation="<",
        paper=412_156 / 579_639,
        share=True,
        value=1.0,
    ),
    SettingComparison(
        "no-limit-forwards",
        "without a limit adaptive forwards about as often as at β = 100 (ratio)",
        metric="forwards_in_window",
        left="adaptive, no limit",
        right="adaptive",
        relation="=",
        paper=284_630 / 279_904,
        share=True,
        value=284_630 / 279_904,
        tolerance=NEAR,
    ),
    SettingComparison(
        "reports",
        "at a fixed interval 36,244 reports go over links",
        metric="reports_over_links",
        left="adaptive",
        right=None,
        relation="=",
        paper=36_244.0,
        value=36_244.0,
        tolerance=36_244 * COUNT_NEAR,
    ),
    SettingComparison(
        "reports",
        "if reports adapt, 10,771 go over links",
        metric="reports_over_links",
        left="adaptive reports",
        right=None,
        relation="=",
        paper=10_771.0,
        value=10_771.0,
        tolerance=10_771 * COUNT_NEAR,
    ),
    SettingComparison(
        "reports",
        "reports that adapt cost less than 5 points of delivery",
        metric="delivery_ratio",
        left="adaptive reports",
        right="adaptive",
        relation=">",
        paper=0.9075 - 0.9354,
        value=-ALIKE,
    ),
    SettingComparison(
        "reports",
        "reports that adapt are about 70 % fewer (ratio)",
        metric="reports_over_links",
        left="adaptive reports",
        right="adaptive",
        relation="=",
        paper=10_771 / 36_244,
        share=True,
        value=10_771 / 36_244,
        tolerance=NEAR,
    ),
)


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims, grouped by comparison."""
    for comparison in COMPARISONS:
        for reading in READINGS:
            there = [results.points({"setting": setting, "reading": reading}) for setting in comparison.sides]
            known = [setting in INDIFFERENT.get(reading, ()) for setting in comparison.sides]
            # If the reading affects neither side, its comparison would repeat that of the simpler reading.
            if any(there) and all(here or same for here, same in zip(there, known, strict=True)):
                yield compare_settings(results, comparison, reading)


def compare_settings(results: Results, comparison: SettingComparison, reading: str) -> Claim:
    """Build the claim of one comparison under one reading."""
    sides = [values(results, setting, reading, comparison.metric) for setting in comparison.sides]
    found = _compare(sides, comparison)
    decision = decide(found, comparison.relation, comparison.value, comparison.tolerance)
    if comparison.right is None and results.experiment.points[0].scenario.nodes != PAPER_NODES:
        decision = UNDECIDED
    return make_claim(
        results,
        comparison.figure,
        f"{reading}: {comparison.statement}",
        found,
        decision,
        note=READINGS[reading],
        paper=comparison.paper,
    )


def _compare(sides: list[dict[int, float]], comparison: SettingComparison) -> Interval:
    """The mean of the only side, or of the ratio or difference of both, paired by seed."""
    if len(sides) == 1:
        return confidence_interval(sides[0].values(), None if comparison.share else metric_bounds(comparison.metric))
    left, right = sides
    if comparison.share:
        return ratio_of_seeds(left, right)
    return difference_interval(left, right, comparison.metric)


def values(results: Results, setting: str, reading: str, metric: str) -> dict[int, float]:
    """Return a metric by seed; from the simpler reading if the reading does not affect the setting."""
    here: Selector = {"setting": setting, "reading": reading}
    if not results.points(here) and reading in SIMPLER:
        return values(results, setting, SIMPLER[reading], metric)
    return values_by_seed(results, here, metric)
