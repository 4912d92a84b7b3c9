"""Eligibility: which nodes should get which event, computed from the tables of a trace as nodes do."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carrycast.core.matching import Filter, FilterError, FilterIndex

Integers = NDArray[np.int64]
Pair = tuple[str, str, int, float, str | None]
"""Run, event, node, time of publication, and the subscription if it has a processor that is to get the event."""
CACHED_MATCHES = 4096
"""Events with equal attributes match the same filters. The matches of this many sets of attributes are cached."""


class Eligibility:
    """The subscriptions of one run, from the rows of its table, and the events that they select."""

    def __init__(self, subscriptions: Sequence[Mapping[str, Any]]) -> None:
        self.rows = subscriptions
        self._index: FilterIndex[int] = FilterIndex()
        self._attributes = [json.loads(row["attributes"]) for row in subscriptions]
        for place, row in enumerate(subscriptions):
            self._index.add(place, Filter(row["filter"]))
        self.node = np.array([row["node"] for row in subscriptions], dtype=np.int64)
        # A subscription includes the time of subscribing, and excludes that of unsubscribing.
        self._from_s = np.array([row["from_s"] for row in subscriptions], dtype=np.float64)
        self._to_s = np.array([row["to_s"] for row in subscriptions], dtype=np.float64)
        self._has_processor = np.array([row["processor"] is not None for row in subscriptions], dtype=np.bool_)
        self._selected: dict[str, Integers] = {}

    def find_nodes(self, event: Mapping[str, Any]) -> Integers:
        """The nodes that should get an event itself, each once, in order."""
        return np.unique(self.node[self.find_subscriptions(event)])

    def find_subscriptions(self, event: Mapping[str, Any]) -> Integers:
        """The indices of the subscriptions without a processor that should get an event."""
        fitting = self._find_fitting(event)
        found: Integers = fitting[~self._has_processor[fitting]]
        return found

    def find_processed(self, event: Mapping[str, Any]) -> Integers:
        """The indices of the subscriptions whose processor should get an event, and that should get its output.

        The output of a processor is not given to that processor again.
        """
        fitting = self._find_fitting(event)
        chosen = fitting[self._has_processor[fitting]]
        own = [self.rows[place]["processor"] != event["processor"] for place in chosen]
        return chosen[np.array(own, dtype=np.bool_)]

    def _find_fitting(self, event: Mapping[str, Any]) -> Integers:
        selected = self._match_filters(event["attributes"])
        time_s = event["time_s"]
        # A subscription without an end has NaN there, so the comparison is false. A node does not get its own events.
        is_active = (self._from_s[selected] <= time_s) & ~(time_s >= self._to_s[selected])
        fitting: Integers = selected[is_active & (self.node[selected] != event["source"])]
        if event["access"] is None:
            return fitting
        access = _parse_access(event["access"])
        allowed = [place for place in fitting.tolist() if access.matches(self._attributes[place])]
        return np.array(allowed, dtype=np.int64)

    def _match_filters(self, attributes: str) -> Integers:
        found = self._selected.get(attributes)
        if found is None:
            found = np.array(sorted(self._index.match(json.loads(attributes))), dtype=np.int64)
            if len(self._selected) >= CACHED_MATCHES:
                self._selected.clear()
            self._selected[attributes] = found
        return found


def find_eligible_pairs(events: Iterable[Mapping[str, Any]], subscriptions: Sequence[Mapping[str, Any]]) -> list[Pair]:
    """All eligible pairs of one run, from the rows of its two tables."""
    eligibility = Eligibility(subscriptions)
    found: list[Pair] = []
    for event in events:
        run, name, time_s = event["run"], event["event"], event["time_s"]
        found += [(run, name, node, time_s, None) for node in eligibility.find_nodes(event).tolist()]
        found += [
            (run, name, subscriptions[place]["node"], time_s, subscriptions[place]["subscription"])
            for place in eligibility.find_processed(event).tolist()
        ]
    return found


def _parse_access(condition: str) -> Filter:
    try:
        return Filter(condition)
    except FilterError:
        # An access policy that cannot be parsed admits no node.
        return Filter("false")
