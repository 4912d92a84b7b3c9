"""Metrics that a scenario asks for besides the usual ones: what protocols noted, and what became of source messages."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from driftcast.errors import UserError
from driftcast.model import Event, EventId, NodeId
from driftcast.protocol import Fact
from driftcast.radio.medium import Frame, Reach
from driftcast.simulation.kernel import US_PER_S
from driftcast.simulation.meter import METRIC_MEANINGS, Metrics
from driftcast.wire import Traffic, carried

MICROSECOND_S = 1e-6
"""The accuracy of all times."""


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
    """

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$", max_length=60)]
    counts: Literal["facts", "sources", "missed", "load", "reports"]
    fact: str = ""
    nodes: list[Annotated[int, Meta(ge=0)]] = []
    within_s: Annotated[float, Meta(gt=0)] | None = None
    distinct: bool = False

    def meaning(self) -> str:
        """For readers of a report."""
        if self.counts == "facts":
            return f"different events about which {self.fact} was noted" if self.distinct else f"notes of {self.fact}"
        where = f"node {' and '.join(map(str, self.nodes))}" + (", on average" if len(self.nodes) > 1 else "")
        if self.counts == "sources":
            late = "" if self.within_s is None else f" within {self.within_s:g} s"
            return f"source messages that reached {where} in some form{late}"
        if self.counts == "missed":
            return f"source messages with a note of {self.fact} that never reached {where} in any form"
        if self.counts == "reports":
            return "messages without an event in the measured window, once for each node that heard them"
        return "bytes sent by a node on average, neither discovery nor repetitions by the radio"


def check_asked(asked: list[Asked], nodes: int, where: str) -> None:
    """Refuse what cannot be counted."""
    names: set[str] = set()
    for place, entry in enumerate(asked):
        at = f"{where}[{place}]"
        if entry.name in METRIC_MEANINGS or entry.name in names:
            raise UserError(f"{at}.name: there is a metric {entry.name!r} already")
        names.add(entry.name)
        if entry.counts in ("facts", "missed") and not entry.fact:
            raise UserError(f"{at}.fact: is needed: the name of what protocols note, such as announce")
        if entry.counts in ("sources", "missed") and (not entry.nodes or max(entry.nodes) >= nodes):
            raise UserError(f"{at}.nodes: is needed: a list of nodes from 0 to {nodes - 1}")


class Tally:
    """Counts what was asked for."""

    def __init__(self, asked: list[Asked], nodes: int, from_s: float, to_s: float) -> None:
        self._asked = asked
        self._nodes = nodes
        self._from_s = from_s
        self._to_s = to_s
        self._watched = {entry.fact for entry in asked}
        self._facts: dict[str, int] = {}
        self._noted: dict[str, dict[EventId, None]] = {}
        """Fact -> the events it was noted about."""
        self._published_s: dict[EventId, float] = {}
        self._sources: dict[EventId, tuple[EventId, ...]] = {}
        """What a processor made -> the source messages behind it."""
        self._reached_s: dict[NodeId, dict[EventId, float]] = {node: {} for entry in asked for node in entry.nodes}
        """Node -> the source messages that reached it, and when they did first."""
        self._load_bytes = 0
        self._reports = 0

    def on_event(self, now_s: float, event: Event) -> None:
        """Published, or made of others."""
        if not event.derived_from:
            self._published_s[event.id] = now_s
            return
        behind = [source for id in event.derived_from for source in self._behind(id)]
        self._sources[event.id] = tuple(dict.fromkeys(behind))

    def on_deliver(self, now_s: float, node: NodeId, event: EventId) -> None:
        """To an application."""
        reached = self._reached_s.get(node)
        if reached is not None:
            for source in self._behind(event):
                reached.setdefault(source, now_s)

    def on_fact(self, fact: Fact) -> None:
        """A protocol noted something."""
        if fact.kind in self._watched:
            self._facts[fact.kind] = self._facts.get(fact.kind, 0) + 1
            if fact.event is not None:
                self._noted.setdefault(fact.kind, {})[fact.event] = None

    def on_frame(self, frame: Frame, reach: Reach) -> None:
        """A transmission, however often it was repeated, and everybody who heard it."""
        traffic = carried(frame.message)[0]
        if traffic is not Traffic.DISCOVERY:
            self._load_bytes += frame.copies * len(frame.encoded)
        if traffic is Traffic.CONTROL and self._from_s <= frame.sent_us / US_PER_S <= self._to_s:
            self._reports += len(reach.nodes)

    def metrics(self) -> Metrics:
        """Every metric asked for."""
        return {entry.name: self._count(entry) for entry in self._asked}

    def _behind(self, id: EventId) -> tuple[EventId, ...]:
        return self._sources.get(id, (id,))

    def _count(self, entry: Asked) -> float | int:
        if entry.counts == "load":
            return self._load_bytes / self._nodes
        if entry.counts == "reports":
            return self._reports
        if entry.counts == "facts":
            return len(self._noted.get(entry.fact, {})) if entry.distinct else self._facts.get(entry.fact, 0)
        one = self._missed if entry.counts == "missed" else self._reached
        counts = [one(entry, self._reached_s[node]) for node in entry.nodes]
        return counts[0] if len(counts) == 1 else sum(counts) / len(counts)

    def _missed(self, entry: Asked, reached_s: dict[EventId, float]) -> int:
        noted = dict.fromkeys(source for id in self._noted.get(entry.fact, {}) for source in self._behind(id))
        return sum(source not in reached_s for source in noted)

    def _reached(self, entry: Asked, reached_s: dict[EventId, float]) -> int:
        count = 0
        for source, time_s in reached_s.items():
            published_s = self._published_s[source]
            if self._from_s <= published_s <= self._to_s:
                late_s = round(time_s - published_s, 6)
                count += entry.within_s is None or late_s <= entry.within_s + MICROSECOND_S / 2
        return count
