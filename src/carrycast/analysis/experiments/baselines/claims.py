"""Claims about single deliveries and frames, which means cannot show."""

from collections.abc import Iterator

from carrycast.analysis.spark import (
    Claim,
    Interval,
    Results,
    Selector,
    common_pairs,
    confidence_interval,
    decide,
    make_claim,
    relation_text,
)

GOSSIPS = ("gossip p=0.3", "gossip p=0.5", "gossip p=0.7")
# Times are whole microseconds; smaller differences are rounding.
TOLERANCE_S = 5e-7


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims: flooding is never later than gossip, and sends once for each node that has an event."""
    for setting in results.experiment.labels("setting"):
        yield check_never_later(results, setting)
    yield check_one_frame_per_node(results)


def check_never_later(results: Results, setting: str) -> Claim:
    """Check that flooding is never later than gossip: without contention it uses every path that gossip may use."""
    present = [label for label in results.experiment.labels("protocol") if label in GOSSIPS]
    flooding: Selector = {"setting": setting, "protocol": "flooding"}
    found = [common_pairs(results, flooding, {"setting": setting, "protocol": label}) for label in present]
    known = [common for common in found if common is not None]
    largest = [common.largest_s for common in known if common.largest_s is not None]
    worst_s = max(largest, default=None)
    pairs = sum(common.pairs for common in known)
    note = f"largest delay of flooding minus gossip's, over all {pairs} pairs that both served"
    # All pairs were compared, so this is no estimate, and the interval is a point.
    found_s = Interval(pairs, worst_s, worst_s, worst_s)
    return make_claim(
        results,
        "over-time",
        f"In the {setting} network flooding is later than gossip at no pair that both serve",
        found_s,
        decide(found_s, "<=", 0.0, TOLERANCE_S),
        note=note if known else "the traces are not there",
        asked=relation_text("<=", 0.0, TOLERANCE_S),
    )


def check_one_frame_per_node(results: Results) -> Claim:
    """Check that flooding sends events + first receptions frames: each node that has an event sends it once."""
    surplus: list[float | None] = []
    for point in results.points({"protocol": "flooding"}):
        metrics = ("transmissions", "published", "receptions", "duplicates")
        values = [results.by_seed(point, metric) for metric in metrics]
        for seed in values[0]:
            sent, published, received, duplicates = (value[seed] for value in values)
            if sent is not None and published is not None and received is not None and duplicates is not None:
                surplus.append(sent - published - (received - duplicates))
    # A count of all frames is not random.
    found = confidence_interval(surplus, exact=True)
    return make_claim(
        results,
        "cost",
        "Flooding sends exactly one frame for each node that has the event",
        found,
        decide(found, "=", 0.0),
        note="frames beyond one per node, per run",
        asked=relation_text("=", 0.0),
    )
