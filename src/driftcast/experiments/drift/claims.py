"""In each network: nobody reaches more than drift, and nobody who reaches as many sends less."""

from collections.abc import Iterator

from driftcast.pipeline.claims import Claim, claimed_of_all
from driftcast.pipeline.results import Results
from driftcast.pipeline.statistics import Interval, interval, paired_differences
from driftcast.pipeline.verdict import Case

OWN = ("drift", "no offers", "drift of 100")
# A pair in five hundred: two protocols meet the same contacts at other milliseconds.
AS_MANY = 0.002
BYTES = ("data_bytes", "control_bytes", "discovery_bytes")
OF_100 = "epidemic of 100"


def claims(results: Results) -> Iterator[Claim]:
    """Two for each network, against the rivals that were run there; buffers of 100 against buffers of 100."""
    for setting in results.experiment.labels("setting"):
        present = [str(point.labels["protocol"]) for point in results.points({"setting": setting})]
        rivals = [name for name in present if name not in (*OWN, OF_100)]
        if "drift" in present and rivals:
            yield from standing(results, setting, "drift", rivals)
        if "drift of 100" in present and OF_100 in present:
            yield from standing(results, setting, "drift of 100", [OF_100])


def standing(results: Results, setting: str, own: str, rivals: list[str]) -> Iterator[Claim]:
    """Delivery against all rivals, bytes against those that deliver as much."""
    where = f"In the network `{setting}`"
    reached = [Case(rival, reach(results, setting, own, rival)) for rival in rivals]
    statement = f"{where} nobody reaches more than {own}"
    yield claimed_of_all(results, "delivery", statement, reached, ">=", 0.0, AS_MANY)
    # Whoever may reach as many: one that surely reaches fewer is no rival in bytes.
    equals = [case.name for case in reached if case.found.low is None or case.found.low <= AS_MANY]
    spent = [Case(rival, more_bytes(results, setting, own, rival)) for rival in equals]
    if spent:
        statement = f"{where} nobody who reaches as many as {own} sends fewer bytes"
        yield claimed_of_all(results, "data", statement, spent, "<=", 0.0)


def reach(results: Results, setting: str, own: str, rival: str) -> Interval:
    """Own minus the rival's delivery ratio."""
    return results.difference(
        {"setting": setting, "protocol": own}, {"setting": setting, "protocol": rival}, "delivery_ratio"
    )


def more_bytes(results: Results, setting: str, own: str, rival: str) -> Interval:
    """Own minus the rival's bytes of all kinds, paired by seed."""
    return interval(paired_differences(total(results, setting, own), total(results, setting, rival)))


def total(results: Results, setting: str, protocol: str) -> dict[int, float | None]:
    """All bytes at every seed; None where a run failed."""
    parts = [results.selected({"setting": setting, "protocol": protocol}, metric) for metric in BYTES]
    found: dict[int, float | None] = {}
    for seed in parts[0]:
        values = [part[seed] for part in parts]
        known = [value for value in values if value is not None]
        found[seed] = sum(known) if len(known) == len(values) else None
    return found
