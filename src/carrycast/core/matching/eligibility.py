"""Whether a subscription should be served with an event: its filter matches and the event's access policy admits it."""

from collections.abc import Iterable

from carrycast.core.matching.errors import FilterError
from carrycast.core.matching.filter import Filter
from carrycast.core.model import AccessPolicy, Event, Subscription


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


def joint_policy(events: Iterable[Event]) -> AccessPolicy | None:
    """The policy of what is made of some events: it admits whom each of theirs does.

    Each is read alone before they are joined, so that none can undo another by its parentheses. If one cannot be read,
    or all together are too long to be, nobody is admitted.
    """
    conditions = dict.fromkeys(event.access.condition for event in events if event.access is not None)
    if not conditions:
        return None
    try:
        texts = dict.fromkeys(Filter(condition).text for condition in conditions)
        return AccessPolicy(Filter(" and ".join(f"({text})" for text in texts if text)).text)
    except FilterError:
        return AccessPolicy("false")
