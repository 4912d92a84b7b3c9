"""Where drift was not designed, too: nobody reaches more, and nobody who does as well sends fewer bytes."""

from collections.abc import Iterator

from driftcast.experiments.drift.claims import AS_MANY
from driftcast.pipeline.claims import Claim, claimed_of_all
from driftcast.pipeline.definition import Selector
from driftcast.pipeline.results import Results
from driftcast.pipeline.verdict import Case

RIVALS = ("epidemic", "flooding")


def claims(results: Results) -> Iterator[Claim]:
    """Two for each variation of each network."""
    for network in results.experiment.labels("network"):
        for variation in results.experiment.labels("variation"):
            here: Selector = {"network": network, "variation": variation}
            present = {str(point.labels["protocol"]) for point in results.points(here)}
            if "drift" in present:
                yield from standing(results, here, [rival for rival in RIVALS if rival in present])


def standing(results: Results, here: Selector, rivals: list[str]) -> Iterator[Claim]:
    """Delivery against all rivals, bytes against those that may reach as many."""
    where = f"`{here['network']}`, {here['variation']}"
    own = at(here, "drift")
    reached = [Case(rival, results.difference(own, at(here, rival), "delivery_ratio")) for rival in rivals]
    yield claimed_of_all(results, "delivery", f"{where}: nobody reaches more than drift", reached, ">=", 0.0, AS_MANY)
    equals = [case.name for case in reached if case.found.low is None or case.found.low <= AS_MANY]
    spent = [Case(rival, results.difference(own, at(here, rival), "total_bytes")) for rival in equals]
    if spent:
        statement = f"{where}: nobody who reaches as many as drift sends fewer bytes"
        yield claimed_of_all(results, "total", statement, spent, "<=", 0.0)


def at(here: Selector, protocol: str) -> Selector:
    """One protocol of a variation."""
    return {**here, "protocol": protocol}
