"""A node on a full disk: it starts, delivers its stored events, refuses to store more with the reason, and recovers."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carrycast.core.model import EventId
from carrycast.core.protocol import KeepsEvents
from carrycast.core.protocol.registry import find_protocol, protocol_names
from carrycast.errors import WorkError
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.api.client import connect
from carrycast.node.node import LiveNode
from carrycast.node.storage.sequence_numbers import UnpredictableSequenceNumbers, next_incarnation
from carrycast.node.storage.store import NodeStore
from tests.live.conftest import MakeConfig, Run
from tests.live.disks import KINDS, Disk, disk
from tests.live.test_metrics import asked, get
from tests.live.test_retention import check_books

REASON = "cannot write to the store"
KEEPERS = [name for name in protocol_names() if issubclass(find_protocol(name), KeepsEvents)]


@pytest.fixture(params=KINDS)
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A disk that can be filled."""
    with disk(request.param, tmp_path) as made:
        yield made


async def stored(node: LiveNode, events: int) -> list[EventId]:
    """Events that a node has acknowledged as stored."""
    told: list[WorkError | None] = []
    ids = [node.publish({"n": n}, bytes(100), on_stored=told.append) for n in range(events)]
    await until(lambda: told == [None] * events)
    return ids


def test_it_starts_brings_what_it_has_refuses_and_recovers(
    full: Disk, config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    """G-14, G-15, G-16"""

    def refused() -> str:
        with connect(str(tmp_path / "1.sock")) as client:
            with pytest.raises(WorkError) as told:
                client.publish({"n": 100}, level="stored")
            client.publish({"n": 101})
            assert client.status().drops["not_stored"] == 1
            return str(told.value)

    async def story() -> None:
        first = config(1, "epidemic", store=full.folder / "1.db", control=tmp_path / "1.sock", durable=True)
        made = replace(first, metrics=("127.0.0.1", 0))
        async with LiveNode(made) as node:
            ids = await stored(node, 20)
        full.fill()
        async with LoopbackNetwork([made, config(2, "epidemic")]) as network:
            node, inbox = network.nodes[1], Inbox()
            network.nodes[2].subscribe("n >= 0", inbox)
            network.line()
            await network.wait_until_discovered()
            await until(lambda: set(inbox.events) >= set(ids), 30)
            await until(lambda: node._group_commit.failure is not None)
            assert REASON in await asyncio.to_thread(refused)
            state, _, body = await asked(node.metrics.port, get("/health"))
            assert state == "503 Service Unavailable"
            assert REASON in body
            assert node.status().retention["stored"].kept == 20
            full.free()
            await until(lambda: node._group_commit.failure is None, 30)
            ids += await stored(node, 5)
            await until(lambda: set(inbox.events) >= set(ids), 30)
            assert (await asked(node.metrics.port, get("/health")))[0] == "200 OK"
            check_books(node)
            await network.crash(1)
            await network.start(1)
            assert network.nodes[1].status().retention["stored"].kept == 25
            check_books(network.nodes[1])

    run(story())


@pytest.mark.parametrize("protocol", KEEPERS)
def test_every_protocol_that_keeps_events_starts_on_a_full_disk(
    protocol: str, config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    """G-14"""

    async def story() -> None:
        with disk("limit", tmp_path) as limited:
            settings: dict[str, Any] = {"recover_s": 0.5} if protocol == "tree" else {}
            bare = config(1, protocol, store=tmp_path / "1.db", durable=True, **settings)
            made = replace(bare, roles=("broker",), directory={"broker": (1,)})
            async with LiveNode(made) as node:
                node.subscribe("n >= 0", None, name="log")
                await stored(node, 3)
                # Over when the node starts again: that cannot be written.
                node.publish({"n": 9}, lease_s=0.05, on_stored=lambda lost: None)
            await asyncio.sleep(0.1)
            limited.fill()
            async with LiveNode(made) as node:
                assert node.status().retention["stored"].kept == 3
                check_books(node)
                await until(lambda: node._group_commit.failure is not None)
                with pytest.raises(WorkError, match=REASON):
                    node.publish({"n": 1}, on_stored=lambda lost: None)

    run(story())


def test_numbers_on_a_full_disk_are_those_of_no_other_start(full: Disk, run: Run) -> None:
    """G-16"""

    async def story() -> None:
        path = full.folder / "numbers.db"
        taken: set[int] = set()
        starts: list[int] = []

        def start() -> NodeStore:
            store = NodeStore(path, 1)
            starts.append(next_incarnation(store))
            numbers = UnpredictableSequenceNumbers(store)
            new = {numbers.take() >> 24 for _ in range(1500)}
            assert not new & taken
            taken.update(new)
            return store

        start().close()
        full.fill()
        for _ in range(3):
            await asyncio.sleep(0.25)
            start().close()
        await asyncio.sleep(0.25)
        store = start()
        full.free()
        store.failed = None
        store.probe()
        store.commit()
        store.close()
        start().close()
        assert starts == sorted(set(starts))

    run(story())


def test_a_new_node_starts_on_a_full_disk_and_makes_its_store_when_there_is_room(
    full: Disk, config: MakeConfig, run: Run
) -> None:
    """G-14, G-15, G-16"""

    async def story() -> None:
        made = config(1, "epidemic", store=full.folder / "new.db", durable=True)
        full.fill()
        starts = []
        async with LiveNode(made) as node:
            await until(lambda: node._group_commit.failure is not None)
            with pytest.raises(WorkError, match="cannot make the store"):
                node.publish({"n": 1}, on_stored=lambda lost: None)
            inbox = Inbox()
            node.subscribe("n >= 0", inbox)
            taken = node.publish({"n": 2})
            await until(lambda: inbox.events == [taken])
            starts.append(node._runtime.protocol.host.incarnation)
            full.free()
            await until(lambda: node._group_commit.failure is None, 30)
            ids = await stored(node, 3)
            assert len({taken, *ids}) == 4
        async with LiveNode(made) as again:
            assert again.status().retention["stored"].kept == 3
            assert again._runtime.protocol.host.incarnation > starts[0]
            assert not {taken, *ids} & set(await stored(again, 3))
            check_books(again)

    run(story())
