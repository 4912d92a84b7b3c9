"""How much one neighbor may take of a node: its time, and places among its neighbors.

A neighbor's messages are read and handled on credit: it has some seconds of the node's CPU in advance, and gets back a
share of the time that passes. What other programs take of the processor meanwhile is not charged to it. While it has
none left, its messages are dropped before they are read, and are not acknowledged, so that an honest one sends them
again later.
"""

import time
from collections import OrderedDict
from typing import Annotated

import msgspec
from msgspec import Meta

from driftcast.live.link.frame import MAX_SENDERS
from driftcast.model import NodeId


class QuotaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For each neighbor on each interface."""

    neighbors: Annotated[int, Meta(ge=1, le=4096, description="neighbors on one interface; others are not heard")] = 256
    share: Annotated[
        float, Meta(gt=0, le=1, description="of a core, that handling the messages of one neighbor may take for long")
    ] = 0.9
    advance_s: Annotated[float, Meta(gt=0, le=3600, description="seconds of it that a neighbor may take at once")] = 5.0


class Quota:
    """What each neighbor has left."""

    def __init__(self, settings: QuotaSettings) -> None:
        self.neighbors = settings.neighbors
        self._share = settings.share
        self._advance_s = settings.advance_s
        self._spent: OrderedDict[NodeId, tuple[float, float]] = OrderedDict()
        """How much of the advance is spent, as of when; nobody here has spent nothing."""

    def begin(self, neighbor: NodeId) -> float | None:
        """What the node has used so far, as something of a neighbor is begun; None if it has no time left."""
        found = self._spent.get(neighbor)
        if found is not None and found[0] - (time.perf_counter() - found[1]) * self._share >= self._advance_s:
            return None
        return time.thread_time()

    def end(self, neighbor: NodeId, begun_s: float) -> None:
        """What was begun has ended."""
        now_s, found = time.perf_counter(), self._spent.get(neighbor)
        left_s = 0.0 if found is None else found[0] - (now_s - found[1]) * self._share
        self._spent[neighbor] = ((left_s if left_s > 0.0 else 0.0) + time.thread_time() - begun_s, now_s)
        self._spent.move_to_end(neighbor)
        if found is None and len(self._spent) > MAX_SENDERS:
            self._spent.popitem(last=False)
