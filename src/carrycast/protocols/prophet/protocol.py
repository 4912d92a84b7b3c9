"""PRoPHET: nodes learn whom they meet, tell each other, and give copies to who is more likely to meet a subscriber.

[RFC 6693], with the subscribers that an event's content matches in place of its destination.
"""

from random import Random

from carrycast.core.model import Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts.buffer import BufferedEvent
from carrycast.core.parts.carrier import ReplicatingCarrierProtocol
from carrycast.core.parts.copies import CopyRule, CopyShare
from carrycast.core.parts.exchange_messages import MESSAGES
from carrycast.core.parts.subscription_exchange import MAX_FILTER_BYTES, MAX_FILTERS, canonical_filters
from carrycast.core.protocol import Fact, Host, Interface, Link, Port, TimerKey
from carrycast.core.wire import Message
from carrycast.protocols.prophet.messages import (
    MAX_ENTRIES,
    WHOLE,
    AskProfiles,
    Entry,
    Predictabilities,
    Profile,
    Profiles,
    Version,
)
from carrycast.protocols.prophet.settings import ProphetSettings
from carrycast.protocols.prophet.table import Table

EXCHANGE = "exchange"


class GreatestFirst(CopyRule):
    """[RFC 6693 §3.6] GRTR: a neighbor gets a copy if it is more likely to meet a destination than this node is."""

    __slots__ = ("_node", "_table", "theirs")

    def __init__(self, node: NodeId, table: Table) -> None:
        self._node = node
        self._table = table
        self.theirs: dict[NodeId, dict[NodeId, float]] = {}
        """What each neighbor has said of its predictabilities."""

    def share(self, now: float, stored: BufferedEvent, copies: int, neighbor: NodeId, wanted: bool) -> CopyShare:
        """The copy here stays: GRTR takes nothing back. Who wants an event has it anyway, and so carries it too."""
        if wanted:
            return CopyShare(1, copies)
        said = self.theirs.get(neighbor)
        if said:
            for node in self._table.destinations(stored.event):
                if node not in (self._node, neighbor, stored.id.source) and said.get(node, 0.0) > self._table.value(
                    now, node
                ):
                    return CopyShare(1, copies)
        return CopyShare(0, copies)


class Prophet(ReplicatingCarrierProtocol):
    """Copies climb toward those who often meet the subscribers of an event."""

    name = "prophet"
    summary = "copies go to who is more likely to meet those who want an event"
    settings_type = ProphetSettings
    messages = (*MESSAGES, Predictabilities, AskProfiles, Profiles)

    def __init__(self, node: NodeId, settings: ProphetSettings, port: Port, host: Host, rng: Random) -> None:
        self._table = Table(node, settings)
        self._rule = GreatestFirst(node, self._table)
        super().__init__(node, settings, port, host, rng, self._rule)
        self._settings = settings
        self._changes = 0
        self._exchanging = False

    def on_stop(self, now: float) -> None:
        super().on_stop(now)
        self.port.cancel_timer(EXCHANGE)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        super().on_subscribe(now, subscription)
        self._changed(now)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        super().on_unsubscribe(now, subscription)
        self._changed(now)

    def on_link_up(self, now: float, link: Link) -> None:
        new = link.neighbor not in self.exchange.neighbors
        super().on_link_up(now, link)
        if new:
            self._table.meet(now, link.neighbor)
            self._tell(now, link.neighbor, self._table.subscribers())
            if not self._exchanging:
                self._exchanging = True
                self.port.set_timer(EXCHANGE, self._settings.exchange_s)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        super().on_link_down(now, link, cause)
        if link.neighbor not in self.exchange.neighbors:
            self._rule.theirs.pop(link.neighbor, None)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, Predictabilities):
            self._on_predictabilities(now, sender, message)
        elif isinstance(message, AskProfiles):
            self._on_ask_profiles(sender, message.nodes)
        elif isinstance(message, Profiles):
            self._on_profiles(now, sender, message.profiles)
        else:
            super().on_message(now, sender, message, via)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key != EXCHANGE:
            super().on_timer(now, key)
            return
        self._exchanging = len(self.exchange.neighbors) > 0
        if self._exchanging:
            self.port.set_timer(EXCHANGE, self._settings.exchange_s)
        for neighbor in self.exchange.neighbors:
            self._tell(now, neighbor, self._table.subscribers())

    def _changed(self, now: float) -> None:
        self._changes += 1
        for neighbor in self.exchange.neighbors:
            self._tell(now, neighbor, [])

    def _own(self) -> Version:
        return Version(self.host.incarnation, self._changes)

    def _tell(self, now: float, neighbor: NodeId, nodes: list[NodeId]) -> None:
        """[RFC 6693 §3.2] The routing information base, or what is new in it."""
        table = self._table
        entries = []
        for node in nodes:
            version = table.version(node)
            value = round(table.value(now, node) * WHOLE)
            if node != neighbor and value and version is not None:
                entries.append(Entry(node, version, value))
        for first in range(0, max(1, len(entries)), MAX_ENTRIES):
            self.port.send(neighbor, Predictabilities(self._own(), tuple(entries[first : first + MAX_ENTRIES])))

    def _on_predictabilities(self, now: float, sender: NodeId, message: Predictabilities) -> None:
        if sender not in self.exchange.neighbors:
            # It has found this node first; it tells again after `exchange_s`.
            self.port.note(Fact("drop", peer=sender, reason="not_a_neighbor"))
            return
        said = self._rule.theirs.setdefault(sender, {})
        unknown: dict[NodeId, None] = {}
        mine = self._table.version(sender)
        # Who has never subscribed has nothing to tell.
        if message.own.change and (mine is None or mine < message.own):
            unknown[sender] = None
        for node, version, value in message.entries:
            if node in (self.node, sender):
                continue
            said[node] = value / WHOLE
            self._table.hear(now, sender, node, value / WHOLE)
            known = self._table.version(node)
            if known is None or known < version:
                unknown[node] = None
        self._table.settle(now)
        if unknown:
            asked = list(unknown)
            for first in range(0, len(asked), MAX_ENTRIES):
                self.port.send(sender, AskProfiles(tuple(asked[first : first + MAX_ENTRIES])))
        self.exchange.offer_events(now, sender)

    def _on_ask_profiles(self, sender: NodeId, nodes: tuple[NodeId, ...]) -> None:
        part: list[Profile] = []
        size = 0
        for node in dict.fromkeys(nodes):
            version, filters = self._table.version(node), self._table.filters(node)
            if node == self.node:
                version, filters = self._own(), self.exchange.subscriptions.own()
            if version is None:
                continue
            filters = filters[:MAX_FILTERS]
            length = sum(len(text.encode()) for text in filters)
            if part and (size + length > MAX_FILTER_BYTES or len(part) == MAX_ENTRIES):
                self.port.send(sender, Profiles(tuple(part)))
                part, size = [], 0
            part.append(Profile(node, version, filters))
            size += length
        if part:
            self.port.send(sender, Profiles(tuple(part)))

    def _on_profiles(self, now: float, sender: NodeId, profiles: tuple[Profile, ...]) -> None:
        before = {profile.node: self._table.version(profile.node) for profile in profiles}
        for node, version, filters in profiles:
            texts = canonical_filters(filters)
            if texts is None or not self._table.learn(node, version, texts):
                self.port.note(Fact("drop", peer=sender, reason="profile_unreadable"))
        news = [node for node, known in before.items() if self._table.version(node) != known]
        for neighbor in self.exchange.neighbors:
            if news and neighbor != sender:
                self._tell(now, neighbor, news)
            self.exchange.offer_events(now, neighbor)
