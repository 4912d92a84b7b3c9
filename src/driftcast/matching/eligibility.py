"""Whether a subscription should be served with an event: its filter matches and the event's access policy admits it."""

from driftcast.matching.errors import FilterError
from driftcast.matching.filter import Filter
from driftcast.model import Event, Subscription


def admits(event: Event, subscription: Subscription) -> bool:
    """Whether the event's access policy is satisfied by the subscriber's attributes.

    A policy that does not parse admits nobody: an unreadable lock stays shut.
    """
    if event.access is None:
        return True
    try:
        return Filter(event.access.condition).matches(subscription.attributes)
    except FilterError:
        return False


def serves(event: Event, subscription: Subscription) -> bool:
    """Whether the subscription should get the event."""
    return Filter(subscription.filter).matches(event.attributes) and admits(event, subscription)
