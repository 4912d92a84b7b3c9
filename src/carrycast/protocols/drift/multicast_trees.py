"""Multicast trees: where no link has changed for a while, events go by unicast to the interested nodes only.

A source floods an `Explorer`; every node forwards it once and takes the node from which it came as its parent. When the
whole subtree of a node has answered, the node sends an `Echo` with the filters of the subtree to its parent (the echo
algorithm: Chang, IEEE TSE 1982; Segall's propagation of information with feedback, IEEE ToIT 1983). When the source has
all echoes, every reachable node was asked, and every node knows which filters lie behind which child.

The tree is optimistic: events sent down a tree are left out of reconciliation. As soon as any link of any of its nodes
changes or any send fails, the tree is torn down by a flooded `TreeEnd`, and its events are reconciled and rebroadcast
like all others.
"""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Event, NodeId
from carrycast.core.parts import BufferedEvent
from carrycast.core.protocol import Fact, Port
from carrycast.core.wire import LEASE_EXPIRED, hops_after
from carrycast.protocols.drift.audit import TreeAudit
from carrycast.protocols.drift.messages import MAX_TREES, Audit, Echo, Explorer, TreeData, TreeEnd
from carrycast.protocols.drift.neighbor_table import DriftNeighborTable
from carrycast.protocols.drift.rate_limits import FixedWindowLimiter
from carrycast.protocols.drift.rules import merge_filters, short_address
from carrycast.protocols.drift.settings import DriftSettings

EXPLORE = "explore"
EXPLORE_RETRY_S = 1.0
"""A neighbor that has not answered after this time is asked by unicast; after `asks` tries the tree is given up."""
MAX_ENDS_PER_MINUTE = 3
"""The number of times in a minute that messages of a torn-down tree are answered with a `TreeEnd`."""
MAX_ENDED = 1024
"""Torn-down trees that are remembered, because messages of them may still arrive."""
STREAM_EVENTS = 3
"""A source builds a tree if it has published this many events while its links were stable: fewer are not worth the
messages that build one."""

SubtreeFilters = tuple[tuple[Filter, int], ...]
"""The filters behind a child, each with the number of links to all nodes that have it."""


MAX_STABLE_S = 3600.0
"""The longest time for which links must be stable before a tree, after doubling."""


class TreePolicy:
    """Decides when a source builds a tree. A tree that was torn down early doubles the time for which links must be
    stable before the next (exponential backoff); one that lasted resets it."""

    def __init__(self, settings: DriftSettings, incarnation: int) -> None:
        self.settings = settings
        self.number = incarnation << 20
        self.stable_s = settings.path_after_s
        """For how long links must have been stable before the next tree."""
        self.open_since: float | None = None
        """Since when events go down the tree."""
        self._published: deque[float] = deque(maxlen=STREAM_EVENTS)

    def should_build(self, now: float, stable_s: float) -> bool:
        """Whether to build a tree, as an event is published and no link has changed for `stable_s`."""
        self._published.append(now)
        stable = stable_s >= self.stable_s
        often = len(self._published) == STREAM_EVENTS and now - self._published[0] <= self.stable_s
        return stable and often and self.settings.path_share > 0

    def next_number(self) -> int:
        """The number of a new tree."""
        self.number += 1
        return self.number

    def should_use(self, now: float, links: int, nodes: int) -> bool:
        """Whether sending an event over so many links of the tree costs less than a broadcast to so many nodes."""
        cheaper = links <= self.settings.path_share * nodes
        if cheaper and self.open_since is None:
            self.open_since = now
        return cheaper

    def on_torn_down(self, now: float) -> None:
        """The own tree was torn down, whether it was in use or not."""
        lasted_s = 0.0 if self.open_since is None else now - self.open_since
        self.open_since = None
        if lasted_s >= 2 * self.stable_s:
            self.stable_s = self.settings.path_after_s
        else:
            self.stable_s = min(2 * self.stable_s, MAX_STABLE_S)


class MulticastTree:
    """The state of one node in the tree of one source."""

    __slots__ = ("echoed", "explored", "hops", "nodes", "number", "parent", "stable_s", "subtrees", "unanswered")

    def __init__(
        self, number: int, stable_s: int, parent: NodeId | None, hops: int, unanswered: Iterable[NodeId]
    ) -> None:
        self.number = number
        self.stable_s = stable_s
        self.parent = parent
        """The next node toward the source; None at the source itself."""
        self.hops = hops
        self.unanswered = dict.fromkeys(unanswered)
        """Neighbors that have neither answered with an echo nor turned out to have another parent."""
        self.subtrees: dict[NodeId, SubtreeFilters] = {}
        """The filters behind each child."""
        self.nodes = 1
        """Nodes of this node's subtree, itself included."""
        self.explored = 0
        """The number of times that this node has sent its explorer."""
        self.echoed: dict[str, int] | None = None
        """The filters of the last echo to the parent."""


class TreeTable:
    """The trees of which this node is part, one for each source at most, and the messages that build and end them."""

    def __init__(
        self,
        node: NodeId,
        port: Port,
        settings: DriftSettings,
        neighbors: DriftNeighborTable,
        local_filters: Callable[[], list[str]],
    ) -> None:
        self._node = node
        self._port = port
        self.settings = settings
        self._neighbors = neighbors
        self._local_filters = local_filters
        self._trees: dict[NodeId, MulticastTree] = {}
        self._ended: dict[NodeId, int] = {}
        """The number of the last tree of each source that was torn down."""
        self._limiter = FixedWindowLimiter()
        self._link_changed_s = 0.0
        """When a link of this node changed last."""

    def get(self, source: NodeId) -> MulticastTree | None:
        """The tree of a source."""
        return self._trees.get(source)

    def stable_s(self, now: float) -> float:
        """For how long no link of this node has changed; if its clock was set back since then, from now on."""
        self._link_changed_s = min(self._link_changed_s, now)
        return now - self._link_changed_s

    def interested_children(self, event: Event) -> list[NodeId]:
        """The children behind which a filter matches an event."""
        tree = self._trees[event.id.source]
        return [
            child
            for child, filters in tree.subtrees.items()
            if any(filter.matches(event.attributes) for filter, _ in filters)
        ]

    def count_links(self, event: Event) -> int:
        """Over how many links an own event would go, at most."""
        all_filters = self._trees[self._node].subtrees.values()
        return sum(links for filters in all_filters for filter, links in filters if filter.matches(event.attributes))

    def collect_filters(self, source: NodeId) -> list[Filter]:
        """All filters in the tree of a source, each once."""
        all_filters = self._trees[source].subtrees.values()
        return list({filter.text: filter for filters in all_filters for filter, _ in filters}.values())

    # Building.

    def build(self, number: int, stable_s: int) -> None:
        """Start the own tree."""
        self._trees[self._node] = MulticastTree(number, stable_s, None, 0, self._neighbors)
        self._send_explorer(self._node)

    def on_explorer(self, now: float, sender: NodeId, explorer: Explorer) -> list[NodeId]:
        """A neighbor forwards an explorer; returns the sources whose trees it has ended here."""
        source, tree = explorer.source, self._trees.get(explorer.source)
        if not self._limiter.allow(now, sender, MAX_TREES):
            self._port.note(Fact("drop", peer=sender, reason="path_asked_too_often"))
            return []
        if tree is not None and tree.number == explorer.number:
            self._on_known_explorer(tree, sender, explorer)
            return []
        if source == self._node or explorer.number <= self._ended.get(source, -1):
            # Only this node builds trees of its own; and the sender has not learned that the tree was torn down.
            self._port.note(Fact("drop", peer=sender, reason="path_over"))
            if self._limiter.allow(now, (source, explorer.number), MAX_ENDS_PER_MINUTE):
                self._neighbors.broadcast(TreeEnd(((source, explorer.number),)))
            return []
        ended = [] if tree is None else self.tear_down([source])
        if self.stable_s(now) < explorer.stable_s or len(self._trees) >= MAX_TREES:
            self._remember_ended(source, explorer.number)
            self._neighbors.broadcast(TreeEnd(((source, explorer.number),)))
            return ended
        others = [node for node in self._neighbors if node != sender]
        hops = hops_after(explorer.hops)
        self._trees[source] = MulticastTree(explorer.number, explorer.stable_s, sender, hops, others)
        # Every hop waits, so that nodes nearer to the source forward first and paths are short.
        self._port.set_timer((EXPLORE, source), self.settings.wait_s)
        return ended

    def on_timer(self, source: NodeId) -> bool:
        """Forward the explorer; later, ask the neighbors that have not answered. False after too many tries."""
        tree = self._trees[source]
        if not tree.explored:
            self._send_explorer(source)
            self._send_echo(source, tree)
            return True
        if not tree.unanswered:
            return True
        if tree.explored > self.settings.asks:
            return False
        for node in tree.unanswered:
            self._port.send(node, self._make_explorer(source, tree, reply=True))
        tree.explored += 1
        self._port.set_timer((EXPLORE, source), EXPLORE_RETRY_S)
        return True

    def on_echo(self, sender: NodeId, echo: Echo) -> bool:
        """A child sends the filters of its subtree; False if that ends the tree."""
        tree = self._trees.get(echo.source)
        if tree is None or tree.number != echo.number or sender not in self._neighbors or sender == tree.parent:
            self._port.note(Fact("drop", peer=sender, reason="path_over"))
            return True
        try:
            filters = tuple((Filter(text), links + 1) for text, links in echo.filters.items())
        except FilterError:
            self._port.note(Fact("drop", peer=sender, reason="filter_malformed"))
            return False
        if sender in tree.unanswered:
            del tree.unanswered[sender]
            tree.nodes += echo.nodes
        elif sender not in tree.subtrees:
            self._port.note(Fact("drop", peer=sender, reason="path_over"))
            return True
        tree.subtrees[sender] = filters
        self._send_echo(echo.source, tree)
        return True

    def on_filters_changed(self) -> None:
        """The local filters have changed: update the parents."""
        for source, tree in self._trees.items():
            self._send_echo(source, tree)

    # Tearing down.

    def tear_down(self, sources: Iterable[NodeId]) -> list[NodeId]:
        """End the trees of these sources and notify all neighbors; returns the sources that had one."""
        ended = []
        for source in sources:
            tree = self._trees.pop(source, None)
            if tree is not None:
                self._port.cancel_timer((EXPLORE, source))
                self._remember_ended(source, tree.number)
                ended.append((source, tree.number))
        if ended:
            self._neighbors.broadcast(TreeEnd(tuple(ended)))
        return [source for source, _ in ended]

    def on_link_changed(self, now: float) -> list[NodeId]:
        """A link of this node has changed: end all trees."""
        self._link_changed_s = now
        return self.tear_down(list(self._trees)) if self._trees else []

    def on_tree_end(self, end: TreeEnd) -> list[NodeId]:
        """A neighbor has ended trees; returns the sources of those that stood here."""
        known = [(source, number) for source, number in end.trees if source in self._trees]
        return self.tear_down([source for source, number in known if self._trees[source].number == number])

    def stop(self) -> None:
        """Cancel all timers."""
        for source in self._trees:
            self._port.cancel_timer((EXPLORE, source))
        self._trees.clear()

    def _remember_ended(self, source: NodeId, number: int) -> None:
        self._ended.pop(source, None)
        self._ended[source] = number
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def _on_known_explorer(self, tree: MulticastTree, sender: NodeId, explorer: Explorer) -> None:
        own_address = int.from_bytes(short_address(self._node), "big")
        if not tree.explored and tree.parent is not None and explorer.hops + 1 < tree.hops:
            tree.parent, tree.hops = sender, hops_after(explorer.hops)
            tree.unanswered.pop(sender, None)
        elif explorer.parent != own_address or sender == tree.parent:
            # A child answers by an echo when its subtree has answered; a node with another parent need not.
            tree.unanswered.pop(sender, None)
            self._send_echo(explorer.source, tree)
        if explorer.reply:
            self._port.send(sender, self._make_explorer(explorer.source, tree))

    def _send_explorer(self, source: NodeId) -> None:
        tree = self._trees[source]
        tree.explored = 1
        self._neighbors.broadcast(self._make_explorer(source, tree))
        self._port.set_timer((EXPLORE, source), EXPLORE_RETRY_S)

    def _make_explorer(self, source: NodeId, tree: MulticastTree, reply: bool = False) -> Explorer:
        parent = int.from_bytes(short_address(self._node if tree.parent is None else tree.parent), "big")
        return Explorer(source, tree.number, tree.stable_s, tree.hops, parent, reply)

    def _send_echo(self, source: NodeId, tree: MulticastTree) -> None:
        """Send the filters of the subtree to the parent, when the whole subtree has answered, and when they change."""
        if tree.unanswered or not tree.explored or tree.parent is None:
            return
        of_children = [(filter.text, links) for filters in tree.subtrees.values() for filter, links in filters]
        merged = merge_filters([*((text, 0) for text in self._local_filters()), *of_children])
        if merged != tree.echoed:
            tree.echoed = merged
            self._port.send(tree.parent, Echo(source, tree.number, merged, tree.nodes), token=source)


class MulticastForwarding:
    """Forwards events down multicast trees. Handlers that end trees return their sources: the events of those trees are
    reconciled from then on."""

    def __init__(
        self,
        node: NodeId,
        port: Port,
        rng: Random,
        settings: DriftSettings,
        neighbors: DriftNeighborTable,
        local_filters: Callable[[], list[str]],
        incarnation: int,
    ) -> None:
        self._node = node
        self._port = port
        self._neighbors = neighbors
        self._local_filters = local_filters
        self._audit = TreeAudit(port, rng, settings, neighbors)
        self._trees = TreeTable(node, port, settings, neighbors, local_filters)
        self._policy = TreePolicy(settings, incarnation)

    def retune(self, settings: DriftSettings) -> None:
        """Use other settings from now on."""
        self._trees.settings = self._policy.settings = self._audit.settings = settings

    def is_used_for(self, now: float, event: Event) -> bool:
        """Whether an own event goes down the tree: the tree is complete, and few nodes are interested."""
        tree = self._trees.get(self._node)
        if tree is None or tree.unanswered:
            return False
        return self._policy.should_use(now, self._trees.count_links(event), tree.nodes)

    def is_from_parent(self, source: NodeId, sender: NodeId) -> bool:
        """Whether the sender is this node's parent in a complete tree of the source."""
        tree = self._trees.get(source)
        return tree is not None and not tree.unanswered and tree.parent == sender

    def on_received(self, event: Event) -> None:
        """An event has come down a tree that stands."""
        self._audit.add(event)

    def forward(self, now: float, stored: BufferedEvent) -> None:
        """Send an event to each interested child."""
        if stored.until <= now:
            self._port.note(Fact("drop", stored.id, reason=LEASE_EXPIRED))
            return
        if stored.id.source == self._node:
            self._audit.on_sent(now, stored.event)
        message = TreeData(stored.event, hops_after(stored.hops), stored.until - now)
        for child in self._trees.interested_children(stored.event):
            self._port.send(child, message, token=stored.id.source)

    def on_published(self, now: float) -> None:
        """An own event was broadcast: build a tree for the next ones if it is time."""
        if self._policy.should_build(now, self._trees.stable_s(now)) and self._trees.get(self._node) is None:
            self._trees.build(self._policy.next_number(), int(self._policy.stable_s))

    def on_filters_changed(self, now: float) -> None:
        """The local filters have changed."""
        self._audit.filters_changed_s = now
        self._trees.on_filters_changed()

    def on_message(self, now: float, sender: NodeId, message: Explorer | Audit | Echo | TreeEnd) -> list[NodeId]:
        """A message that builds, checks or ends a tree."""
        if isinstance(message, Explorer):
            ended = self._trees.on_explorer(now, sender, message)
        elif isinstance(message, TreeEnd):
            ended = self._trees.on_tree_end(message)
        elif isinstance(message, Audit):
            ended = self._on_audit(now, sender, message)
        elif self._trees.on_echo(sender, message):
            ended = []
            if message.source == self._node:
                self._audit.restart(self._node)
        else:
            ended = self._trees.tear_down([message.source])
        return self._finish(now, ended)

    def on_timer(self, now: float, source: NodeId) -> list[NodeId]:
        """Some neighbors may not have answered an explorer."""
        return self._finish(now, [] if self._trees.on_timer(source) else self._trees.tear_down([source]))

    def on_audit_timer(self, now: float) -> None:
        """Send the audit of the own tree."""
        tree = self._trees.get(self._node)
        if tree is not None:
            self._audit.send(now, self._node, tree.number, self._trees.collect_filters(self._node))

    def on_failure(self, now: float, source: NodeId) -> list[NodeId]:
        """A neighbor in the tree of the source could not be reached."""
        return self._finish(now, self._trees.tear_down([source]))

    def on_link_changed(self, now: float) -> list[NodeId]:
        """A neighbor has come or gone, so the nodes of the trees and their filters are no longer known."""
        ended = self._trees.on_link_changed(now)
        return self._finish(now, ended) if ended else ended

    def stop(self) -> None:
        """Cancel all timers."""
        self._trees.stop()
        self._audit.stop()

    def _on_audit(self, now: float, sender: NodeId, audit: Audit) -> list[NodeId]:
        tree = self._trees.get(audit.source)
        if tree is None or tree.number != audit.number or audit.source == self._node:
            self._port.note(Fact("drop", peer=sender, reason="path_over"))
            return []
        if not self._audit.is_new(audit):
            return []
        self._neighbors.broadcast(audit)
        if self._audit.is_complete(now, audit, self._local_filters()):
            return []
        self._port.note(Fact("path_leaks", peer=tree.parent))
        return self._trees.tear_down([audit.source])

    def _finish(self, now: float, ended: list[NodeId]) -> list[NodeId]:
        for source in ended:
            self._audit.on_tree_ended(source, own=source == self._node)
        if self._node in ended:
            self._policy.on_torn_down(now)
        return ended
