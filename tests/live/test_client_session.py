"""Lines that come in pieces."""

import asyncio
import tracemalloc

import pytest

from carrycast.node.api.client_session import LineTooLongError, read_lines
from carrycast.node.api.messages import MAX_LINE_BYTES
from tests.live.conftest import Run

PIECES = 20_000


class Transport(asyncio.ReadTransport):
    """Pauses for nothing: there is nobody on the other side."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def fed(pieces: list[bytes]) -> list[list[bytes]]:
    """What is made of pieces that come one by one."""
    reader = asyncio.StreamReader()
    found = read_lines(reader, Transport())
    got: list[list[bytes]] = []

    async def collect() -> None:
        async for several in found:
            got.append(several)

    task = asyncio.create_task(collect())
    for piece in pieces:
        reader.feed_data(piece)
        await asyncio.sleep(0)
    reader.feed_eof()
    await task
    return got


def test_a_line_is_what_lies_between_two_ends_however_it_comes(run: Run) -> None:
    async def story() -> None:
        assert await fed([b"one\ntwo", b"", b"\n", b"th", b"r", b"ee\nhalf"]) == [[b"one"], [b"two"], [b"three"]]

    run(story())


def test_a_line_that_comes_byte_by_byte_takes_what_it_is_long(run: Run) -> None:
    async def story() -> None:
        pieces = [b"x"] * PIECES
        tracemalloc.start()
        try:
            assert await fed(pieces) == []
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 10 * PIECES

    run(story())


def test_a_line_without_end_is_refused(run: Run) -> None:
    async def story() -> None:
        with pytest.raises(LineTooLongError):
            await fed([bytes(MAX_LINE_BYTES // 4)] * 5)

    run(story())
