"""The lines of a connection, taken from what comes at once rather than one by one."""

import asyncio
from collections.abc import AsyncIterator

from driftcast.live.door.messages import MAX_LINE_BYTES

CHUNK_BYTES = 1 << 16


class LineTooLongError(Exception):
    """Somebody sends more than a line may have."""


async def lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Every whole line, until the other side is gone; what it had not ended by then is none."""
    begun: list[bytes] = []
    begun_bytes = 0
    while True:
        try:
            chunk = await reader.read(CHUNK_BYTES)
        except ConnectionError:
            return
        if not chunk:
            return
        first, *more = chunk.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if begun_bytes > MAX_LINE_BYTES:
            raise LineTooLongError
        if more:
            yield b"".join(begun)
            for line in more[:-1]:
                yield line
            begun, begun_bytes = [more[-1]], len(more[-1])
