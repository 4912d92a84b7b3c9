"""Eligibility: a subscription gets an event if its filter matches and the event's access policy admits it."""

from collections.abc import Iterable

from carrycast.core.matching.errors import FilterError
from carrycast.core.matching.filter import Filter
from carrycast.core.model import AccessPolicy, Event, Subscription


def admits(event: Event, subscription: Subscription) -> bool:
    """Whether the event's access policy is satisfied by the subscriber's attributes.

    A policy that does not parse admits no subscriber (fail-safe default).
    """
    if event.access is None:
        return True
    try:
        return Filter(event.access.condition).matches(subscription.attributes)
    except FilterError:
        return False


def serves(event: Event, subscription: Subscription) -> bool:
    """Whether an event is for a subscription: its filter matches and the access policy admits it."""
    return Filter(subscription.filter).matches(event.attributes) and admits(event, subscription)


def joint_policy(events: Iterable[Event]) -> AccessPolicy | None:
    """The access policy of an event derived from others: it admits subscribers that all of their policies admit.

    Each policy is parsed alone before they are joined, so that unbalanced parentheses in one cannot change another. If
    one does not parse, or the result is too long, no subscriber is admitted.
    """
    conditions = dict.fromkeys(event.access.condition for event in events if event.access is not None)
    if not conditions:
        return None
    try:
        texts = dict.fromkeys(Filter(condition).text for condition in conditions)
        return AccessPolicy(Filter(" and ".join(f"({text})" for text in texts if text)).text)
    except FilterError:
        return AccessPolicy("false")
