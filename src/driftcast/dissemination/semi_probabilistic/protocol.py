"""Semi-probabilistic routing: toward known subscribers within a horizon, else over random links; perhaps stored.

Costa and Picco's protocol as the adaptive routing paper describes and extends it [004 §2.1, §2.3.1, §5.1.3].
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from driftcast.dissemination.semi_probabilistic.messages import MAX_FILTERS, Forwarded, Interested
from driftcast.dissemination.semi_probabilistic.settings import SemiProbabilisticSettings
from driftcast.matching import Filter
from driftcast.model import Event, NodeId, Subscription, SubscriptionId
from driftcast.parts.fanout import allowed_links, by_distance, chosen_links, quota
from driftcast.parts.horizon import Horizon, next_sequence
from driftcast.parts.interests import Interests
from driftcast.parts.links import Neighbors
from driftcast.parts.local import LocalSubscriptions
from driftcast.parts.retransmission import Carrier, Copy
from driftcast.parts.seen import SeenCache
from driftcast.protocol import Fact, Host, Interface, Link, Port, Protocol, TimerKey
from driftcast.wire import Message


class SemiProbabilistic(Protocol):
    """One unicast for each link that the forwarding rule chooses."""

    name = "semi_probabilistic"
    summary = "events go to known subscribers within a few hops, else over random links; nodes may store and retry"
    settings_type = SemiProbabilisticSettings
    messages = (Interested, Forwarded)
    # [004 §5.1.3] The protocol as first published, and the purely probabilistic baseline.
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"pure": {"store": False}, "probabilistic": {"phi": 0}}

    def __init__(self, node: NodeId, settings: SemiProbabilisticSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._local = LocalSubscriptions(port)
        self._neighbors = Neighbors()
        self._links: list[NodeId] = []
        """The neighbors, in the order in which they came."""
        self._seen = SeenCache()
        self._seen_ids = self._seen.ids
        self._horizon: Horizon[tuple[str, ...]] = Horizon(node, _wanted)
        self._interests = Interests()
        self._carrier = Carrier(port, settings.buffer, settings.retry_s)
        self._tracks = settings.retransmit_to == "others"
        self._counter = 0

    def on_start(self, now: float) -> None:
        if self._settings.phi > 0:
            # At a random moment of the first period, so that nodes started together do not speak together for ever.
            self.port.set_timer("update", self._settings.update_s * self.rng.random())

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer("update")
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

    def on_link_down(self, now: float, link: Link) -> None:
        if self._neighbors.remove(link):
            self._links = list(self._neighbors)
            self._horizon.lose(link.neighbor)

    def on_publish(self, now: float, event: Event) -> None:
        if event.id not in self._seen_ids:
            self._meet(now, event, 0, event.lease_s, None)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, Forwarded):
            id = message.event.id
            # Most receptions are repetitions.
            if id not in self._seen_ids:
                self._meet(now, message.event, message.hops, message.remaining_s, sender)
            elif self._tracks:
                self._carrier.held_by(id, sender)
        elif isinstance(message, Interested):
            self._on_interested(now, sender, message)

    def on_timer(self, now: float, key: TimerKey) -> None:
        if key == "update":
            self._update(now)
            return
        for copy in self._carrier.on_timer(now):
            sent = self._forward(copy.event, copy.hops, copy.until - now, copy.sender, copy.holders)
            if copy.holders is not None:
                copy.holders.update(sent)

    def _update(self, now: float) -> None:
        """[004 §2.1] Say what this node subscribes to, and forget what is no longer good."""
        settings = self._settings
        self.port.set_timer("update", settings.update_s)
        self._horizon.expire(now)
        self._interests.keep(text for _, known in self._horizon for text in known.report)
        wanted = tuple(dict.fromkeys(Filter(subscription.filter).text for subscription in self._local))
        if wanted:
            self._counter += 1
            sequence = next_sequence(self.host.incarnation, self._counter)
            valid_s = settings.missed_updates * settings.update_s
            self.port.broadcast(Interested(self.node, sequence, 1, valid_s, wanted[:MAX_FILTERS]))

    def _on_interested(self, now: float, sender: NodeId, message: Interested) -> None:
        if message.hops > self._settings.phi:
            # A neighbor with a larger horizon; what it says is beyond this node's.
            return
        if message.hops == 1 and message.node != sender:
            self.port.note(Fact("drop", peer=sender, reason="report_of_another"))
            return
        if not self._horizon.is_new(message.node, message.sequence):
            return
        if not self._interests.learn(message.filters):
            self.port.note(Fact("drop", peer=sender, reason="report_unreadable"))
            return
        until = now + message.valid_s
        self._horizon.accept(message.node, sender, message.hops, message.sequence, until, message.filters)
        if message.hops < self._settings.phi:
            hops = message.hops + 1
            self.port.broadcast(Interested(message.node, message.sequence, hops, message.valid_s, message.filters))

    def _meet(self, now: float, event: Event, hops: int, remaining_s: float, sender: NodeId | None) -> None:
        """The first time that an event is met: deliver, forward, and perhaps store it."""
        settings = self._settings
        until = now + min(remaining_s, event.lease_s, settings.max_lease_s)
        self._seen.add(now, event.id, until + settings.seen_grace_s)
        self._local.deliver(event, hops)
        sent = self._forward(event, hops, until - now, sender, None)
        if settings.store:
            holders = set(sent) if self._tracks else None
            if holders is not None and sender is not None:
                holders.add(sender)
            self._carrier.store(now, Copy(event, hops, sender, until, settings.attempts, holders))

    def _forward(
        self, event: Event, hops: int, remaining_s: float, sender: NodeId | None, holders: set[NodeId] | None
    ) -> list[NodeId]:
        """[004 §2.3.1] Steps 1a, 1b and 3 of the forwarding rule: this protocol makes no predictions."""
        links = allowed_links(self._links, sender, holders)
        nearest = self._horizon.nearest(self._interests.match(event)) if self._settings.phi > 0 else {}
        adjacent, nearby, others = by_distance(links, nearest)
        wanted = quota(self._settings.tau, len(links))
        chosen = chosen_links(wanted, adjacent, nearby, [], others, self.rng)
        if chosen:
            self.port.send_each(chosen, Forwarded(event, hops + 1, remaining_s))
        return chosen


def _wanted(report: tuple[str, ...]) -> tuple[str, ...]:
    return report
