"""A publisher in rendezvous mode: the subscription lists of its topics, and the events that wait for one [003
§3.2.2]."""

from collections.abc import Iterable

from carrycast.core.protocol import Fact, Port
from carrycast.core.wire import LEASE_EXPIRED
from carrycast.protocols.topic_holder.messages import Notification, SubscriptionEntry
from carrycast.protocols.topic_holder.settings import TopicHolderSettings
from carrycast.protocols.topic_holder.subscription_table import SubscriptionTable


class RendezvousPublisher:
    """The topics on which one node publishes, and their known subscriptions."""

    def __init__(self, settings: TopicHolderSettings, port: Port) -> None:
        self._settings = settings
        self._port = port
        self._lists = SubscriptionTable(settings.max_held)
        self._published: dict[str, float] = {}
        """When this node last published on a topic."""
        self._valid_until: dict[str, float] = {}
        """When the list of a topic expires; it may be empty."""
        self._waiting: dict[str, list[tuple[float, Notification]]] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._published

    def on_published(self, now: float, topic: str) -> None:
        """An event of a topic was published: its list is needed from now on."""
        self._published[topic] = now

    def entries(self, now: float, topic: str) -> list[SubscriptionEntry] | None:
        """The list of a topic; None if there is no valid one."""
        return self._lists.entries(now, topic) if self._valid_until.get(topic, now) > now else None

    def enqueue(self, now: float, topic: str, message: Notification) -> None:
        """Queue an event until there is a list. If too many wait, the oldest is dropped."""
        if sum(map(len, self._waiting.values())) >= self._settings.max_waiting:
            oldest = min(self._waiting, key=lambda waiting: self._waiting[waiting][0][0])
            self._drop(self._waiting[oldest].pop(0)[1], "waiting_full")
            if not self._waiting[oldest]:
                del self._waiting[oldest]
        self._waiting.setdefault(topic, []).append((now, message))

    def on_list(self, now: float, topic: str, entries: Iterable[SubscriptionEntry], more: bool) -> list[Notification]:
        """Store a list, or a part of one; returns the events that waited for it once it is complete, with their age."""
        until = now + self._settings.timeout_s
        for entry in entries:
            if not self._lists.refresh(now, topic, entry, until):
                self._port.note(Fact("drop", peer=entry.subscription.subscriber, reason="table_full"))
        if more:
            return []
        self._valid_until[topic] = until
        released = []
        for since, message in self._waiting.pop(topic, []):
            aged = message.age_by(now - since)
            if aged is None:
                self._drop(message, LEASE_EXPIRED)
            else:
                released.append(aged)
        return released

    def active_topics(self, now: float) -> list[str]:
        """The topics whose lists are needed: those on which this node has published lately. Drops events that have
        waited too long."""
        settings = self._settings
        for topic, waiting in list(self._waiting.items()):
            left = [item for item in waiting if item[0] + settings.list_wait_s > now]
            for _, message in waiting[: len(waiting) - len(left)]:
                self._drop(message, "no_list")
            self._waiting[topic] = left
            if not left:
                del self._waiting[topic]
        for topic in [topic for topic, last in self._published.items() if last + settings.publisher_s <= now]:
            if topic not in self._waiting:
                del self._published[topic]
                self._valid_until.pop(topic, None)
                self._lists.remove_topic(topic)
        return list(self._published)

    def _drop(self, message: Notification, reason: str) -> None:
        self._port.note(Fact("drop", event=message.event.id, reason=reason))
