"""Claims for networks for which drift was not designed: delivery and bytes, compared with all other protocols."""

from collections.abc import Iterator

from carrycast.analysis.experiments.drift.claims import COSTS, Where, compare_with_rivals
from carrycast.analysis.spark import Claim, Results, Selector

APART = ("community", "mule", "sources", "interest")
"""Networks that have their own figure."""
BYTES = {"total_bytes": COSTS["total_bytes"]}


def claims(results: Results) -> Iterator[Claim]:
    """Yield two claims for each variation of each network."""
    for network in results.experiment.labels("network"):
        for variation in results.experiment.labels("variation"):
            here: Selector = {"network": network, "variation": variation}
            figures = (network, network) if network in APART else ("delivery", "total")
            present = [str(point.labels["protocol"]) for point in results.points(here)]
            if "drift" in present:
                rivals = [name for name in present if name != "drift"]
                yield from compare_with_rivals(
                    results, Where(f"`{network}`, {variation}:", here, *figures), "drift", rivals, BYTES
                )
