"""Eligibility: a subscription receives an event if its filter matches and the event's access policy admits it."""

from collections.abc import Iterable

from carrycast.core.matching.errors import FilterError
from carrycast.core.matching.filter import Filter
from carrycast.core.model import AccessPolicy, Event, Subscription


def admits(event: Event, subscription: Subscription) -> bool:
    """Whether the subscriber's attributes satisfy the event's access policy.

    A policy that does not parse admits no subscriber (fail-safe default).
    """
    if event.access is None:
        return True
    try:
        return Filter(event.access.condition).matches(subscription.attributes)
    except FilterError:
        return False


def serves(event: Event, subscription: Subscription) -> bool:
    """Whether a subscription receives an event: its filter matches and the access policy admits it."""
    return Filter(subscription.filter).matches(event.attributes) and admits(event, subscription)


def joint_policy(events: Iterable[Event]) -> AccessPolicy | None:
    """Return the access policy of an event derived from others: it admits the subscribers that all of them admit.

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
