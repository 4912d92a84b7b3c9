"""Nodes of the overlay joined by a network that loses, doubles, delays and overtakes, and falls apart as it is told.

What a router does is left to chance: a routed message takes any time, and may not come. So what holds here holds over
every router.
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
from carrycast.core.protocol.registry import protocol_named
from carrycast.core.settings import parse_settings
from carrycast.core.wire import Codec, Layer, Message
from carrycast.protocols.overlay.broker import OverlayBroker
from carrycast.protocols.overlay.modulators import RunningModulator
from carrycast.protocols.overlay.protocol import OpportunisticOverlay
from carrycast.protocols.overlay.settings import OverlaySettings
from carrycast.sim.engine.host import MemoryStore
from carrycast.sim.testing import IsolatedHost

CHAIN = Processor("chain", "")
"""Hangs each input on the hash of all before it: whoever loses, doubles or swaps one is found out for ever after."""


def chained(state: bytes, event: Event) -> tuple[bytes, dict[str, Scalar]]:
    """The function itself: the state after an event, and what it makes of it."""
    count = int.from_bytes(state[:4]) + 1
    link = hashlib.sha256(state[4:] + f"{event.id}".encode()).digest()
    return count.to_bytes(4) + link, {"count": count, "link": link.hex()}


class Rang(NamedTuple):
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
        self.is_running: tuple[Processor, ...] = (CHAIN,)
        self._brokers = brokers

    def directory(self, role: str) -> tuple[NodeId, ...]:
        return self._brokers if role == "broker" else ()

    def load(self, now: float) -> float:
        return self.busy

    def free_memory_bytes(self, now: float) -> int:
        return self.free_bytes

    @property
    def processors(self) -> tuple[Processor, ...]:
        return self.is_running


class Bench:
    """Nodes 0 to n-1, all in reach of each other over some hops."""

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
        self.doubled = 0.0
        self.delay_s = (0.01, 0.02)
        self.call_s = (0.01, 0.02)
        self.apart: set[NodeId] = set()
        """Nodes that the others cannot reach."""
        self.distance: dict[tuple[NodeId, NodeId], int] = {}
        self.delivered: list[tuple[NodeId, SubscriptionId, Event]] = []
        self.facts: list[tuple[NodeId, Fact]] = []
        self.carried: list[tuple[NodeId, NodeId, Message]] = []
        self.said: list[tuple[NodeId, NodeId, Message]] = []
        """What was handed to the transport: who, to whom, what."""
        self.down: set[NodeId] = set()
        self._incarnations = dict.fromkeys(range(nodes), 0)
        self._queue: list[tuple[float, int, NodeId, int, object]] = []
        self._order = itertools.count()
        self._timers: dict[tuple[NodeId, TimerKey], int] = {}
        self._sequence = itertools.count(1_000_000)
        self._codec = Codec(Layer.DISSEMINATION, "overlay", protocol_named("overlay").messages)
        self.hosts: dict[NodeId, BenchHost] = {}
        self.stores = {node: MemoryStore() for node in range(nodes)}
        self.ports: dict[NodeId, RecordingPort] = {}
        self.nodes: dict[NodeId, OpportunisticOverlay] = {}
        self.standing: dict[NodeId, list[Subscription]] = {node: [] for node in range(nodes)}
        for node in range(nodes):
            self.start(node)

    # Nodes.

    def start(self, node: NodeId) -> None:
        """A node comes up, with nothing but its standing subscriptions."""
        self._incarnations[node] += 1
        self.down.discard(node)
        host = self.hosts[node] = BenchHost(node, self.brokers, self._incarnations[node], self.stores[node])
        host.attach_router(frozenset({Capability.DISTANCES}), lambda now, target: self.hops(node, target))
        port = self.ports[node] = RecordingPort()
        machine = OpportunisticOverlay(node, self.settings, port, host, Random(node))
        self.nodes[node] = machine
        self._listen(node, machine)
        machine.on_start(self.now)
        for subscription in self.standing[node]:
            machine.on_subscribe(self.now, subscription)
        self.collect(node)

    def _listen(self, node: NodeId, machine: OpportunisticOverlay) -> None:
        send = machine.context.transport.send

        def heard(now: float, peer: NodeId, message: Message) -> bool:
            self.said.append((node, peer, message))
            return send(now, peer, message)

        machine.context.transport.send = heard  # type: ignore[method-assign]

    def crash(self, node: NodeId) -> None:
        """All that it knew is gone, its timers and calls too."""
        self.down.add(node)
        self._timers = {key: number for key, number in self._timers.items() if key[0] != node}

    def broker(self, node: NodeId) -> OverlayBroker:
        broker = self.nodes[node].broker
        assert broker is not None
        return broker

    def place(self, id: SubscriptionId) -> NodeId | None:
        """The broker at which a modulator runs; None while it is on its way."""
        found = [node for node in self.brokers if node not in self.down and self._active(node, id) is not None]
        assert len(found) <= 1, "two brokers run one modulator"
        return found[0] if found else None

    def _active(self, node: NodeId, id: SubscriptionId) -> RunningModulator | None:
        one = self.broker(node).modulators.get(id)
        return None if one is None or one.frozen else one

    def hops(self, a: NodeId, b: NodeId) -> int:
        return 0 if a == b else self.distance.get((a, b), self.distance.get((b, a), 1))

    # What applications do.

    def subscribe(self, node: NodeId, processor: str | None = "chain", filter: str = "true") -> SubscriptionId:
        id = SubscriptionId(node, len(self.standing[node]) + 1)
        subscription = Subscription(id, filter, processor=processor)
        self.standing[node].append(subscription)
        self.nodes[node].on_subscribe(self.now, subscription)
        self.collect(node)
        return id

    def publish(self, node: NodeId, number: int, lease_s: float = 1e6) -> Event:
        event = Event(EventId(node, number), {"number": number}, lease_s=lease_s)
        self.nodes[node].on_publish(self.now, event)
        self.collect(node)
        return event

    def report(self, client: NodeId, broker: NodeId, distance: float, load: float | None = 0.0) -> None:
        """A client finds a nearer broker, and its load, if it asked for that."""
        loads = {} if load is None else {broker: load}
        self.nodes[client].client.on_brokers_found(self.now, [(distance, broker)], loads)
        self.collect(client)

    def outputs(self, id: SubscriptionId) -> list[Event]:
        return [event for _, subscription, event in self.delivered if subscription == id]

    def reasons(self, kind: str = "drop") -> set[str]:
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
                # Through bytes, so that what arrives is what can be said.
                message = self._codec.decode(body)
                if not {origin, node} & self.apart or origin == node:
                    machine.on_packet(self.now, origin, message, self.hops(origin, node))
            case ("query", int(sender), bytes(body)):
                machine.on_message(self.now, sender, self._codec.decode(body), "radio")
            case Rang(key):
                if self._timers.get((node, key)) == number:
                    del self._timers[node, key]
                    machine.on_timer(self.now, key)
            case Process() as job:
                [taken] = job.events
                state, made = chained(job.state, taken)
                event = Event(EventId(node, next(self._sequence)), made, derived_from=(taken.id,))
                machine.on_processed(self.now, job.token, state, [event], 0.01, "")

    def collect(self, node: NodeId) -> None:
        """Carry out what a node has done since."""
        for effect in self.ports[node].take():
            self._carry_out(node, effect)

    def _carry_out(self, node: NodeId, effect: Effect) -> None:
        match effect:
            case SendRouted(int(target), message):
                self.carried.append((node, target, message))
                self._route(node, target, message)
            case Broadcast(message):
                for other in self.nodes:
                    if other != node:
                        self._later(self._draw(self.delay_s), other, ("query", node, self._codec.encode(message)))
            case SetTimer(key, delay_s):
                number = self._later(delay_s, node, Rang(key), self._incarnations[node])
                self._timers[node, key] = number
            case CancelTimer(key):
                self._timers.pop((node, key), None)
            case Process():
                self._later(self._draw(self.call_s), node, effect, self._incarnations[node])
            case Deliver(subscription, event, _):
                self.delivered.append((node, subscription, event))
            case Note(fact):
                self.facts.append((node, fact))

    def _route(self, node: NodeId, target: NodeId, message: Message) -> None:
        body = self._codec.encode(message)
        if target == node:
            self._later(0.0, node, ("packet", node, body), self._incarnations[node])
            return
        if self.rng.random() < self.loss or {node, target} & self.apart:
            return
        for _ in range(2 if self.rng.random() < self.doubled else 1):
            self._later(self._draw(self.delay_s), target, ("packet", node, body))

    def _draw(self, bounds: tuple[float, float]) -> float:
        return self.rng.uniform(*bounds)

    def _later(self, delay_s: float, node: NodeId, what: object, incarnation: int = 0) -> int:
        number = next(self._order)
        if delay_s < 1e12:
            heapq.heappush(self._queue, (self.now + delay_s, number, node, incarnation, what))
        return number


def assert_never_moved(outputs: list[Event], published: Mapping[NodeId, list[Event]]) -> None:
    """The outputs are those of one modulator that took every event once, those of each producer in their order."""
    taken = [event.derived_from[0] for event in outputs]
    for producer, events in published.items():
        assert [id for id in taken if id.source == producer] == [event.id for event in events]
    by_id = {event.id: event for events in published.values() for event in events}
    state = b""
    for output in outputs:
        state, made = chained(state, by_id[output.derived_from[0]])
        assert output.attributes == made
