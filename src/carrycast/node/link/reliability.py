"""Reliable unicast: frames to a neighbor are numbered, acknowledged, retransmitted, and finally given up.

Each neighbor has a send queue, and as many frames in flight as its congestion window allows (`congestion.py`). A frame
that is not acknowledged within the retransmission timeout (RTO) is retransmitted up to `retries` times; the timeout
doubles each time. If the last attempt fails, the neighbor is unreachable, and all frames queued for it are given up,
because they would delay the frames for others. The setting `queue` bounds the frames that are queued or in flight to
all neighbors together. One timer serves the timeouts of all frames: a timer for each frame would nearly always be
canceled.

No sequence number is more than SEQUENCE_SPAN ahead of a frame that may still be retransmitted. So the receiver can
always tell whether it has received that frame.
"""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from carrycast.core.model import NodeId
from carrycast.node.link.adapter import LinkAddress
from carrycast.node.link.coalescing import DatagramCoalescer
from carrycast.node.link.config import LinkSettings
from carrycast.node.link.congestion import CongestionControl
from carrycast.node.link.frame import MAX_SENDERS, MAX_WAITED_MS, LinkFrame, LinkKind
from carrycast.node.link.replay_window import WINDOW

_DATA = LinkKind.ACKNOWLEDGED_DATA
SEQUENCE_SPAN = WINDOW // 2
"""Half of the receiver's replay window; the other half is for datagrams that arrive out of order."""


C = TypeVar("C")
"""The value by which the layer above recognizes a unicast when its outcome is reported."""


class DeliveryCallbacks(NamedTuple, Generic[C]):
    """The functions that are called with the progress of unicasts."""

    on_transmission: Callable[[C, int], None]
    """A frame is transmitted, with the number of the attempt from 1 on; for the trace."""
    on_acknowledged: Callable[[C], None]
    """A frame was acknowledged. Each accepted frame is reported once, here or in `on_given_up`."""
    on_given_up: Callable[[NodeId, Sequence[C]], None]
    """The neighbor does not acknowledge: all frames that were queued or in flight to it are given up."""


@dataclass(slots=True)
class _PendingFrame(Generic[C]):
    context: C
    target: NodeId
    body: bytes
    queued_s: float
    sequence: int = 0
    attempts: int = 0
    sent_s: float = 0.0
    timeout_s: float = 0.0
    """When the frame is retransmitted, or given up."""


@dataclass(slots=True)
class _SendQueue(Generic[C]):
    """The unicasts to one neighbor: in flight, by sequence number in order, and queued."""

    next: int
    address: LinkAddress
    """The address at which the neighbor was last heard; it may change when the neighbor restarts."""
    congestion: CongestionControl
    in_flight: dict[int, _PendingFrame[C]] = field(default_factory=dict)
    queued: deque[_PendingFrame[C]] = field(default_factory=deque)


class ReliableSender(Generic[C]):
    """The unicasts of one interface of a node."""

    def __init__(
        self,
        node: NodeId,
        session: int,
        coalescer: DatagramCoalescer,
        settings: LinkSettings,
        callbacks: DeliveryCallbacks[C],
    ) -> None:
        self._node = node
        self._session = session
        self._coalescer = coalescer
        self._settings = settings
        self._on_transmission, self._on_acknowledged, self._on_given_up = callbacks
        self._loop = asyncio.get_running_loop()
        self._highest = 0
        self._queues: dict[NodeId, _SendQueue[C]] = {}
        self._congestion: OrderedDict[NodeId, CongestionControl] = OrderedDict()
        """The measurements of each neighbor, also while nothing is queued for it."""
        self.pending = 0
        """How many unicasts are queued or in flight."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = math.inf
        """When the timer fires: no later than the first retransmission timeout."""

    def close(self) -> None:
        """Stop: nothing is sent or reported from now on."""
        if self._timer is not None:
            self._timer.cancel()
        self._queues.clear()

    def send(self, target: NodeId, address: LinkAddress, body: bytes, context: C) -> bool:
        """Queue a unicast, whose outcome is reported later; False, and nothing is reported, if the queue is full."""
        if self.pending >= self._settings.queue:
            return False
        self.pending += 1
        queue = self._queues.get(target)
        if queue is None:
            # An empty queue is removed. A new one begins above every sequence number used so far.
            queue = self._queues[target] = _SendQueue(self._highest + 1, address, self._find_congestion(target))
        queue.address = address
        queue.queued.append(_PendingFrame(context, target, body, time.monotonic()))
        self._fill_window(queue)
        return True

    @property
    def longest_queue(self) -> int:
        """How many unicasts are queued or in flight to the neighbor that has the most."""
        return max((len(queue.queued) + len(queue.in_flight) for queue in self._queues.values()), default=0)

    def set_address(self, target: NodeId, address: LinkAddress) -> None:
        """Send the frames for a neighbor to this address from now on."""
        queue = self._queues.get(target)
        if queue is not None:
            queue.address = address

    def forget(self, target: NodeId) -> None:
        """Forget the measurements of a neighbor whose link is lost; a later link may have another path."""
        if target not in self._queues:
            self._congestion.pop(target, None)

    def on_ack(self, sender: NodeId, session: int, sequences: Sequence[int]) -> int:
        """A neighbor acknowledges frames. Returns how many of them were not in flight: their acknowledgement is late,
        forged, or meant for an earlier start of this node."""
        queue = self._queues.get(sender)
        if queue is None or session != self._session:
            return len(sequences)
        now_s = time.monotonic()
        arrived = [frame for sequence in sequences if (frame := queue.in_flight.pop(sequence, None)) is not None]
        for frame in arrived:
            # Karn's algorithm (RFC 6298, 3): a retransmitted frame gives no sample of the round-trip time.
            queue.congestion.on_ack(now_s - frame.sent_s if frame.attempts == 1 else None)
        self.pending -= len(arrived)
        if queue.queued:
            self._fill_window(queue)
        if not queue.in_flight:
            del self._queues[sender]
        for frame in arrived:
            self._on_acknowledged(frame.context)
        return len(sequences) - len(arrived)

    def _find_congestion(self, target: NodeId) -> CongestionControl:
        found = self._congestion.get(target)
        if found is None:
            found = CongestionControl(self._settings.ack_timeout_s, self._settings.window)
            self._congestion[target] = found
            if len(self._congestion) > MAX_SENDERS:
                self._congestion.popitem(last=False)
        self._congestion.move_to_end(target)
        return found

    def _fill_window(self, queue: _SendQueue[C]) -> None:
        """Transmit queued frames as far as the congestion window allows."""
        queued, in_flight = queue.queued, queue.in_flight
        while queued and len(in_flight) < queue.congestion.cwnd:
            if in_flight and queue.next - next(iter(in_flight)) >= SEQUENCE_SPAN:
                return
            frame = queued.popleft()
            frame.sequence = queue.next
            in_flight[queue.next] = frame
            if queue.next > self._highest:
                self._highest = queue.next
            queue.next += 1
            self._transmit(queue, frame)

    def _transmit(self, queue: _SendQueue[C], pending: _PendingFrame[C]) -> None:
        pending.attempts += 1
        now_s = pending.sent_s = time.monotonic()
        timeout_s = pending.timeout_s = now_s + queue.congestion.rto_s(pending.attempts)
        if timeout_s < self._timer_s:
            self._set_timer(timeout_s)
        waited_ms = min(int((now_s - pending.queued_s) * 1000), MAX_WAITED_MS)
        frame = LinkFrame(_DATA, self._node, self._session, pending.sequence, pending.body, waited_ms)
        # If the socket cannot take the frame now, a later attempt may succeed.
        self._coalescer.send(queue.address, frame, pending.target)
        self._on_transmission(pending.context, pending.attempts)

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = at_s
        self._timer = self._loop.call_at(at_s, self._on_timer)

    def _on_timer(self) -> None:
        """Handle the frames whose retransmission timeout has passed, and set the timer for the next."""
        self._timer, self._timer_s = None, math.inf
        now_s = self._loop.time()
        frames = [frame for queue in self._queues.values() for frame in queue.in_flight.values()]
        for frame in [frame for frame in frames if frame.timeout_s <= now_s]:
            queue = self._queues.get(frame.target)
            # The timeout of an earlier frame may have given up this one, too.
            if queue is not None and queue.in_flight.get(frame.sequence) is frame:
                self._on_timeout(queue, frame, now_s)
        timeouts = [frame.timeout_s for queue in self._queues.values() for frame in queue.in_flight.values()]
        if timeouts:
            self._set_timer(min(timeouts))

    def _on_timeout(self, queue: _SendQueue[C], frame: _PendingFrame[C], now_s: float) -> None:
        queue.congestion.on_timeout(now_s)
        if frame.attempts <= self._settings.retries:
            self._transmit(queue, frame)
        else:
            self._give_up(frame.target)

    def _give_up(self, target: NodeId) -> None:
        """Give up all frames that are queued for a neighbor or in flight to it."""
        queue = self._queues.pop(target)
        self._congestion.pop(target, None)
        frames = [*queue.in_flight.values(), *queue.queued]
        self.pending -= len(frames)
        self._on_given_up(target, [frame.context for frame in frames])
