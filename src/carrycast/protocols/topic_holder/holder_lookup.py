"""Looks up the holders of a topic: targets for the router."""

from collections.abc import Iterator

import msgspec

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import NodeId, Position, nearest, squared_m
from carrycast.core.protocol import Host, Place
from carrycast.protocols.topic_holder.messages import SubscriptionEntry
from carrycast.protocols.topic_holder.rules import home_nodes, home_place, is_plausible
from carrycast.protocols.topic_holder.settings import TopicHolderSettings

WAYPOINT_M = 10.0
"""The distance of the points along roads, far below any radio range."""
MAX_CACHED_PLACES = 256
"""Cached places: the search through the points of a map takes long."""


class HolderLookup:
    """The holders of each topic, and which of them could not be reached recently."""

    def __init__(self, node: NodeId, settings: TopicHolderSettings, host: Host) -> None:
        self._node = node
        self._settings = settings
        self._host = host
        self._nodes: tuple[NodeId, ...] = ()
        self._waypoints: tuple[Position, ...] = ()
        self._failed: dict[NodeId, float] = {}
        self._places: dict[tuple[str, int], Position] = {}
        if settings.holder == "node":
            self._nodes = tuple(sorted(host.directory(settings.role)))
        elif settings.holder == "road":
            self._waypoints = host.road_map().waypoints(WAYPOINT_M)

    def find_all(self, now: float, topic: str) -> Iterator[NodeId | Place]:
        """[003 §3.2] Every holder of a topic: subscribers send their subscription to each of them."""
        for number in range(self._settings.holders):
            target = self._find_target(now, topic, number)
            if target is not None:
                yield target

    def find_for_publisher(self, now: float, topic: str, here: Position | None) -> list[NodeId | Place]:
        """The holders to which a publisher sends: all, or one; the nearest place, or by the publisher's id."""
        settings = self._settings
        if settings.publish_to == "all" or settings.holders == 1:
            return list(self.find_all(now, topic))
        if settings.by_place and here is not None:
            return [self.find_nearest_place(topic, here)]
        target = self._find_target(now, topic, self._node % settings.holders)
        return [] if target is None else [target]

    def find_next(self, now: float, failed: NodeId, topic: str) -> NodeId | None:
        """[003 §3.4] The next holder of a topic by hash, after a holder could not be reached; None if there is none."""
        self._failed = {node: until for node, until in self._failed.items() if until > now}
        self._failed[failed] = now + self._settings.failed_s
        for number in range(self._settings.holders):
            nodes = self._find_nodes(topic, number)
            if failed in nodes:
                return next((node for node in nodes if node not in self._failed), None)
        return None

    def may_hold(self, node: NodeId, topic: str) -> bool:
        """Whether a node may be a holder of a topic; at places any node may."""
        if self._settings.by_place:
            return True
        return any(node in self._find_nodes(topic, number) for number in range(self._settings.holders))

    def find_nearest_place(self, topic: str, here: Position) -> Place:
        """The place of a topic that is nearest to a position."""
        places = [self.find_place(topic, number) for number in range(self._settings.holders)]
        return Place(nearest(places, here), self._settings.capture_m)

    def is_within(self, topic: str, here: Position | None) -> bool:
        """[003 §3.5] Whether a node there is within K of a place of the topic."""
        capture_m = self._settings.capture_m
        if not self._settings.by_place or here is None or capture_m == 0:
            return False
        numbers = range(self._settings.holders)
        return any(squared_m(here, self.find_place(topic, number)) <= capture_m * capture_m for number in numbers)

    def is_plausible_position(self, position: Position | None) -> bool:
        """Whether a claimed position is plausible; without places none is needed."""
        return not self._settings.by_place or is_plausible(position, self._host.area)

    def find_flaw(self, entry: SubscriptionEntry) -> str | None:
        """The reason to drop an entry that cannot be matched or forwarded, or whose subscriber cannot be reached; else
        None."""
        if not self.is_plausible_position(entry.position):
            return "absurd_position"
        if len(msgspec.msgpack.encode(entry.subscription)) > self._settings.list_bytes:
            return "subscription_too_long"
        try:
            Filter(entry.subscription.filter)
        except FilterError:
            return "filter_unreadable"
        return None

    def find_place(self, topic: str, number: int = 0) -> Position:
        """[003 §3.3, §3.6] The place of a topic: its hash, or the point of a road nearest to it."""
        found = self._places.get((topic, number))
        if found is None:
            found = home_place(topic, number, self._host.area)
            if self._waypoints:
                found = nearest(self._waypoints, found)
            if len(self._places) >= MAX_CACHED_PLACES:
                del self._places[next(iter(self._places))]
            self._places[topic, number] = found
        return found

    def _find_target(self, now: float, topic: str, number: int) -> NodeId | Place | None:
        if self._settings.by_place:
            return Place(self.find_place(topic, number), self._settings.capture_m)
        nodes = self._find_nodes(topic, number)
        reachable = (node for node in nodes if self._failed.get(node, now) <= now)
        return next(reachable, nodes[0] if nodes else None)

    def _find_nodes(self, topic: str, number: int) -> list[NodeId]:
        settings = self._settings
        return home_nodes(topic, number, settings.holders, self._nodes, settings.next_holders)
