"""Where drift was not designed, too: nobody reaches more, and nobody who does as well sends fewer bytes."""

from collections.abc import Iterator

from carrycast.analysis.experiments.drift.claims import COSTS, Where, compare_with_rivals
from carrycast.analysis.spark import Claim, Results, Selector

APART = ("community", "mule", "sources", "interest")
"""Networks with a figure of their own."""
BYTES = {"total_bytes": COSTS["total_bytes"]}


def claims(results: Results) -> Iterator[Claim]:
    """Two for each variation of each network."""
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
