"""The applications of the node itself: what they want, and what those that asked for history have been given."""

from carrycast.core.matching import Filter
from carrycast.core.model import Event, Subscription, SubscriptionId
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.seen import SeenCache
from carrycast.core.protocol import Port
from carrycast.protocols.tree.talk import Talk
from carrycast.services.retrieval import Retrieval

MAX_SEEN_S = 3600.0
"""An event without an end to its lease is remembered no longer: copies do not circle for an hour."""


class Clients:
    """Delivers to local subscriptions, to each an event once, whether it came by itself or was asked for."""

    def __init__(self, port: Port, talk: Talk, retrieval: Retrieval) -> None:
        self._port = port
        self._talk = talk
        self._retrieval = retrieval
        self._local = LocalSubscriptions(port)
        self._filters: dict[SubscriptionId, str] = {}
        self._given: dict[SubscriptionId, SeenCache] = {}
        """Of subscriptions that wanted history: what they were given of late, in whichever way it came."""

    def subscribe(self, now: float, subscription: Subscription) -> None:
        """[000 §IV] First the subscription, then, if it is wanted, the request for what was before."""
        wanted = Filter(subscription.filter)
        known = self._filters.get(subscription.id)
        self._filters[subscription.id] = wanted.text
        self._local.add(subscription)
        if known != wanted.text:
            self._talk.subscribe(wanted)
            if known is not None:
                self._talk.unsubscribe(known)
        if subscription.history and known is None:
            self._given[subscription.id] = SeenCache()
            self._retrieval.subscribe(now, subscription)

    def unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        """A subscription ends; one that is not there is no mistake."""
        ended = self._filters.pop(subscription, None)
        if ended is not None:
            self._local.remove(subscription)
            self._given.pop(subscription, None)
            self._retrieval.unsubscribe(now, subscription)
            self._talk.unsubscribe(ended)

    def deliver(self, now: float, event: Event, hops: int, until: float) -> None:
        """An event that is met for the first time; it is remembered until a time."""
        if not self._given:
            self._local.deliver(event, hops)
            return
        for subscription in self._local.matching_ids(event):
            given = self._given.get(subscription)
            if given is None or given.add(now, event.id, until):
                self._port.deliver(subscription, event, hops)

    def give_history(self, now: float, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """An event from before a subscription."""
        given = self._given.get(subscription)
        if given is not None and given.add(now, event.id, now + MAX_SEEN_S):
            self._port.deliver(subscription, event, hops)

    def catch_up(self, now: float) -> None:
        """[000 §III] Ask for what was published meanwhile; what is here is named, and not sent again."""
        for subscription, given in self._given.items():
            self._retrieval.subscribe(now, self._local.get(subscription), tuple(sorted(given.ids)))
