"""The paper's main comparisons, once for each reading. Tolerances are those of the experiment adaptive."""

from collections.abc import Iterator
from typing import NamedTuple

from driftcast.pipeline.claims import Claim, claimed
from driftcast.pipeline.definition import Relation, Selector
from driftcast.pipeline.results import Results
from driftcast.pipeline.statistics import interval
from driftcast.pipeline.verdict import decide

NEAR = 0.1
"""How near a ratio must come to the paper's."""

READINGS = {
    "base": "10 groups, 16 travelers, to everyone, random order",
    "5 g": "5 groups",
    "20 g": "20 groups",
    "50 g": "50 groups",
    "8 t": "8 travelers",
    "32 t": "32 travelers",
    "new": "stored events only to neighbors not known to hold them",
    "fixed": "fixed order among equal utilities",
    "rec": "recursive neighborhood utilities",
    "both": "recursive neighborhood utilities and fixed order",
    "echo": "a node's own utilities count when a neighbor tells of them",
}
SIMPLER = {"fixed": "base", "rec": "base", "both": "fixed", "echo": "base"}
"""The reading that gives the same where a setting knows nothing of what a reading changes."""
INDIFFERENT = {
    "fixed": ("spcast", "spcast, no limit"),
    "rec": ("spcast", "no neighborhood"),
    "both": ("spcast", "no neighborhood"),
    "echo": ("spcast", "no neighborhood"),
}
"""The settings that know nothing of it."""


class Comparison(NamedTuple):
    """Something that the paper says of two settings."""

    figure: str
    statement: str
    metric: str
    left: str
    right: str
    relation: Relation
    paper: float | None = None
    share: bool = False
    """left / right instead of left - right."""
    value: float = 0.0
    tolerance: float = 0.0

    @property
    def sides(self) -> tuple[str, str]:
        """Both settings."""
        return self.left, self.right


COMPARISONS = (
    Comparison(
        "neighborhood",
        "neighborhood utilities save forwards (ratio)",
        "forwards",
        "adaptive",
        "no neighborhood",
        "<",
        279_904 / 378_621,
        share=True,
        value=1.0,
    ),
    Comparison(
        "weights",
        "change degree contributes to delivery",
        "delivery_ratio",
        "adaptive, no limit",
        "0 : 1, no limit",
        ">",
        0.9224 - 0.8685,
    ),
    Comparison(
        "weights",
        "co-location contributes to delivery",
        "delivery_ratio",
        "adaptive, no limit",
        "1 : 0, no limit",
        ">",
        0.9224 - 0.8747,
    ),
    Comparison(
        "small-buffer",
        "at β = 100 adaptive delivers more than spcast",
        "delivery_ratio",
        "adaptive",
        "spcast",
        ">",
    ),
    Comparison(
        "small-buffer",
        "at β = 100 delivery falls from σ = 0.4 to 0",
        "delivery_ratio",
        "σ = 0",
        "adaptive",
        "<",
    ),
    Comparison(
        "no-limit",
        "without a limit delivery rises from σ = 0.4 to 0",
        "delivery_ratio",
        "σ = 0, no limit",
        "adaptive, no limit",
        ">",
    ),
    Comparison(
        "no-limit",
        "without a limit adaptive delivers less than spcast",
        "delivery_ratio",
        "adaptive, no limit",
        "spcast, no limit",
        "<",
    ),
    Comparison(
        "no-limit-forwards",
        "without a limit adaptive forwards less than spcast (ratio)",
        "forwards",
        "adaptive, no limit",
        "spcast, no limit",
        "<",
        share=True,
        value=1.0,
    ),
    Comparison(
        "no-limit-forwards",
        "at σ = 0 without a limit adaptive forwards less than spcast (ratio)",
        "forwards",
        "σ = 0, no limit",
        "spcast, no limit",
        "<",
        412_156 / 579_639,
        share=True,
        value=1.0,
    ),
    Comparison(
        "reports",
        "reports that adapt are about 70 % fewer (ratio)",
        "control_transmissions",
        "adaptive reports",
        "adaptive",
        "=",
        10_771 / 36_244,
        share=True,
        value=10_771 / 36_244,
        tolerance=NEAR,
    ),
)


def claims(results: Results) -> Iterator[Claim]:
    """Comparison by comparison, so that the readings of each stand together."""
    for comparison in COMPARISONS:
        for reading in READINGS:
            there = [results.points({"setting": setting, "reading": reading}) for setting in comparison.sides]
            known = [setting in INDIFFERENT.get(reading, ()) for setting in comparison.sides]
            # Where the reading changes neither side the comparison would only repeat that of the simpler one.
            if any(there) and all(here or same for here, same in zip(there, known, strict=True)):
                yield compared(results, comparison, reading)


def compared(results: Results, comparison: Comparison, reading: str) -> Claim:
    """One comparison under one reading."""
    left = values(results, comparison.left, reading, comparison.metric)
    right = values(results, comparison.right, reading, comparison.metric)
    found = interval(
        left[seed] / right[seed] if comparison.share else left[seed] - right[seed]
        for seed in left
        if seed in right and (right[seed] or not comparison.share)
    )
    holds = decide(found, comparison.relation, comparison.value, comparison.tolerance)
    return claimed(
        results,
        comparison.figure,
        f"{reading}: {comparison.statement}",
        found,
        holds,
        READINGS[reading],
        comparison.paper,
    )


def values(results: Results, setting: str, reading: str, metric: str) -> dict[int, float]:
    """A metric by seed; from the simpler reading where the setting knows nothing of what the reading changes."""
    here: Selector = {"setting": setting, "reading": reading}
    if not results.points(here) and reading in SIMPLER:
        return values(results, setting, SIMPLER[reading], metric)
    return {seed: value for seed, value in results.selected(here, metric).items() if value is not None}
