"""Nodes of the overlay over a simulated router that loses, duplicates, delays and reorders messages.

A routed message takes a random time and may be lost, so a property that holds here holds over every router.
"""

import hashlib
import heapq
import itertools
from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from carrycast.core.model import Event, EventId, NodeId, Processor, Scalar, Subscription, SubscriptionId
from carrycast.core.protocol import Capability, Fact, RecordingPort, TimerKey
from carrycast.core.protocol.effects import Broadcast, CancelTimer, Deliver, Effect, Note, Process, SendRouted, SetTimer
from carrycast.core.protocol.registry import find_protocol
from carrycast.core.settings import parse_settings
from carrycast.core.wire import Codec, Layer, Message
from carrycast.protocols.overlay.broker import OverlayBroker
from carrycast.protocols.overlay.modulators import RunningModulator
from carrycast.protocols.overlay.protocol import OpportunisticOverlay
from carrycast.protocols.overlay.settings import OverlaySettings
from carrycast.sim.engine.host import MemoryStore
from carrycast.sim.testing import IsolatedHost

CHAIN = Processor("chain", "")
"""A processor that hashes each input together with all before it, so that every loss, duplicate or swap shows in all
later outputs."""


def compute_chain(state: bytes, event: Event) -> tuple[bytes, dict[str, Scalar]]:
    """Return the state of the processor after an event, and the attributes of its output."""
    count = int.from_bytes(state[:4]) + 1
    link = hashlib.sha256(state[4:] + f"{event.id}".encode()).digest()
    return count.to_bytes(4) + link, {"count": count, "link": link.hex()}


class TimerDue(NamedTuple):
    """A timer that is due."""

    key: TimerKey


class BenchHost(IsolatedHost):
    """A node with roles and a load that a test sets."""

    def __init__(self, node: NodeId, brokers: tuple[NodeId, ...], incarnation: int, store: MemoryStore) -> None:
        super().__init__()
        self._store = store
        self.offers |= {Capability.DIRECTORY, Capability.LOAD, Capability.MEMORY}
        self.roles = ("broker",) if node in brokers else ()
        self.incarnation = incarnation
        self.busy = 0.0
        self.free_bytes = 1 << 30
        self.installed: tuple[Processor, ...] = (CHAIN,)
        self._brokers = brokers

    def directory(self, role: str) -> tuple[NodeId, ...]:
        return self._brokers if role == "broker" else ()

    def load(self, now: float) -> float:
        return self.busy

    def free_memory_bytes(self, now: float) -> int:
        return self.free_bytes

    @property
    def processors(self) -> tuple[Processor, ...]:
        return self.installed


class Bench:
    """Nodes 0 to n-1, which all reach each other over some hops."""

    def __init__(
        self,
        nodes: int,
        brokers: tuple[NodeId, ...],
        seed: int = 1,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.rng = Random(seed)
        self.brokers = brokers
        self.settings = parse_settings({"near": "router", **(settings or {})}, OverlaySettings, "bench")
        self.now = 0.0
        self.loss = 0.0
        self.duplication = 0.0
        self.delay_s = (0.01, 0.02)
        self.call_s = (0.01, 0.02)
        self.unreachable: set[NodeId] = set()
        """Nodes that the others cannot reach."""
        self.distance: dict[tuple[NodeId, NodeId], int] = {}
        self.delivered: list[tuple[NodeId, SubscriptionId, Event]] = []
        self.facts: list[tuple[NodeId, Fact]] = []
        self.routed: list[tuple[NodeId, NodeId, Message]] = []
        self.sent: list[tuple[NodeId, NodeId, Message]] = []
        """The messages given to the transport: sender, target, message."""
        self.down: set[NodeId] = set()
        self._incarnations = dict.fromkeys(range(nodes), 0)
        self._queue: list[tuple[float, int, NodeId, int, object]] = []
        self._order = itertools.count()
        self._timers: dict[tuple[NodeId, TimerKey], int] = {}
        self._sequence = itertools.count(1_000_000)
        self._codec = Codec(Layer.DISSEMINATION, "overlay", find_protocol("overlay").messages)
        self.hosts: dict[NodeId, BenchHost] = {}
        self.stores = {node: MemoryStore() for node in range(nodes)}
        self.ports: dict[NodeId, RecordingPort] = {}
        self.nodes: dict[NodeId, OpportunisticOverlay] = {}
        self.subscriptions: dict[NodeId, list[Subscription]] = {node: [] for node in range(nodes)}
        for node in range(nodes):
            self.start(node)

    # Nodes.

    def start(self, node: NodeId) -> None:
        """Start a node, which has only its subscriptions."""
        self._incarnations[node] += 1
        self.down.discard(node)
        host = self.hosts[node] = BenchHost(node, self.brokers, self._incarnations[node], self.stores[node])
        host.attach_router(frozenset({Capability.DISTANCES}), lambda now, target: self.hops(node, target))
        port = self.ports[node] = RecordingPort()
        machine = OpportunisticOverlay(node, self.settings, port, host, Random(node))
        self.nodes[node] = machine
        self._record_sends(node, machine)
        machine.on_start(self.now)
        for subscription in self.subscriptions[node]:
            machine.on_subscribe(self.now, subscription)
        self.collect(node)

    def _record_sends(self, node: NodeId, machine: OpportunisticOverlay) -> None:
        send = machine.context.transport.send

        def record(now: float, peer: NodeId, message: Message) -> bool:
            self.sent.append((node, peer, message))
            return send(now, peer, message)

        machine.context.transport.send = record  # type: ignore[method-assign]

    def crash(self, node: NodeId) -> None:
        """Stop a node; its state, timers and calls are lost."""
        self.down.add(node)
        self._timers = {key: number for key, number in self._timers.items() if key[0] != node}

    def broker(self, node: NodeId) -> OverlayBroker:
        broker = self.nodes[node].broker
        assert broker is not None
        return broker

    def find_place(self, id: SubscriptionId) -> NodeId | None:
        """Return the broker at which a modulator runs; None while it is being relocated."""
        found = [node for node in self.brokers if node not in self.down and self._active(node, id) is not None]
        assert len(found) <= 1, "two brokers run one modulator"
        return found[0] if found else None

    def _active(self, node: NodeId, id: SubscriptionId) -> RunningModulator | None:
        one = self.broker(node).modulators.get(id)
        return None if one is None or one.frozen else one

    def hops(self, a: NodeId, b: NodeId) -> int:
        return 0 if a == b else self.distance.get((a, b), self.distance.get((b, a), 1))

    # Applications.

    def subscribe(self, node: NodeId, processor: str | None = "chain", filter: str = "true") -> SubscriptionId:
        id = SubscriptionId(node, len(self.subscriptions[node]) + 1)
        subscription = Subscription(id, filter, processor=processor)
        self.subscriptions[node].append(subscription)
        self.nodes[node].on_subscribe(self.now, subscription)
        self.collect(node)
        return id

    def publish(self, node: NodeId, number: int, lease_s: float = 1e6) -> Event:
        event = Event(EventId(node, number), {"number": number}, lease_s=lease_s)
        self.nodes[node].on_publish(self.now, event)
        self.collect(node)
        return event

    def report(self, client: NodeId, broker: NodeId, distance: float, load: float | None = 0.0) -> None:
        """A client finds a nearer broker, and its load if `load` is given."""
        loads = {} if load is None else {broker: load}
        self.nodes[client].client.on_brokers_found(self.now, [(distance, broker)], loads)
        self.collect(client)

    def list_outputs(self, id: SubscriptionId) -> list[Event]:
        return [event for _, subscription, event in self.delivered if subscription == id]

    def list_reasons(self, kind: str = "drop") -> set[str]:
        return {fact.reason for _, fact in self.facts if fact.kind == kind}

    # Time.

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            time, number, node, incarnation, what = heapq.heappop(self._queue)
            self.now = time
            if node in self.down or incarnation not in (0, self._incarnations[node]):
                continue
            self._handle(node, number, what)
            self.collect(node)
        self.now = end

    def _handle(self, node: NodeId, number: int, what: object) -> None:
        machine = self.nodes[node]
        match what:
            case ("packet", int(origin), bytes(body)):
                # Messages are encoded, so that only valid ones can be sent.
                message = self._codec.decode(body)
                if not {origin, node} & self.unreachable or origin == node:
                    machine.on_packet(self.now, origin, message, self.hops(origin, node))
            case ("query", int(sender), bytes(body)):
                machine.on_message(self.now, sender, self._codec.decode(body), "radio")
            case TimerDue(key):
                if self._timers.get((node, key)) == number:
                    del self._timers[node, key]
                    machine.on_timer(self.now, key)
            case Process() as call:
                [taken] = call.events
                state, made = compute_chain(call.state, taken)
                event = Event(EventId(node, next(self._sequence)), made, derived_from=(taken.id,))
                machine.on_processed(self.now, call.token, state, [event], 0.01, "")

    def collect(self, node: NodeId) -> None:
        """Carry out the effects of a node since the last call."""
        for effect in self.ports[node].take():
            self._carry_out(node, effect)

    def _carry_out(self, node: NodeId, effect: Effect) -> None:
        match effect:
            case SendRouted(int(target), message):
                self.routed.append((node, target, message))
                self._route(node, target, message)
            case Broadcast(message):
                for other in self.nodes:
                    if other != node:
                        self._schedule(self._draw(self.delay_s), other, ("query", node, self._codec.encode(message)))
            case SetTimer(key, delay_s):
                number = self._schedule(delay_s, node, TimerDue(key), self._incarnations[node])
                self._timers[node, key] = number
            case CancelTimer(key):
                self._timers.pop((node, key), None)
            case Process():
                self._schedule(self._draw(self.call_s), node, effect, self._incarnations[node])
            case Deliver(subscription, event, _):
                self.delivered.append((node, subscription, event))
            case Note(fact):
                self.facts.append((node, fact))

    def _route(self, node: NodeId, target: NodeId, message: Message) -> None:
        body = self._codec.encode(message)
        if target == node:
            self._schedule(0.0, node, ("packet", node, body), self._incarnations[node])
            return
        if self.rng.random() < self.loss or {node, target} & self.unreachable:
            return
        for _ in range(2 if self.rng.random() < self.duplication else 1):
            self._schedule(self._draw(self.delay_s), target, ("packet", node, body))

    def _draw(self, bounds: tuple[float, float]) -> float:
        return self.rng.uniform(*bounds)

    def _schedule(self, delay_s: float, node: NodeId, what: object, incarnation: int = 0) -> int:
        number = next(self._order)
        if delay_s < 1e12:
            heapq.heappush(self._queue, (self.now + delay_s, number, node, incarnation, what))
        return number


def assert_equals_unmoved(outputs: list[Event], published: Mapping[NodeId, list[Event]]) -> None:
    """Check that the outputs equal those of one modulator that processed every event once, in the order of each
    producer."""
    taken = [event.derived_from[0] for event in outputs]
    for producer, events in published.items():
        assert [id for id in taken if id.source == producer] == [event.id for event in events]
    by_id = {event.id: event for events in published.values() for event in events}
    state = b""
    for output in outputs:
        state, made = compute_chain(state, by_id[output.derived_from[0]])
        assert output.attributes == made
