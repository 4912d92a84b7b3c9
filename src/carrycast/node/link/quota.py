"""How much one neighbor may take of a node: its time, and places among its neighbors.

A neighbor's messages are read and handled on credit: it has some seconds of the node's CPU in advance, and gets back a
share of the time that passes. What other programs take of the processor meanwhile is not charged to it. While it has
none left, its messages are dropped before they are read, and are not acknowledged, so that an honest one sends them
again later.

To ask how much CPU was used takes longer than to handle some messages. So there is one account open at a time, until
something of another neighbor comes or the node's loop goes around: what came together is charged together.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.node.link.frame import MAX_SENDERS


class QuotaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For each neighbor on each interface."""

    neighbors: Annotated[int, Meta(ge=1, le=4096, description="neighbors on one interface; others are not heard")] = 256
    share: Annotated[
        float, Meta(gt=0, le=1, description="of a core, that handling the messages of one neighbor may take for long")
    ] = 0.9
    advance_s: Annotated[float, Meta(gt=0, le=3600, description="seconds of it that a neighbor may take at once")] = 5.0


class Quota:
    """What each neighbor has left. `soon` calls something when the loop goes around."""

    def __init__(self, settings: QuotaSettings, soon: Callable[[Callable[[], None]], object]) -> None:
        self.neighbors = settings.neighbors
        self._share = settings.share
        self._advance_s = settings.advance_s
        self._soon = soon
        self._spent: OrderedDict[NodeId, tuple[float, float]] = OrderedDict()
        """How much of the advance is spent, as of when; nobody here has spent nothing."""
        self._open: NodeId | None = None
        """On whose account all that is done goes."""
        self._begun_s = 0.0
        self._settles = False

    def admit(self, neighbor: NodeId) -> bool:
        """Whether something of a neighbor may be handled now; then that is on its account."""
        if neighbor == self._open:
            return True
        self._charge()
        if self._owes(neighbor, time.perf_counter()) >= self._advance_s:
            return False
        self._open = neighbor
        self._begun_s = time.thread_time()
        if not self._settles:
            self._settles = True
            self._soon(self.settle)
        return True

    def settle(self) -> None:
        """What comes next is on nobody's account."""
        self._settles = False
        self._charge()

    def _owes(self, neighbor: NodeId, now_s: float) -> float:
        """How much of its advance a neighbor has still spent."""
        found = self._spent.get(neighbor)
        return 0.0 if found is None else max(found[0] - (now_s - found[1]) * self._share, 0.0)

    def _charge(self) -> None:
        neighbor, self._open = self._open, None
        if neighbor is None:
            return
        now_s = time.perf_counter()
        self._spent[neighbor] = (self._owes(neighbor, now_s) + time.thread_time() - self._begun_s, now_s)
        self._spent.move_to_end(neighbor)
        if len(self._spent) > MAX_SENDERS:
            self._spent.popitem(last=False)
