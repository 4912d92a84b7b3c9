"""In each network: nobody reaches more than drift, and nobody who does as well sends less, in bytes and in airtime; and
how far it is from what anybody could do."""

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
# A pair in five hundred: two protocols meet the same contacts at other milliseconds.
AS_MANY = 0.002
OF_200 = {"converters": ("delivered", 200 * AS_MANY)}
"""Where some make a result twice and deliver one of them: how many of the 200 that are wanted arrive."""
OFTEN = 0.8
"""Of the runs. Where two protocols reach all, every run is alike, and however many there are, they do not tell a mean
difference to a five-hundredth; twenty of them tell that four in five, at least, are so."""
COSTS = {"total_bytes": "sends fewer bytes", "airtime_us": "takes less of the air"}
"""What a rival would do."""
OF_100 = ("epidemic of 100", "adaptive of 100")

BOUNDED = {
    "dense": "../baselines/dense.toml",
    "sparse": "../baselines/sparse.toml",
    "producers": "producers.toml",
    "grid": "grid.toml",
}
"""Networks whose links are those of the contacts: a contended radio loses more."""
SHORT = 0.05
"""Of all pairs: what contacts that are over before they are noticed cost."""
FRAMES = 1.5
"""Frames with an event, for each one of a tree: nodes see two hops, and answer who lacks it later."""


class Where(NamedTuple):
    """A network: how statements about it begin, its points, and the figures that show delivery and costs there."""

    begins: str
    here: Selector
    delivery: str
    costs: str


def claims(results: Results) -> Iterator[Claim]:
    """Three for each network, against the rivals that were run there; buffers of 100 against buffers of 100."""
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
    """Delivery against all rivals, costs against those that deliver as much: by which metric, and within what."""
    (by, as_many), here = reached, where.here

    def difference(rival: str, metric: str) -> ClaimCase:
        """Own minus the rival's, paired by seed."""
        return ClaimCase(rival, results.difference({**here, "protocol": own}, {**here, "protocol": rival}, metric))

    def share_not_behind(rival: str) -> ClaimCase:
        """The share of runs in which the rival does not reach more."""
        ours, theirs = (results.select({**here, "protocol": one}, by) for one in (own, rival))
        return ClaimCase(rival, share_of_runs(above >= -as_many for above in paired_differences(ours, theirs)))

    statement = (
        f"{where.begins} nobody reaches more than {own} in more than {1 - OFTEN:.0%} of the runs (share of the others)"
    )
    yield make_claim_over_cases(
        results, where.delivery, statement, [share_not_behind(rival) for rival in rivals], ">=", OFTEN
    )
    # Whoever may reach as many: one that surely reaches fewer is no rival in costs.
    served = [difference(rival, by) for rival in rivals]
    equals = [case.name for case in served if case.found.low is None or case.found.low <= as_many]
    for metric, less in costs.items():
        spent = [difference(rival, metric) for rival in equals]
        if spent:
            statement = f"{where.begins} nobody who reaches as many as {own} {less}"
            yield make_claim_over_cases(results, where.costs, statement, spent, "<=", 0.0)


def share_of_runs(facts: Iterable[bool]) -> Interval:
    """The share of runs in which something is so."""
    return confidence_interval([float(fact) for fact in facts], SHARE)


def check_bounds(results: Results, setting: str, path: Path) -> Iterator[Claim]:
    """Against what contacts allow, and where one network stays together against trees of broadcasts."""
    drift = results.select({"setting": setting, "protocol": "drift"}, "delivery_ratio")
    allowed = {seed: reachable_share(path, seed) for seed in drift}
    near = ClaimCase(setting, share_of_runs(below >= -SHORT for below in paired_differences(drift, allowed)))
    often = f"in {OFTEN:.0%} of the runs or more"
    statement = (
        f"In the network `{setting}` drift reaches what the contacts allow, but for {SHORT:.0%}, {often} (share)"
    )
    yield make_claim_over_cases(results, setting, statement, [near], ">=", OFTEN)
    if setting in ("dense", "producers"):
        times = ClaimCase(setting, confidence_interval(tree_ratios(results, setting, path)))
        statement = f"In the network `{setting}` drift sends at most {FRAMES:g} frames with an event for each of a tree"
        yield make_claim_over_cases(results, setting, statement, [times], "<=", FRAMES)


def tree_ratios(results: Results, setting: str, path: Path) -> Iterator[float]:
    """Of each seed, the frames with an event for each one of a greedy tree."""
    drift: Selector = {"setting": setting, "protocol": "drift"}
    control = results.select(drift, "control_transmissions")
    for seed, sent in results.select(drift, "transmissions").items():
        least, talk = count_tree_frames(path, seed), control[seed]
        if sent is not None and talk is not None and least:
            yield (sent - talk) / least
