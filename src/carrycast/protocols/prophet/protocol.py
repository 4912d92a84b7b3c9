"""PRoPHET [RFC 6693]: copies are forwarded to neighbors with a higher delivery predictability.

Nodes learn delivery predictabilities from encounters, exchange them, and update them by transitivity and aging. In
place of a bundle's destination, an event has as destinations the nodes whose subscriptions match it.
"""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import ClassVar

from carrycast.core.model import EventId, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import (
    MAX_FILTER_BYTES,
    MAX_FILTERS,
    MESSAGES,
    BufferedEvent,
    CopyRule,
    CopyShare,
    ProfileVersion,
    ReplicatingCarrierProtocol,
    canonical_filters,
)
from carrycast.core.protocol import Fact, Host, Interface, Link, Port, TimerKey
from carrycast.core.wire import Message
from carrycast.protocols.prophet.messages import (
    FIXED_POINT_ONE,
    MAX_ENTRIES,
    ProfileRequest,
    ProfileResponse,
    RibEntry,
    RoutingInformation,
    SubscriptionProfile,
)
from carrycast.protocols.prophet.settings import Forwarding, ProphetSettings, Queueing
from carrycast.protocols.prophet.table import RoutingInformationBase

EXCHANGE = "exchange"


class _Forwards:
    """How often this node has forwarded an event (NF), the largest predictability of a node that it was forwarded to
    (P_max), and how favorable that was (FAV)."""

    __slots__ = ("favor", "largest", "linear_favor", "number")

    def __init__(self) -> None:
        self.number = 0
        self.largest = 0.0
        self.favor = 0.0
        self.linear_favor = 0.0

    def add(self, predictability: float) -> None:
        self.number += 1
        self.largest = max(self.largest, predictability)
        # [RFC 6693 §3.7] MOPR: FAV = FAV_old + (1 - FAV_old) P; Linear MOPR: FAV = FAV_old + P.
        self.favor += (1.0 - self.favor) * predictability
        self.linear_favor += predictability


class ForwardingRule(CopyRule):
    """[RFC 6693 §3.6, §3.7] The forwarding strategies and queueing policies."""

    def __init__(self, node: NodeId, settings: ProphetSettings, rib: RoutingInformationBase) -> None:
        self._node = node
        self._settings = settings
        self._rib = rib
        self._forwards: dict[EventId, _Forwards] = {}
        self._not_forwarded = _Forwards()
        self.neighbor_ribs: dict[NodeId, dict[NodeId, float]] = {}
        """The delivery predictabilities that each neighbor has sent."""
        self.events: Mapping[EventId, BufferedEvent] = {}
        """The carried events; set by the protocol."""

    def share(self, now: float, stored: BufferedEvent, copies: int, neighbor: NodeId, wanted: bool) -> CopyShare:
        """The copy here stays. An interested neighbor gets the event anyway, and so carries it too."""
        if wanted:
            return CopyShare(1, copies)
        done = self._forwards.get(stored.id, self._not_forwarded)
        limited = self._settings.forwarding in (Forwarding.GTMX, Forwarding.GTMX_PLUS)
        if limited and done.number >= self._settings.forwards:
            return CopyShare(0, copies)
        above = done.largest if self._settings.forwarding in (Forwarding.GRTR_PLUS, Forwarding.GTMX_PLUS) else -1.0
        always = self._settings.forward_above if self._settings.forwarding is Forwarding.GTHR else 2.0
        for theirs, mine in self._compare(now, stored, neighbor):
            if theirs > always or (theirs > mine and theirs > above):
                return CopyShare(1, copies)
        return CopyShare(0, copies)

    def order(self, now: float, events: list[BufferedEvent], neighbor: NodeId) -> list[BufferedEvent]:
        """GRTRSort: by P(B,D) - P(A,D), the largest first. GRTRMax: by P(B,D)."""
        if self._settings.forwarding not in (Forwarding.GRTR_SORT, Forwarding.GRTR_MAX):
            return events
        by_difference = self._settings.forwarding is Forwarding.GRTR_SORT

        def gain(stored: BufferedEvent) -> float:
            pairs = self._compare(now, stored, neighbor)
            return max((theirs - mine if by_difference else theirs for theirs, mine in pairs), default=-1.0)

        return sorted(events, key=gain, reverse=True)

    def choose_eviction(self, now: float, events: Iterable[EventId]) -> EventId:
        """[RFC 6693 §3.7] Of equal events the oldest arrival is evicted."""
        match self._settings.queueing:
            case Queueing.FIFO:
                return super().choose_eviction(now, events)
            case Queueing.MOFO:
                return max(events, key=lambda id: self._forwards.get(id, self._not_forwarded).number)
            case Queueing.MOPR:
                return max(events, key=lambda id: self._forwards.get(id, self._not_forwarded).favor)
            case Queueing.LINEAR_MOPR:
                return max(events, key=lambda id: self._forwards.get(id, self._not_forwarded).linear_favor)
            case Queueing.SHLI:
                return min(events, key=lambda id: self.events[id].until)
            case Queueing.LEPR:
                of = list(events)
                least = self._settings.least_forwards
                forwarded = [id for id in of if self._forwards.get(id, self._not_forwarded).number >= least]
                return min(forwarded or of, key=lambda id: self._own_predictability(now, self.events[id]))

    def on_transferred(self, now: float, id: EventId, neighbor: NodeId) -> None:
        stored = self.events.get(id)
        if stored is not None:
            best = max((theirs for theirs, _ in self._compare(now, stored, neighbor)), default=0.0)
            self._forwards.setdefault(id, _Forwards()).add(best)

    def on_forgotten(self, id: EventId) -> None:
        self._forwards.pop(id, None)

    def _compare(self, now: float, stored: BufferedEvent, neighbor: NodeId) -> Iterator[tuple[float, float]]:
        """P(B,D) and P(A,D) for each destination D of an event."""
        theirs = self.neighbor_ribs.get(neighbor)
        if theirs:
            for node in self._rib.destinations(stored.event):
                if node not in (self._node, neighbor, stored.id.source):
                    yield theirs.get(node, 0.0), self._rib.predictability(now, node)

    def _own_predictability(self, now: float, stored: BufferedEvent) -> float:
        nodes = self._rib.destinations(stored.event)
        return max((self._rib.predictability(now, node) for node in nodes), default=0.0)


class Prophet(ReplicatingCarrierProtocol):
    """Forwards copies toward nodes that often meet the destinations of an event."""

    name = "prophet"
    summary = "copies go to neighbors that are more likely to meet interested nodes"
    settings_type = ProphetSettings
    search_grid: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "threshold": (0.02,),
        "forwarding": ("GRTRMax",),
        "exchange_s": (600.0,),
    }
    messages = (*MESSAGES, RoutingInformation, ProfileRequest, ProfileResponse)
    # The constants of PRoPHETv2 (Grasic et al., CHANTS 2011) as the ONE's `ProphetV2Router` has them; its equations are
    # those of the RFC.
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "v2": {"most": 0.5, "threshold": 0.0, "gamma": 0.999885791, "delta": 0.0, "forwarding": "GRTRMax"}
    }

    def __init__(self, node: NodeId, settings: ProphetSettings, port: Port, host: Host, rng: Random) -> None:
        self._rib = RoutingInformationBase(node, settings)
        self._rule = ForwardingRule(node, settings, self._rib)
        super().__init__(node, settings, port, host, rng, self._rule)
        self._rule.events = self.buffer.events
        self._settings = settings
        self._changes = 0
        self._exchange_armed = False

    def on_stop(self, now: float) -> None:
        super().on_stop(now)
        self.port.cancel_timer(EXCHANGE)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        super().on_subscribe(now, subscription)
        self._on_profile_changed(now)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        super().on_unsubscribe(now, subscription)
        self._on_profile_changed(now)

    def on_link_up(self, now: float, link: Link) -> None:
        new = link.neighbor not in self.exchange.neighbors
        super().on_link_up(now, link)
        if new:
            self._rib.on_encounter(now, link.neighbor)
            self._send_rib(now, link.neighbor, self._rib.subscribers())
            if not self._exchange_armed:
                self._exchange_armed = True
                self.port.set_timer(EXCHANGE, self._settings.exchange_s)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        super().on_link_down(now, link, cause)
        if link.neighbor not in self.exchange.neighbors:
            self._rule.neighbor_ribs.pop(link.neighbor, None)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, RoutingInformation):
            self._on_routing_information(now, sender, message)
        elif isinstance(message, ProfileRequest):
            self._on_profile_request(sender, message.nodes)
        elif isinstance(message, ProfileResponse):
            self._on_profile_response(now, sender, message.profiles)
        else:
            super().on_message(now, sender, message, via)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key != EXCHANGE:
            super().on_timer(now, key)
            return
        self._exchange_armed = len(self.exchange.neighbors) > 0
        if self._exchange_armed:
            self.port.set_timer(EXCHANGE, self._settings.exchange_s)
        for neighbor in self.exchange.neighbors:
            self._send_rib(now, neighbor, self._rib.subscribers())

    def _on_profile_changed(self, now: float) -> None:
        self._changes += 1
        for neighbor in self.exchange.neighbors:
            self._send_rib(now, neighbor, [])

    def _own_version(self) -> ProfileVersion:
        return ProfileVersion(self.host.incarnation, self._changes)

    def _send_rib(self, now: float, neighbor: NodeId, nodes: list[NodeId]) -> None:
        """Send the routing information base [RFC 6693 §3.2], or the entries of some nodes."""
        rib = self._rib
        entries = []
        for node in nodes:
            version = rib.version(node)
            value = round(rib.predictability(now, node) * FIXED_POINT_ONE)
            if node != neighbor and value and version is not None:
                entries.append(RibEntry(node, version, value))
        for first in range(0, max(1, len(entries)), MAX_ENTRIES):
            part = tuple(entries[first : first + MAX_ENTRIES])
            self.port.send(neighbor, RoutingInformation(self._own_version(), part))

    def _on_routing_information(self, now: float, sender: NodeId, message: RoutingInformation) -> None:
        if sender not in self.exchange.neighbors:
            # Its discovery was faster than this node's; it sends its RIB again after `exchange_s`.
            self.port.note(Fact("drop", peer=sender, reason="not_a_neighbor"))
            return
        theirs = self._rule.neighbor_ribs.setdefault(sender, {})
        unknown: dict[NodeId, None] = {}
        mine = self._rib.version(sender)
        # A node that has never subscribed has no profile.
        if message.own.change and (mine is None or mine < message.own):
            unknown[sender] = None
        for node, version, value in message.entries:
            if node in (self.node, sender):
                continue
            theirs[node] = value / FIXED_POINT_ONE
            self._rib.on_neighbor_entry(now, sender, node, value / FIXED_POINT_ONE)
            known = self._rib.version(node)
            if known is None or known < version:
                unknown[node] = None
        self._rib.prune(now)
        if unknown:
            requested = list(unknown)
            for first in range(0, len(requested), MAX_ENTRIES):
                self.port.send(sender, ProfileRequest(tuple(requested[first : first + MAX_ENTRIES])))
        self.exchange.offer_events(now, sender)

    def _on_profile_request(self, sender: NodeId, nodes: tuple[NodeId, ...]) -> None:
        part: list[SubscriptionProfile] = []
        size = 0
        for node in dict.fromkeys(nodes):
            version, filters = self._rib.version(node), self._rib.filters(node)
            if node == self.node:
                version, filters = self._own_version(), self.exchange.subscriptions.own()
            if version is None:
                continue
            filters = filters[:MAX_FILTERS]
            length = sum(len(text.encode()) for text in filters)
            if part and (size + length > MAX_FILTER_BYTES or len(part) == MAX_ENTRIES):
                self.port.send(sender, ProfileResponse(tuple(part)))
                part, size = [], 0
            part.append(SubscriptionProfile(node, version, filters))
            size += length
        if part:
            self.port.send(sender, ProfileResponse(tuple(part)))

    def _on_profile_response(self, now: float, sender: NodeId, profiles: tuple[SubscriptionProfile, ...]) -> None:
        before = {profile.node: self._rib.version(profile.node) for profile in profiles}
        for node, version, filters in profiles:
            texts = canonical_filters(filters)
            if texts is None or not self._rib.add_profile(node, version, texts):
                self.port.note(Fact("drop", peer=sender, reason="profile_unreadable"))
        changed = [node for node, known in before.items() if self._rib.version(node) != known]
        for neighbor in self.exchange.neighbors:
            if changed and neighbor != sender:
                self._send_rib(now, neighbor, changed)
            self.exchange.offer_events(now, neighbor)
