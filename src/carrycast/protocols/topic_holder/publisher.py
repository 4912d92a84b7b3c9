"""A publisher in rendezvous mode: the lists it was sent, and the events that wait for one [003 §3.2.2]."""

from collections.abc import Iterable

from carrycast.core.protocol import Fact, Port
from carrycast.core.wire import LEASE_EXPIRED
from carrycast.protocols.topic_holder.messages import Entry, ToSubscriber
from carrycast.protocols.topic_holder.settings import TopicHolderSettings
from carrycast.protocols.topic_holder.table import SubscriptionTable


class Publisher:
    """What one node publishes, topic by topic, and who it knows to subscribe."""

    def __init__(self, settings: TopicHolderSettings, port: Port) -> None:
        self._settings = settings
        self._port = port
        self._lists = SubscriptionTable(settings.max_held)
        self._published: dict[str, float] = {}
        """When this node last published on a topic."""
        self._stands: dict[str, float] = {}
        """Until when the list of a topic stands, be it empty."""
        self._waiting: dict[str, list[tuple[float, ToSubscriber]]] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._published

    def publishes(self, now: float, topic: str) -> None:
        """An event of a topic: from now on its list is wanted."""
        self._published[topic] = now

    def subscribers(self, now: float, topic: str) -> list[Entry] | None:
        """The list of a topic; None if none has come, or none lately."""
        return self._lists.entries(now, topic) if self._stands.get(topic, now) > now else None

    def wait(self, now: float, topic: str, message: ToSubscriber) -> None:
        """An event for which there is no list yet. Too many: the oldest makes room."""
        if sum(map(len, self._waiting.values())) >= self._settings.max_waiting:
            oldest = min(self._waiting, key=lambda waiting: self._waiting[waiting][0][0])
            self._drop(self._waiting[oldest].pop(0)[1], "waiting_full")
            if not self._waiting[oldest]:
                del self._waiting[oldest]
        self._waiting.setdefault(topic, []).append((now, message))

    def learn(self, now: float, topic: str, entries: Iterable[Entry], more: bool) -> list[ToSubscriber]:
        """A list, or a part of one. Once it is whole, the events that waited for it, as old as they are by now."""
        until = now + self._settings.timeout_s
        for entry in entries:
            if not self._lists.hold(now, topic, entry, until):
                self._port.note(Fact("drop", peer=entry.subscription.subscriber, reason="table_full"))
        if more:
            return []
        self._stands[topic] = until
        released = []
        for since, message in self._waiting.pop(topic, []):
            aged = message.age_by(now - since)
            if aged is None:
                self._drop(message, LEASE_EXPIRED)
            else:
                released.append(aged)
        return released

    def topics(self, now: float) -> list[str]:
        """Those whose lists are wanted. Who has not published for long asks no more; who waited for too long goes."""
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
                self._stands.pop(topic, None)
                self._lists.forget(topic)
        return list(self._published)

    def _drop(self, message: ToSubscriber, reason: str) -> None:
        self._port.note(Fact("drop", event=message.event.id, reason=reason))
