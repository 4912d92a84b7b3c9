"""What two repositories are worth: "10 % better" in both readings, and how far responses go."""

from collections.abc import Iterator, Sequence

from carrycast.analysis.experiments.policy.study import ONE, PUBLISH, TESTBED, TWO, WAYS, WHOLE, PolicyClaims
from carrycast.analysis.spark import Claim, ClaimCase

BETTER = 0.1
"""[000 §VI] "at least 10% better"."""


def two_better(study: PolicyClaims) -> Iterator[Claim]:
    """[000 §VI, §VII] "at least 10% better delivery ratio than the system with the one repository"."""
    sweeps: list[tuple[str, str, dict[str, str]]] = [
        ("rate", "rate", {}),
        ("interval", "interval", {}),
        ("recovery", "recovery", {}),
        ("brokers", "brokers", {}),
        ("testbed", "rate", TESTBED),
    ]
    for figure, axis, where in sweeps:
        points = [{**where, axis: label} for label in study.along(axis, where)]
        yield from better(
            study, figure, f"{figure}: at every point", [(f"{axis} {point[axis]}", point) for point in points]
        )
    long = {"recovery": study.along("recovery", {})[-1]}
    down = f"links down {long['recovery']} s of 20"
    for scheme in ("paper", "strawman", "nearest"):
        yield from better(study, "places", f"{down}, random places, {scheme}", [("", long)], TWO, scheme=scheme)
        yield from better(
            study,
            "places",
            f"{down}, leaves, {scheme}",
            [("", long)],
            "two at opposite leaves",
            "one at a leaf",
            scheme,
        )
    yield from better(
        study, "places", f"{down}, root and below it", [("", long)], "two below the root", "one at the root"
    )
    # The same links fail at the same times, and no repository has a part in what is published: luck has none either.
    gain = [ClaimCase("", study.difference(PUBLISH, {**long, "repositories": TWO}, long, exact=True))]
    yield study.claim(
        "places", "the publish ratio is the same with one repository and with two", gain, "=", 0.0, tolerance=WHOLE
    )


def better(
    study: PolicyClaims,
    figure: str,
    name: str,
    points: Sequence[tuple[str, dict[str, str]]],
    two: str = TWO,
    one: str = ONE,
    scheme: str = "paper",
) -> Iterator[Claim]:
    sides = [
        (
            f"{metric} {label}".strip(),
            metric,
            {**where, "repositories": two, "scheme": scheme},
            {**where, "repositories": one},
        )
        for metric in WAYS
        for label, where in points
    ]
    more = [ClaimCase(label, study.difference(metric, left, right)) for label, metric, left, right in sides]
    times = [ClaimCase(label, study.ratio(metric, left, right)) for label, metric, left, right in sides]
    yield study.claim(figure, f"{name}: two repositories deliver more than one", more, ">", 0.0)
    yield study.claim(figure, f"{name}: two deliver {BETTER:g} more (absolute)", more, ">=", BETTER)
    yield study.claim(figure, f"{name}: two deliver {1 + BETTER:g} times as much (relative)", times, ">=", 1 + BETTER)


def hops(study: PolicyClaims) -> Iterator[Claim]:
    """[000 §VI] Figure 7, "the system with two repositories outperforms": the replica chosen at random, or nearest."""
    for scheme, word in (("paper", "one chosen at random, as in the paper"), ("nearest", "the nearest of them")):
        cases = [
            ClaimCase(
                f"{label} brokers",
                study.difference(
                    "response_hops", {"brokers": label, "repositories": TWO, "scheme": scheme}, {"brokers": label}
                ),
            )
            for label in study.along("brokers", {})
        ]
        text = f"with two repositories, {word}, responses come from nearer, for every number of brokers"
        yield study.claim("hops", text, cases, "<", 0.0)
