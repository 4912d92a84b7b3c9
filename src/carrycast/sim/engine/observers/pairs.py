"""Which subscriptions an event should serve, one by one, and which it served: clients of one node count apart."""

from carrycast.core.matching import Filter, FilterIndex, admits
from carrycast.core.model import Event, EventId, Subscription, SubscriptionId


class NoPairs:
    """Nobody asks."""

    def on_subscribe(self, subscription: Subscription) -> None:
        """A subscription stands from now on."""

    def on_unsubscribe(self, id: SubscriptionId) -> None:
        """It no longer does."""

    def on_event(self, now_s: float, event: Event) -> None:
        """An event exists: it should serve the subscriptions that stand now, those of its own node too."""

    def on_deliver(self, id: SubscriptionId, event: EventId) -> None:
        """A client is given an event."""

    def ratio(self) -> float | None:
        """Served pairs / pairs; None if there are none."""
        return None


class Pairs(NoPairs):
    """Counts the pairs of the events published in a window. A client that leaves unserved has missed what it was owed,
    also if an event was just on its way to it."""

    def __init__(self, from_s: float, to_s: float) -> None:
        self._from_s = from_s
        self._to_s = to_s
        self._index: FilterIndex[SubscriptionId] = FilterIndex()
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._owed: dict[SubscriptionId, set[EventId]] = {}
        self._served = 0
        self._missed = 0

    def on_subscribe(self, subscription: Subscription) -> None:
        self._subscriptions[subscription.id] = subscription
        self._index.add(subscription.id, Filter(subscription.filter))

    def on_unsubscribe(self, id: SubscriptionId) -> None:
        if self._subscriptions.pop(id, None) is not None:
            self._index.remove(id)
            self._missed += len(self._owed.pop(id, ()))

    def on_event(self, now_s: float, event: Event) -> None:
        if self._from_s <= now_s <= self._to_s:
            for id in self._index.match(event.attributes):
                if admits(event, self._subscriptions[id]):
                    self._owed.setdefault(id, set()).add(event.id)

    def on_deliver(self, id: SubscriptionId, event: EventId) -> None:
        owed = self._owed.get(id)
        if owed is not None and event in owed:
            owed.remove(event)
            self._served += 1

    def ratio(self) -> float | None:
        pairs = self._served + self._missed + sum(len(owed) for owed in self._owed.values())
        return self._served / pairs if pairs else None
