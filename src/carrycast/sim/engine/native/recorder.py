"""The recorder of a run on the native core, and the Python halves of its folds and checkers.

Counts and marks are in the core. Python decides once for each event who is eligible, keeps what concerns processors and
requests, and writes trace rows.
"""

from array import array
from typing import cast

import msgspec

from carrycast import _native
from carrycast.core.model import Event, EventId, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol import Fact, Link, RetentionLog
from carrycast.core.wire import Layer, classify
from carrycast.sim.engine.kernel import Kernel
from carrycast.sim.engine.native.extension import core_of
from carrycast.sim.engine.observers.checkers import AnswerCheckers, Checkers, Violation
from carrycast.sim.engine.observers.fingerprint import VERSION, Fingerprint
from carrycast.sim.engine.observers.recorder import FACT_CODES, Recorder, Window, to_trace_fact
from carrycast.sim.radio import Frame, Reach, UnicastBatch
from carrycast.trace import (
    Audience,
    BufferFold,
    DeliverFact,
    DeliveryFold,
    DropFact,
    DuplicateFold,
    Kind,
    LinkDownFact,
    LinkUpFact,
    Metrics,
    Trace,
    TrafficFold,
    Transfer,
    delivery_row,
    drop_row,
    fact_row,
    link_row,
)

_COPIES: dict[str, int] = {Kind.STORE: 1, Kind.EVICT: -1}
"""How a kind of fact changes the number of copies that a node stores."""
_pack = msgspec.msgpack.Encoder().encode


class NativeFingerprint(Fingerprint):
    """Facts go to the core, which hashes them in their order together with its own."""

    __slots__ = ("_core",)

    def __init__(self, core: _native.Core) -> None:
        super().__init__()
        self._core = core
        core.set_hash(self._hash.update)

    def add(self, code: int, time_us: int, node: int, peer: int, detail: bytes = b"") -> None:
        self._core.add_fact(code, time_us, node, peer, detail)

    def text(self) -> str:
        self._core.flush()
        return f"{VERSION}-{self._hash.hexdigest()}"


class NativeCheckers(Checkers):
    """The core checks deliveries and copies. Deliveries of processors' results are checked here."""

    def __init__(self, core: _native.Core, nodes: int, worst_drift: float) -> None:
        super().__init__(nodes, worst_drift)
        self._core = core
        self._interests: dict[tuple[str, str], int] = {}
        """Filter and attributes -> their number. Subscriptions with the same number receive the same events."""
        core.set_fail(_fail)

    def _make_given(self) -> "array[int]":
        return array("H")

    def on_subscribe(self, subscription: Subscription) -> None:
        super().on_subscribe(subscription)
        interest = (subscription.filter, repr(subscription.attributes) if subscription.attributes else "")
        number = self._interests.setdefault(interest, len(self._interests))
        self._core.on_subscribe(subscription, subscription.id, number, subscription.processor is not None)

    def on_unsubscribe(self, subscription: SubscriptionId) -> None:
        super().on_unsubscribe(subscription)
        self._core.on_unsubscribe(subscription)

    def on_crash(self, node: NodeId) -> None:
        super().on_crash(node)
        self._core.on_crash(node)

    def was_stored(self, id: EventId) -> bool:
        return self._core.was_stored(id)

    def _pop_holders(self, id: EventId) -> NodeId | None:
        holder = self._core.on_expired(id)
        return None if holder < 0 else holder


class NativeDeliveryFold(DeliveryFold):
    """The core marks eligible nodes and counts first deliveries. Pairs of processors are counted here."""

    def __init__(self, core: _native.Core, checkers: Checkers) -> None:
        super().__init__(0)
        self._core = core
        self._checkers = checkers

    def on_publish(self, now_s: float, event: Event, counted: bool, processor: str | None) -> None:
        expiry_s = self._checkers.expiry_s(now_s, event.lease_s)
        self._core.on_event(event, expiry_s, counted, len(_pack(event)))
        super().on_publish(now_s, event, counted, processor)

    def _add_audience(
        self, now_s: float, event: EventId, eligible: set[NodeId], through: dict[SubscriptionId, bool]
    ) -> None:
        self._core.set_eligible(event, eligible)
        if through:
            self._audiences[event] = Audience(now_s, None, through)

    def result(self) -> Metrics:
        sums = self._core.sums()
        whole = DeliveryFold()
        whole.merge(self)
        delays_s = array("d")
        delays_s.frombytes(sums["delays_s"])
        whole.add_deliveries(delays_s, sums["hops"])
        return whole.result()


class NativeTrafficFold(TrafficFold):
    """The sums of the core."""

    def __init__(self, core: _native.Core) -> None:
        super().__init__()
        self._core = core

    def sums_so_far(self) -> dict[str, int]:
        sums = self._core.sums()
        self._sent, self._bytes = list(sums["sent"]), list(sums["bytes"])
        self._airtime_us, self._receptions = sums["airtime_us"], sums["receptions"]
        return super().sums_so_far()


class NativeDuplicateFold(DuplicateFold):
    """The counts of the core."""

    def __init__(self, core: _native.Core) -> None:
        super().__init__()
        self._core = core

    def on_publish(self, event: EventId, counted: bool) -> None:
        """Nothing: the core learned of the event from the delivery fold."""

    def result(self) -> Metrics:
        sums = self._core.sums()
        return {"forwards": sums["forwards"], "duplicates": sums["duplicates"]}


class NativeBufferFold(BufferFold):
    """The counts of the core."""

    def __init__(self, core: _native.Core) -> None:
        super().__init__()
        self._core = core

    def result(self) -> Metrics:
        return {"buffer_peak": self._core.sums()["buffer_peak"]}


class NativeRecorder(Recorder):
    """Facts go to the core. It calls the `observe` methods if anything besides the core needs a kind of facts."""

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
        super().__init__(kernel, trace, 0, window, duration_s, worst_drift, flows)
        self._nodes = nodes
        core = self._core = core_of(kernel)
        self.fingerprint = NativeFingerprint(core)
        self.checkers = NativeCheckers(core, nodes, worst_drift)
        self.answers = AnswerCheckers(self.checkers)
        self.delivery = NativeDeliveryFold(core, self.checkers)
        self.traffic = NativeTrafficFold(core)
        self.duplicates = NativeDuplicateFold(core)
        self.buffers = NativeBufferFold(core)

    def connect(self) -> None:
        """Tell the core which facts are needed here."""
        more = bool(self.installed) or self.requested is not None
        full = self.trace.full
        folds = bool(self.installed)
        deliveries = more or self.trace.deliveries or self.on_delivery is not None
        self._core.set_observers(
            self.observe_frame if more or full or self.batteries is not None else None,
            self.observe_lost if folds or full else None,
            self.observe_missed if folds or full else None,
            self.observe_fact if more or full or self.memories is not None or self._logs else None,
            self.observe_delivery if deliveries else None,
            self.observe_link if folds or full else None,
            self.check_processed,
        )

    def on_log(self, node: NodeId, log: RetentionLog | None) -> None:
        had_logs = self._logs
        super().on_log(node, log)
        if self._logs and not had_logs:
            self.connect()

    def on_all_nodes(self, kind: Kind) -> None:
        """All nodes start or stop, in their order."""
        if self.installed or self.trace.full:
            for node in range(self._nodes):
                self.on_node(node, kind)
        else:
            self._core.add_lifecycle(FACT_CODES[kind])

    # Facts from Python code.

    def on_deliver(self, node: NodeId, id: SubscriptionId, event: Event, hops: int) -> None:
        self._core.on_deliver(node, id, event, hops)

    def on_frame(self, frame: Frame, reach: Reach, interface: str) -> None:
        self._core.on_frame(frame, reach.nodes)

    def on_lost(self, frame: Frame, node: NodeId, reason: str) -> None:
        self._core.on_lost(frame, node, reason)

    def on_missed(self, frame: Frame, nodes: tuple[NodeId, ...], reason: str) -> None:
        self._core.on_missed(frame, nodes, reason)

    def on_fact(self, node: NodeId, layer: Layer, fact: Fact) -> None:
        self._core.on_fact(node, layer, fact)

    def on_link(self, node: NodeId, link: Link, lost: Failure | None) -> None:
        self._core.on_link(node, link, link.neighbor, lost)

    # Facts from the core.

    def check_processed(self, node: NodeId, id: SubscriptionId, event: Event, hops: int) -> None:
        """Check and count a delivery to a subscription that names a processor."""
        now_s = self._kernel.now_s
        self.checkers.on_deliver(now_s, node, id, event)
        self.delivery.on_deliver(now_s, id, event.id, hops)

    def observe_frame(self, frame: Frame, nodes: tuple[NodeId, ...], air_us: int | None) -> None:
        """A transmission ended."""
        traffic, event = classify(frame.message)
        if self.installed:
            self._fold_frame(frame, traffic, event, nodes, air_us)
        if self.batteries is not None:
            self.batteries.on_frame(frame, Reach(nodes), air_us)
        if self.requested is not None:
            self.requested.on_frame(frame, traffic, event, len(nodes))
        if self.trace.full:
            # A frame of the core has the attributes of both classes.
            if getattr(frame, "targets", None) is not None:
                self._trace_batch(cast(UnicastBatch, frame), Reach(nodes), frame.interface, air_us)
            else:
                self._trace_frame(frame, Reach(nodes), frame.interface, air_us)

    def observe_lost(self, frame: Frame, node: NodeId, reason: str) -> None:
        """A node did not receive a frame, or could not send it."""
        peer = frame.target if node == frame.sender else frame.sender
        if self.installed:
            _, event = classify(frame.message)
            self._fold(DropFact(self._kernel.now_s, node, reason=reason, event=event, peer=peer))
        if self.trace.full:
            self.trace.add(drop_row(self._kernel.now_s, node, frame.layer, reason, peer, frame.message))

    def observe_missed(self, frame: Frame, nodes: tuple[NodeId, ...], reason: str) -> None:
        """Several nodes did not receive a frame."""
        now_s = self._kernel.now_s
        if self.installed:
            _, event = classify(frame.message)
            for node in nodes:
                self._fold(DropFact(now_s, node, reason=reason, event=event, peer=frame.sender))
        if self.trace.full:
            transfer = Transfer(frame.layer, frame.message)
            self.trace.extend([transfer.drop_row(now_s, node, reason, frame.sender) for node in nodes])

    def observe_fact(self, node: NodeId, layer: Layer, fact: Fact) -> None:
        """A protocol noted a fact."""
        now_s, event = self._kernel.now_s, fact.event
        if self.requested is not None:
            self.requested.on_note(now_s, node, fact)
        if event is not None:
            if self.memories is not None and fact.kind in _COPIES:
                self.memories.on_stored(node, event, _COPIES[fact.kind])
            if self._logs:
                self.retention.on_fact(now_s, node, fact.kind, event, fact.reason)
        if self.installed:
            self._fold(to_trace_fact(now_s, node, fact))
        if self.trace.full:
            self.trace.add(fact_row(now_s, node, layer, fact))

    def observe_delivery(self, node: NodeId, id: SubscriptionId, event: Event, hops: int) -> None:
        """A protocol delivered an event to an application."""
        now_s = self._kernel.now_s
        if self.installed:
            self._fold(DeliverFact(now_s, node, subscription=id, event=event.id, hops=hops))
        if self.requested is not None:
            self.requested.on_deliver(now_s, node, event.id)
            self.requested.pairs.on_deliver(id, event.id)
        if self.on_delivery is not None:
            self.on_delivery(node, id, event)
        if self.trace.deliveries:
            self.trace.add(delivery_row(now_s, node, id, event.id, hops))

    def observe_link(self, node: NodeId, link: Link, lost: Failure | None) -> None:
        """A node learned that a link has come up or gone down."""
        now_s, peer = self._kernel.now_s, link.neighbor
        if self.installed:
            up = LinkUpFact(now_s, node, peer=peer)
            self._fold(up if lost is None else LinkDownFact(now_s, node, peer=peer, reason=lost))
        if self.trace.full:
            self.trace.add(link_row(now_s, node, link, lost))


def _fail(kind: int, now_s: float, node: NodeId, event: tuple[int, int], subscription: tuple[int, int] | None) -> None:
    """Raise the violation that the core found."""
    to = None if subscription is None else SubscriptionId(*subscription)
    raise Violation(kind).error(now_s, node, EventId(*event), to)
