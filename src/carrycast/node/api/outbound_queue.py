"""What a node says to one client: together, and what can wait only as fast as the client reads.

A node cannot make a client read, but it need not have said more than a little to one that does not. So events of named
subscriptions stay in the store while too much is unread, others wait here as they are, and both go on when the
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

MAX_HANDED_BYTES = 1 << 19
"""What a connection may have unread when events of named subscriptions are handed over: all of a window, if they are
small. One event more is, whatever its size, so that each comes through."""

TURN_BYTES = 1 << 16
"""What is unread when others have to wait for their turn."""
MAX_WAITING = 100_000
"""Events that wait for one client: ten times what protocols hold by default, some 250 bytes each besides the event."""
MAX_ASKED_BYTES = 1 << 26
"""Of events that a client asked for and others bring: as much as may wait for a named subscription."""
MAX_UNREAD_BYTES = 1 << 22
"""Of events that nobody holds and that come whether the client reads or not: some seventy of the longest."""

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


class Kind(Enum):
    """Why an event waits, and so what it costs."""

    HELD = "held"
    """The node holds it anyway, and the client has asked for it."""
    ASKED = "asked"
    """The client has asked for it, and others have brought it."""
    NEWS = "news"
    """It has happened."""


class _Waiting(NamedTuple):
    made: Callable[[], AnyResponse | None]
    kind: Kind
    length: int


def _most_bytes(kind: Kind) -> int | None:
    return {Kind.HELD: None, Kind.ASKED: MAX_ASKED_BYTES, Kind.NEWS: MAX_UNREAD_BYTES}[kind]


class OutboundQueue:
    """The way to one client; a `Flow` for those who hand over to it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._said: list[bytes] = []
        self._said_bytes = 0
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = dict.fromkeys(Kind, 0)
        self._waiting_held = 0
        self._caught_up = asyncio.Event()
        """Set while nothing waits that the node holds."""
        self._caught_up.set()
        self._held_bytes = 0
        """Of events that will be said when they are committed."""
        self._held_up: dict[Callable[[], None], None] = {}
        """Who goes on when there is room, each in its turn."""
        self._task: asyncio.Task[None] | None = None

    @property
    def said_bytes(self) -> int:
        """What was said and is not on its way yet."""
        return self._said_bytes

    @property
    def unread_bytes(self) -> int:
        """What was said and not read; the operating system holds some more."""
        return self._said_bytes + self._writer.transport.get_write_buffer_size()

    def say(self, reply: AnyResponse) -> None:
        """What is said while the loop goes around once goes out together: to send costs more than to say."""
        if not self._said:
            self._loop.call_soon(self.flush)
        line = _encode(reply)
        self._said.append(line)
        self._said_bytes += len(line) + 1

    def tell(self, event: Event, kind: Kind, made: Callable[[], AnyResponse | None]) -> bool:
        """Say what is made of an event when its turn comes, unless that is nothing by then; False if too much waits."""
        if self._writer.is_closing():
            return True
        if not self._waiting and self.unread_bytes <= TURN_BYTES:
            self._say_made(made)
            return True
        if len(self._waiting) >= MAX_WAITING:
            return False
        most_bytes, length = _most_bytes(kind), 0
        if most_bytes is not None:
            length, waiting_bytes = len(_pack(event)), self._waiting_bytes[kind]
            if waiting_bytes and waiting_bytes + length > most_bytes:
                return False
        self._wait(_Waiting(made, kind, length))
        return True

    def say_in_turn(self, made: Callable[[], AnyResponse | None]) -> None:
        """Say this when all that waits was said."""
        if self._waiting:
            self._wait(_Waiting(made, Kind.HELD, 0))
        else:
            self._say_made(made)

    @property
    def waits(self) -> bool:
        """Whether anything waits for its turn."""
        return bool(self._waiting)

    async def caught_up(self) -> None:
        """Wait until the client has what it asked for of what the node holds, or is gone. Who asks for more is heard
        only then: all that the node has let go meanwhile would stay in memory, with every question."""
        await self._caught_up.wait()

    def flush(self) -> None:
        """Send what was said."""
        said, self._said, self._said_bytes = self._said, [], 0
        if said and not self._writer.is_closing():
            said.append(b"")
            self._writer.write(b"\n".join(said))

    async def drain(self) -> None:
        """Wait until most was read. A ConnectionError if the client is gone."""
        self.flush()
        await self._writer.drain()

    def close(self) -> None:
        """Send what was said, and hang up."""
        self._forget()
        if self._task is not None:
            self._task.cancel()
        self.flush()
        self._writer.close()

    # What those who hand over ask.

    @property
    def room_bytes(self) -> int:
        return MAX_HANDED_BYTES - self._held_bytes - self.unread_bytes

    def hold(self, length: int) -> None:
        self._held_bytes += length

    def release(self, length: int) -> None:
        self._held_bytes -= length
        self._go_on()

    def when_there_is_room(self, go_on: Callable[[], None]) -> None:
        self._held_up[go_on] = None
        self._go_on()

    def _say_made(self, made: Callable[[], AnyResponse | None]) -> None:
        reply = made()
        if reply is not None:
            self.say(reply)

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        self._waiting_bytes[waiting.kind] += waiting.length
        if waiting.kind is Kind.HELD:
            self._waiting_held += 1
            self._caught_up.clear()
        self._go_on()

    def _go_on(self) -> None:
        if (self._waiting or self._held_up) and self._task is None and not self._writer.is_closing():
            self._task = self._loop.create_task(self._follow())

    async def _follow(self) -> None:
        """Say what waits, and let go on who does, as the client reads."""
        try:
            while (self._waiting or self._held_up) and not self._writer.is_closing():
                await self._writer.drain()
                self._take_turn()
                while self._held_up and self.room_bytes > 0:
                    go_on = next(iter(self._held_up))
                    del self._held_up[go_on]
                    try:
                        go_on()
                    except Exception as error:
                        # Others wait behind it.
                        LOG.error("a subscription failed on what waits for it", exc_info=error)
                if not self._waiting and self._held_bytes > 0 and self.room_bytes <= 0:
                    return  # Nothing to wait for here: with what is released this begins again.
                await asyncio.sleep(0)
        except ConnectionError:
            self._forget()
        finally:
            self._task = None
            if self._writer.is_closing():
                self._forget()

    def _take_turn(self) -> None:
        while self._waiting and self.unread_bytes <= TURN_BYTES:
            made, kind, length = self._waiting.popleft()
            self._waiting_bytes[kind] -= length
            self._waiting_held -= kind is Kind.HELD
            self._say_made(made)
        self.flush()
        if not self._waiting_held:
            self._caught_up.set()

    def _forget(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = dict.fromkeys(Kind, 0)
        self._waiting_held = 0
        self._caught_up.set()
        self._held_up.clear()
