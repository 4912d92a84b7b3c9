"""Eligibility: which nodes should get which event, by the tables of a trace. Filters decide, as they do in a node."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carrycast.core.matching import Filter, FilterError, FilterIndex

Integers = NDArray[np.int64]
Pair = tuple[str, str, int, float, str | None]
"""Run, event, node, when it was published, and the subscription if it is to get what its processor makes of it."""
LIKE_EVENTS = 4096
"""Events with the same attributes match the same filters: the matches of so many are cached."""


class Eligibility:
    """The subscriptions of one run, from the rows of its table, and the events that they select."""

    def __init__(self, subscriptions: Sequence[Mapping[str, Any]]) -> None:
        self.rows = subscriptions
        self._index: FilterIndex[int] = FilterIndex()
        self._attributes = [json.loads(row["attributes"]) for row in subscriptions]
        for place, row in enumerate(subscriptions):
            self._index.add(place, Filter(row["filter"]))
        self.node = np.array([row["node"] for row in subscriptions], dtype=np.int64)
        # From the moment of subscribing on, until just before that of unsubscribing.
        self._from_s = np.array([row["from_s"] for row in subscriptions], dtype=np.float64)
        self._to_s = np.array([row["to_s"] for row in subscriptions], dtype=np.float64)
        self._through = np.array([row["processor"] is not None for row in subscriptions], dtype=np.bool_)
        self._selected: dict[str, Integers] = {}

    def nodes(self, event: Mapping[str, Any]) -> Integers:
        """The nodes that should get an event as it is, each once, in order."""
        return np.unique(self.node[self.subscriptions(event)])

    def subscriptions(self, event: Mapping[str, Any]) -> Integers:
        """The places of the subscriptions, without a processor, that should get an event."""
        fitting = self._fitting(event)
        found: Integers = fitting[~self._through[fitting]]
        return found

    def through(self, event: Mapping[str, Any]) -> Integers:
        """The places of the subscriptions that should get what their processor makes of an event. An event that a
        processor made is not given to that processor again."""
        fitting = self._fitting(event)
        chosen = fitting[self._through[fitting]]
        own = [self.rows[place]["processor"] != event["processor"] for place in chosen]
        return chosen[np.array(own, dtype=np.bool_)]

    def _fitting(self, event: Mapping[str, Any]) -> Integers:
        selected = self._matching(event["attributes"])
        time_s = event["time_s"]
        # An end that is not there is no number, and nothing comes after it. Nobody gets what it published itself.
        stands = (self._from_s[selected] <= time_s) & ~(time_s >= self._to_s[selected])
        fitting: Integers = selected[stands & (self.node[selected] != event["source"])]
        if event["access"] is None:
            return fitting
        access = _access(event["access"])
        allowed = [place for place in fitting.tolist() if access.matches(self._attributes[place])]
        return np.array(allowed, dtype=np.int64)

    def _matching(self, attributes: str) -> Integers:
        found = self._selected.get(attributes)
        if found is None:
            found = np.array(sorted(self._index.match(json.loads(attributes))), dtype=np.int64)
            if len(self._selected) >= LIKE_EVENTS:
                self._selected.clear()
            self._selected[attributes] = found
        return found


def find_eligible_pairs(events: Iterable[Mapping[str, Any]], subscriptions: Sequence[Mapping[str, Any]]) -> list[Pair]:
    """All eligible pairs of one run, from the rows of its two tables."""
    eligibility = Eligibility(subscriptions)
    found: list[Pair] = []
    for event in events:
        run, name, time_s = event["run"], event["event"], event["time_s"]
        found += [(run, name, node, time_s, None) for node in eligibility.nodes(event).tolist()]
        found += [
            (run, name, subscriptions[place]["node"], time_s, subscriptions[place]["subscription"])
            for place in eligibility.through(event).tolist()
        ]
    return found


def _access(condition: str) -> Filter:
    try:
        return Filter(condition)
    except FilterError:
        # A policy that cannot be read admits nobody.
        return Filter("false")
