"""Requests of others that wait at a node because it knows nobody who stores what they ask for."""

from collections import Counter
from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.core.protocol import Fact, Port
from carrycast.services.retrieval.messages import Asked, AskId

TIMER = "waiting requests"


class _Waiting(NamedTuple):
    sender: NodeId
    asked: Asked
    until: float


class WaitingRequests:
    """Bounded, and each no longer than its patience. The neighbor with the most of them makes room."""

    def __init__(self, port: Port, most: int) -> None:
        self._port = port
        self._most = most
        self._waiting: dict[tuple[NodeId, AskId], _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, now: float, sender: NodeId, asked: Asked) -> None:
        """A request waits from now on; a later attempt replaces an earlier one."""
        key = (asked.path[-1], asked.ask._replace(attempt=0))
        if key not in self._waiting and len(self._waiting) >= self._most:
            self._make_room()
        self._waiting[key] = _Waiting(sender, asked, now + asked.remaining_s)
        self._watch(now)

    def take(self, now: float) -> list[tuple[NodeId, Asked]]:
        """All that wait, with what is left of their patience; they do not wait any longer."""
        found = [
            (one.sender, _with_remaining(one.asked, one.until - now))
            for one in self._waiting.values()
            if one.until > now
        ]
        self._waiting.clear()
        self._port.cancel_timer(TIMER)
        return found

    def forget(self, neighbor: NodeId) -> None:
        """A neighbor is gone: the answers to what it sent would not find back."""
        self._drop([key for key, one in self._waiting.items() if one.sender == neighbor], "path_broken")

    def expire(self, now: float) -> None:
        """Drop what has waited long enough."""
        self._drop([key for key, one in self._waiting.items() if one.until <= now], "no_advertisement")
        self._watch(now)

    def stop(self) -> None:
        """The node stops."""
        self._port.cancel_timer(TIMER)

    def _make_room(self) -> None:
        most = max(Counter(one.sender for one in self._waiting.values()).items(), key=lambda item: item[1])[0]
        oldest = next(key for key, one in self._waiting.items() if one.sender == most)
        self._drop([oldest], "too_many_waiting_requests")

    def _drop(self, keys: list[tuple[NodeId, AskId]], reason: str) -> None:
        for key in keys:
            self._port.note(Fact("drop", peer=self._waiting.pop(key).sender, reason=reason))

    def _watch(self, now: float) -> None:
        end = min((one.until for one in self._waiting.values()), default=float("inf"))
        self._port.set_timer(TIMER, max(0.0, end - now))


def _with_remaining(asked: Asked, remaining_s: float) -> Asked:
    return Asked(asked.ask, asked.filter, asked.attributes, asked.path, remaining_s, asked.credit, asked.known)
