"""In each network: nobody reaches more than drift, and nobody who does as well sends less, in bytes and in airtime."""

from collections.abc import Iterator

from driftcast.pipeline.claims import Claim, claimed_of_all
from driftcast.pipeline.results import Results
from driftcast.pipeline.statistics import Interval
from driftcast.pipeline.verdict import Case

OWN = ("drift", "no offers", "no paths", "drift of 100")
# A pair in five hundred: two protocols meet the same contacts at other milliseconds.
AS_MANY = 0.002
COSTS = {"total_bytes": ("total", "sends fewer bytes"), "airtime_us": ("airtime", "takes less of the air")}
"""Of each its figure, and what a rival would do."""
OF_100 = "epidemic of 100"


def claims(results: Results) -> Iterator[Claim]:
    """Three for each network, against the rivals that were run there; buffers of 100 against buffers of 100."""
    for setting in results.experiment.labels("setting"):
        present = [str(point.labels["protocol"]) for point in results.points({"setting": setting})]
        rivals = [name for name in present if name not in (*OWN, OF_100)]
        if "drift" in present and rivals:
            yield from standing(results, setting, "drift", rivals)
        if "drift of 100" in present and OF_100 in present:
            yield from standing(results, setting, "drift of 100", [OF_100])


def standing(results: Results, setting: str, own: str, rivals: list[str]) -> Iterator[Claim]:
    """Delivery against all rivals, costs against those that deliver as much."""
    where = f"In the network `{setting}`"
    reached = [Case(rival, more(results, setting, own, rival, "delivery_ratio")) for rival in rivals]
    statement = f"{where} nobody reaches more than {own}"
    yield claimed_of_all(results, "delivery", statement, reached, ">=", 0.0, AS_MANY)
    # Whoever may reach as many: one that surely reaches fewer is no rival in costs.
    equals = [case.name for case in reached if case.found.low is None or case.found.low <= AS_MANY]
    for metric, (figure, less) in COSTS.items():
        spent = [Case(rival, more(results, setting, own, rival, metric)) for rival in equals]
        if spent:
            statement = f"{where} nobody who reaches as many as {own} {less}"
            yield claimed_of_all(results, figure, statement, spent, "<=", 0.0)


def more(results: Results, setting: str, own: str, rival: str, metric: str) -> Interval:
    """Own minus the rival's, paired by seed."""
    return results.difference({"setting": setting, "protocol": own}, {"setting": setting, "protocol": rival}, metric)
