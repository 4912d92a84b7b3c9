"""Who should get which event, as the tables of a trace tell it: filters decide, as they do in a node."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from driftcast.matching import Filter, FilterError, FilterIndex

Pair = tuple[str, str, int, float, str | None]
"""Run, event, node, when it was published, and the subscription if it is to get what its processor makes of it."""


def eligible(events: Iterable[Mapping[str, Any]], subscriptions: Sequence[Mapping[str, Any]]) -> list[Pair]:
    """All eligible pairs of one run, from the rows of its two tables."""
    index: FilterIndex[int] = FilterIndex()
    attributes = [json.loads(subscription["attributes"]) for subscription in subscriptions]
    for place, subscription in enumerate(subscriptions):
        index.add(place, Filter(subscription["filter"]))
    found: list[Pair] = []
    for event in events:
        time_s, access = event["time_s"], _access(event["access"])
        fitting = [
            subscriptions[place]
            for place in sorted(index.match(json.loads(event["attributes"])))
            if _stands(subscriptions[place], time_s) and (access is None or access.matches(attributes[place]))
        ]
        # Nobody is served with what it published itself.
        fitting = [one for one in fitting if one["node"] != event["source"]]
        nodes = {one["node"] for one in fitting if one["processor"] is None}
        found += [(event["run"], event["event"], node, time_s, None) for node in sorted(nodes)]
        found += [
            (event["run"], event["event"], one["node"], time_s, one["subscription"])
            for one in fitting
            # What a processor made is not given to it again.
            if one["processor"] is not None and one["processor"] != event["processor"]
        ]
    return found


def _stands(subscription: Mapping[str, Any], time_s: float) -> bool:
    """From the moment of subscribing on, until just before that of unsubscribing."""
    from_s, to_s = subscription["from_s"], subscription["to_s"]
    assert from_s is not None
    return bool(from_s <= time_s and (to_s is None or time_s < to_s))


def _access(condition: str | None) -> Filter | None:
    if condition is None:
        return None
    try:
        return Filter(condition)
    except FilterError:
        # An unreadable lock stays shut.
        return Filter("false")


def owed(event: Mapping[str, Any], subscription: Mapping[str, Any]) -> bool:
    """Whether a subscription whose filter fits should have an event: published by others, while it stood, and meant for
    it as well. Its attributes are read already."""
    if not _stands(subscription, event["time_s"]) or event["source"] == subscription["node"]:
        return False
    access = _access(event["access"])
    return access is None or access.matches(subscription["attributes"])
