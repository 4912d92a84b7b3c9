"""PRoPHET [RFC 6693]: copies are forwarded to neighbors with a higher delivery predictability.

Nodes learn delivery predictabilities from encounters, exchange them, and update them by transitivity and aging. In
place of a bundle's destination, an event has as destinations the nodes whose subscriptions match it.
"""

from random import Random

from carrycast.core.model import Failure, NodeId, Subscription, SubscriptionId
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
from carrycast.protocols.prophet.settings import ProphetSettings
from carrycast.protocols.prophet.table import RoutingInformationBase

EXCHANGE = "exchange"


class GrtrRule(CopyRule):
    """[RFC 6693 §3.6] The forwarding strategy GRTR: a neighbor gets a copy if its delivery predictability for a
    destination is greater than this node's."""

    __slots__ = ("_node", "_rib", "neighbor_ribs")

    def __init__(self, node: NodeId, rib: RoutingInformationBase) -> None:
        self._node = node
        self._rib = rib
        self.neighbor_ribs: dict[NodeId, dict[NodeId, float]] = {}
        """The delivery predictabilities that each neighbor has sent."""

    def share(self, now: float, stored: BufferedEvent, copies: int, neighbor: NodeId, wanted: bool) -> CopyShare:
        """The copy here stays. An interested neighbor gets the event anyway, and so carries it too."""
        if wanted:
            return CopyShare(1, copies)
        theirs = self.neighbor_ribs.get(neighbor)
        if theirs:
            for node in self._rib.destinations(stored.event):
                if node not in (self._node, neighbor, stored.id.source) and theirs.get(
                    node, 0.0
                ) > self._rib.predictability(now, node):
                    return CopyShare(1, copies)
        return CopyShare(0, copies)


class Prophet(ReplicatingCarrierProtocol):
    """Forwards copies toward nodes that often meet the destinations of an event."""

    name = "prophet"
    summary = "copies go to neighbors that are more likely to meet interested nodes"
    settings_type = ProphetSettings
    messages = (*MESSAGES, RoutingInformation, ProfileRequest, ProfileResponse)

    def __init__(self, node: NodeId, settings: ProphetSettings, port: Port, host: Host, rng: Random) -> None:
        self._rib = RoutingInformationBase(node, settings)
        self._rule = GrtrRule(node, self._rib)
        super().__init__(node, settings, port, host, rng, self._rule)
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
