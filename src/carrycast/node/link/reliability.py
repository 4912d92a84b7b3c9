"""Unicasts on their way: numbered, in a window for each neighbor, sent again on silence, given up in the end.

Each neighbor has as many frames on the air as its pace allows; others wait in order. A frame that is not acknowledged
in time is sent again, each time after twice as long, up to `retries` times. If that is in vain, the neighbor counts as
unreachable, and all that waits for it is given up as well, for it would only be in the way of what waits for others.
Frames waiting or on the air are bounded by `queue`, all neighbors together. One timer watches over all of them, for a
timer of each would nearly always be set and taken back for nothing.

No unicast is numbered more than SPAN ahead of one that may still be sent again, so that the receiver can always tell
whether it heard that one before.
"""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from carrycast.core.model import NodeId
from carrycast.node.link.coalescing import Departures
from carrycast.node.link.config import LinkSettings
from carrycast.node.link.congestion import Pace
from carrycast.node.link.frame import MAX_SENDERS, MAX_WAITED_MS, WINDOW, LinkFrame, LinkKind
from carrycast.node.link.socket_address import Address

_DATA = LinkKind.ACKNOWLEDGED_DATA
SPAN = WINDOW // 2
"""Half of what a receiver remembers: room for datagrams that overtake each other."""


P = TypeVar("P")
"""What the layer above keeps with a frame that it sends, to know it again."""


class LaneUser(ABC, Generic[P]):
    """Who is told what becomes of unicasts."""

    @abstractmethod
    def transmitted(self, parcel: P, attempt: int) -> None:
        """A unicast goes on the air; attempts count from 1."""

    @abstractmethod
    def acknowledged(self, parcel: P) -> None:
        """A unicast has arrived. Each that was accepted is told of once, here or in `given_up`."""

    @abstractmethod
    def given_up(self, target: NodeId, parcels: Sequence[P]) -> None:
        """A unicast to a neighbor was sent again in vain; it and those behind it are given up."""

    @abstractmethod
    def dropped(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        """Datagrams were dropped."""


@dataclass(slots=True)
class _Pending(Generic[P]):
    parcel: P
    target: NodeId
    body: bytes
    since_s: float
    sequence: int = 0
    attempts: int = 0
    sent_s: float = 0.0
    due_s: float = 0.0
    """When it is sent again, or given up."""


@dataclass(slots=True)
class _Lane(Generic[P]):
    """The unicasts to one neighbor: those on the air by number, in order, and those that wait."""

    next: int
    address: Address
    """Where the neighbor was heard last: a node that starts anew may have another."""
    pace: Pace
    on_air: dict[int, _Pending[P]] = field(default_factory=dict)
    waiting: deque[_Pending[P]] = field(default_factory=deque)


class Lanes(Generic[P]):
    """The unicasts of one interface of a node."""

    def __init__(
        self, node: NodeId, session: int, departures: Departures, settings: LinkSettings, user: LaneUser[P]
    ) -> None:
        self._node = node
        self._session = session
        self._departures = departures
        self._settings = settings
        self._user = user
        self._loop = asyncio.get_running_loop()
        self._highest = 0
        self._lanes: dict[NodeId, _Lane[P]] = {}
        self._paces: OrderedDict[NodeId, Pace] = OrderedDict()
        """How fast neighbors were when last sent to."""
        self.waiting = 0
        """How many unicasts wait or are on the air."""
        self._watch: asyncio.TimerHandle | None = None
        self._watched_s = math.inf
        """When it rings: no later than the first of them is due."""

    def close(self) -> None:
        """Nothing is sent or told from now on."""
        if self._watch is not None:
            self._watch.cancel()
        self._lanes.clear()

    def send(self, target: NodeId, address: Address, body: bytes, parcel: P) -> bool:
        """Take a unicast, whose end is told; False if the queue is full, and then nothing more is told."""
        if self.waiting >= self._settings.queue:
            return False
        self.waiting += 1
        lane = self._lanes.get(target)
        if lane is None:
            # A lane is forgotten when it is empty, and a new one begins above every number given so far.
            lane = self._lanes[target] = _Lane(self._highest + 1, address, self._pace(target))
        lane.address = address
        lane.waiting.append(_Pending(parcel, target, body, time.monotonic()))
        self._launch(lane)
        return True

    @property
    def longest(self) -> int:
        """How many unicasts wait or are on the air to the one neighbor that has the most."""
        return max((len(lane.waiting) + len(lane.on_air) for lane in self._lanes.values()), default=0)

    def moved(self, target: NodeId, address: Address) -> None:
        """A neighbor is heard from there."""
        lane = self._lanes.get(target)
        if lane is not None:
            lane.address = address

    def forget(self, target: NodeId) -> None:
        """A neighbor is gone; the next one of that name may be reached over another way."""
        if target not in self._lanes:
            self._paces.pop(target, None)

    def on_acknowledgements(self, sender: NodeId, session: int, sequences: Sequence[int]) -> int:
        """A neighbor has frames. How many of them were not on their way: late, for an earlier start of this node, or
        forged."""
        lane = self._lanes.get(sender)
        if lane is None or session != self._session:
            return len(sequences)
        now_s = time.monotonic()
        arrived = [pending for sequence in sequences if (pending := lane.on_air.pop(sequence, None)) is not None]
        for pending in arrived:
            lane.pace.answered(now_s - pending.sent_s if pending.attempts == 1 else None)
        self.waiting -= len(arrived)
        if lane.waiting:
            self._launch(lane)
        if not lane.on_air:
            del self._lanes[sender]
        for pending in arrived:
            self._user.acknowledged(pending.parcel)
        return len(sequences) - len(arrived)

    def _pace(self, target: NodeId) -> Pace:
        pace = self._paces.get(target)
        if pace is None:
            pace = self._paces[target] = Pace(self._settings.ack_timeout_s, self._settings.window)
            if len(self._paces) > MAX_SENDERS:
                self._paces.popitem(last=False)
        self._paces.move_to_end(target)
        return pace

    def _launch(self, lane: _Lane[P]) -> None:
        """Put on the air what may go."""
        waiting, on_air = lane.waiting, lane.on_air
        while waiting and len(on_air) < lane.pace.window:
            if on_air and lane.next - next(iter(on_air)) >= SPAN:
                return
            pending = waiting.popleft()
            pending.sequence = lane.next
            on_air[lane.next] = pending
            if lane.next > self._highest:
                self._highest = lane.next
            lane.next += 1
            self._attempt(lane, pending)

    def _attempt(self, lane: _Lane[P], pending: _Pending[P]) -> None:
        pending.attempts += 1
        now_s = pending.sent_s = time.monotonic()
        due_s = pending.due_s = now_s + lane.pace.wait_s(pending.attempts)
        if due_s < self._watched_s:
            self._watch_until(due_s)
        waited_ms = min(int((now_s - pending.since_s) * 1000), MAX_WAITED_MS)
        frame = LinkFrame(_DATA, self._node, self._session, pending.sequence, pending.body, waited_ms)
        # If it cannot leave now, perhaps the next attempt can.
        self._departures.send(lane.address, frame, pending.target)
        self._user.transmitted(pending.parcel, pending.attempts)

    def _watch_until(self, due_s: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watched_s = due_s
        self._watch = self._loop.call_at(due_s, self._on_watch)

    def _on_watch(self) -> None:
        """Look for what is due, and when to look again."""
        self._watch, self._watched_s = None, math.inf
        now_s = self._loop.time()
        for pending in [one for lane in self._lanes.values() for one in lane.on_air.values() if one.due_s <= now_s]:
            lane = self._lanes.get(pending.target)
            # What came before may have been given up together with this one.
            if lane is not None and lane.on_air.get(pending.sequence) is pending:
                self._on_silence(lane, pending, now_s)
        dues = [pending.due_s for lane in self._lanes.values() for pending in lane.on_air.values()]
        if dues:
            self._watch_until(min(dues))

    def _on_silence(self, lane: _Lane[P], pending: _Pending[P], now_s: float) -> None:
        lane.pace.silent(now_s)
        if pending.attempts <= self._settings.retries:
            self._attempt(lane, pending)
        else:
            self._give_up(pending.target)

    def _give_up(self, target: NodeId) -> None:
        """The neighbor does not answer: whatever is on its way to it is not, any more."""
        lane = self._lanes.pop(target)
        self._paces.pop(target, None)
        given_up = [*lane.on_air.values(), *lane.waiting]
        self.waiting -= len(given_up)
        self._user.given_up(target, [pending.parcel for pending in given_up])
