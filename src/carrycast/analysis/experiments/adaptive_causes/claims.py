"""Predictions that must hold if the explanations of the results of the experiment `adaptive` are right.

Claims about the difference of two settings are in experiment.toml; these are about more. All values are paired by seed.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from carrycast.analysis.experiments.claim_builder import ratios_by_seed, values_by_seed
from carrycast.analysis.spark import Claim, Results, confidence_interval, decide, make_claim

NEARLY_ALL = 0.8
"""A share of the copies that are stored if every node stores all events. It was fixed before any run."""

Place: TypeAlias = tuple[str, str]
"""A setting, and whether the timer belongs to the node or to each copy."""


class Gain(NamedTuple):
    """A statement that the delivery of two settings differs by more than that of two other settings."""

    figure: str
    statement: str
    ahead: tuple[Place, Place]
    compared: tuple[Place, Place]


GAINS = (
    Gain(
        "buffers",
        "With half the events adaptive gains on spcast at β = 100",
        (("adaptive, half the events", "node"), ("spcast, half the events", "node")),
        (("adaptive", "node"), ("spcast", "node")),
    ),
    Gain(
        "speed",
        "Attempts every 30 s gain more at 20 m/s than at 10 m/s",
        (("20 m/s, every 30 s", "node"), ("20 m/s", "node")),
        (("every 30 s", "node"), ("adaptive", "node")),
    ),
    Gain(
        "timer",
        "With a timer for each node adaptive gains on spcast at β = 100, against one for each copy",
        (("adaptive", "node"), ("spcast", "node")),
        (("adaptive", "copy"), ("spcast", "copy")),
    ),
    Gain(
        "timer",
        "With a timer for each node faster hosts gain, against one for each copy",
        (("20 m/s", "node"), ("adaptive", "node")),
        (("20 m/s", "copy"), ("adaptive", "copy")),
    ),
    Gain(
        "timer",
        "With a timer for each node reports that adapt cost less, against one for each copy",
        (("adaptive reports", "node"), ("adaptive", "node")),
        (("adaptive reports", "copy"), ("adaptive", "copy")),
    ),
)


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims, explanation by explanation."""
    yield check_stored_copies(results)
    for gain in GAINS:
        yield check_gain(results, gain)
    for timer in ("node", "copy"):
        yield check_forwards(results, timer)


def check_gain(results: Results, gain: Gain) -> Claim:
    """Check a difference of differences."""
    first, second, third, fourth = (values(results, place, "delivery_ratio") for place in (*gain.ahead, *gain.compared))
    found = confidence_interval(
        first[seed] - second[seed] - (third[seed] - fourth[seed])
        for seed in first
        if seed in second and seed in third and seed in fourth
    )
    return make_claim(results, gain.figure, gain.statement, found, decide(found, ">", 0.0), note="> 0")


def check_stored_copies(results: Results) -> Claim:
    """Check the ratio of the stored copies of adaptive and of spcast, whose nodes store every event that they
    receive."""
    found = confidence_interval(ratios(results, ("adaptive", "node"), ("spcast", "node"), "copies_stored"))
    return make_claim(
        results,
        "stored",
        "At β = 100 adaptive stores nearly as many copies as spcast (ratio)",
        found,
        decide(found, ">", NEARLY_ALL),
        note=f"> {NEARLY_ALL:g}",
    )


def check_forwards(results: Results, timer: str) -> Claim:
    """[004 §5.2] "Notably, generates less traffic": at the smallest buffer, where it was found to be more."""
    found = confidence_interval(
        ratios(results, ("adaptive, β = 50", timer), ("spcast, β = 50", timer), "forwards_in_window")
    )
    return make_claim(
        results,
        "timer-forwards",
        f"A timer for each {timer}: at β = 50 adaptive forwards less than spcast (ratio)",
        found,
        decide(found, "<", 1.0),
        note="< 1",
    )


def ratios(results: Results, above: Place, below: Place, metric: str) -> list[float]:
    """Return the ratios of a metric at two settings, paired by seed."""
    return ratios_by_seed(values(results, above, metric), values(results, below, metric))


def values(results: Results, place: Place, metric: str) -> dict[int, float]:
    """Return a metric by seed."""
    setting, timer = place
    return values_by_seed(results, {"setting": setting, "timer": timer}, metric)
