"""Nodes of a tree in one hand: messages go over links that a test makes and breaks, in order and at once."""

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
    """A node that knows who is a broker."""

    def __init__(self, node: NodeId, brokers: Iterable[NodeId]) -> None:
        super().__init__()
        self.offers |= {Capability.DIRECTORY}
        self._brokers = tuple(brokers)
        self.roles = ("broker",) if node in self._brokers else ()

    def directory(self, role: str) -> tuple[NodeId, ...]:
        return self._brokers if role == "broker" else ()


class Web:
    """Nodes of a tree; all of them brokers unless it is said otherwise."""

    def __init__(self, nodes: int, brokers: Iterable[NodeId] | None = None, **settings: object) -> None:
        self.now = 0.0
        self.lose: Random | None = None
        """Draws, if there is one, whether a message is lost."""
        self.nodes: list[Tree] = []
        self.ports: list[RecordingPort] = []
        self.links: set[tuple[NodeId, NodeId]] = set()
        self.sent: list[tuple[NodeId, NodeId, Message]] = []
        self.effects: list[tuple[NodeId, Effect]] = []
        self.timers: list[dict[object, float]] = [{} for _ in range(nodes)]
        named = list(range(nodes)) if brokers is None else list(brokers)
        self._settings = settings
        self._hosts = [BrokerHost(node, named) for node in range(nodes)]
        for node in range(nodes):
            tree, port = self._made(node)
            self.nodes.append(tree)
            self.ports.append(port)
        self.settle()

    def _made(self, node: NodeId) -> tuple[Tree, RecordingPort]:
        tree, port = isolate_protocol("tree", node, self._hosts[node], 1, refresh_s=float("inf"), **self._settings)
        assert isinstance(tree, Tree)
        return tree, port

    def crash(self, node: NodeId) -> None:
        """A node without links loses all but its durable store, and starts anew; its applications are gone."""
        assert not any(node in link for link in self.links)
        self.timers[node].clear()
        self.nodes[node], self.ports[node] = self._made(node)
        self.settle()

    def link(self, a: NodeId, b: NodeId) -> None:
        """Two nodes are neighbors now."""
        self.links |= {(a, b), (b, a)}
        self.nodes[a].on_link_up(self.now, Link(b, RADIO, 0.01))
        self.nodes[b].on_link_up(self.now, Link(a, RADIO, 0.01))
        self.settle()

    def cut(self, a: NodeId, b: NodeId) -> None:
        """They no longer are."""
        self.links -= {(a, b), (b, a)}
        self.nodes[a].on_link_down(self.now, Link(b, RADIO, 0.01), Failure.SILENT)
        self.nodes[b].on_link_down(self.now, Link(a, RADIO, 0.01), Failure.SILENT)
        self.settle()

    def settle(self) -> None:
        """Let every message arrive, and those that follow from it."""
        waiting: deque[tuple[NodeId, NodeId, Message]] = deque()
        while True:
            for node, port in enumerate(self.ports):
                for effect in port.take():
                    self._carry(node, effect, waiting)
            if not waiting:
                return
            sender, target, message = waiting.popleft()
            self.sent.append((sender, target, message))
            if (sender, target) in self.links and not (self.lose is not None and self.lose.random() < 0.3):
                self.nodes[target].on_message(self.now, sender, message, RADIO)

    def _carry(self, node: NodeId, effect: Effect, waiting: deque[tuple[NodeId, NodeId, Message]]) -> None:
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
        """Let time pass, timers in their order."""
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

    def of(self, node: NodeId, kind: type) -> list[Effect]:
        """The deliveries, answers, ends or notes of a node so far."""
        return [effect for at, effect in self.effects if at == node and isinstance(effect, kind)]

    def delivered(self, node: NodeId) -> list[EventId]:
        """The events that were delivered to a node so far."""
        return [effect.event.id for effect in self.of(node, Deliver) if isinstance(effect, Deliver)]

    def drops(self, node: NodeId) -> list[str]:
        """The reasons of a node's drops so far."""
        return [e.fact.reason for e in self.of(node, Note) if isinstance(e, Note) and e.fact.kind == "drop"]

    def facts(self, kind: str) -> list[tuple[NodeId, Fact]]:
        """What was noted of one kind, anywhere."""
        return [(at, e.fact) for at, e in self.effects if isinstance(e, Note) and e.fact.kind == kind]

    def tables(self, node: NodeId) -> dict[tuple[NodeId, bool], dict[str, int]]:
        """What a node holds of each neighbor: subscriptions, and advertisements with their distances."""
        forwarding = self.nodes[node].forwarding
        found = {}
        for stored, table in ((False, forwarding.subscriptions), (True, forwarding.advertisements)):
            for origin in table.origins():
                found[origin, stored] = dict(table.get_received(origin))
        return found

    def take_sent(self) -> list[tuple[NodeId, NodeId, Message]]:
        """The messages since the last call: sender, target, message."""
        sent, self.sent = self.sent, []
        return sent
