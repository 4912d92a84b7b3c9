"""The recorder: it receives every fact of a run once, and passes it to fingerprint, folds, checkers and trace.

It calls the built-in folds directly, without creating an object for each fact, because that would slow down runs.
"""

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from carrycast.core.model import Event, EventId, Failure, NodeId, Request, RequestId, Subscription, SubscriptionId
from carrycast.core.protocol import Fact, Interface, Link, RetentionLog
from carrycast.core.wire import Layer, Message, Traffic, classify
from carrycast.sim.engine.kernel import US_PER_S, Kernel, microseconds
from carrycast.sim.engine.observers import fingerprint as codes
from carrycast.sim.engine.observers.checkers import LEASE_SLACK_S, AnswerCheckers, Checkers, RetentionCheckers
from carrycast.sim.engine.observers.derived_events import EventDerivation
from carrycast.sim.engine.observers.fingerprint import Fingerprint
from carrycast.sim.engine.observers.requested import RequestedMetrics
from carrycast.sim.engine.resources import Batteries, Memories
from carrycast.sim.radio import Frame, Reach, UnicastBatch
from carrycast.trace import (
    BufferFold,
    CrashFact,
    DeliverFact,
    DeliveryFold,
    DropFact,
    DuplicateFold,
    EvictFact,
    FrameFact,
    Kind,
    LinkDownFact,
    LinkUpFact,
    Metrics,
    NoteFact,
    PublishFact,
    StartFact,
    StopFact,
    StoreFact,
    SubscribeFact,
    Trace,
    TraceFact,
    TrafficFold,
    Transfer,
    UnsubscribeFact,
    answer_row,
    close_row,
    delivery_row,
    drop_row,
    event_size_bytes,
    fact_row,
    lifecycle_row,
    link_change_row,
    link_row,
    more_folds,
    publication_row,
    request_row,
    subscription_row,
    unsubscription_row,
    usual_metrics,
)

_FOUR_INTEGERS = struct.Struct("<qqqq")
FACT_CODES: dict[str, int] = {
    Kind.DROP: codes.DROP,
    Kind.STORE: codes.STORE,
    Kind.EVICT: codes.EVICT,
    Kind.START: codes.START,
    Kind.STOP: codes.STOP,
    Kind.CRASH: codes.CRASH,
}
"""The codes of the kinds of facts in fingerprints. Other kinds have the code `NOTE`."""
_LIFECYCLE_FACTS: dict[Kind, type[TraceFact]] = {Kind.START: StartFact, Kind.STOP: StopFact, Kind.CRASH: CrashFact}


class Window(NamedTuple):
    """The measured window: events published in it are counted."""

    from_s: float
    to_s: float

    def counts(self, published_s: float) -> bool:
        """Whether an event published then is counted."""
        return self.from_s <= published_s <= self.to_s


class Recorder:
    """Observes one run."""

    def __init__(
        self,
        kernel: Kernel,
        trace: Trace,
        nodes: int,
        window: Window,
        duration_s: float,
        worst_drift: float = 0.0,
        flows: bool = False,
    ) -> None:
        self.delivery = DeliveryFold(nodes)
        self.traffic = TrafficFold()
        self.duplicates = DuplicateFold(nodes)
        self.buffers = BufferFold()
        self.installed = tuple(fold() for fold in more_folds(flows))
        """Folds of flows and of plug-ins. Only they need facts as objects."""
        self._window = window
        self.checkers = Checkers(nodes, worst_drift)
        self.answers = AnswerCheckers(self.checkers)
        self.on_delivery: Callable[[NodeId, SubscriptionId, Event], None] | None = None
        """Called with every delivered event; tests use it."""
        self.fingerprint = Fingerprint()
        self.batteries: Batteries | None = None
        self.airtimes_us: Mapping[Interface, Callable[[Frame], int | None]] = {}
        """For interfaces whose frames take time: the airtime of a frame with its repetitions."""
        self.memories: Memories | None = None
        self.retention = RetentionCheckers()
        self._logs = False
        """Whether any node has a retention log."""
        self.requested: RequestedMetrics | None = None
        """The additional metrics of `measure.more`; None if the scenario has none."""
        self.trace = trace
        self._kernel = kernel
        self._end_us = microseconds(duration_s)

    def on_event(self, node: NodeId, event: Event, derivation: EventDerivation | None = None) -> None:
        """An application published an event, or a processor derived one."""
        now_s = self._kernel.now_s
        counted, processor = self._window.counts(now_s), None if derivation is None else derivation.processor
        self.checkers.on_event(now_s, event, derivation)
        self.delivery.on_publish(now_s, event, counted, processor)
        self.duplicates.on_publish(event.id, counted)
        if self.installed:
            self._fold(PublishFact(now_s, node, event=event, counted=counted, processor=processor))
        if self.requested is not None:
            self.requested.on_event(now_s, event)
        if self.memories is not None:
            self.memories.on_event(event)
        self.fingerprint.add_event(self._kernel.now_us, node, event)
        if self.trace.deliveries:
            size_bytes = event_size_bytes(event)
            self.trace.add_event(event, now_s, size_bytes, counted, processor)
            self.trace.add(publication_row(now_s, node, event.id, size_bytes))
        over_s = self.checkers.expiry_s(now_s, event.lease_s) + LEASE_SLACK_S
        over_us = microseconds(over_s) if over_s < 1e9 else self._end_us + 1
        if over_us <= self._end_us:
            self._kernel.at(over_us, self._on_expired, event.id)

    def on_log(self, node: NodeId, log: RetentionLog | None) -> None:
        """A node starts with the retention log of its protocol, if there is one."""
        if log is not None:
            self._logs = True
            self.retention.on_start(node, log)

    def on_started(self, node: NodeId) -> None:
        """The protocol of a node has started."""
        if self._logs:
            self.retention.on_started(self._kernel.now_s, node)

    def on_published(self, node: NodeId, event: EventId) -> None:
        """The protocol has processed an event that was published at its node."""
        if self._logs:
            self.retention.on_published(self._kernel.now_s, node, event)

    def on_subscribe(self, node: NodeId, subscription: Subscription) -> None:
        """An application subscribed."""
        self.checkers.on_subscribe(subscription)
        if self.requested is not None:
            self.requested.pairs.on_subscribe(subscription)
        self.delivery.on_subscribe(subscription)
        if self.installed:
            self._fold(SubscribeFact(self._kernel.now_s, node, subscription=subscription))
        self.fingerprint.add_subscription(self._kernel.now_us, node, subscription)
        if self.trace.deliveries:
            self.trace.add_subscription(subscription, self._kernel.now_s)
            self.trace.add(subscription_row(self._kernel.now_s, node, subscription.id))

    def on_unsubscribe(self, node: NodeId, id: SubscriptionId) -> None:
        """A subscription ended."""
        self.checkers.on_unsubscribe(id)
        if self.requested is not None:
            self.requested.pairs.on_unsubscribe(id)
        self.delivery.on_unsubscribe(id)
        if self.installed:
            self._fold(UnsubscribeFact(self._kernel.now_s, node, subscription=id))
        self.fingerprint.add(codes.UNSUBSCRIBE, self._kernel.now_us, node, id.sequence)
        if self.trace.deliveries:
            self.trace.end_subscription(id, self._kernel.now_s)
            self.trace.add(unsubscription_row(self._kernel.now_s, node, id))

    def on_deliver(self, node: NodeId, id: SubscriptionId, event: Event, hops: int) -> None:
        """A protocol delivered an event to an application."""
        now_s = self._kernel.now_s
        self.checkers.on_deliver(now_s, node, id, event)
        self.delivery.on_deliver(now_s, id, event.id, hops)
        if self.installed:
            self._fold(DeliverFact(now_s, node, subscription=id, event=event.id, hops=hops))
        if self.requested is not None:
            self.requested.on_deliver(now_s, node, event.id)
            self.requested.pairs.on_deliver(id, event.id)
        detail = _FOUR_INTEGERS.pack(id.sequence, event.id.source, event.id.sequence, hops)
        self.fingerprint.add(codes.DELIVER, self._kernel.now_us, node, id.subscriber, detail)
        if self.on_delivery is not None:
            self.on_delivery(node, id, event)
        if self.trace.deliveries:
            self.trace.add(delivery_row(now_s, node, id, event.id, hops))

    def on_request(self, node: NodeId, request: Request) -> None:
        """An application requested stored events."""
        self.answers.on_request(request)
        self.fingerprint.add(codes.REQUEST, self._kernel.now_us, node, request.id.sequence, request.filter.encode())
        if self.trace.deliveries:
            self.trace.add(request_row(self._kernel.now_s, node, request.id))

    def on_answer(self, node: NodeId, id: RequestId, event: Event, hops: int) -> None:
        """A protocol gave a stored event to the application that requested it."""
        self.answers.on_answer(self._kernel.now_s, node, id, event)
        detail = _FOUR_INTEGERS.pack(id.sequence, event.id.source, event.id.sequence, hops)
        self.fingerprint.add(codes.ANSWER, self._kernel.now_us, node, id.requester, detail)
        if self.trace.deliveries:
            self.trace.add(answer_row(self._kernel.now_s, node, id, event.id, hops))

    def on_close(self, node: NodeId, id: RequestId, complete: bool) -> None:
        """A protocol closed a request."""
        self.answers.on_close(self._kernel.now_s, node, id)
        self.fingerprint.add(codes.CLOSE, self._kernel.now_us, node, id.sequence, bytes([complete]))
        if self.trace.deliveries:
            self.trace.add(close_row(self._kernel.now_s, node, id, complete))

    def on_frame(self, frame: Frame, reach: Reach, interface: str) -> None:
        """A transmission ended; the nodes of `reach` received it."""
        traffic, event = classify(frame.message)
        copies, nodes = frame.copies, reach.nodes
        measure = self.airtimes_us.get(interface)
        air_us = None if measure is None else measure(frame)
        self.traffic.on_frame(traffic, len(frame.encoded), frame.attempts * copies, frame.unicast, len(nodes), air_us)
        if event is not None:
            self.duplicates.on_frame(event, copies, nodes)
        if self.installed:
            self._fold_frame(frame, traffic, event, nodes, air_us)
        if self.batteries is not None:
            self.batteries.on_frame(frame, reach, air_us)
        if self.requested is not None:
            self.requested.on_frame(frame, traffic, event, len(nodes))
        self.fingerprint.add_frame(self._kernel.now_us, frame, reach.packed)
        if self.trace.full:
            if isinstance(frame, UnicastBatch):
                self._trace_batch(frame, reach, interface, air_us)
            else:
                self._trace_frame(frame, reach, interface, air_us)

    def on_route(self, node: NodeId, message: Message, size_bytes: int) -> None:
        """A protocol passed a message to its router. The frames of the router are reported separately."""
        if self.requested is not None:
            self.requested.on_route(self._kernel.now_s, node, message, size_bytes)

    def on_lost(self, frame: Frame, node: NodeId, reason: str) -> None:
        """A node did not receive a frame, or could not send it."""
        peer = frame.target if node == frame.sender else frame.sender
        _, event = classify(frame.message)
        self.fingerprint.add_note(codes.DROP, self._kernel.now_us, node, -1 if peer is None else peer, event, None)
        if self.installed:
            self._fold(DropFact(self._kernel.now_s, node, reason=reason, event=event, peer=peer))
        if self.trace.full:
            self.trace.add(drop_row(self._kernel.now_s, node, frame.layer, reason, peer, frame.message))

    def on_missed(self, frame: Frame, nodes: tuple[NodeId, ...], reason: str) -> None:
        """Several nodes did not receive a frame. They are one entry of the fingerprint, because they may be many."""
        detail = struct.pack(f"<{len(nodes)}q", *nodes)
        self.fingerprint.add(codes.MISS, self._kernel.now_us, frame.sender, len(nodes), detail)
        if self.installed:
            _, event = classify(frame.message)
            for node in nodes:
                self._fold(DropFact(self._kernel.now_s, node, reason=reason, event=event, peer=frame.sender))
        if self.trace.full:
            transfer, now_s = Transfer(frame.layer, frame.message), self._kernel.now_s
            self.trace.extend([transfer.drop_row(now_s, node, reason, frame.sender) for node in nodes])

    def on_fact(self, node: NodeId, layer: Layer, fact: Fact) -> None:
        """A protocol noted a fact."""
        event = fact.event
        if self.requested is not None:
            self.requested.on_note(self._kernel.now_s, node, fact)
        if event is not None:
            if fact.kind == Kind.STORE:
                self.checkers.on_store(self._kernel.now_s, node, event)
                self._on_stored(node, event, 1)
            elif fact.kind == Kind.EVICT:
                self.checkers.on_evict(self._kernel.now_s, node, event)
                self._on_stored(node, event, -1)
            if self._logs:
                self.retention.on_fact(self._kernel.now_s, node, fact.kind, event, fact.reason)
        peer = -1 if fact.peer is None else fact.peer
        code = FACT_CODES.get(fact.kind, codes.NOTE)
        self.fingerprint.add_note(code, self._kernel.now_us, node, peer, event, fact.value)
        if self.installed:
            self._fold(to_trace_fact(self._kernel.now_s, node, fact))
        if self.trace.full:
            self.trace.add(fact_row(self._kernel.now_s, node, layer, fact))

    def _on_stored(self, node: NodeId, event: EventId, copies: int) -> None:
        self.buffers.on_stored(node, copies)
        if self.memories is not None:
            self.memories.on_stored(node, event, copies)

    def on_link(self, node: NodeId, link: Link, lost: Failure | None) -> None:
        """A node learned that a link has come up, or has gone down for a reason."""
        code = codes.LINK_UP if lost is None else codes.LINK_DOWN
        self.fingerprint.add(code, self._kernel.now_us, node, link.neighbor)
        if self.installed:
            now_s, peer = self._kernel.now_s, link.neighbor
            up = LinkUpFact(now_s, node, peer=peer)
            self._fold(up if lost is None else LinkDownFact(now_s, node, peer=peer, reason=lost))
        if self.trace.full:
            self.trace.add(link_row(self._kernel.now_s, node, link, lost))

    def on_link_changed(self, node: NodeId, link: Link) -> None:
        """A node learned the new cost of a link."""
        self.fingerprint.add_note(codes.LINK_CHANGE, self._kernel.now_us, node, link.neighbor, None, link.cost_s)
        if self.trace.full:
            self.trace.add(link_change_row(self._kernel.now_s, node, link))

    def on_node(self, node: NodeId, kind: Kind) -> None:
        """A node started, stopped or crashed."""
        self.fingerprint.add(FACT_CODES[kind], self._kernel.now_us, node, -1)
        if self.installed:
            self._fold(_LIFECYCLE_FACTS[kind](self._kernel.now_s, node))
        if kind is Kind.CRASH:
            self.checkers.on_crash(node)
            self.answers.on_crash(node)
            self.buffers.on_reset(node)
            if self.memories is not None:
                self.memories.on_crash(node)
        if self.trace.full:
            self.trace.add(lifecycle_row(self._kernel.now_s, node, kind))

    def metrics(self) -> Metrics:
        """The metrics of every run, of plug-ins, and of `measure.more`."""
        found = usual_metrics((self.delivery, self.traffic, self.duplicates, self.buffers))
        for fold in self.installed:
            found |= fold.result()
        return found if self.requested is None else found | self.requested.result()

    def _fold(self, fact: TraceFact) -> None:
        """Pass a fact to the folds of flows and plug-ins."""
        for fold in self.installed:
            if isinstance(fact, fold.reads):
                fold.on_fact(fact)

    def _fold_frame(
        self,
        frame: Frame,
        traffic: Traffic,
        event: EventId | None,
        receivers: tuple[NodeId, ...],
        air_us: int | None,
    ) -> None:
        self._fold(
            FrameFact(
                self._kernel.now_s,
                frame.sender,
                traffic=traffic,
                size_bytes=len(frame.encoded),
                unicast=frame.unicast,
                event=event,
                frames=frame.copies,
                transmissions=frame.attempts * frame.copies,
                receivers=receivers,
                airtime_us=air_us,
            )
        )

    def _on_expired(self, id: object) -> None:
        assert isinstance(id, EventId)
        self.checkers.on_expired(self._kernel.now_s, id)
        self.delivery.forget(id)
        self.duplicates.forget(id)
        if self.memories is not None:
            self.memories.on_expired(id)

    def _trace_batch(self, batch: UnicastBatch, reach: Reach, interface: str, air_us: int | None) -> None:
        for target in batch.targets:
            heard = tuple(node for node in reach.nodes if node == target)
            each_us = None if air_us is None else air_us // batch.copies
            self._trace_frame(batch.to(target), Reach(heard), interface, each_us)

    def _trace_frame(self, frame: Frame, reach: Reach, interface: str, air_us: int | None) -> None:
        transfer = Transfer(frame.layer, frame.message, interface, len(frame.encoded))
        sender, sent_s = frame.sender, frame.sent_us / US_PER_S
        # Attempts may differ in airtime, where only parts of a message are repeated. The first row has the rest.
        each_us = None if air_us is None else air_us // frame.attempts
        for attempt in range(frame.attempts):
            row_us = each_us
            if attempt == 0 and air_us is not None and each_us is not None:
                row_us = air_us - each_us * (frame.attempts - 1)
            self.trace.add(transfer.send_row(sent_s, sender, frame.target, attempt + 1, row_us))
        self.trace.extend(transfer.receive_rows(self._kernel.now_s, reach.nodes, sender))


def to_trace_fact(now_s: float, node: NodeId, note: Fact) -> TraceFact:
    """The fact of the trace for a fact that a protocol noted."""
    if note.kind == Kind.DROP:
        return DropFact(now_s, node, reason=note.reason, event=note.event, peer=note.peer, by_protocol=True)
    if note.kind == Kind.STORE and note.event is not None:
        return StoreFact(now_s, node, event=note.event)
    if note.kind == Kind.EVICT and note.event is not None:
        return EvictFact(now_s, node, event=note.event, reason=note.reason)
    return NoteFact(now_s, node, kind=note.kind, event=note.event, peer=note.peer, reason=note.reason, value=note.value)
