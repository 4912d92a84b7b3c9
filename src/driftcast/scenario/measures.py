"""What a run can be asked for: the usual metrics, and those that a scenario adds."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from driftcast.errors import UserError

METRIC_MEANINGS: Mapping[str, str] = {
    "published": "events published in the measured window",
    "eligible": "(event, subscriber) pairs that should be served",
    "delivered": "eligible pairs that were served",
    "delivery_ratio": "delivered / eligible",
    "delay_mean_s": "mean time from publication to first delivery",
    "delay_p50_s": "median of the same",
    "delay_p95_s": "95 % of deliveries took no longer",
    "hops_mean": "mean number of transmissions behind a delivery",
    "transmissions": "frames on the air, retries included, discovery excluded",
    "control_transmissions": "those of them that carry no event",
    "receptions": "frames heard, discovery excluded",
    "forwards": "messages sent that carry a counted event",
    "duplicates": "receptions of an event by a node that had met it before",
    "data_bytes": "bytes on the air that carry events",
    "control_bytes": "bytes on the air that do not, discovery excluded",
    "discovery_bytes": "bytes of beacons",
    "total_bytes": "bytes on the air in all: data, control and beacons",
    "buffer_peak": "most events stored at one node at one time",
}


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One metric more, `name`. What it counts:

    `facts`: how often protocols noted `fact`; with `distinct`, about how many different events.
    `sources`: the counted source messages that reached a node in some form: as they were published, or in what
    processors made of them; the mean over `nodes`. With `within_s`, no later than that after their publication.
    `missed`: the source messages that `fact` was noted about and that never reached a node; the mean over `nodes`.
    `load`: bytes that a node sent, on average, as its protocol handed them over: neither beacons nor the radio's
    repetitions.
    `reports`: messages without an event that went over links in the measured window: each once for each node that heard
    it.
    `mean`: the mean of the values with which protocols noted `fact`. `ratio`: how often they noted `fact`, for each
    time that they noted `of`.
    `pairs`: of the pairs of an event counted and a subscription that it should serve, the share that were served: as
    `delivery_ratio`, but each of a node's clients counts.
    `bytes`: bytes handed to the radio in the measured window, beacons too: `per` node and second, per node, or in all;
    of some `layers` and some classes of `traffic` alone if they are named. With `repetitions`, as often as they were
    on the air.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$", max_length=60)]
    counts: Literal["facts", "sources", "missed", "load", "reports", "bytes", "mean", "ratio", "pairs"]
    fact: str = ""
    of: str = ""
    nodes: list[Annotated[int, Meta(ge=0)]] = []
    within_s: Annotated[float, Meta(gt=0)] | None = None
    distinct: bool = False
    layers: list[Literal["discovery", "routing", "dissemination"]] = []
    traffic: list[Literal["data", "control", "discovery"]] = []
    per: Literal["node_second", "node", "run"] = "node_second"
    repetitions: bool = False

    def meaning(self) -> str:
        """For readers of a report."""
        if self.counts == "facts":
            return f"different events about which {self.fact} was noted" if self.distinct else f"notes of {self.fact}"
        if self.counts == "bytes":
            return self._bytes_meaning()
        if self.counts == "mean":
            return f"mean value of the notes of {self.fact}"
        if self.counts == "ratio":
            return f"notes of {self.fact} for each of {self.of}"
        if self.counts == "pairs":
            return "share of the (event, subscription) pairs that should be served and were"
        where = f"node {' and '.join(map(str, self.nodes))}" + (", on average" if len(self.nodes) > 1 else "")
        if self.counts == "sources":
            late = "" if self.within_s is None else f" within {self.within_s:g} s"
            return f"source messages that reached {where} in some form{late}"
        if self.counts == "missed":
            return f"source messages with a note of {self.fact} that never reached {where} in any form"
        if self.counts == "reports":
            return "messages without an event in the measured window, once for each node that heard them"
        return "bytes sent by a node on average, neither discovery nor repetitions by the radio"

    def _bytes_meaning(self) -> str:
        of = " and ".join(self.traffic)
        said_by = f" of {' and '.join(self.layers)}" if self.layers else ""
        per = {"node_second": " per node and second", "node": " per node", "run": ""}[self.per]
        again = ", repetitions by the radio among them" if self.repetitions else ""
        return f"{of + ' ' if of else ''}bytes{said_by} in the measured window{per}{again}"


def check_asked(asked: list[Asked], nodes: int, where: str) -> None:
    """Refuse what cannot be counted."""
    names: set[str] = set()
    for place, entry in enumerate(asked):
        at = f"{where}[{place}]"
        if entry.name in METRIC_MEANINGS or entry.name in names:
            raise UserError(f"{at}.name: there is a metric {entry.name!r} already")
        names.add(entry.name)
        if entry.counts != "bytes" and (
            entry.layers or entry.traffic or entry.repetitions or entry.per != "node_second"
        ):
            raise UserError(f"{at}: layers, traffic, per and repetitions are for counts = 'bytes'; leave them out")
        if entry.counts in ("facts", "missed", "mean", "ratio") and not entry.fact:
            raise UserError(f"{at}.fact: is needed: the name of what protocols note, such as announce")
        if (entry.counts == "ratio") != bool(entry.of):
            raise UserError(f"{at}.of: belongs to counts = 'ratio', which needs it: what `fact` is set against")
        if entry.counts in ("sources", "missed") and (not entry.nodes or max(entry.nodes) >= nodes):
            raise UserError(f"{at}.nodes: is needed: a list of nodes from 0 to {nodes - 1}")
