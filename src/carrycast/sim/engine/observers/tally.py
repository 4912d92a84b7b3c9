"""Metrics that a scenario asks for besides the usual ones: what protocols noted, and what became of source messages."""

from collections.abc import Mapping, Sequence

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.protocol import Fact
from carrycast.core.wire import Layer, Message, Traffic, carried
from carrycast.sim.engine.kernel import US_PER_S
from carrycast.sim.engine.observers.amounts import Amounts
from carrycast.sim.engine.observers.meter import Metrics
from carrycast.sim.engine.observers.pairs import NoPairs, Pairs
from carrycast.sim.radio.medium import Frame, Reach
from carrycast.sim.scenario.measures import Asked

# Looking a member up in its enumeration costs a call, in every transmission.
_CONTROL, _DISCOVERY = Traffic.CONTROL, Traffic.DISCOVERY
MICROSECOND_S = 1e-6
"""The accuracy of all times."""


class Tally:
    """Counts what was asked for."""

    def __init__(
        self,
        asked: Sequence[Asked],
        nodes: int,
        from_s: float,
        to_s: float,
        roles: Mapping[str, list[NodeId]] | None = None,
    ) -> None:
        # Samples are taken by whoever looks from time to time, and not told here.
        self._asked = [entry for entry in asked if entry.counts != "probe"]
        self._amounts = Amounts(self._asked, nodes, to_s - from_s, roles or {})
        self._nodes = nodes
        self._from_s = from_s
        self._to_s = to_s
        counted = [entry for entry in asked if entry.counts in ("facts", "missed", "ratio")]
        self._watched = {entry.fact for entry in counted} | {entry.against for entry in counted}
        self._facts: dict[str, int] = {}
        self._noted: dict[str, dict[EventId, None]] = {}
        """Fact -> the events it was noted about."""
        self._published_s: dict[EventId, float] = {}
        self._sources: dict[EventId, tuple[EventId, ...]] = {}
        """What a processor made -> the source messages behind it."""
        self._reached_s: dict[NodeId, dict[EventId, float]] = {node: {} for entry in asked for node in entry.nodes}
        """Node -> the source messages that reached it, and when they did first."""
        self._reached_any: dict[EventId, None] = {}
        self._load_bytes = 0
        self._bytes: dict[tuple[Layer, Traffic, type[Message]], list[int]] = {}
        """Of each layer, class and type in the measured window, without repetitions by the radio and with them."""
        self._reports = 0
        self.pairs = Pairs(from_s, to_s) if any(entry.counts == "pairs" for entry in asked) else NoPairs()

    def on_event(self, now_s: float, event: Event) -> None:
        """Published, or made of others."""
        self.pairs.on_event(now_s, event)
        if not event.derived_from:
            self._published_s[event.id] = now_s
            return
        behind = [source for id in event.derived_from for source in self._behind(id)]
        self._sources[event.id] = tuple(dict.fromkeys(behind))

    def on_deliver(self, now_s: float, node: NodeId, event: EventId) -> None:
        """To an application."""
        reached = self._reached_s.get(node)
        for source in self._behind(event):
            if reached is not None:
                reached.setdefault(source, now_s)
            if source.source != node:
                self._reached_any[source] = None

    def on_fact(self, now_s: float, node: NodeId, fact: Fact) -> None:
        """A protocol noted something."""
        if self._from_s <= now_s <= self._to_s:
            self._amounts.on_fact(node, fact)
        if fact.kind in self._watched:
            self._facts[fact.kind] = self._facts.get(fact.kind, 0) + 1
            if fact.event is not None:
                self._noted.setdefault(fact.kind, {})[fact.event] = None

    def on_route(self, now_s: float, node: NodeId, message: Message, size_bytes: int) -> None:
        """A protocol handed a message to its router."""
        if self._from_s <= now_s <= self._to_s:
            self._amounts.on_route(node, type(message).__name__, size_bytes)

    def on_frame(self, frame: Frame, reach: Reach) -> None:
        """A transmission, however often it was repeated, and everybody who heard it."""
        message, size_bytes = frame.message, frame.copies * len(frame.encoded)
        traffic = carried(message)[0]
        if traffic is not _DISCOVERY:
            self._load_bytes += size_bytes
        if self._from_s <= frame.sent_us / US_PER_S <= self._to_s:
            if traffic is _CONTROL:
                self._reports += len(reach.nodes)
            kind = (frame.layer, traffic, type(message))
            sums = self._bytes.get(kind)
            if sums is None:
                sums = self._bytes[kind] = [0, 0]
            sums[0] += size_bytes
            sums[1] += frame.attempts * size_bytes

    def metrics(self) -> Metrics:
        """Every metric asked for."""
        return {entry.name: self._count(entry) for entry in self._asked}

    def _behind(self, id: EventId) -> tuple[EventId, ...]:
        return self._sources.get(id, (id,))

    def _count(self, entry: Asked) -> float | int | None:
        if entry.counts in ("values", "routed"):
            return self._amounts.value(entry)
        if entry.counts == "load":
            return self._load_bytes / self._nodes
        if entry.counts == "bytes":
            return self._bytes_of(entry)
        if entry.counts == "reports":
            return self._reports
        if entry.counts == "reached":
            return sum(self._is_counted(source) for source in self._reached_any)
        if entry.counts == "ratio":
            whole = self._facts.get(entry.against, 0)
            return self._facts.get(entry.fact, 0) / whole if whole else None
        if entry.counts == "pairs":
            return self.pairs.ratio()
        if entry.counts == "facts":
            return len(self._noted.get(entry.fact, {})) if entry.distinct else self._facts.get(entry.fact, 0)
        one = self._missed if entry.counts == "missed" else self._reached
        counts = [one(entry, self._reached_s[node]) for node in entry.nodes]
        return counts[0] if len(counts) == 1 else sum(counts) / len(counts)

    def _bytes_of(self, entry: Asked) -> float | int | None:
        found = sum(
            sums[entry.repetitions]
            for (layer, traffic, kind), sums in self._bytes.items()
            if (not entry.layers or layer.name.lower() in entry.layers)
            and (not entry.traffic or traffic.name.lower() in entry.traffic)
            and (not entry.messages or kind.__name__ in entry.messages)
        )
        if entry.per == "run":
            return found
        seconds = self._to_s - self._from_s if entry.per == "node_second" else 1.0
        # A window of no length has no rate.
        return found / self._nodes / seconds if seconds > 0 else None

    def _missed(self, entry: Asked, reached_s: dict[EventId, float]) -> int:
        noted = dict.fromkeys(source for id in self._noted.get(entry.fact, {}) for source in self._behind(id))
        return sum(source not in reached_s for source in noted)

    def _reached(self, entry: Asked, reached_s: dict[EventId, float]) -> int:
        count = 0
        for source, time_s in reached_s.items():
            if self._is_counted(source):
                late_s = round(time_s - self._published_s[source], 6)
                count += entry.within_s is None or late_s <= entry.within_s + MICROSECOND_S / 2
        return count

    def _is_counted(self, source: EventId) -> bool:
        """Whether it was published in the measured window."""
        return self._from_s <= self._published_s[source] <= self._to_s
