"""What paper 000 says of its Figures 3 to 9, held against paired differences.

Tolerances stand here, so before the runs; those about two repositories are in `replicas`, what goes beyond in `beyond`.
"""

import itertools
from collections.abc import Iterator, Sequence

from carrycast.analysis.experiments.policy.beyond import beyond, counted, saturation
from carrycast.analysis.experiments.policy.fits import exponential, fitted, hyperbola, line
from carrycast.analysis.experiments.policy.replicas import hops, two_better
from carrycast.analysis.experiments.policy.study import (
    BOTH,
    FOUR,
    LOST,
    ONE,
    PUBLISH,
    QUIET,
    REQUEST,
    RESPONDED,
    RESPONSE,
    TESTBED,
    TWO,
    PolicyClaims,
)
from carrycast.analysis.spark import DIFFERENCE_OF_SHARES, Claim, ClaimCase, Results, confidence_interval

LITTLE, MORE = 0.05, 0.1
"""[000 §VI] "less than 5%-10% reduction": held against both."""
LINEAR = 0.97
"""R² from which on points are said to lie on a line."""
STEEP = 10.0
"""A curve saturates if it rises so many times as steeply over its first two values as over its last two."""
SIGNIFICANT, MARGINAL = 0.1, 0.1
"""[000 §VII] A tenth less is a significant improvement, less than a tenth either way a marginal effect."""
APART = 0.01
"""Ratios of two kinds of messages differ if by more than a point."""


def claims(results: Results) -> Iterator[Claim]:
    """Figure by figure."""
    study = PolicyClaims(results)
    yield from rate(study, "rate", {})
    yield from rate(study, "testbed", TESTBED)
    yield from saturation(study)
    yield from failures(study)
    yield from recovery(study)
    yield from brokers(study)
    yield from two_better(study)
    yield from hops(study)
    yield from stability(study)
    yield from kinds(study)
    yield from retrieval(study)
    yield from counted(study)
    yield from beyond(study)


def rate(study: PolicyClaims, figure: str, where: dict[str, str]) -> Iterator[Claim]:
    """[000 §VI, §VII] "marginally influenced by the traffic"."""
    rates = study.along("rate", where)
    cases = [
        ClaimCase(
            f"{metric}, {count}",
            study.difference(metric, {**where, "rate": rates[-1]}, {**where, "rate": rates[0]}, count),
        )
        for metric, count in itertools.product(FOUR, BOTH)
    ]
    place = "testbed: " if where else ""
    for least in (LITTLE, MORE):
        text = f"{place}from {rates[0]} to {rates[-1]} subscriptions a second every ratio falls by less than {least:g}"
        yield study.claim(figure, text, cases, ">", -least)


def failures(study: PolicyClaims) -> Iterator[Claim]:
    """[000 §VI] "the exponential impact to the delivery ratio of the link break interval time"."""
    labels = study.along("interval", {})
    if len(labels) < 3:
        return
    xs = [float(label) for label in labels]
    pairs = list(itertools.product(LOST, BOTH))
    rises = [
        ClaimCase(
            f"{metric}, {count}", study.difference(metric, {"interval": labels[-1]}, {"interval": labels[0]}, count)
        )
        for metric, count in pairs
    ]
    yield study.claim("interval", "delivery rises with the interval between failures", rises, ">", 0.0)
    bends = []
    for metric, count in pairs:
        ends = [study.by_seed(metric, {"interval": labels[at], "repositories": count}) for at in (0, 1, -2, -1)]
        first, last = xs[1] - xs[0], xs[-1] - xs[-2]
        shared = [seed for seed in ends[0] if all(seed in end for end in ends)]
        bends.append(
            ClaimCase(
                f"{metric}, {count}",
                confidence_interval(
                    (ends[1][seed] - ends[0][seed]) / first - STEEP * (ends[3][seed] - ends[2][seed]) / last
                    for seed in shared
                ),
            )
        )
    text = (
        f"it saturates: over the first two intervals it rises more than {STEEP:g} times as steeply as over the last two"
    )
    yield study.claim("interval", text, bends, ">", 0.0)
    finer = [
        ClaimCase(f"{metric}, {count}", fitted(_finer, xs, study.columns(metric, "interval", labels, count)))
        for metric, count in pairs
    ]
    yield study.claim("interval", "a hyperbola fits better than an exponential (difference of R²)", finer, ">", 0.0)
    for name, fit in (("an exponential", exponential), ("a hyperbola, a + b / interval,", hyperbola)):
        cases = [
            ClaimCase(f"{metric}, {count}", fitted(fit, xs, study.columns(metric, "interval", labels, count)))
            for metric, count in pairs
        ]
        note = "the paper's word" if fit is exponential else "what counting says"
        yield study.claim("interval", f"{name} fits (R² at least {LINEAR})", cases, ">=", LINEAR, note=note)


def _finer(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    one, other = hyperbola(xs, ys), exponential(xs, ys)
    return None if one is None or other is None else one - other


def recovery(study: PolicyClaims) -> Iterator[Claim]:
    """[000 §VI] "delivery ratios are linear to the time that the overlay tree is broken in two pieces"."""
    labels = study.along("recovery", {})
    xs = [float(label) for label in labels]
    for metrics, word in ((LOST, "publish, request and responded"), ((RESPONSE,), "response")):
        falls = [
            ClaimCase(
                f"{metric}, {count}: {before} to {after}",
                study.difference(metric, {"recovery": after}, {"recovery": before}, count),
            )
            for metric, count in itertools.product(metrics, BOTH)
            for before, after in itertools.pairwise(labels)
        ]
        yield study.claim("recovery", f"{word} ratios fall at every step of the recovery time", falls, "<", 0.0)
        lines = [
            ClaimCase(f"{metric}, {count}", fitted(line, xs, study.columns(metric, "recovery", labels, count)))
            for metric, count in itertools.product(metrics, BOTH)
        ]
        yield study.claim("recovery", f"{word} ratios fall in a line (R² at least {LINEAR})", lines, ">=", LINEAR)
    varying = [
        ClaimCase("", fitted(line, xs, study.columns(REQUEST, "recovery", labels, ONE, failures="links, exponential")))
    ]
    text = f"with intervals that vary the request ratio still falls in a line (R² at least {LINEAR})"
    yield study.claim("varying", text, varying, ">=", LINEAR, note="another reading")


def brokers(study: PolicyClaims) -> Iterator[Claim]:
    """[000 §VI] "the delivery ratio increases with respect to the number of brokers"."""
    labels = study.along("brokers", {})
    for metric in LOST:
        cases = [
            ClaimCase(
                f"{count}: {before} to {after}",
                study.difference(metric, {"brokers": after}, {"brokers": before}, count),
            )
            for count in BOTH
            for before, after in itertools.pairwise(labels)
        ]
        yield study.claim(
            "brokers",
            f"the {metric.replace('_', ' ')} rises with the number of brokers, at every step",
            cases,
            ">",
            0.0,
        )


def stability(study: PolicyClaims) -> Iterator[Claim]:
    """[000 §VII] Figure 8."""
    metric, rates = "stability_s", study.along("rate", QUIET)
    rises = [
        ClaimCase(
            f"{count}, {label}/s",
            study.difference(metric, {**QUIET, "rate": label, "published": "0.2/s"}, {**QUIET, "rate": label}, count),
        )
        for count, label in itertools.product(BOTH, rates)
    ]
    yield study.claim("stability", "stability time rises with the rate of publications", rises, ">", 0.0)
    for scheme, word in (("paper", "one chosen at random"), ("nearest", "the nearest of them")):
        falls = []
        for label, published in itertools.product(rates, ("0.1/s", "0.2/s")):
            there = {**QUIET, "rate": label, "published": published}
            found = study.ratio(metric, {**there, "repositories": TWO, "scheme": scheme}, there)
            falls.append(ClaimCase(f"{label}/s, {published}", found))
        text = f"with two repositories, {word}, stability time is at least a tenth shorter (ratio)"
        yield study.claim("stability", text, falls, "<=", 1 - SIGNIFICANT)
    marginal = [
        ClaimCase(
            f"{count}, {published}",
            study.ratio(
                metric,
                {**QUIET, "rate": rates[-1], "published": published},
                {**QUIET, "rate": rates[0], "published": published},
                count,
            ),
        )
        for count, published in itertools.product(BOTH, ("0.1/s", "0.2/s"))
    ]
    text = f"from {rates[0]} to {rates[-1]} subscriptions a second it changes by less than a tenth (ratio)"
    yield study.claim("stability", text, marginal, "=", 1.0, tolerance=MARGINAL)


def kinds(study: PolicyClaims) -> Iterator[Claim]:
    """[000 §VII] "differences in the delivery ratio of each type of message"; which is above which is not said."""
    for figure, where in (("recovery", {}), ("testbed", TESTBED)):
        for one, other in itertools.combinations((PUBLISH, REQUEST, RESPONSE), 2):
            left, right = (study.by_seed(metric, where) for metric in (one, other))
            apart = [left[seed] - right[seed] for seed in left if seed in right]
            apart = apart if sum(apart) > 0 else [-value for value in apart]
            found = [ClaimCase("", confidence_interval(apart, DIFFERENCE_OF_SHARES))]
            names = [metric.replace("_", " ") for metric in (one, other)]
            text = f"{'testbed: ' if where else ''}{names[0]} and {names[1]} differ by more than {APART:g}"
            yield study.claim(figure, text, found, ">", APART)


def retrieval(study: PolicyClaims) -> Iterator[Claim]:
    """[000 §IV] "every new subscriber and only that one will receive every old event"."""
    points = [{**QUIET, "rate": label} for label in study.along("rate", QUIET)]
    # A count of all that was asked, which knows no luck.
    cases = [
        ClaimCase(
            f"{metric}, {count}, {where['rate']}/s",
            study.mean(metric, {**where, "repositories": count}, exact=True),
        )
        for metric, count, where in itertools.product((REQUEST, RESPONSE, RESPONDED), BOTH, points)
    ]
    text = "where nobody fails every new subscriber, and only it, gets each earlier policy of its role exactly once"
    yield study.claim("stability", text, cases, "=", 1.0, note="a wrong, second or misdirected answer ends a run")
