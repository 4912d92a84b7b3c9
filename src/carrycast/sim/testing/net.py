"""A small network in the real simulator, driven by a test.

Kernel, radio, hosts, checkers and trace are those of `carrycast run`. So a wrong delivery fails a test as it would fail
a run, and tests read the same rows that a trace has.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import numpy as np

from carrycast.core.model import (
    FOREVER_S,
    AccessPolicy,
    Event,
    EventId,
    NodeId,
    ProcessorId,
    Scalar,
    Subscription,
    SubscriptionId,
)
from carrycast.core.protocol import Protocol
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.engine import RunResult, SimNode, Simulation
from carrycast.sim.scenario import parse_scenario
from carrycast.sim.testing.example_scenarios import example_tables
from carrycast.trace import Kind, Level

HORIZON_S = 1e6
"""The duration of the scenario: eleven simulated days, longer than any test runs."""
SPACING_M = 100.0
RANGE_M = 120.0
"""Reaches the next node of a line, ring or grid, and neither the one after nor one across a diagonal."""

Edge = tuple[NodeId, NodeId]


class Net:
    """Nodes that all run one protocol. Make one with `line`, `ring`, `grid`, `graph` or `contacts`.

    `settings` are the protocol's own, or `variant`, the name of a set of them; a setting of None keeps its default.
    `scenario` holds other tables of a scenario: `radio`, `faults`, `discovery`. By default, discovery is an oracle:
    nodes know their links at once, and a test need not wait for beacons.
    """

    def __init__(
        self,
        nodes: int,
        protocol: str,
        settings: Mapping[str, object],
        scenario: Mapping[str, object] | None = None,
        seed: int = 1,
        positions: Sequence[tuple[float, float]] | None = None,
        plan: ContactPlan | None = None,
        recode: bool = False,
    ) -> None:
        tables: dict[str, object] = {"discovery": {"mode": "oracle"}, **example_tables(protocol, scenario)}
        radio = tables.pop("radio", {})
        assert isinstance(radio, Mapping)
        tables["radio"] = {"model": "disk", "range_m": RANGE_M, **radio}
        if positions is None:
            tables["contacts"] = "as the test gives them"
        else:
            width_m = max(x_m for x_m, _ in positions) + 1
            height_m = max(y_m for _, y_m in positions) + 1
            tables["area_m"] = (width_m, height_m)
            tables["mobility"] = {"model": "given", "positions": tuple(positions)}
        chosen = {key: value for key, value in settings.items() if value is not None}
        tables |= {"name": "net", "nodes": nodes, "duration_s": HORIZON_S, "protocol": {"name": protocol, **chosen}}
        self._simulation = Simulation(parse_scenario(tables, "net"), seed, Level.FULL, recode=recode, plan=plan)
        self._subscriptions = 0
        self._delivered: list[list[tuple[SubscriptionId, Event]]] = [[] for _ in range(nodes)]
        self._simulation.recorder.on_delivery = self._on_delivery
        self._simulation.start()
        self.run(0)

    # Layouts.

    @classmethod
    def line(
        cls,
        nodes: int,
        protocol: str = "flooding",
        scenario: Mapping[str, object] | None = None,
        seed: int = 1,
        **settings: object,
    ) -> Self:
        """Make a line: 0 - 1 - 2 - ..."""
        places = [(SPACING_M * node, 0.0) for node in range(nodes)]
        return cls(nodes, protocol, settings, scenario, seed, places)

    @classmethod
    def ring(
        cls,
        nodes: int,
        protocol: str = "flooding",
        scenario: Mapping[str, object] | None = None,
        seed: int = 1,
        **settings: object,
    ) -> Self:
        """Make a ring: a line whose last node also hears the first."""
        turn = 2 * math.pi / nodes
        radius_m = SPACING_M / (2 * math.sin(turn / 2))
        places = [
            (radius_m * (1 + math.cos(turn * node)), radius_m * (1 + math.sin(turn * node))) for node in range(nodes)
        ]
        return cls(nodes, protocol, settings, scenario, seed, places)

    @classmethod
    def grid(
        cls,
        width: int,
        height: int,
        protocol: str = "flooding",
        scenario: Mapping[str, object] | None = None,
        seed: int = 1,
        **settings: object,
    ) -> Self:
        """Make a grid, row by row from node 0. A node hears its four neighbors."""
        places = [(SPACING_M * x, SPACING_M * y) for y in range(height) for x in range(width)]
        return cls(width * height, protocol, settings, scenario, seed, places)

    @classmethod
    def graph(
        cls,
        edges: Iterable[Edge],
        protocol: str = "flooding",
        scenario: Mapping[str, object] | None = None,
        seed: int = 1,
        **settings: object,
    ) -> Self:
        """Make a network of permanent links. The nodes have no positions."""
        links = [(a, b, 0.0, HORIZON_S) for a, b in edges]
        return cls.contacts(links, protocol, scenario, seed, **settings)

    @classmethod
    def contacts(
        cls,
        contacts: Iterable[tuple[NodeId, NodeId, float, float]],
        protocol: str = "flooding",
        scenario: Mapping[str, object] | None = None,
        seed: int = 1,
        **settings: object,
    ) -> Self:
        """Make a network of links that come and go: (a, b, start_s, end_s). The nodes have no positions."""
        plan = _make_plan(list(contacts))
        return cls(plan.nodes, protocol, settings, scenario, seed, plan=plan)

    # Actions of applications.

    def publish(
        self,
        node: NodeId,
        attributes: Mapping[str, Scalar] | None = None,
        payload: bytes = b"",
        lease_s: float = FOREVER_S,
        access: str | None = None,
    ) -> Event:
        """Publish an event at a node, now."""
        if not self.machine(node).up:
            raise ValueError(f"node {node} is down")
        event = Event(
            EventId(node, self._simulation.next_sequence(node)),
            dict(attributes or {}),
            payload,
            self.now,
            lease_s,
            None if access is None else AccessPolicy(access),
        )
        self.machine(node).publish(event)
        return event

    def subscribe(
        self,
        node: NodeId,
        filter: str = "true",
        attributes: Mapping[str, Scalar] | None = None,
        processor: ProcessorId | None = None,
        state: bytes = b"",
    ) -> SubscriptionId:
        """Subscribe at a node, now. With `processor`, it processes the matching events before delivery."""
        id = SubscriptionId(node, self._subscriptions)
        self._subscriptions += 1
        self.machine(node).subscribe(
            Subscription(id, filter, attributes=dict(attributes or {}), processor=processor, state=state)
        )
        return id

    def unsubscribe(self, subscription: SubscriptionId) -> None:
        """End a subscription, now."""
        self.machine(subscription.subscriber).unsubscribe(subscription)

    # Events of the network.

    def run(self, seconds: float) -> None:
        """Run the simulation for some seconds."""
        self._simulation.advance(self.now + seconds)

    def crash(self, node: NodeId) -> None:
        """Crash a node: it loses everything but its durable store, and stays down."""
        self._simulation.network.crash(node)

    def restart(self, node: NodeId) -> None:
        """Restart a crashed node."""
        self._simulation.network.restart(node)

    def cut(self, a: NodeId, b: NodeId) -> None:
        """Cut the link between two nodes."""
        self._simulation.network.set_cut(a, b, cut=True)

    def heal(self, a: NodeId, b: NodeId) -> None:
        """Restore the link between two nodes."""
        self._simulation.network.set_cut(a, b, cut=False)

    def stop(self) -> RunResult:
        """Stop every node cleanly, and return the result of the run."""
        return self._simulation.finish()

    # State and trace.

    @property
    def now(self) -> float:
        """Simulated seconds since the start."""
        return self._simulation.kernel.now_s

    @property
    def simulation(self) -> Simulation:
        """The simulation itself, for tests that need more than this class offers."""
        return self._simulation

    def machine(self, node: NodeId) -> SimNode:
        """The simulated node."""
        return self._simulation.network.nodes[node]

    def protocol(self, node: NodeId) -> Protocol:
        """The protocol instance of a node. Each restart makes a new one."""
        return self.machine(node).protocol

    def list_timers(self, node: NodeId) -> list[object]:
        """List the keys of the timers of a node that would still fire, of every layer."""
        return [key for _, key in self.machine(node).armed_timers()]

    def list_delivered(self, node: NodeId, subscription: SubscriptionId | None = None) -> list[Event]:
        """List the events delivered at a node, or to one subscription, in the order of delivery."""
        return [event for id, event in self._delivered[node] if subscription in (None, id)]

    def rows(self, kind: str, **columns: object) -> list[dict[str, object]]:
        """The rows of the trace with a kind, and with the given values: `rows("drop", reason="loss")`."""
        wanted = {"kind": kind, **columns}
        return [row for row in self._simulation.trace.table().to_pylist() if wanted.items() <= row.items()]

    def count_sent(self, message: str | None = None, node: NodeId | None = None) -> int:
        """Count transmissions: of all messages or of one type, of all nodes or of one. Retries do not count."""
        columns: dict[str, object] = {} if message is None else {"message": message}
        if node is not None:
            columns["node"] = node
        return len(self.rows(Kind.SEND, **columns))

    def count_dropped(self, reason: str | None = None) -> int:
        """Count the drops with one reason, or with any."""
        return len(self.rows(Kind.DROP, **({} if reason is None else {"reason": reason})))

    def _on_delivery(self, node: NodeId, subscription: SubscriptionId, event: Event) -> None:
        self._delivered[node].append((subscription, event))


def _make_plan(contacts: list[tuple[NodeId, NodeId, float, float]]) -> ContactPlan:
    nodes = 1 + max(max(a, b) for a, b, _, _ in contacts)
    plan = ContactPlan.of(
        nodes,
        HORIZON_S,
        np.array([min(a, b) for a, b, _, _ in contacts], dtype=np.int64),
        np.array([max(a, b) for a, b, _, _ in contacts], dtype=np.int64),
        np.array([start_s for _, _, start_s, _ in contacts], dtype=np.float64),
        np.array([end_s for _, _, _, end_s in contacts], dtype=np.float64),
    )
    fault = plan.fault()
    if fault is not None:
        raise ValueError(fault)
    return plan
