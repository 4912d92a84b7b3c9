"""Brokers on a graph with link costs. Messages on one link arrive in order, messages on different links in any order.

The simulator's disk radio has one cost and one delay for all links; here each link has its own cost and no fixed delay,
so that announcements overtake each other in all possible ways.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

import networkx as nx

from carrycast.core.functions import InstalledFunction, UserFunction, make_derived_event
from carrycast.core.model import Event, EventId, Failure, NodeId, Processor, Subscription, SubscriptionId
from carrycast.core.protocol import Link, RecordingPort
from carrycast.core.protocol.effects import Deliver, Note, Process, Send
from carrycast.core.wire import Message
from carrycast.protocols.asp.announcement_table import KnownAnnouncement
from carrycast.protocols.asp.protocol import Asp
from carrycast.protocols.asp.settings import AspSettings
from carrycast.sim.testing import IsolatedHost

Step = Callable[[], None]


class Web:
    """A network of real protocol objects; `settle` delivers all messages."""

    def __init__(self, graph: nx.Graph, settings: AspSettings, rng: Random, failing: float = 0.0) -> None:
        """`failing`: the share of messages that fail at first; the retry always arrives."""
        self.now = 0.0
        self._failing = failing
        self._failed: dict[tuple[NodeId, NodeId, int], Message] = {}
        self.delivered: dict[NodeId, list[Event]] = {node: [] for node in graph}
        self.drops: list[str] = []
        self.sent: list[tuple[NodeId, NodeId, Message]] = []
        self.cut: set[frozenset[NodeId]] = set()
        self.brokers: dict[NodeId, Asp] = {}
        self._graph = graph
        self._rng = rng
        self._ports: dict[NodeId, RecordingPort] = {}
        self._installed: dict[tuple[NodeId, str], InstalledFunction] = {}
        self._channels: dict[tuple[object, ...], deque[Step]] = {}
        self._event_count = 0
        for node in graph:
            self._ports[node] = RecordingPort()
            self.brokers[node] = Asp(node, settings, self._ports[node], IsolatedHost(), Random(node))
        for a, b, data in graph.edges(data=True):
            self.brokers[a].on_link_up(0.0, Link(b, "radio", data["cost_s"]))
            self.brokers[b].on_link_up(0.0, Link(a, "radio", data["cost_s"]))

    def install(self, node: NodeId, processor: Processor, function: UserFunction) -> None:
        """Install a processor on a node; each call takes its `cost_s`."""
        self._installed[node, processor.id] = InstalledFunction.of(processor, function)
        self.brokers[node].on_processor(self.now, processor)

    def subscribe(self, node: NodeId, filter: str) -> None:
        """Add a sink."""
        self.brokers[node].on_subscribe(self.now, Subscription(SubscriptionId(node, 0), filter))
        self._carry_out(node)

    def publish(self, node: NodeId, **attributes: str | int | float) -> Event:
        """Publish the next message of a source, and deliver all messages that follow from it."""
        self._event_count += 1
        event = Event(EventId(node, self._event_count), dict(attributes))
        self.brokers[node].on_publish(self.now, event)
        self._carry_out(node)
        self.settle()
        return event

    def lose(self, a: NodeId, b: NodeId) -> None:
        """Break a link; both ends notice."""
        self.cut.add(frozenset((a, b)))
        cost_s = self._graph.edges[a, b]["cost_s"]
        for one, other in ((a, b), (b, a)):
            self.brokers[one].on_link_down(self.now, Link(other, "radio", cost_s), Failure.SILENT)
            self._carry_out(one)
        self.settle()

    def miss(self, a: NodeId, b: NodeId) -> None:
        """Report a link as lost to one end only."""
        self.brokers[a].on_link_down(self.now, Link(b, "radio", self._graph.edges[a, b]["cost_s"]), Failure.SILENT)
        self._carry_out(a)
        self.settle()

    def find(self, a: NodeId, b: NodeId) -> None:
        """Bring a link back; both ends notice."""
        self.cut.discard(frozenset((a, b)))
        cost_s = self._graph.edges[a, b]["cost_s"]
        for one, other in ((a, b), (b, a)):
            self.brokers[one].on_link_up(self.now, Link(other, "radio", cost_s))
            self._carry_out(one)
        self.settle()

    def settle(self) -> None:
        """Carry out the steps of channels drawn at random, until none is left."""
        while self._channels:
            channel = self._rng.choice(list(self._channels))
            step = self._channels[channel].popleft()
            if not self._channels[channel]:
                del self._channels[channel]
            step()

    def find_announcement(self, node: NodeId, **attributes: str | int | float) -> KnownAnnouncement:
        """Return the newest announcement at a node whose message has the given attributes."""
        entries = self.brokers[node].broker.table.entries()
        return [one for one in entries if attributes.items() <= one.item.event.attributes.items()][-1]

    def _carry_out(self, node: NodeId) -> None:
        for effect in self._ports[node].take():
            if isinstance(effect, Send):
                self._queue((node, effect.target), partial(self._arrive, node, effect))
            elif isinstance(effect, Process):
                self._queue((node, effect.processor, "process"), partial(self._process, node, effect))
            elif isinstance(effect, Deliver):
                self.delivered[node].append(effect.event)
            elif isinstance(effect, Note) and effect.fact.kind == "drop":
                self.drops.append(effect.fact.reason)

    def _queue(self, channel: tuple[object, ...], step: Step) -> None:
        self._channels.setdefault(channel, deque()).append(step)

    def _arrive(self, sender: NodeId, effect: Send) -> None:
        failure = Failure.UNREACHABLE if frozenset((sender, effect.target)) in self.cut else None
        arrives = failure is None
        if arrives and self._fails(sender, effect):
            # Perhaps only the acknowledgment was lost.
            failure, arrives = Failure.UNREACHABLE, self._rng.random() < 0.5
        if arrives:
            self.sent.append((sender, effect.target, effect.message))
            self.brokers[effect.target].on_message(self.now, sender, effect.message, "radio")
            self._carry_out(effect.target)
        assert effect.token is not None
        self.brokers[sender].on_sent(self.now, effect.token, failure)
        self._carry_out(sender)

    def _fails(self, sender: NodeId, effect: Send) -> bool:
        message = (sender, effect.target, id(effect.message))
        if message in self._failed or self._rng.random() >= self._failing:
            return False
        self._failed[message] = effect.message
        return True

    def _process(self, node: NodeId, effect: Process) -> None:
        installed = self._installed[node, effect.processor]
        state, results = installed.run(effect.state, effect.events)
        events = []
        for attributes in results:
            self._event_count += 1
            events.append(
                make_derived_event(
                    effect.processor, effect.events, attributes, EventId(node, self._event_count), self.now
                )
            )
        cost_s = installed.processor.cost_s
        self.brokers[node].on_processed(self.now, effect.token, state, events, cost_s, "")
        self._carry_out(node)
