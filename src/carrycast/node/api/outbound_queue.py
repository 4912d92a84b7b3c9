"""The outbound queue of one client connection: responses and notifications, sent as fast as the client reads.

A node cannot make a client read, but it need not buffer much for a client that does not. Events of durable
subscriptions stay in the store while too much is unread, other events wait in this queue, and both continue when the
connection has drained.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import msgspec

from carrycast.core.model import Event
from carrycast.node.api.messages import AnyResponse
from carrycast.node.recorder import LOG

MAX_DURABLE_BYTES = 1 << 19
"""How many bytes may be unread when events of durable subscriptions are delivered: a whole prefetch window of small
events. While there is any room one event of any size is delivered, so that each gets through."""

HIGH_WATER_BYTES = 1 << 16
"""How many bytes may be unread before events of other subscriptions have to queue."""
MAX_QUEUED = 100_000
"""Queued events of one client: ten times what protocols hold by default, some 250 bytes each besides the event."""
MAX_REQUESTED_BYTES = 1 << 26
"""Of events that a client requested and other nodes sent: as much as the backlog of a durable subscription."""
MAX_LIVE_BYTES = 1 << 22
"""Of new events, which arrive whether the client reads or not: some seventy of the longest."""

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode

MakeResponse = Callable[[], AnyResponse | None]
"""Makes a queued response when its turn comes; None if it is obsolete by then."""


class QueuedKind(Enum):
    """Why an event is queued, which decides how many bytes may be."""

    STORED = "stored"
    """The client requested it, and the protocol holds it anyway."""
    REQUESTED = "requested"
    """The client requested it, and other nodes sent it."""
    LIVE = "live"
    """It is new."""


class _Queued(NamedTuple):
    make: MakeResponse
    kind: QueuedKind
    length: int


def _max_bytes(kind: QueuedKind) -> int | None:
    return {QueuedKind.STORED: None, QueuedKind.REQUESTED: MAX_REQUESTED_BYTES, QueuedKind.LIVE: MAX_LIVE_BYTES}[kind]


class OutboundQueue:
    """The queue of one connection. It is the `FlowControl` of the connection's durable subscriptions."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._buffer: list[bytes] = []
        """Lines of this turn of the event loop, which are written together."""
        self._buffer_bytes = 0
        self._queue: deque[_Queued] = deque()
        self._queued_bytes = dict.fromkeys(QueuedKind, 0)
        self._stored_count = 0
        self._stored_sent = asyncio.Event()
        """Set while no stored event is queued."""
        self._stored_sent.set()
        self._reserved_bytes = 0
        """Of durable events that will be sent when they are committed."""
        self._waiters: dict[Callable[[], None], None] = {}
        """Durable subscriptions that wait for room, in turn."""
        self._task: asyncio.Task[None] | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes that are not written to the connection yet."""
        return self._buffer_bytes

    @property
    def unread_bytes(self) -> int:
        """Bytes that the client has not read; the operating system buffers some more."""
        return self._buffer_bytes + self._writer.transport.get_write_buffer_size()

    def send(self, response: AnyResponse) -> None:
        """Send a response at the end of this turn of the event loop: one write for many costs less."""
        if not self._buffer:
            self._loop.call_soon(self.flush)
        line = _encode(response)
        self._buffer.append(line)
        self._buffer_bytes += len(line) + 1

    def enqueue_event(self, event: Event, kind: QueuedKind, make: MakeResponse) -> bool:
        """Send a notification of an event, now or when its turn comes; False if the queue is full."""
        if self._writer.is_closing():
            return True
        if not self._queue and self.unread_bytes <= HIGH_WATER_BYTES:
            self._send_made(make)
            return True
        if len(self._queue) >= MAX_QUEUED:
            return False
        max_bytes, length = _max_bytes(kind), 0
        if max_bytes is not None:
            length, queued_bytes = len(_pack(event)), self._queued_bytes[kind]
            if queued_bytes and queued_bytes + length > max_bytes:
                return False
        self._enqueue(_Queued(make, kind, length))
        return True

    def enqueue(self, make: MakeResponse) -> None:
        """Send a response after everything that is queued."""
        if self._queue:
            self._enqueue(_Queued(make, QueuedKind.STORED, 0))
        else:
            self._send_made(make)

    @property
    def is_waiting(self) -> bool:
        """Whether anything is queued."""
        return bool(self._queue)

    async def stored_sent(self) -> None:
        """Wait until all stored events that the client requested are sent, or the client has disconnected. Its next
        request for stored events is served only then: events that the protocol evicts meanwhile would stay in memory,
        with every request."""
        await self._stored_sent.wait()

    def flush(self) -> None:
        """Write the buffered lines to the connection."""
        lines, self._buffer, self._buffer_bytes = self._buffer, [], 0
        if lines and not self._writer.is_closing():
            lines.append(b"")
            self._writer.write(b"\n".join(lines))

    async def drain(self) -> None:
        """Wait until the client has read most of it. A ConnectionError if it has disconnected."""
        self.flush()
        await self._writer.drain()

    def close(self) -> None:
        """Write the buffered lines, and close the connection."""
        self._clear()
        if self._task is not None:
            self._task.cancel()
        self.flush()
        self._writer.close()

    # Flow control of durable subscriptions.

    @property
    def room_bytes(self) -> int:
        return MAX_DURABLE_BYTES - self._reserved_bytes - self.unread_bytes

    def reserve(self, length: int) -> None:
        self._reserved_bytes += length

    def release(self, length: int) -> None:
        self._reserved_bytes -= length
        self._start_sending()

    def when_writable(self, then: Callable[[], None]) -> None:
        self._waiters[then] = None
        self._start_sending()

    def _send_made(self, make: MakeResponse) -> None:
        response = make()
        if response is not None:
            self.send(response)

    def _enqueue(self, queued: _Queued) -> None:
        self._queue.append(queued)
        self._queued_bytes[queued.kind] += queued.length
        if queued.kind is QueuedKind.STORED:
            self._stored_count += 1
            self._stored_sent.clear()
        self._start_sending()

    def _start_sending(self) -> None:
        if (self._queue or self._waiters) and self._task is None and not self._writer.is_closing():
            self._task = self._loop.create_task(self._send_queue())

    async def _send_queue(self) -> None:
        """Send the queue, and let durable subscriptions deliver, as fast as the client reads."""
        try:
            while (self._queue or self._waiters) and not self._writer.is_closing():
                await self._writer.drain()
                self._send_some()
                while self._waiters and self.room_bytes > 0:
                    then = next(iter(self._waiters))
                    del self._waiters[then]
                    try:
                        then()
                    except Exception as error:
                        # The other subscriptions of this connection continue.
                        LOG.error("a subscription failed to deliver its backlog", exc_info=error)
                if not self._queue and self._reserved_bytes > 0 and self.room_bytes <= 0:
                    return  # `release` starts this task again.
                await asyncio.sleep(0)
        except ConnectionError:
            self._clear()
        finally:
            self._task = None
            if self._writer.is_closing():
                self._clear()

    def _send_some(self) -> None:
        while self._queue and self.unread_bytes <= HIGH_WATER_BYTES:
            make, kind, length = self._queue.popleft()
            self._queued_bytes[kind] -= length
            self._stored_count -= kind is QueuedKind.STORED
            self._send_made(make)
        self.flush()
        if not self._stored_count:
            self._stored_sent.set()

    def _clear(self) -> None:
        self._queue.clear()
        self._queued_bytes = dict.fromkeys(QueuedKind, 0)
        self._stored_count = 0
        self._stored_sent.set()
        self._waiters.clear()
