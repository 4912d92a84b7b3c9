"""What a node says to one client: together, and what can wait only as fast as the client reads.

A node cannot make a client read, but it need not have said more than a little to one that does not. So events of named
subscriptions stay in the store while too much is unread, and go on when the connection has drained.
"""

import asyncio
from collections.abc import Callable

import msgspec

from driftcast.live.door.messages import Reply

MAX_HANDED_BYTES = 1 << 19
"""What a connection may have unread when events of named subscriptions are handed over: all of a window, if they are
small. One event more is, whatever its size, so that each comes through."""

_encode = msgspec.json.Encoder().encode


class Outlet:
    """The way to one client; a `Flow` for those who hand over to it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._said: list[bytes] = []
        self._said_bytes = 0
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

    def say(self, reply: Reply) -> None:
        """What is said while the loop goes around once goes out together: to send costs more than to say."""
        if not self._said:
            self._loop.call_soon(self.flush)
        line = _encode(reply)
        self._said.append(line)
        self._said_bytes += len(line) + 1

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
        self._held_up.clear()
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

    def _go_on(self) -> None:
        if self._held_up and self._task is None and not self._writer.is_closing():
            self._task = self._loop.create_task(self._follow())

    async def _follow(self) -> None:
        """Let go on whoever waits, as the client reads."""
        try:
            while self._held_up and not self._writer.is_closing():
                await self._writer.drain()
                while self._held_up and self.room_bytes > 0:
                    go_on = next(iter(self._held_up))
                    del self._held_up[go_on]
                    go_on()
                if self._held_bytes > 0 and self.room_bytes <= 0:
                    return  # Nothing to wait for here: with what is released this begins again.
                await asyncio.sleep(0)
        except ConnectionError:
            return
        finally:
            self._task = None
