"""The statements of paper 000 about its Figures 3 to 9, checked by paired differences.

The tolerances were fixed before the runs. Claims that go beyond the paper are in `beyond`.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from carrycast.analysis.experiments.policy.beyond import check_beyond, check_closed_form, check_saturation
from carrycast.analysis.experiments.policy.builder import (
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
    WHOLE,
    PolicyClaims,
    compare_repositories,
)
from carrycast.analysis.spark import DIFFERENCE_OF_SHARES, Claim, ClaimCase, Interval, Results, confidence_interval

LITTLE, MORE = 0.05, 0.1
"""[000 §VI] "less than 5%-10% reduction": both are checked."""
LINEAR = 0.97
"""The smallest R² at which a curve counts as fitting."""
STEEP = 10.0
"""A curve saturates if its first step is this many times as steep as its last."""
SIGNIFICANT, MARGINAL = 0.1, 0.1
"""[000 §VII] A reduction by a tenth is a significant improvement; a smaller change is a marginal effect."""
APART = 0.01
"""The smallest difference, one percentage point, between the ratios of two kinds of messages that counts."""
GROUPS = 10
"""The number of groups of seeds that the jackknife leaves out in turn."""
STEPS = 200
"""The number of rates of decay that are tried. R² changes by less than a thousandth from one to the next."""

Fit = Callable[[Sequence[float], Sequence[float]], float | None]


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims, figure by figure."""
    builder = PolicyClaims(results)
    yield from check_rate(builder, "rate", {})
    yield from check_rate(builder, "testbed", TESTBED)
    yield from check_saturation(builder)
    yield from check_failures(builder)
    yield from check_recovery(builder)
    yield from check_brokers(builder)
    yield from check_two_repositories(builder)
    yield from check_hops(builder)
    yield from check_stability(builder)
    yield from check_kinds(builder)
    yield from check_retrieval(builder)
    yield from check_closed_form(builder)
    yield from check_beyond(builder)


def check_rate(builder: PolicyClaims, figure: str, where: dict[str, str]) -> Iterator[Claim]:
    """[000 §VI, §VII] "marginally influenced by the traffic"."""
    rates = builder.along("rate", where)
    cases = [
        ClaimCase(
            f"{metric}, {count}",
            builder.difference(metric, {**where, "rate": rates[-1]}, {**where, "rate": rates[0]}, count),
        )
        for metric, count in itertools.product(FOUR, BOTH)
    ]
    place = "testbed: " if where else ""
    for least in (LITTLE, MORE):
        text = f"{place}from {rates[0]} to {rates[-1]} subscriptions a second every ratio falls by less than {least:g}"
        yield builder.claim(figure, text, cases, above=-least)


def check_failures(builder: PolicyClaims) -> Iterator[Claim]:
    """[000 §VI] "the exponential impact to the delivery ratio of the link break interval time"."""
    labels = builder.along("interval", {})
    if len(labels) < 3:
        return
    xs = [float(label) for label in labels]
    pairs = list(itertools.product(LOST, BOTH))
    rises = [
        ClaimCase(
            f"{metric}, {count}", builder.difference(metric, {"interval": labels[-1]}, {"interval": labels[0]}, count)
        )
        for metric, count in pairs
    ]
    yield builder.claim("interval", "delivery rises with the interval between failures", rises, above=0.0)
    bends = []
    for metric, count in pairs:
        ends = [builder.by_seed(metric, {"interval": labels[at], "repositories": count}) for at in (0, 1, -2, -1)]
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
    yield builder.claim("interval", text, bends, above=0.0)
    finer = [
        ClaimCase(
            f"{metric}, {count}", jackknife_fit(_compare_fits, xs, builder.columns(metric, "interval", labels, count))
        )
        for metric, count in pairs
    ]
    yield builder.claim("interval", "a hyperbola fits better than an exponential (difference of R²)", finer, above=0.0)
    for name, fit in (("an exponential", fit_exponential), ("a hyperbola, a + b / interval,", fit_hyperbola)):
        cases = [
            ClaimCase(f"{metric}, {count}", jackknife_fit(fit, xs, builder.columns(metric, "interval", labels, count)))
            for metric, count in pairs
        ]
        note = "the paper's word" if fit is fit_exponential else "what counting says"
        yield builder.claim("interval", f"{name} fits (R² at least {LINEAR})", cases, at_least=LINEAR, note=note)


def _compare_fits(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    one, other = fit_hyperbola(xs, ys), fit_exponential(xs, ys)
    return None if one is None or other is None else one - other


def check_recovery(builder: PolicyClaims) -> Iterator[Claim]:
    """[000 §VI] "delivery ratios are linear to the time that the overlay tree is broken in two pieces"."""
    labels = builder.along("recovery", {})
    xs = [float(label) for label in labels]
    for metrics, word in ((LOST, "publish, request and responded"), ((RESPONSE,), "response")):
        falls = [
            ClaimCase(
                f"{metric}, {count}: {before} to {after}",
                builder.difference(metric, {"recovery": after}, {"recovery": before}, count),
            )
            for metric, count in itertools.product(metrics, BOTH)
            for before, after in itertools.pairwise(labels)
        ]
        yield builder.claim("recovery", f"{word} ratios fall at every step of the recovery time", falls, below=0.0)
        lines = [
            ClaimCase(
                f"{metric}, {count}", jackknife_fit(fit_line, xs, builder.columns(metric, "recovery", labels, count))
            )
            for metric, count in itertools.product(metrics, BOTH)
        ]
        yield builder.claim("recovery", f"{word} ratios fall in a line (R² at least {LINEAR})", lines, at_least=LINEAR)
    varying = [
        ClaimCase(
            "",
            jackknife_fit(
                fit_line, xs, builder.columns(REQUEST, "recovery", labels, ONE, failures="links, exponential")
            ),
        )
    ]
    text = f"with intervals that vary the request ratio still falls in a line (R² at least {LINEAR})"
    yield builder.claim("varying", text, varying, at_least=LINEAR, note="another reading")


def check_brokers(builder: PolicyClaims) -> Iterator[Claim]:
    """[000 §VI] "the delivery ratio increases with respect to the number of brokers"."""
    labels = builder.along("brokers", {})
    for metric in LOST:
        cases = [
            ClaimCase(
                f"{count}: {before} to {after}",
                builder.difference(metric, {"brokers": after}, {"brokers": before}, count),
            )
            for count in BOTH
            for before, after in itertools.pairwise(labels)
        ]
        yield builder.claim(
            "brokers",
            f"the {metric.replace('_', ' ')} rises with the number of brokers, at every step",
            cases,
            above=0.0,
        )


def check_two_repositories(builder: PolicyClaims) -> Iterator[Claim]:
    """[000 §VI, §VII] "at least 10% better delivery ratio than the system with the one repository"."""
    sweeps: list[tuple[str, str, dict[str, str]]] = [
        ("rate", "rate", {}),
        ("interval", "interval", {}),
        ("recovery", "recovery", {}),
        ("brokers", "brokers", {}),
        ("testbed", "rate", TESTBED),
    ]
    for figure, axis, where in sweeps:
        points = [{**where, axis: label} for label in builder.along(axis, where)]
        yield from compare_repositories(
            builder, figure, f"{figure}: at every point", {f"{axis} {point[axis]}": point for point in points}
        )
    long = {"recovery": builder.along("recovery", {})[-1]}
    down = f"links down {long['recovery']} s of 20"
    for scheme in ("paper", "strawman", "nearest"):
        yield from compare_repositories(
            builder, "places", f"{down}, random places, {scheme}", {"": long}, scheme=scheme
        )
        yield from compare_repositories(
            builder,
            "places",
            f"{down}, leaves, {scheme}",
            {"": long},
            two="two at opposite leaves",
            one="one at a leaf",
            scheme=scheme,
        )
    yield from compare_repositories(
        builder, "places", f"{down}, root and below it", {"": long}, two="two below the root", one="one at the root"
    )
    # The same links fail at the same times, and repositories play no part in publishing, so nothing is random here.
    gain = [ClaimCase("", builder.difference(PUBLISH, {**long, "repositories": TWO}, long, exact=True))]
    yield builder.claim(
        "places", "the publish ratio is the same with one repository and with two", gain, equals=0.0, tolerance=WHOLE
    )


def check_hops(builder: PolicyClaims) -> Iterator[Claim]:
    """[000 §VI] Figure 7, "the system with two repositories outperforms", with a random replica and with the
    nearest."""
    for scheme, word in (("paper", "one chosen at random, as in the paper"), ("nearest", "the nearest of them")):
        cases = [
            ClaimCase(
                f"{label} brokers",
                builder.difference(
                    "response_hops", {"brokers": label, "repositories": TWO, "scheme": scheme}, {"brokers": label}
                ),
            )
            for label in builder.along("brokers", {})
        ]
        text = f"with two repositories, {word}, responses come from nearer, for every number of brokers"
        yield builder.claim("hops", text, cases, below=0.0)


def check_stability(builder: PolicyClaims) -> Iterator[Claim]:
    """[000 §VII] Figure 8."""
    metric, rates = "stability_s", builder.along("rate", QUIET)
    rises = [
        ClaimCase(
            f"{count}, {label}/s",
            builder.difference(metric, {**QUIET, "rate": label, "published": "0.2/s"}, {**QUIET, "rate": label}, count),
        )
        for count, label in itertools.product(BOTH, rates)
    ]
    yield builder.claim("stability", "stability time rises with the rate of publications", rises, above=0.0)
    for scheme, word in (("paper", "one chosen at random"), ("nearest", "the nearest of them")):
        falls = []
        for label, published in itertools.product(rates, ("0.1/s", "0.2/s")):
            there = {**QUIET, "rate": label, "published": published}
            found = builder.ratio(metric, {**there, "repositories": TWO, "scheme": scheme}, there)
            falls.append(ClaimCase(f"{label}/s, {published}", found))
        text = f"with two repositories, {word}, stability time is at least a tenth shorter (ratio)"
        yield builder.claim("stability", text, falls, at_most=1 - SIGNIFICANT)
    marginal = [
        ClaimCase(
            f"{count}, {published}",
            builder.ratio(
                metric,
                {**QUIET, "rate": rates[-1], "published": published},
                {**QUIET, "rate": rates[0], "published": published},
                count,
            ),
        )
        for count, published in itertools.product(BOTH, ("0.1/s", "0.2/s"))
    ]
    text = f"from {rates[0]} to {rates[-1]} subscriptions a second it changes by less than a tenth (ratio)"
    yield builder.claim("stability", text, marginal, equals=1.0, tolerance=MARGINAL)


def check_kinds(builder: PolicyClaims) -> Iterator[Claim]:
    """[000 §VII] "differences in the delivery ratio of each type of message". The paper does not say which is
    higher."""
    for figure, where in (("recovery", {}), ("testbed", TESTBED)):
        for one, other in itertools.combinations((PUBLISH, REQUEST, RESPONSE), 2):
            left, right = (builder.by_seed(metric, where) for metric in (one, other))
            apart = [left[seed] - right[seed] for seed in left if seed in right]
            apart = apart if sum(apart) > 0 else [-value for value in apart]
            found = [ClaimCase("", confidence_interval(apart, DIFFERENCE_OF_SHARES))]
            names = [metric.replace("_", " ") for metric in (one, other)]
            text = f"{'testbed: ' if where else ''}{names[0]} and {names[1]} differ by more than {APART:g}"
            yield builder.claim(figure, text, found, above=APART)


def check_retrieval(builder: PolicyClaims) -> Iterator[Claim]:
    """[000 §IV] "every new subscriber and only that one will receive every old event"."""
    points = [{**QUIET, "rate": label} for label in builder.along("rate", QUIET)]
    # A count of all requests is not random.
    cases = [
        ClaimCase(
            f"{metric}, {count}, {where['rate']}/s",
            builder.mean(metric, {**where, "repositories": count}, exact=True),
        )
        for metric, count, where in itertools.product((REQUEST, RESPONSE, RESPONDED), BOTH, points)
    ]
    text = "where nobody fails every new subscriber, and only it, gets each earlier policy of its role exactly once"
    yield builder.claim("stability", text, cases, equals=1.0, note="a wrong, second or misdirected answer ends a run")


def fit_line(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """R² of the best straight line; None where nothing varies."""
    return _r_squared(np.array([xs]), ys)


def fit_hyperbola(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """R² of the best a + b / x."""
    return _r_squared(1 / np.array([xs]), ys)


def fit_exponential(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """R² of the best a + b exp(-c x), c between a tenth of the inverse of the span and a hundred times it."""
    span = max(xs) - min(xs)
    rates = 10 ** (3 * np.arange(STEPS + 1) / STEPS - 1) / span
    return _r_squared(np.exp(-np.outer(rates, np.array(xs) - min(xs))), ys)


def _r_squared(rows: NDArray[np.float64], ys: Sequence[float]) -> float | None:
    """The largest R² of the straight lines from each row to `ys`: the square of Pearson's correlation."""
    varying = rows[np.ptp(rows, axis=1) > 0]
    if len(ys) < 3 or np.ptp(ys) == 0 or not len(varying):
        return None
    return float(np.max(np.corrcoef(varying, ys)[-1, :-1] ** 2))


def jackknife_fit(fit: Fit, xs: Sequence[float], columns: Sequence[dict[int, float]]) -> Interval:
    """Return the R² of a fit to means over seeds, with a confidence interval by the jackknife (Tukey 1958).

    `columns` has the values by seed for each x. The jackknife leaves out a group of seeds at a time.
    """
    seeds = sorted(set.intersection(*(set(column) for column in columns))) if columns else []
    groups = min(GROUPS, len(seeds))

    def fit_without(left_out: int | None) -> float | None:
        kept = [seed for place, seed in enumerate(seeds) if place % groups != left_out]
        return fit(xs, [math.fsum(column[seed] for seed in kept) / len(kept) for column in columns])

    if groups < 2:
        return confidence_interval([fit_without(None)] if seeds else [])
    whole, parts = fit_without(None), [fit_without(group) for group in range(groups)]
    if whole is None:
        return confidence_interval([])
    return confidence_interval(groups * whole - (groups - 1) * part for part in parts if part is not None)
