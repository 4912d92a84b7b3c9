"""A network of tree nodes whose links the test makes and breaks. Messages arrive in order and without delay."""

from collections import deque
from collections.abc import Iterable
from random import Random

from carrycast.core.model import EventId, Failure, NodeId
from carrycast.core.protocol import Capability, Fact, Link, RecordingPort
from carrycast.core.protocol.effects import (
    AnswerRequest,
    Broadcast,
    CloseHistory,
    CloseRequest,
    Deliver,
    Effect,
    Note,
    Send,
    SetTimer,
)
from carrycast.core.wire import Message
from carrycast.protocols.tree.protocol import Tree
from carrycast.sim.testing import IsolatedHost, isolate_protocol

RADIO = "radio"


class BrokerHost(IsolatedHost):
    """A host that knows which nodes are brokers."""

    def __init__(self, node: NodeId, brokers: Iterable[NodeId]) -> None:
        super().__init__()
        self.offers |= {Capability.DIRECTORY}
        self._brokers = tuple(brokers)
        self.roles = ("broker",) if node in self._brokers else ()

    def directory(self, role: str) -> tuple[NodeId, ...]:
        return self._brokers if role == "broker" else ()


class Web:
    """Nodes of a tree; all of them are brokers by default."""

    def __init__(self, nodes: int, brokers: Iterable[NodeId] | None = None, **settings: object) -> None:
        self.now = 0.0
        self.lose: Random | None = None
        """If given, draws whether a message is lost."""
        self.nodes: list[Tree] = []
        self.ports: list[RecordingPort] = []
        self.links: set[tuple[NodeId, NodeId]] = set()
        self.sent: list[tuple[NodeId, NodeId, Message]] = []
        self.effects: list[tuple[NodeId, Effect]] = []
        self.timers: list[dict[object, float]] = [{} for _ in range(nodes)]
        broker_ids = list(range(nodes)) if brokers is None else list(brokers)
        self._settings = settings
        self._hosts = [BrokerHost(node, broker_ids) for node in range(nodes)]
        for node in range(nodes):
            tree, port = self._make_node(node)
            self.nodes.append(tree)
            self.ports.append(port)
        self.settle()

    def _make_node(self, node: NodeId) -> tuple[Tree, RecordingPort]:
        tree, port = isolate_protocol("tree", node, self._hosts[node], 1, refresh_s=float("inf"), **self._settings)
        assert isinstance(tree, Tree)
        return tree, port

    def crash(self, node: NodeId) -> None:
        """Restart a node without links: it loses all but its durable store, also its applications."""
        assert not any(node in link for link in self.links)
        self.timers[node].clear()
        self.nodes[node], self.ports[node] = self._make_node(node)
        self.settle()

    def link(self, a: NodeId, b: NodeId) -> None:
        """Make two nodes neighbors."""
        self.links |= {(a, b), (b, a)}
        self.nodes[a].on_link_up(self.now, Link(b, RADIO, 0.01))
        self.nodes[b].on_link_up(self.now, Link(a, RADIO, 0.01))
        self.settle()

    def cut(self, a: NodeId, b: NodeId) -> None:
        """Remove the link of two nodes."""
        self.links -= {(a, b), (b, a)}
        self.nodes[a].on_link_down(self.now, Link(b, RADIO, 0.01), Failure.SILENT)
        self.nodes[b].on_link_down(self.now, Link(a, RADIO, 0.01), Failure.SILENT)
        self.settle()

    def settle(self) -> None:
        """Deliver all messages, and those that follow from them."""
        waiting: deque[tuple[NodeId, NodeId, Message]] = deque()
        while True:
            for node, port in enumerate(self.ports):
                for effect in port.take():
                    self._carry_out(node, effect, waiting)
            if not waiting:
                return
            sender, target, message = waiting.popleft()
            self.sent.append((sender, target, message))
            if (sender, target) in self.links and not (self.lose is not None and self.lose.random() < 0.3):
                self.nodes[target].on_message(self.now, sender, message, RADIO)

    def _carry_out(self, node: NodeId, effect: Effect, waiting: deque[tuple[NodeId, NodeId, Message]]) -> None:
        if isinstance(effect, Send):
            waiting.append((node, effect.target, effect.message))
        elif isinstance(effect, Broadcast):
            waiting.extend((node, b, effect.message) for a, b in sorted(self.links) if a == node)
        elif isinstance(effect, SetTimer):
            self.timers[node][effect.key] = self.now + effect.delay_s
        elif isinstance(effect, Deliver | AnswerRequest | CloseRequest | CloseHistory | Note):
            self.effects.append((node, effect))
        else:
            self.timers[node].pop(getattr(effect, "key", None), None)

    def run(self, seconds: float) -> None:
        """Advance the time, and fire due timers in order."""
        end = self.now + seconds
        while True:
            armed = [(at, node, key) for node, timers in enumerate(self.timers) for key, at in timers.items()]
            due = [item for item in armed if item[0] <= end]
            if not due:
                break
            at, node, key = min(due, key=lambda item: item[:2])
            self.now = max(self.now, at)
            del self.timers[node][key]
            self.nodes[node].on_timer(self.now, key)  # type: ignore[arg-type]
            self.settle()
        self.now = end

    def list_effects(self, node: NodeId, kind: type) -> list[Effect]:
        """Return the effects of one type of a node so far: deliveries, answers, closings or notes."""
        return [effect for at, effect in self.effects if at == node and isinstance(effect, kind)]

    def list_delivered(self, node: NodeId) -> list[EventId]:
        """Return the events that were delivered to a node so far."""
        return [effect.event.id for effect in self.list_effects(node, Deliver) if isinstance(effect, Deliver)]

    def list_drops(self, node: NodeId) -> list[str]:
        """Return the reasons of a node's drops so far."""
        return [e.fact.reason for e in self.list_effects(node, Note) if isinstance(e, Note) and e.fact.kind == "drop"]

    def list_facts(self, kind: str) -> list[tuple[NodeId, Fact]]:
        """Return the facts of one kind that any node noted."""
        return [(at, e.fact) for at, e in self.effects if isinstance(e, Note) and e.fact.kind == kind]

    def collect_tables(self, node: NodeId) -> dict[tuple[NodeId, bool], dict[str, int]]:
        """Return the filters that a node has of each neighbor: subscriptions, and advertisements with distances."""
        forwarding = self.nodes[node].forwarding
        found = {}
        for stored, table in ((False, forwarding.subscriptions), (True, forwarding.advertisements)):
            for origin in table.origins():
                found[origin, stored] = dict(table.get_received(origin))
        return found

    def take_sent(self) -> list[tuple[NodeId, NodeId, Message]]:
        """Return the messages since the last call: sender, target, message."""
        sent, self.sent = self.sent, []
        return sent
