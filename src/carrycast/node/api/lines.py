"""The lines of a connection, taken from what comes at once rather than one by one."""

import asyncio
import time
from collections.abc import AsyncIterator

from carrycast.node.api.messages import MAX_LINE_BYTES
from carrycast.node.link.moderation import Moderation

CHUNK_BYTES = 1 << 16


class LineTooLongError(Exception):
    """Somebody sends more than a line may have."""


async def lines(reader: asyncio.StreamReader, transport: asyncio.BaseTransport) -> AsyncIterator[list[bytes]]:
    """Every whole line, those together that came together, until the other side is gone; what it had not ended by then
    is none."""
    assert isinstance(transport, asyncio.ReadTransport)
    # Not the pieces that it came in: of a line that comes byte by byte they would take forty times as much.
    begun = bytearray()
    moderation = Moderation()
    more: list[bytes] = []
    while True:
        pause_s = moderation.pause_s(time.monotonic(), len(more))
        try:
            if pause_s:
                transport.pause_reading()
                await asyncio.sleep(pause_s)
                transport.resume_reading()
            chunk = await reader.read(CHUNK_BYTES)
        except ConnectionError:
            return
        if not chunk:
            return
        first, *more = chunk.split(b"\n")
        begun += first
        if len(begun) > MAX_LINE_BYTES:
            raise LineTooLongError
        if more:
            yield [bytes(begun), *more[:-1]]
            begun = bytearray(more[-1])
