"""What must be found if the reasons given for the outcome of the experiment adaptive are right.

Differences, and differences of differences, are taken seed by seed. What "nearly all" means is fixed before any run.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from driftcast.pipeline.claims import Claim, claimed, decide
from driftcast.pipeline.definition import Relation
from driftcast.pipeline.results import Results
from driftcast.pipeline.statistics import interval

NEARLY_ALL = 0.8
"""Of the copies that are stored where everybody stores all."""

Sums = Mapping[tuple[str, str], float]
"""How often a setting, under a timer, counts in a sum."""


class Reason(NamedTuple):
    """A statement about a sum of one metric over settings, which must be above or below a value."""

    figure: str
    statement: str
    metric: str
    terms: Sums
    relation: Relation = ">"
    value: float = 0.0


def node(**terms: float) -> Sums:
    """Settings under the nodes' timers, by the names that SETTINGS gives them."""
    return {(SETTINGS[name], "node"): weight for name, weight in terms.items()}


SETTINGS = {
    "ours": "adaptive",
    "theirs": "spcast",
    "ours_halved": "adaptive, half the events",
    "theirs_halved": "spcast, half the events",
    "fast": "20 m/s",
    "often": "every 30 s",
    "fast_often": "20 m/s, every 30 s",
    "adapting": "adaptive reports",
    "adapting_20": "reports after 20 s",
    "adapting_forgotten": "reports good for one interval",
}

REASONS = (
    Reason(
        "buffers",
        "With half the events adaptive gains on spcast at β = 100",
        "delivery_ratio",
        node(ours_halved=1, theirs_halved=-1, ours=-1, theirs=1),
    ),
    Reason(
        "buffers",
        "With half the events adaptive delivers more than spcast at β = 100",
        "delivery_ratio",
        node(ours_halved=1, theirs_halved=-1),
    ),
    Reason(
        "speed",
        "Attempts every 30 s gain more at 20 m/s than at 10 m/s",
        "delivery_ratio",
        node(fast_often=1, fast=-1, often=-1, ours=1),
    ),
    Reason(
        "speed", "With attempts every 60 s delivery rises from 10 to 20 m/s", "delivery_ratio", node(fast=1, ours=-1)
    ),
    Reason(
        "speed",
        "With attempts every 30 s delivery rises from 10 to 20 m/s",
        "delivery_ratio",
        node(fast_often=1, often=-1),
    ),
    Reason(
        "reports",
        "Reports that adapt deliver more if they come after at most 20 s",
        "delivery_ratio",
        node(adapting_20=1, adapting=-1),
    ),
    Reason(
        "reports",
        "Reports that adapt deliver less if they are forgotten after one interval",
        "delivery_ratio",
        node(adapting_forgotten=1, adapting=-1),
        "<",
    ),
    Reason(
        "timer",
        "With a timer for each node adaptive gains on spcast at β = 100, against one for each copy",
        "delivery_ratio",
        {("adaptive", "node"): 1, ("spcast", "node"): -1, ("adaptive", "copy"): -1, ("spcast", "copy"): 1},
    ),
    Reason(
        "timer",
        "With a timer for each node faster hosts gain, against one for each copy",
        "delivery_ratio",
        {("20 m/s", "node"): 1, ("adaptive", "node"): -1, ("20 m/s", "copy"): -1, ("adaptive", "copy"): 1},
    ),
    Reason(
        "timer",
        "With a timer for each node reports that adapt cost less, against one for each copy",
        "delivery_ratio",
        {
            ("adaptive reports", "node"): 1,
            ("adaptive", "node"): -1,
            ("adaptive reports", "copy"): -1,
            ("adaptive", "copy"): 1,
        },
    ),
)


def claims(results: Results) -> Iterator[Claim]:
    """Reason by reason."""
    yield nearly_all_stored(results)
    for reason in REASONS:
        yield summed(results, reason)
    for timer in ("node", "copy"):
        yield fewer_forwards(results, timer)


def summed(results: Results, reason: Reason) -> Claim:
    """A sum over settings on the same seeds."""
    columns = [(weight, values(results, *place, reason.metric)) for place, weight in reason.terms.items()]
    seeds = [seed for seed in columns[0][1] if all(seed in column for _, column in columns)]
    found = interval(sum(weight * column[seed] for weight, column in columns) for seed in seeds)
    holds = decide(found, reason.relation, reason.value)
    note = f"{reason.relation} {reason.value:g}"
    return claimed(results, reason.figure, reason.statement, found, holds, note)


def nearly_all_stored(results: Results) -> Claim:
    """Copies of adaptive nodes over those of spcast, where everybody stores what it meets."""
    shares = ratios(results, "adaptive", "spcast", "node", "copies_stored")
    found = interval(shares)
    return claimed(
        results,
        "stored",
        "At β = 100 adaptive stores nearly as many copies as spcast (ratio)",
        found,
        decide(found, ">", NEARLY_ALL),
        f"> {NEARLY_ALL:g}",
    )


def fewer_forwards(results: Results, timer: str) -> Claim:
    """[004 §5.2] "Notably, generates less traffic": at the smallest buffer, where it was found to be more."""
    found = interval(ratios(results, "adaptive, β = 50", "spcast, β = 50", timer, "forwards"))
    return claimed(
        results,
        "timer-forwards",
        f"A timer for each {timer}: at β = 50 adaptive forwards less than spcast (ratio)",
        found,
        decide(found, "<", 1.0),
        "< 1",
    )


def ratios(results: Results, above: str, below: str, timer: str, metric: str) -> list[float]:
    """One setting over another, seed by seed."""
    tops, bottoms = values(results, above, timer, metric), values(results, below, timer, metric)
    return [value / bottoms[seed] for seed, value in tops.items() if bottoms.get(seed)]


def values(results: Results, setting: str, timer: str, metric: str) -> dict[int, float]:
    """A metric by seed."""
    found = results.selected({"setting": setting, "timer": timer}, metric)
    return {seed: value for seed, value in found.items() if value is not None}
