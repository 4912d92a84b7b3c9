"""What the paper does not say: where the rate matters, what counting says, several links down, messages recovered."""

import itertools
from collections.abc import Iterator

from carrycast.analysis.experiments.policy.closed_form import share_cut_off, share_down
from carrycast.analysis.experiments.policy.replicas import better
from carrycast.analysis.experiments.policy.study import (
    BOTH,
    CONTROL,
    PUBLISH,
    REQUEST,
    RESPONDED,
    SENT,
    TESTBED,
    TWO,
    WHOLE,
    Study,
)
from carrycast.analysis.spark.claims import Case, Claim
from carrycast.analysis.spark.statistics import confidence_interval

MUCH = 0.1
"""Near saturation the rate costs more than the paper says it does anywhere."""
CLOSE = 0.01
"""The simulator agrees with the closed form within a point."""
AFFORDABLE = 5.0
"""Recovery may cost so many times the bytes."""


def saturation(study: Study) -> Iterator[Claim]:
    """Not in the paper: near saturation the rate does matter."""
    rates, slow = study.along("rate", {"service": "80 ms"}), {"service": "80 ms"}
    found = study.difference(RESPONDED, {**slow, "rate": rates[-1]}, {**slow, "rate": rates[0]})
    text = (
        f"brokers that take 80 ms for a message: from {rates[0]} to {rates[-1]} subscriptions a second "
        f"the responded ratio falls by more than {MUCH:g}"
    )
    yield study.claim("saturation", text, [Case("", found)], "<", -MUCH, "not in the paper")


def counted(study: Study) -> Iterator[Claim]:
    """The closed form: 1 - d q, seed by seed for the places that were drawn."""
    for figure, axis in (("interval", "interval"), ("recovery", "recovery"), ("brokers", "brokers")):
        for metric, role in ((REQUEST, "repository"), (PUBLISH, "tool")):
            cases = [
                Case(
                    f"{axis} {label}",
                    confidence_interval(_beyond_counting(study, metric, role, {axis: label}).values()),
                )
                for label in study.along(axis, {})
            ]
            text = f"{figure}: the {metric.replace('_', ' ')} is what counting says, within {CLOSE:g}"
            yield study.claim(figure, text, cases, "=", 0.0, "1 - d q for the places drawn", CLOSE)
    two = {"repositories": TWO, "scheme": "strawman"}
    cases = [
        Case(
            f"recovery {label}",
            confidence_interval(_beyond_counting(study, REQUEST, "repository", {**two, "recovery": label}).values()),
        )
        for label in study.along("recovery", two)
    ]
    text = f"two repositories and tables repaired at once: the request ratio is what counting says, within {CLOSE:g}"
    yield study.claim("places", text, cases, "=", 0.0, "1 - d q for the places drawn", CLOSE)


def _beyond_counting(study: Study, metric: str, role: str, where: dict[str, str]) -> dict[int, float]:
    """By seed, how much more was delivered than by counting."""
    scenario = study.scenario(where)
    if scenario is None:
        return {}
    every_s, for_s, last_s = study.cuts(scenario)
    window_s = (scenario.measure.from_s, scenario.measure.to_s or scenario.duration_s)
    down = share_down(every_s, for_s, last_s, window_s)
    return {
        seed: value - 1 + down * share_cut_off(scenario.nodes, study.places(scenario, role, seed))
        for seed, value in study.by_seed(metric, where).items()
    }


def beyond(study: Study) -> Iterator[Claim]:
    """What the paper leaves for later: several links down, messages recovered; and what repairing tables costs."""
    labels = study.along("cuts", {})
    falls = [
        Case(f"{count}: {before} to {after}", study.difference(RESPONDED, {"cuts": after}, {"cuts": before}, count))
        for count in BOTH
        for before, after in itertools.pairwise(labels)
    ]
    yield study.claim("cuts", "each link more that is down at once costs answers", falls, "<", 0.0, "not in the paper")
    yield from better(study, "cuts", f"{labels[-1]} links down at once", [("", {"cuts": labels[-1]})])
    worlds: list[tuple[str, dict[str, str]]] = [
        ("", {}),
        ("15 s of 20", {"recovery": "15"}),
        ("4 links", {"cuts": "4"}),
        ("testbed", TESTBED),
    ]
    whole = [
        Case(f"{metric} {name}".strip(), study.mean(metric, {**where, "scheme": "recovery"}))
        for metric in (PUBLISH, RESPONDED)
        for name, where in worlds
    ]
    yield study.claim(
        "recovering", "with recovery everything is delivered", whole, ">=", 1.0, "the paper expects 100 %", WHOLE
    )
    cost = [Case(name, study.ratio(SENT, {**where, "scheme": "recovery"}, where)) for name, where in worlds]
    yield study.claim(
        "recovering", f"recovery costs less than {AFFORDABLE:g} times the bytes (ratio)", cost, "<", AFFORDABLE
    )
    for label in ("1", "5"):
        saves = [Case("", study.ratio(CONTROL, {"recovery": label}, {"recovery": label, "scheme": "strawman"}))]
        text = f"links down {label} s: deferred unsubscription sends fewer control bytes than strawman (ratio)"
        yield study.claim("overhead", text, saves, "<", 1.0)
