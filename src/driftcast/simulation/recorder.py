"""Everything that happens in a run passes here once: to the fingerprint, the metrics, the checkers and the trace."""

import struct
from collections.abc import Callable

from driftcast.model import Event, EventId, Failure, NodeId, Subscription, SubscriptionId
from driftcast.protocol import Fact, Link
from driftcast.radio.medium import Frame, Reach, Volley
from driftcast.simulation.checkers import LEASE_SLACK_S, Checkers
from driftcast.simulation.energy import Batteries
from driftcast.simulation.fingerprint import Fingerprint
from driftcast.simulation.kernel import US_PER_S, Kernel, microseconds
from driftcast.simulation.meter import Meter
from driftcast.simulation.tally import Tally
from driftcast.trace import Kind, Row, Trace
from driftcast.wire import EventMessage, Layer, Traffic, carried

LAYERS = {layer: layer.name.lower() for layer in Layer}
TRAFFIC = {traffic: traffic.name.lower() for traffic in Traffic}
_TWO = struct.Struct("<qq")
_FOUR = struct.Struct("<qqqq")


class Recorder:
    """The one witness of a run."""

    def __init__(self, kernel: Kernel, meter: Meter, trace: Trace, duration_s: float, worst_drift: float = 0.0) -> None:
        self.meter = meter
        self.checkers = Checkers(meter.nodes, worst_drift)
        self.on_delivery: Callable[[NodeId, SubscriptionId, Event], None] | None = None
        """Somebody who wants the delivered events themselves: a test, an application."""
        self.fingerprint = Fingerprint()
        self.batteries: Batteries | None = None
        self.tally: Tally | None = None
        """Only if the scenario asks for more than the usual metrics."""
        self.trace = trace
        self._kernel = kernel
        self._end_us = microseconds(duration_s)

    def on_event(self, node: NodeId, event: Event, size_bytes: int) -> None:
        """An application published an event, or a processor derived one."""
        now_s = self._kernel.now_s
        self.checkers.on_event(now_s, event)
        self.meter.on_event(now_s, event)
        if self.tally is not None:
            self.tally.on_event(now_s, event)
        self.fingerprint.add(b"P", self._kernel.now_us, node, event.id.sequence)
        if self.trace.deliveries:
            counted = self.meter.counts(now_s)
            self.trace.add_event(event, now_s, size_bytes, counted)
            self._row(node, Kind.PUBLISH, event=str(event.id), size_bytes=size_bytes)
        over_s = self.checkers.lease_over_s(now_s, event.lease_s) + LEASE_SLACK_S
        over_us = microseconds(over_s) if over_s < 1e9 else self._end_us + 1
        if over_us <= self._end_us:
            self._kernel.at(over_us, self._lease_over, event.id)

    def on_subscribe(self, node: NodeId, subscription: Subscription) -> None:
        """An application subscribed."""
        self.checkers.on_subscribe(subscription)
        self.meter.on_subscribe(subscription)
        self.fingerprint.add(b"S", self._kernel.now_us, node, subscription.id.sequence, subscription.filter.encode())
        if self.trace.deliveries:
            self.trace.add_subscription(subscription, self._kernel.now_s)
            self._row(node, Kind.SUBSCRIBE, subscription=str(subscription.id))

    def on_unsubscribe(self, node: NodeId, id: SubscriptionId) -> None:
        """A subscription ended."""
        self.checkers.on_unsubscribe(id)
        self.meter.on_unsubscribe(id)
        self.fingerprint.add(b"U", self._kernel.now_us, node, id.sequence)
        if self.trace.deliveries:
            self.trace.end_subscription(id, self._kernel.now_s)
            self._row(node, Kind.UNSUBSCRIBE, subscription=str(id))

    def on_deliver(self, node: NodeId, id: SubscriptionId, event: Event, hops: int) -> None:
        """A protocol handed an event to an application."""
        now_s = self._kernel.now_s
        self.checkers.on_deliver(now_s, node, id, event)
        self.meter.on_deliver(now_s, node, event.id, hops)
        if self.tally is not None:
            self.tally.on_deliver(now_s, node, event.id)
        detail = _FOUR.pack(id.sequence, event.id.source, event.id.sequence, hops)
        self.fingerprint.add(b"D", self._kernel.now_us, node, id.subscriber, detail)
        if self.on_delivery is not None:
            self.on_delivery(node, id, event)
        if self.trace.deliveries:
            self._row(node, Kind.DELIVER, event=str(event.id), subscription=str(id), hops=hops)

    def on_frame(self, frame: Frame, reach: Reach, interface: str) -> None:
        """A transmission ended; `reach` heard it."""
        self.meter.on_frame(frame, reach)
        if self.batteries is not None:
            self.batteries.on_frame(frame, reach)
        if self.tally is not None:
            self.tally.on_frame(frame, reach)
        target = -1 if frame.target is None else frame.target
        self.fingerprint.add(b"F", self._kernel.now_us, frame.sender, target, frame.encoded + reach.packed)
        if self.trace.full:
            if isinstance(frame, Volley):
                self._trace_volley(frame, reach, interface)
            else:
                self._trace_frame(frame, reach, interface)

    def on_drop(
        self, node: NodeId, layer: Layer, peer: NodeId | None, reason: str, event: EventId | None = None
    ) -> None:
        """Something was lost, with a name."""
        self.fingerprint.add(b"X", self._kernel.now_us, node, -1 if peer is None else peer, reason.encode())
        if self.trace.full:
            named = None if event is None else str(event)
            self._row(node, Kind.DROP, layer=LAYERS[layer], event=named, peer=peer, reason=reason)

    def on_missed(self, frame: Frame, nodes: tuple[NodeId, ...], reason: str) -> None:
        """Several nodes did not hear a frame. One entry of the fingerprint: there may be many in every transmission."""
        detail = struct.pack(f"<{len(nodes)}q", *nodes) + reason.encode()
        self.fingerprint.add(b"M", self._kernel.now_us, frame.sender, len(nodes), detail)
        if self.trace.full:
            event, layer = carried(frame.message)[1], LAYERS[frame.layer]
            named = None if event is None else str(event)
            for node in nodes:
                self._row(node, Kind.DROP, layer=layer, event=named, peer=frame.sender, reason=reason)

    def on_fact(self, node: NodeId, layer: Layer, fact: Fact) -> None:
        """A protocol noted something."""
        event = fact.event
        if self.tally is not None:
            self.tally.on_fact(fact)
        if fact.kind == Kind.DROP:
            self.on_drop(node, layer, fact.peer, fact.reason, event)
            return
        if event is not None:
            if fact.kind == Kind.STORE:
                self.checkers.on_store(self._kernel.now_s, node, event)
                self.meter.on_stored(node, 1)
            elif fact.kind == Kind.EVICT:
                self.checkers.on_evict(self._kernel.now_s, node, event)
                self.meter.on_stored(node, -1)
        ids = b"" if event is None else _TWO.pack(*event)
        peer = -1 if fact.peer is None else fact.peer
        self.fingerprint.add(b"N", self._kernel.now_us, node, peer, ids + str(fact).encode())
        if self.trace.full:
            named = None if event is None else str(event)
            reason = fact.reason or None
            self._row(
                node, fact.kind, layer=LAYERS[layer], event=named, peer=fact.peer, reason=reason, value=fact.value
            )

    def on_link(self, node: NodeId, link: Link, lost: Failure | None) -> None:
        """A node was told that a link has come, or why it has gone."""
        self.fingerprint.add(b"L" if lost is None else b"l", self._kernel.now_us, node, link.neighbor)
        if self.trace.full:
            kind = Kind.LINK_UP if lost is None else Kind.LINK_DOWN
            self._row(node, kind, peer=link.neighbor, interface=link.interface, reason=lost)

    def on_node(self, node: NodeId, kind: Kind) -> None:
        """A node started, stopped or crashed."""
        self.fingerprint.add(b"C", self._kernel.now_us, node, -1, kind.encode())
        if kind is Kind.CRASH:
            self.checkers.on_crash(node)
            self.meter.on_crash(node)
        if self.trace.full:
            self._row(node, kind)

    def _lease_over(self, id: object) -> None:
        assert isinstance(id, EventId)
        self.checkers.on_lease_over(self._kernel.now_s, id)
        self.meter.on_lease_over(id)

    def _row(
        self,
        node: NodeId,
        kind: str,
        layer: str = LAYERS[Layer.DISSEMINATION],
        event: str | None = None,
        subscription: str | None = None,
        peer: NodeId | None = None,
        interface: str | None = None,
        size_bytes: int | None = None,
        hops: int | None = None,
        reason: str | None = None,
        value: float | None = None,
    ) -> None:
        rest = (event, subscription, peer, interface, size_bytes, hops, reason, value)
        self.trace.add(Row(self._kernel.now_s, node, layer, kind, None, None, *rest))

    def _trace_volley(self, volley: Volley, reach: Reach, interface: str) -> None:
        for target in volley.targets:
            heard = tuple(node for node in reach.nodes if node == target)
            self._trace_frame(volley.to(target), Reach(heard), interface)

    def _trace_frame(self, frame: Frame, reach: Reach, interface: str) -> None:
        message = frame.message
        name = type(message).__name__
        kind_of, id = carried(message)
        layer, traffic, size_bytes = LAYERS[frame.layer], TRAFFIC[kind_of], len(frame.encoded)
        event = None if id is None else str(id)
        hops = message.hops if isinstance(message, EventMessage) else None
        add, sender = self.trace.add, frame.sender
        sent_s, now_s = frame.sent_us / US_PER_S, self._kernel.now_s
        for attempt in range(frame.attempts):
            kind = Kind.SEND if attempt == 0 else Kind.RETRY
            add(Row(sent_s, sender, layer, kind, name, traffic, event, None, frame.target, interface, size_bytes, hops))
        for node in reach.nodes:
            add(Row(now_s, node, layer, Kind.RECEIVE, name, traffic, event, None, sender, interface, size_bytes, hops))
