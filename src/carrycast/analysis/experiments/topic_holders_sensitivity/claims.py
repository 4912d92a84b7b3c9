"""The sensitivity of the claims of topic-holders: schemes under each change, and each change compared with the base."""

from collections.abc import Iterator
from typing import NamedTuple

from carrycast.analysis.experiments.claim_builder import difference_interval, ratio_of_seeds, values_by_seed
from carrycast.analysis.spark import Claim, Relation, Results, Selector, confidence_interval, decide, make_claim

FAR = 0.2
"""As in topic-holders: far above means by a fifth of all pairs."""
LITTLE = 0.05
"""A loss of less than this share of all pairs is little."""

DELIVERY, DELAY, LOAD = "delivery_ratio", "delay_mean_s", "routing_bytes_per_node_s"
R_NODES, R_PLACES, R_ROADS = "R-AODV", "R-GPSR (no map)", "R-GPSR (with map)"
B_NODES, B_PLACES, B_ROADS = "B-AODV", "B-GPSR (no map)", "B-GPSR (with map)"
BASE = "base"
MAPS = ("4 %", "21 %", "42 %", "56 %", "75 %")
LOADS = ("load x 4", "load x 20")


class SchemeComparison(NamedTuple):
    """A comparison of two schemes under one change, or of two changes of one scheme, paired by seed."""

    figure: str
    statement: str
    metric: str
    left: tuple[str, str]
    """Scheme and change."""
    right: tuple[str, str]
    relation: Relation
    value: float = 0.0
    share: bool = False
    """left / right instead of left - right."""
    tolerance: float = 0.0
    """For "=": the largest difference that counts as equal."""


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims whose points were run."""
    for comparison in comparisons():
        if all(results.points(_at(side)) for side in (comparison.left, comparison.right)):
            yield compare_schemes(results, comparison)
    for change in LOADS:
        if results.points(_at((B_NODES, change))):
            yield from check_narrowing(results, change)


def comparisons() -> Iterator[SchemeComparison]:
    """Yield the comparisons, figure by figure."""
    for change in MAPS:
        yield from with_and_without_map("voids", change)
    for change in ("on roads", BASE, "in voids"):
        yield from with_and_without_map("topics", change)
    yield from compare_modes()
    for change in (BASE, "not direct", "60 m/s", "60 m/s, not direct"):
        text = f"{change}: broker with map delivers more than rendezvous with map"
        yield SchemeComparison(
            "direct", text, metric=DELIVERY, left=(B_ROADS, change), right=(R_ROADS, change), relation=">"
        )
    yield from extensions()
    for scheme in (R_NODES, B_NODES):
        text = f"{scheme}: RFC 3561 delivers more than ns-2"
        yield SchemeComparison(
            "aodv", text, metric=DELIVERY, left=(scheme, "rfc3561"), right=(scheme, BASE), relation=">"
        )
        text = f"{scheme}: turning to the next holder, where none has failed, costs deliveries"
        yield SchemeComparison(
            "aodv", text, metric=DELIVERY, left=(scheme, "next holders"), right=(scheme, BASE), relation="<"
        )


def compare_modes() -> Iterator[SchemeComparison]:
    """Yield the comparisons of voids, proximity, beacons and positions, for both modes."""
    for mode, with_map, without in (("broker", B_ROADS, B_PLACES), ("rendezvous", R_ROADS, R_PLACES)):
        for change in MAPS:
            text = f"{change} of the map in voids, {mode}: without map it takes longer"
            yield SchemeComparison(
                "voids-delay", text, metric=DELAY, left=(without, change), right=(with_map, change), relation=">"
            )
        for change in ("K = 0", "K = 62.5 m", "K = 250 m"):
            text = f"{mode}: {change} delivers less than half the range, 125 m"
            yield SchemeComparison(
                "proximity", text, metric=DELIVERY, left=(with_map, change), right=(with_map, BASE), relation="<"
            )
        for change in ("beacons 1 s", "beacons 3 s"):
            text = f"{mode}: {change} deliver less than every 0.5 s"
            yield SchemeComparison(
                "beacons", text, metric=DELIVERY, left=(with_map, change), right=(with_map, BASE), relation="<"
            )
            text = f"{mode}: {change} send less than every 0.5 s (ratio)"
            yield SchemeComparison(
                "beacons-load",
                text,
                metric=LOAD,
                left=(with_map, change),
                right=(with_map, BASE),
                relation="<",
                value=1.0,
                share=True,
            )
        text = f"{mode}: positions off by up to 30 m cost little ({LITTLE} of all pairs)"
        yield SchemeComparison(
            "gps",
            text,
            metric=DELIVERY,
            left=(with_map, "gps 30 m"),
            right=(with_map, BASE),
            relation=">",
            value=-LITTLE,
        )
        text = f"{mode}: positions off by up to 125 m cost deliveries"
        yield SchemeComparison(
            "gps", text, metric=DELIVERY, left=(with_map, "gps 125 m"), right=(with_map, BASE), relation="<"
        )
        text = f"{mode}: positions off by up to 125 m send more packets another way (ratio)"
        yield SchemeComparison(
            "gps-detours",
            text,
            metric="sent_another_way",
            left=(with_map, "gps 125 m"),
            right=(with_map, BASE),
            relation=">",
            value=1.0,
            share=True,
        )


def extensions() -> Iterator[SchemeComparison]:
    """Yield comparisons of each extension of the paper: none may cost deliveries, and all but hand-over must reduce
    load."""
    for change in ("tree", "hand-over", "predictive", "all extensions"):
        text = f"broker with map, {change}: costs little ({LITTLE} of all pairs)"
        yield SchemeComparison(
            "extensions",
            text,
            metric=DELIVERY,
            left=(B_ROADS, change),
            right=(B_ROADS, BASE),
            relation=">",
            value=-LITTLE,
        )
        if change != "hand-over":
            text = f"broker with map, {change}: sends less (ratio)"
            yield SchemeComparison(
                "extensions-load",
                text,
                metric=LOAD,
                left=(B_ROADS, change),
                right=(B_ROADS, BASE),
                relation="<",
                value=1.0,
                share=True,
            )
    for scheme in (R_ROADS, B_ROADS):
        text = f"{scheme}: overhearing changes little ({LITTLE} of all pairs)"
        yield SchemeComparison(
            "overhearing",
            text,
            metric=DELIVERY,
            left=(scheme, "overhearing"),
            right=(scheme, BASE),
            relation="=",
            tolerance=LITTLE,
        )


def with_and_without_map(figure: str, change: str) -> Iterator[SchemeComparison]:
    """Yield comparisons for the main finding of section 5: the map improves delivery."""
    name = f"{change} of the map in voids" if figure == "voids" else f"topics {change}"
    name = "one topic in a void, one on a road" if change == BASE else name
    for mode, with_map, without in (("broker", B_ROADS, B_PLACES), ("rendezvous", R_ROADS, R_PLACES)):
        text = f"{name}, {mode}: with map far above without ({FAR} or more)"
        yield SchemeComparison(
            figure, text, metric=DELIVERY, left=(with_map, change), right=(without, change), relation=">=", value=FAR
        )


def compare_schemes(results: Results, comparison: SchemeComparison) -> Claim:
    """Build the claim of one comparison."""
    left, right = (
        values_by_seed(results, _at(side), comparison.metric) for side in (comparison.left, comparison.right)
    )
    if comparison.share:
        found = ratio_of_seeds(left, right)
    else:
        found = difference_interval(left, right, comparison.metric)
    decision = decide(found, comparison.relation, comparison.value, comparison.tolerance)
    note = f"{comparison.relation} {comparison.value:g}"
    return make_claim(results, comparison.figure, comparison.statement, found, decision, note=note)


def check_narrowing(results: Results, change: str) -> Iterator[Claim]:
    """[003 §5] "We expect the difference to be less significant as the system load increases"."""
    for mode, geographic, nodes in (("broker", B_ROADS, B_NODES), ("rendezvous", R_ROADS, R_NODES)):
        sides = [
            values_by_seed(results, _at((scheme, at)), LOAD) for at in (change, BASE) for scheme in (geographic, nodes)
        ]
        seeds = [seed for seed in sides[0] if all(side.get(seed) for side in sides)]
        found = confidence_interval(
            [sides[0][seed] / sides[1][seed] / (sides[2][seed] / sides[3][seed]) for seed in seeds]
        )
        text = f"{change}, {mode}: GPSR with map sends fewer times what AODV sends than at the base (ratio of ratios)"
        yield make_claim(results, "load", text, found, decide(found, "<", 1.0), note="< 1")


def _at(side: tuple[str, str]) -> Selector:
    scheme, change = side
    return {"scheme": scheme, "change": change}
