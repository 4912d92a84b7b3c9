"""In each network: nobody reaches more than drift, and nobody who does as well sends less, in bytes and in airtime; and
how far it is from what anybody could do."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from driftcast.experiments.drift.bounds import HERE, reachable, tree_frames
from driftcast.pipeline.claims import Claim, claimed_of_all
from driftcast.pipeline.definition import Selector
from driftcast.pipeline.results import Results
from driftcast.pipeline.statistics import interval, paired_differences
from driftcast.pipeline.verdict import Case

OWN = ("drift", "no offers", "no paths", "no waits", "no hashes", "drift of 100")
# A pair in five hundred: two protocols meet the same contacts at other milliseconds.
AS_MANY = 0.002
OF_200 = {"converters": ("delivered", 200 * AS_MANY)}
"""Where some make a result twice and deliver one of them: how many of the 200 that are wanted arrive."""
COSTS = {"total_bytes": ("total", "sends fewer bytes"), "airtime_us": ("airtime", "takes less of the air")}
"""Of each its figure, and what a rival would do."""
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


def claims(results: Results) -> Iterator[Claim]:
    """Three for each network, against the rivals that were run there; buffers of 100 against buffers of 100."""
    for setting in results.experiment.labels("setting"):
        present = [str(point.labels["protocol"]) for point in results.points({"setting": setting})]
        rivals = [name for name in present if name not in (*OWN, *OF_100)]
        where = f"In the network `{setting}`"
        here: Selector = {"setting": setting}
        if "drift" in present and rivals:
            reached = OF_200.get(setting, ("delivery_ratio", AS_MANY))
            yield from standing(results, where, here, "drift", rivals, reached=reached)
        small = [name for name in OF_100 if name in present]
        if "drift of 100" in present and small:
            yield from standing(results, where, here, "drift of 100", small)
        if "drift" in present and setting in BOUNDED:
            yield from bounded(results, setting, HERE / BOUNDED[setting])


def standing(
    results: Results,
    where: str,
    here: Selector,
    own: str,
    rivals: list[str],
    costs: Mapping[str, tuple[str, str]] = COSTS,
    reached: tuple[str, float] = ("delivery_ratio", AS_MANY),
) -> Iterator[Claim]:
    """Delivery against all rivals, costs against those that deliver as much: by which metric, and within what.
    `where` begins the statements."""
    by, as_many = reached

    def more(rival: str, metric: str) -> Case:
        """Own minus the rival's, paired by seed."""
        return Case(rival, results.difference({**here, "protocol": own}, {**here, "protocol": rival}, metric))

    served = [more(rival, by) for rival in rivals]
    statement = f"{where} nobody reaches more than {own}"
    yield claimed_of_all(results, "delivery", statement, served, ">=", 0.0, as_many)
    # Whoever may reach as many: one that surely reaches fewer is no rival in costs.
    equals = [case.name for case in served if case.found.low is None or case.found.low <= as_many]
    for metric, (figure, less) in costs.items():
        spent = [more(rival, metric) for rival in equals]
        if spent:
            statement = f"{where} nobody who reaches as many as {own} {less}"
            yield claimed_of_all(results, figure, statement, spent, "<=", 0.0)


def bounded(results: Results, setting: str, path: Path) -> Iterator[Claim]:
    """Against what contacts allow, and where one network stays together against trees of broadcasts."""
    drift = results.selected({"setting": setting, "protocol": "drift"}, "delivery_ratio")
    allowed = {seed: reachable(path, seed) for seed in drift}
    less = Case(setting, interval(paired_differences(drift, allowed)))
    statement = f"In the network `{setting}` drift reaches what the contacts allow, but for {SHORT:.0%}"
    yield claimed_of_all(results, "delivery", statement, [less], ">=", -SHORT)
    if setting in ("dense", "producers"):
        times = Case(setting, interval(times_a_tree(results, setting, path)))
        statement = f"In the network `{setting}` drift sends at most {FRAMES:g} frames with an event for each of a tree"
        yield claimed_of_all(results, "total", statement, [times], "<=", FRAMES)


def times_a_tree(results: Results, setting: str, path: Path) -> Iterator[float]:
    """Of each seed, the frames with an event for each one of a greedy tree."""
    drift: Selector = {"setting": setting, "protocol": "drift"}
    control = results.selected(drift, "control_transmissions")
    for seed, sent in results.selected(drift, "transmissions").items():
        least, talk = tree_frames(path, seed), control[seed]
        if sent is not None and talk is not None and least:
            yield (sent - talk) / least
