"""The subscriptions of a node's own applications, and delivery to them."""

from collections.abc import Iterator

from carrycast.core.matching import Filter, FilterIndex, admits
from carrycast.core.model import Event, Subscription, SubscriptionId
from carrycast.core.protocol import Port


class LocalSubscriptions:
    """Delivers each event to all matching local subscriptions, in the order of subscription."""

    __slots__ = ("_index", "_port", "_subscriptions")

    def __init__(self, port: Port) -> None:
        self._port = port
        self._index: FilterIndex[SubscriptionId] = FilterIndex()
        self._subscriptions: dict[SubscriptionId, Subscription] = {}

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, subscription: SubscriptionId) -> bool:
        return subscription in self._subscriptions

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._subscriptions.values())

    def get(self, subscription: SubscriptionId) -> Subscription:
        """A local subscription by its id."""
        return self._subscriptions[subscription]

    def add(self, subscription: Subscription) -> None:
        """Add a subscription; one with the same id is replaced."""
        self.remove(subscription.id)
        self._subscriptions[subscription.id] = subscription
        self._index.add(subscription.id, Filter(subscription.filter))

    def remove(self, subscription: SubscriptionId) -> None:
        """Remove a subscription; an unknown id is ignored."""
        if self._subscriptions.pop(subscription, None) is not None:
            self._index.remove(subscription)

    def wants(self, event: Event) -> bool:
        """Whether the event is for any local subscription."""
        return any(admits(event, self._subscriptions[id]) for id in self._index.match(event.attributes))

    def matching_ids(self, event: Event) -> list[SubscriptionId]:
        """The local subscriptions that an event is for."""
        return [id for id in self._index.match(event.attributes) if admits(event, self._subscriptions[id])]

    def deliver(self, event: Event, hops: int) -> None:
        """Deliver an event to all matching subscriptions. The caller filters out duplicates."""
        for subscription in self._index.match(event.attributes):
            if event.access is None or admits(event, self._subscriptions[subscription]):
                self._port.deliver(subscription, event, hops)
