"""A live node inside a program: publish, subscribe and stop without a daemon."""

import asyncio
import socket
from pathlib import Path

import pytest

import carrycast
from carrycast import Filter, Node, UserError
from carrycast.node import embedded
from tests.patience import PATIENCE_S


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def config(name: str, port: int, *peers: int) -> dict[str, object]:
    return {
        "name": name,
        "listen": {"host": "127.0.0.1", "port": port},
        "discovery": {"peers": [f"127.0.0.1:{peer}" for peer in peers], "period_s": 0.2},
        "protocol": {"name": "epidemic"},
    }


def test_two_nodes_of_one_program_exchange_events() -> None:
    async def story() -> None:
        a, b = free_port(), free_port()
        async with Node(config("a", a, b)) as first, Node(config("b", b, a)) as second:
            async with second.subscribe(Filter("kind = 'speed'")) as events:
                await first.publish({"kind": "speed", "value": 31}, "thirty-one", lease_s=60.0)
                event = await events.next_event(PATIENCE_S)
                assert event is not None
                assert event.attributes == {"kind": "speed", "value": 31}
                assert event.payload == b"thirty-one"
                assert first.neighbors == [second.id]
                assert await events.next_event(0.01) is None
            assert await events.next_event() is None, "a closed stream has no further events"
            assert [event async for event in events] == []

    asyncio.run(story())


def test_an_event_is_stored_before_publish_returns(tmp_path: Path) -> None:
    async def story() -> None:
        tables = {**config("a", free_port()), "store": {"file": str(tmp_path / "a.db")}}
        tables["protocol"] = {"name": "epidemic", "durable": True}
        async with Node(tables) as node:
            await node.publish({"n": 1}, stored=True, lease_s=60.0)

    asyncio.run(story())
    assert (tmp_path / "a.db").exists()


def test_a_slow_reader_loses_the_oldest_events_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "MAX_QUEUED", 2)

    async def story() -> None:
        async with Node(config("a", free_port())) as node:
            events = node.subscribe()
            for number in range(4):
                await node.publish({"n": number})
            events.close()
            assert [event.attributes["n"] async for event in events] == [2, 3]
            assert node.drops["reader_slow"] == 2

    asyncio.run(story())


def test_wrong_use_is_refused_with_the_reason() -> None:
    with pytest.raises(UserError, match=r"config: .*nmae"):
        Node({"nmae": "a"})

    async def story() -> None:
        async with Node(config("a", free_port())) as node:
            with pytest.raises(TypeError, match="when"):
                await node.publish({"when": object()})  # type: ignore[dict-item]
            with pytest.raises(carrycast.FilterError):
                node.subscribe("kind =")

    asyncio.run(story())
