"""The nodes within two hops, as HELLOs describe them: link sensing, two-hop neighbors, MPRs and MPR selectors.

[RFC] is RFC 3626 (OLSR), sections 7 and 8; RFC 6130 (NHDP) describes the same exchange. A node broadcasts HELLOs that
list the neighbors that it hears. A neighbor that finds itself in the list knows that the link works both ways.

Deviation: links are kept for each neighbor and not for each interface. A broadcast uses all interfaces of a node, so a
relay reaches its neighbors on all of them.
"""

from typing import Annotated

from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.parts.mpr import Willingness, select_mprs
from carrycast.core.wire import Message

MAX_LISTED = 1024
"""Neighbors in one list of a HELLO, and in the table: more than any radio has. It bounds the memory that forged HELLOs
can use."""

_NEVER = float("-inf")

Nodes = Annotated[tuple[NodeId, ...], Meta(max_length=MAX_LISTED)]


class NeighborHello(Message, frozen=True, gc=False):
    """The base of HELLOs [RFC 6.1]: the neighbors of the sender, by the state of their links.

    A message of a protocol subclasses it and adds a tag. `validity_s` is the Vtime: how long the content is valid.
    """

    validity_s: Annotated[float, Meta(gt=0, le=86_400)]
    willingness: Annotated[int, Meta(ge=0, le=7)]
    mprs: Nodes
    """Symmetric neighbors that the sender has selected as MPRs (MPR_NEIGH)."""
    symmetric: Nodes
    """The other symmetric neighbors (SYM_NEIGH)."""
    heard: Nodes
    """Neighbors that the sender hears, and that may not hear it (ASYM_LINK)."""
    lost: Nodes = ()
    """Neighbors whose link was lost recently (LOST_LINK)."""


class HelloLists:
    """The four lists of a HELLO that a node sends."""

    __slots__ = ("heard", "lost", "mprs", "symmetric")

    def __init__(self) -> None:
        self.mprs: list[NodeId] = []
        self.symmetric: list[NodeId] = []
        self.heard: list[NodeId] = []
        self.lost: list[NodeId] = []


class SensedLink:
    """The link to one neighbor [RFC 4.2.1], the neighbor's willingness, and its symmetric neighbors with their expiry
    times [RFC 4.3.2]."""

    __slots__ = ("asymmetric_until", "known_until", "reaches", "selects_until", "symmetric_until", "willingness")

    def __init__(self, known_until: float) -> None:
        self.asymmetric_until = _NEVER
        self.symmetric_until = _NEVER
        self.known_until = known_until
        self.selects_until = _NEVER
        """Until when the neighbor has this node as its MPR [RFC 4.3.4]."""
        self.willingness: int = Willingness.DEFAULT
        self.reaches: dict[NodeId, float] = {}


class TwoHopNeighborhood:
    """The nodes within two hops of one node. `version` grows with each change of the graph or of the willingness."""

    def __init__(self, node: NodeId, max_neighbors: int = MAX_LISTED) -> None:
        self._node = node
        self._max_neighbors = max_neighbors
        self._links: dict[NodeId, SensedLink] = {}
        self._symmetric: set[NodeId] = set()
        """The neighbors whose links were symmetric at the last change."""
        self._next_expiry = float("inf")
        """Nothing expires earlier than this."""
        self._mprs: tuple[int, frozenset[NodeId]] = (-1, frozenset())
        self.version = 0

    def __contains__(self, neighbor: object) -> bool:
        return neighbor in self._symmetric

    def __len__(self) -> int:
        return len(self._symmetric)

    # HELLOs.

    def on_hello(self, now: float, sender: NodeId, hello: NeighborHello) -> bool:
        """Take in a HELLO of a neighbor. False if the table is full."""
        self.expire(now)
        link = self._links.get(sender)
        until = now + hello.validity_s
        if link is None:
            # [RFC 7.1.1, 1] "if there exists no link tuple ... a new tuple is created".
            if len(self._links) >= self._max_neighbors:
                return False
            link = self._links[sender] = SensedLink(until)
        # [RFC 7.1.1, 2] L_ASYM_time = now + validity time; L_SYM_time by the link type under which this node is listed;
        # L_time = max(L_time, L_ASYM_time).
        link.asymmetric_until = until
        if self._node in hello.lost:
            link.symmetric_until = _NEVER
        elif self._node in hello.mprs or self._node in hello.symmetric or self._node in hello.heard:
            link.symmetric_until = until
            link.known_until = until + hello.validity_s
        link.known_until = max(link.known_until, link.asymmetric_until)
        # [RFC 8.4.1] MS_time = now + validity time, if this node is listed as an MPR.
        if self._node in hello.mprs:
            link.selects_until = until
        elif self._node in hello.symmetric or self._node in hello.heard:
            link.selects_until = _NEVER
        if link.willingness != hello.willingness:
            # [RFC 8.1.1] "the willingness field of that tuple is updated".
            link.willingness = hello.willingness
            self.version += 1
        if link.symmetric_until > now:
            self._update_two_hop_nodes(link, hello, until)
        self._next_expiry = min(self._next_expiry, until)
        self._update_symmetric(now, sender, link)
        return True

    # [RFC 8.2.1] A two-hop tuple is created for each node that is listed as SYM_NEIGH or MPR_NEIGH; those of nodes that
    # are listed as NOT_NEIGH are deleted.
    def _update_two_hop_nodes(self, link: SensedLink, hello: NeighborHello, until: float) -> None:
        reaches, before = link.reaches, set(link.reaches)
        if len(reaches) > MAX_LISTED:
            # An honest neighbor lists all its neighbors in each HELLO, and has no more.
            reaches.clear()
        for listed in (hello.mprs, hello.symmetric):
            for other in listed:
                if other != self._node:
                    reaches[other] = until
        for listed in (hello.heard, hello.lost):
            for other in listed:
                reaches.pop(other, None)
        if before != reaches.keys():
            self.version += 1

    def make_lists(self, now: float) -> HelloLists:
        """The lists of this node's next HELLO [RFC 6.2]: every neighbor with the state of its link."""
        self.expire(now)
        lists, mprs = HelloLists(), self.mprs(now)
        for neighbor, link in self._links.items():
            if neighbor in mprs:
                lists.mprs.append(neighbor)
            elif link.symmetric_until > now:
                lists.symmetric.append(neighbor)
            elif link.asymmetric_until > now:
                lists.heard.append(neighbor)
            else:
                lists.lost.append(neighbor)
        return lists

    # Expiry.

    def expire(self, now: float) -> None:
        """Remove what has expired [RFC 8.5]: links, two-hop neighbors, MPR selectors."""
        if now < self._next_expiry:
            return
        self._next_expiry = float("inf")
        for neighbor, link in list(self._links.items()):
            self._update_symmetric(now, neighbor, link)
            self._expire_two_hop_nodes(now, link)
            if link.known_until <= now:
                del self._links[neighbor]
                continue
            times = (link.symmetric_until, link.asymmetric_until, link.known_until, link.selects_until)
            next_s = min((until for until in (*times, *link.reaches.values()) if until > now), default=float("inf"))
            self._next_expiry = min(self._next_expiry, next_s)

    def _expire_two_hop_nodes(self, now: float, link: SensedLink) -> None:
        over = [other for other, until in link.reaches.items() if until <= now]
        for other in over:
            del link.reaches[other]
        if over:
            self.version += 1

    def lose(self, now: float, neighbor: NodeId) -> bool:
        """The link layer reports that a neighbor cannot be reached [RFC 13]. False if its link was not symmetric."""
        link = self._links.get(neighbor)
        if link is None or neighbor not in self._symmetric:
            return False
        link.symmetric_until = link.asymmetric_until = _NEVER
        self._update_symmetric(now, neighbor, link)
        return True

    # [RFC 8.5] "If a symmetric link is lost, 2-hop tuples and MPR selector tuples of the neighbor are removed."
    def _update_symmetric(self, now: float, neighbor: NodeId, link: SensedLink) -> None:
        is_symmetric = link.symmetric_until > now
        if is_symmetric == (neighbor in self._symmetric):
            return
        self.version += 1
        if is_symmetric:
            self._symmetric.add(neighbor)
        else:
            self._symmetric.discard(neighbor)
            link.reaches.clear()
            link.selects_until = _NEVER

    # The graph.

    def symmetric_neighbors(self, now: float) -> list[NodeId]:
        """The neighbors whose links work both ways, in the order in which they were heard first."""
        self.expire(now)
        return [neighbor for neighbor in self._links if neighbor in self._symmetric]

    def willingness(self, neighbor: NodeId) -> int:
        """The willingness of a neighbor."""
        return self._links[neighbor].willingness

    def reached_by(self, neighbor: NodeId) -> tuple[NodeId, ...]:
        """The symmetric neighbors of a neighbor, without this node."""
        return tuple(self._links[neighbor].reaches)

    def mprs(self, now: float) -> frozenset[NodeId]:
        """The MPRs of this node, selected again when the graph has changed."""
        self.expire(now)
        if self._mprs[0] != self.version:
            neighbors = {neighbor: self._links[neighbor].willingness for neighbor in self._symmetric}
            reached = {neighbor: self._links[neighbor].reaches for neighbor in self._symmetric}
            self._mprs = (self.version, select_mprs(self._node, neighbors, reached))
        return self._mprs[1]

    def is_selector(self, now: float, neighbor: NodeId) -> bool:
        """Whether a neighbor has selected this node as its MPR."""
        link = self._links.get(neighbor)
        return link is not None and link.selects_until > now and link.symmetric_until > now

    def selectors(self, now: float) -> list[NodeId]:
        """The neighbors that have selected this node as their MPR, in the order in which they were heard first."""
        self.expire(now)
        return [neighbor for neighbor in self._links if self.is_selector(now, neighbor)]
