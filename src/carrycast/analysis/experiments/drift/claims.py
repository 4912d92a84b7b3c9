"""Claims for each network: no protocol delivers more than drift, none that delivers as much sends less, in bytes or in
airtime, and drift is close to the bounds for any protocol."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from carrycast.analysis.experiments.drift.bounds import HERE, count_tree_frames, reachable_share
from carrycast.analysis.spark import (
    SHARE,
    Claim,
    ClaimCase,
    Interval,
    Results,
    Selector,
    confidence_interval,
    make_claim_over_cases,
    paired_differences,
)

OWN = ("drift", "no offers", "no paths", "no waits", "no hashes", "drift of 100")
# One pair in five hundred: two protocols notice the same contacts at slightly different times.
AS_MANY = 0.002
OF_200 = {"converters": ("delivered", 200 * AS_MANY)}
"""In this network some protocols compute a result twice and deliver one, so delivered results are counted, of 200."""
OFTEN = 0.8
"""The required share of runs. If two protocols deliver everything, all runs are equal, and no number of runs decides a
mean difference of 0.002. But twenty equal runs show that at least four in five runs are like them."""
COSTS = {"total_bytes": "sends fewer bytes", "airtime_us": "takes less airtime"}
"""Metrics of cost, and the words for a rival with less of it."""
OF_100 = ("epidemic of 100", "adaptive of 100")

BOUNDED = {
    "dense": "../baselines/dense.toml",
    "sparse": "../baselines/sparse.toml",
    "producers": "producers.toml",
    "grid": "grid.toml",
}
"""Networks in which every contact is a link. A radio with contention loses more."""
SHORT = 0.05
"""The tolerated share of pairs, for contacts that end before discovery notices them."""
FRAMES = 1.5
"""Frames with an event per frame of the tree: nodes know only two hops, and send again to nodes that miss the event."""


class Where(NamedTuple):
    """A network: the beginning of statements about it, its points, and its figures of delivery and costs."""

    begins: str
    here: Selector
    delivery: str
    costs: str


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims of each network, against the rivals run there; drift with buffers of 100 against rivals with
    such."""
    for setting in results.experiment.labels("setting"):
        present = [str(point.labels["protocol"]) for point in results.points({"setting": setting})]
        rivals = [name for name in present if name not in (*OWN, *OF_100)]
        where = Where(f"In the network `{setting}`", {"setting": setting}, setting, setting)
        if "drift" in present and rivals:
            reached = OF_200.get(setting, ("delivery_ratio", AS_MANY))
            yield from compare_with_rivals(results, where, "drift", rivals, reached=reached)
        small = [name for name in OF_100 if name in present]
        if "drift of 100" in present and small:
            yield from compare_with_rivals(results, where, "drift of 100", small)
        if "drift" in present and setting in BOUNDED:
            yield from check_bounds(results, setting, HERE / BOUNDED[setting])


def compare_with_rivals(
    results: Results,
    where: Where,
    own: str,
    rivals: list[str],
    costs: Mapping[str, str] = COSTS,
    reached: tuple[str, float] = ("delivery_ratio", AS_MANY),
) -> Iterator[Claim]:
    """Compare delivery with all rivals, and costs with those that deliver as much. `reached` is a metric and a
    tolerance."""
    (by, as_many), here = reached, where.here

    def difference(rival: str, metric: str) -> ClaimCase:
        """The difference of `own` and the rival, paired by seed."""
        return ClaimCase(rival, results.difference({**here, "protocol": own}, {**here, "protocol": rival}, metric))

    def share_not_behind(rival: str) -> ClaimCase:
        """The share of runs in which the rival does not reach more."""
        ours, theirs = (results.select({**here, "protocol": one}, by) for one in (own, rival))
        return ClaimCase(rival, share_of_runs(above >= -as_many for above in paired_differences(ours, theirs)))

    often = f"in at least {OFTEN:.0%} of the runs"
    statement = f"{where.begins} each other protocol delivers at most as much as {own} {often} (share)"
    yield make_claim_over_cases(
        results, where.delivery, statement, [share_not_behind(rival) for rival in rivals], ">=", OFTEN
    )
    # Costs are compared with rivals that may deliver as much, not with those that certainly deliver less.
    served = [difference(rival, by) for rival in rivals]
    equals = [case.name for case in served if case.found.low is None or case.found.low <= as_many]
    for metric, less in costs.items():
        spent = [difference(rival, metric) for rival in equals]
        if spent:
            statement = f"{where.begins} no protocol that delivers as much as {own} {less}"
            yield make_claim_over_cases(results, where.costs, statement, spent, "<=", 0.0)


def share_of_runs(facts: Iterable[bool]) -> Interval:
    """Return the share of runs in which a condition holds."""
    return confidence_interval([float(fact) for fact in facts], SHARE)


def check_bounds(results: Results, setting: str, path: Path) -> Iterator[Claim]:
    """Compare drift with the bound of the contacts and, in connected networks, with broadcast trees."""
    drift = results.select({"setting": setting, "protocol": "drift"}, "delivery_ratio")
    allowed = {seed: reachable_share(path, seed) for seed in drift}
    near = ClaimCase(setting, share_of_runs(below >= -SHORT for below in paired_differences(drift, allowed)))
    often = f"in at least {OFTEN:.0%} of the runs"
    statement = (
        f"In the network `{setting}` drift delivers what the contacts allow, within {SHORT:.0%}, {often} (share)"
    )
    yield make_claim_over_cases(results, setting, statement, [near], ">=", OFTEN)
    if setting in ("dense", "producers"):
        times = ClaimCase(setting, confidence_interval(tree_ratios(results, setting, path)))
        most = f"at most {FRAMES:g} frames with an event for each frame of a tree"
        statement = f"In the network `{setting}` drift sends {most}"
        yield make_claim_over_cases(results, setting, statement, [times], "<=", FRAMES)


def tree_ratios(results: Results, setting: str, path: Path) -> Iterator[float]:
    """Yield, for each seed, the frames with an event per frame of a greedy tree."""
    drift: Selector = {"setting": setting, "protocol": "drift"}
    control = results.select(drift, "control_transmissions")
    for seed, sent in results.select(drift, "transmissions").items():
        least, talk = count_tree_frames(path, seed), control[seed]
        if sent is not None and talk is not None and least:
            yield (sent - talk) / least
