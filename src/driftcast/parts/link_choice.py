"""What protocols have in common that send an event over some of their links and may keep it to try again [004 §2.3].

Which links: by what nodes within a horizon have reported. What they report, what else speaks for a link, and who stores
an event, is the protocol's own.
"""

from abc import abstractmethod
from collections.abc import Callable
from random import Random
from typing import Generic, Literal, NamedTuple, TypeVar

from driftcast.model import Event, Failure, NodeId, Subscription, SubscriptionId
from driftcast.parts.fanout import allowed_links, by_distance, chosen_links, quota
from driftcast.parts.horizon import Horizon, next_sequence
from driftcast.parts.interests import Interests
from driftcast.parts.links import Neighbors
from driftcast.parts.local import LocalSubscriptions
from driftcast.parts.retransmission import Carrier, Copy
from driftcast.parts.seen import SeenCache
from driftcast.protocol import Fact, Host, Interface, Link, Port, Protocol, Settings
from driftcast.wire import EventMessage, Message

Report = TypeVar("Report")


class Spread(NamedTuple):
    """How widely and for how long events go: what the settings of such protocols share."""

    tau: float
    phi: int
    buffer: int
    retry_s: float
    retry_timer: Literal["node", "copy"]
    """Whose interval that is: all copies of a node are tried together, or each counts from its own arrival."""
    attempts: int
    lease_s: float
    grace_s: float
    tracks: bool
    """A stored event is not sent again to neighbors that are known to have it."""


class LinkChoice(Protocol, Generic[Report]):
    """Meets each event once: delivers it, forwards it over the links that the rule chooses, perhaps stores it."""

    def __init__(
        self,
        node: NodeId,
        settings: Settings,
        port: Port,
        host: Host,
        rng: Random,
        spread: Spread,
        wanted: Callable[[Report], tuple[str, ...]],
        carried: Callable[[Event, int, float], EventMessage],
    ) -> None:
        super().__init__(node, settings, port, host, rng)
        self._spread = spread
        self._carried = carried
        self._local = LocalSubscriptions(port)
        self._neighbors = Neighbors()
        self._links: list[NodeId] = []
        """The neighbors, in the order in which they came."""
        self._seen = SeenCache()
        self._seen_ids = self._seen.ids
        self._horizon: Horizon[Report] = Horizon(node, wanted)
        self._interests = Interests()
        # [004 §2.3.3] "Each node periodically attempts to forward the messages in its buffer": at a random moment of an
        # interval, so that nodes started together do not try together for ever.
        phase_s = spread.retry_s * rng.random() if spread.retry_timer == "node" else None
        self._carrier = Carrier(port, spread.buffer, spread.retry_s, phase_s)
        self._counter = 0

    def on_stop(self, now: float) -> None:
        self._carrier.stop()

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._local.remove(subscription)

    def on_link_up(self, now: float, link: Link) -> None:
        self._neighbors.add(link)
        self._links = list(self._neighbors)

    def on_link_changed(self, now: float, link: Link) -> None:
        self._neighbors.add(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        if self._neighbors.remove(link):
            self._links = list(self._neighbors)
            self._horizon.lose(link.neighbor)

    def on_publish(self, now: float, event: Event) -> None:
        if event.id not in self._seen_ids:
            self._meet(now, event, 0, event.lease_s, None)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, EventMessage):
            id = message.event.id
            # Most receptions are repetitions.
            if id not in self._seen_ids:
                self._meet(now, message.event, message.hops, message.remaining_s, sender)
            elif self._spread.tracks:
                self._carrier.held_by(id, sender)
        else:
            self._on_report(now, sender, message)

    # The protocol's own.

    @abstractmethod
    def _on_report(self, now: float, sender: NodeId, message: Message) -> None:
        """A message that carries no event."""

    @abstractmethod
    def _stores(self, event: Event, matched: list[str]) -> bool:
        """Whether this node keeps an event that matches these interests."""

    def _promising(
        self, event: Event, links: list[NodeId], matched: list[str], missing: int
    ) -> tuple[list[NodeId], list[NodeId]]:
        """[004 §2.3.1, step 2] Of links that lead to no known subscriber the best, at most so many; and those to draw
        the rest from."""
        return [], links

    def _deliver(self, event: Event, matched: list[str], hops: int) -> None:
        self._local.deliver(event, hops)

    # Reports.

    def _next_sequence(self) -> int:
        self._counter += 1
        return next_sequence(self.host.incarnation, self._counter)

    def _is_news(self, sender: NodeId, node: NodeId, hops: int, sequence: int) -> bool:
        """Whether a report of a node is to be taken in."""
        if hops > self._spread.phi:
            # A neighbor with a larger horizon; what it says is beyond this node's.
            return False
        if hops == 1 and node != sender:
            self.port.note(Fact("drop", peer=sender, reason="report_of_another"))
            return False
        return self._horizon.is_new(node, sequence)

    # Events.

    def _meet(self, now: float, event: Event, hops: int, remaining_s: float, sender: NodeId | None) -> None:
        """The first time that an event is met."""
        spread = self._spread
        until = now + min(remaining_s, event.lease_s, spread.lease_s)
        self._seen.add(now, event.id, until + spread.grace_s)
        matched = self._interests.match(event)
        self._deliver(event, matched, hops)
        sent = self._forward(event, matched, hops, until - now, sender, None)
        if self._stores(event, matched):
            holders = set(sent) if spread.tracks else None
            if holders is not None and sender is not None:
                holders.add(sender)
            self._carrier.store(now, Copy(event, hops, sender, until, spread.attempts, holders))

    def _retry(self, now: float) -> None:
        """Forward what is due again, by the same rule."""
        for copy in self._carrier.on_timer(now):
            matched = self._interests.match(copy.event)
            sent = self._forward(copy.event, matched, copy.hops, copy.until - now, copy.sender, copy.holders)
            if copy.holders is not None:
                copy.holders.update(sent)

    def _forward(
        self,
        event: Event,
        matched: list[str],
        hops: int,
        remaining_s: float,
        sender: NodeId | None,
        holders: set[NodeId] | None,
    ) -> list[NodeId]:
        """[004 §2.3.1] The forwarding rule; the links that were used."""
        links = allowed_links(self._links, sender, holders)
        adjacent, nearby, rest = by_distance(links, self._horizon.nearest(matched))
        wanted = quota(self._spread.tau, len(links))
        predicted: list[NodeId] = []
        # Predictions are looked at only if they decide something.
        missing = wanted - len(adjacent) - len(nearby)
        if 0 < missing < len(rest):
            predicted, rest = self._promising(event, rest, matched, missing)
        chosen = chosen_links(wanted, adjacent, nearby, predicted, rest, self.rng)
        if chosen:
            self.port.send_each(chosen, self._carried(event, hops + 1, remaining_s))
        return chosen
