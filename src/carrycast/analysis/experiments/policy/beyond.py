"""Claims that paper 000 does not make: saturation, a closed form of losses, several failed links, and recovery."""

import itertools
import math
from collections.abc import Collection, Iterator

from carrycast.analysis.experiments.policy.builder import (
    BOTH,
    CONTROL,
    PUBLISH,
    REQUEST,
    RESPONDED,
    SENT,
    TESTBED,
    TWO,
    WHOLE,
    PolicyClaims,
    compare_repositories,
)
from carrycast.analysis.spark import Claim, ClaimCase, confidence_interval

MUCH = 0.1
"""Near saturation the rate costs more than the paper states for any rate."""
CLOSE = 0.01
"""The simulator agrees with the closed form within one percentage point."""
AFFORDABLE = 5.0
"""The acceptable cost of recovery, as a multiple of the bytes without it."""


def check_saturation(builder: PolicyClaims) -> Iterator[Claim]:
    """Check that the rate matters near saturation."""
    rates, slow = builder.along("rate", {"service": "80 ms"}), {"service": "80 ms"}
    found = builder.difference(RESPONDED, {**slow, "rate": rates[-1]}, {**slow, "rate": rates[0]})
    text = (
        f"brokers that take 80 ms for a message: from {rates[0]} to {rates[-1]} subscriptions a second "
        f"the responded ratio falls by more than {MUCH:g}"
    )
    yield builder.claim("saturation", text, [ClaimCase("", found)], below=-MUCH, note="not in the paper")


def check_closed_form(builder: PolicyClaims) -> Iterator[Claim]:
    """Check the closed form 1 - d q, by seed, for the positions drawn in each run."""
    for figure, axis in (("interval", "interval"), ("recovery", "recovery"), ("brokers", "brokers")):
        for metric, role in ((REQUEST, "repository"), (PUBLISH, "tool")):
            cases = [
                ClaimCase(
                    f"{axis} {label}",
                    confidence_interval(_excess_over_closed_form(builder, metric, role, {axis: label}).values()),
                )
                for label in builder.along(axis, {})
            ]
            text = f"{figure}: the {metric.replace('_', ' ')} is what counting says, within {CLOSE:g}"
            yield builder.claim(figure, text, cases, equals=0.0, note="1 - d q for the places drawn", tolerance=CLOSE)
    two = {"repositories": TWO, "scheme": "strawman"}
    cases = [
        ClaimCase(
            f"recovery {label}",
            confidence_interval(
                _excess_over_closed_form(builder, REQUEST, "repository", {**two, "recovery": label}).values()
            ),
        )
        for label in builder.along("recovery", two)
    ]
    text = f"two repositories and tables repaired at once: the request ratio is what counting says, within {CLOSE:g}"
    yield builder.claim("places", text, cases, equals=0.0, note="1 - d q for the places drawn", tolerance=CLOSE)


def _excess_over_closed_form(builder: PolicyClaims, metric: str, role: str, where: dict[str, str]) -> dict[int, float]:
    """Return, by seed, the delivery ratio minus that of the closed form."""
    scenario = builder.scenario(where)
    if scenario is None:
        return {}
    every_s, for_s, last_s = builder.cuts(scenario)
    window_s = (scenario.measure.from_s, scenario.measure.to_s or scenario.duration_s)
    down = share_down(every_s, for_s, last_s, window_s)
    return {
        seed: value - 1 + down * share_cut_off(scenario.nodes, builder.places(scenario, role, seed))
        for seed, value in builder.by_seed(metric, where).items()
    }


def check_beyond(builder: PolicyClaims) -> Iterator[Claim]:
    """Check the future work of the paper: several failed links, recovery of messages, and the cost of repairing
    tables."""
    labels = builder.along("cuts", {})
    falls = [
        ClaimCase(
            f"{count}: {before} to {after}", builder.difference(RESPONDED, {"cuts": after}, {"cuts": before}, count)
        )
        for count in BOTH
        for before, after in itertools.pairwise(labels)
    ]
    yield builder.claim(
        "cuts", "each link more that is down at once costs answers", falls, below=0.0, note="not in the paper"
    )
    yield from compare_repositories(builder, "cuts", f"{labels[-1]} links down at once", {"": {"cuts": labels[-1]}})
    conditions: list[tuple[str, dict[str, str]]] = [
        ("", {}),
        ("15 s of 20", {"recovery": "15"}),
        ("4 links", {"cuts": "4"}),
        ("testbed", TESTBED),
    ]
    whole = [
        ClaimCase(f"{metric} {name}".strip(), builder.mean(metric, {**where, "scheme": "recovery"}))
        for metric in (PUBLISH, RESPONDED)
        for name, where in conditions
    ]
    yield builder.claim(
        "recovering",
        "with recovery everything is delivered",
        whole,
        at_least=1.0,
        note="the paper expects 100 %",
        tolerance=WHOLE,
    )
    cost = [ClaimCase(name, builder.ratio(SENT, {**where, "scheme": "recovery"}, where)) for name, where in conditions]
    yield builder.claim(
        "recovering", f"recovery costs less than {AFFORDABLE:g} times the bytes (ratio)", cost, below=AFFORDABLE
    )
    for label in ("1", "5"):
        saves = [ClaimCase("", builder.ratio(CONTROL, {"recovery": label}, {"recovery": label, "scheme": "strawman"}))]
        text = f"links down {label} s: deferred unsubscription sends fewer control bytes than strawman (ratio)"
        yield builder.claim("overhead", text, saves, below=1.0)


def is_below(node: int, link: int) -> bool:
    """Whether a node is below a link; link n joins node n to its parent, (n - 1) // 2."""
    while node > link:
        node = (node - 1) // 2
    return node == link


def share_cut_off(brokers: int, repositories: Collection[int]) -> float:
    """Return q: the share of brokers that reach no repository, averaged over the failures of each single link."""
    cut_off = 0
    for link in range(1, brokers):
        held = {is_below(repository, link) for repository in repositories}
        cut_off += sum(is_below(broker, link) not in held for broker in range(brokers))
    return cut_off / brokers / (brokers - 1)


def share_down(every_s: float, for_s: float, last_s: float, window_s: tuple[float, float]) -> float:
    """Return d: the share of a window in which a link is down, if one fails at every multiple of `every_s` to
    `last_s`."""
    low_s, high_s = window_s
    strikes = range(1, math.floor(last_s / every_s) + 1)
    down_s = sum(max(0.0, min(n * every_s + for_s, high_s) - max(n * every_s, low_s)) for n in strikes)
    return down_s / (high_s - low_s)
