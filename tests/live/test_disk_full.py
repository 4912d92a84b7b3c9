"""A disk that is full for a while: failed writes are reported, and the node recovers afterwards."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from carrycast.errors import WorkError
from carrycast.lab.loopback.network import Inbox, until
from carrycast.node.api import subscriptions
from carrycast.node.api.client import connect
from carrycast.node.node import LiveNode
from carrycast.node.storage.store import NodeStore
from tests.live.conftest import MakeConfig, Run
from tests.live.test_delivery import Taker

Disk = Callable[[bool], None]


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Whether commits fail."""
    commit = NodeStore.commit
    state = [False]

    def failing(store: NodeStore) -> None:
        if state[0] and store.in_transaction:
            store.failed = WorkError("the disk is full")
        commit(store)

    monkeypatch.setattr(NodeStore, "commit", failing)
    monkeypatch.setattr(subscriptions, "RETRY_S", 0.05)

    def become(is_full: bool) -> None:
        state[0] = is_full

    return become


def test_every_reader_goes_on_and_what_was_lost_is_counted(
    config: MakeConfig, run: Run, tmp_path: Path, full: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with LiveNode(config(1, "epidemic", store=tmp_path / "store", durable=True)) as node:
            one, other = Taker(), Taker()
            node.subscribe("n >= 0", one.reader, name="one")
            node.subscribe("n >= 0", other.reader, name="other")
            node.subscribe("n >= 0", None, name="unread")
            ids = [node.publish({"n": n}) for n in range(3)]
            await until(lambda: one.events == other.events == ids)
            full(True)
            for n in range(5):
                node.publish({"n": n})
                await asyncio.sleep(0.01)
            await until(lambda: node.drops["store_failed"] == 3 * 5)
            assert node.status().waiting["clients"] == 3 * 3
            full(False)
            later = [node.publish({"n": n}) for n in range(3)]
            await until(lambda: one.events == other.events == ids + later)
            assert node.status().waiting["clients"] == 3 * 6
            assert [record.message for record in caplog.records] == [
                "the disk is full; what is written meanwhile is lost",
                "the store can be written again",
            ]

    run(story())


def test_an_acknowledgement_that_was_refused_counts_when_it_is_said_again(
    config: MakeConfig, run: Run, tmp_path: Path, full: Disk
) -> None:
    async def story() -> None:
        async with LiveNode(config(1, "epidemic", store=tmp_path / "store", durable=True)) as node:
            taker, told = Taker(), list[WorkError | None]()
            subscription = node.subscribe("n >= 0", taker.reader, name="log")
            ids = [node.publish({"n": n}) for n in range(2)]
            await until(lambda: taker.events == ids)
            positions = [taker.taken[0].position or 0]
            full(True)
            node.acknowledge(subscription, positions, told.append)
            await until(lambda: len(told) == 1)
            assert str(told[0]) == "the disk is full"
            assert node.status().waiting["clients"] == 2
            full(False)
            node.acknowledge(subscription, positions, told.append)
            await until(lambda: told[1:] == [None])
            node.detach(subscription)
            again = Taker()
            node.subscribe("n >= 0", again.reader, name="log")
            await until(lambda: again.events == ids[1:])

    run(story())


def test_what_waits_is_handed_over_when_that_can_be_written(
    config: MakeConfig, run: Run, tmp_path: Path, full: Disk
) -> None:
    async def story() -> None:
        async with LiveNode(config(1, "epidemic", store=tmp_path / "store", durable=True)) as node:
            node.subscribe("n >= 0", None, name="log")
            stored: list[WorkError | None] = []
            ids = [node.publish({"n": n}, on_stored=stored.append) for n in range(3)]
            await until(lambda: stored == [None] * 3)
            full(True)
            taker = Taker()
            node.subscribe("n >= 0", taker.reader, name="log")
            node.publish({"n": 9})
            await until(lambda: node.drops["store_failed"] == 1)
            assert not taker.taken
            full(False)
            await until(lambda: taker.events == ids)
            assert [delivery.redelivered for delivery in taker.taken] == [False] * 3
            later = node.publish({"n": 10})
            await until(lambda: taker.events == [*ids, later])

    run(story())


def test_what_could_not_be_begun_or_ended_is_as_it_was_and_can_be_asked_again(
    config: MakeConfig, run: Run, tmp_path: Path, full: Disk
) -> None:
    def client() -> None:
        with connect(str(place)) as one, connect(str(place)) as another:
            log = one.subscribe("n >= 0", name="log")
            full(True)
            with pytest.raises(WorkError, match="the disk is full"):
                another.subscribe("n >= 0", name="other")
            with pytest.raises(WorkError, match="the disk is full"):
                log.close()
            full(False)
            other = another.subscribe("n >= 0", name="other")
            event = one.publish({"n": 1}, level="stored")
            for deliveries in (log, other):
                found = deliveries.next_event(5)
                assert found is not None
                assert found.id == event
                deliveries.close()

    async def story() -> None:
        made = config(1, "epidemic", store=tmp_path / "store", durable=True, control=place)
        async with LiveNode(made) as node:
            await asyncio.to_thread(client)
            assert node.status().subscriptions == 0

    place = tmp_path / "1.sock"
    run(story())


def test_a_write_that_fails_before_its_commit_is_a_drop_and_takes_nothing_else_with_it(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    async def story() -> None:
        async with LiveNode(config(1, store=tmp_path / "store")) as node:
            one, other, plain = Taker(), Taker(), Inbox()
            node.subscribe("n >= 0", one.reader, name="one")
            subscription = node.subscribe("n >= 0", other.reader, name="other")
            node.subscribe("n >= 0", plain)
            first = node.publish({"n": 1})
            await until(lambda: one.events == other.events == [first])
            store = node._group_commit.store
            store.query(f"PRAGMA max_page_count = {store.query('PRAGMA page_count')[0][0]}")
            node.acknowledge(subscription, [other.taken[0].position or 0], None)
            lost = node.publish({"n": 2}, bytes(50_000))
            await until(lambda: node._group_commit.failure is not None)
            assert plain.events == [first, lost], "who has no name needs no disk"
            store.query("PRAGMA max_page_count = 1000000")
            later = node.publish({"n": 3})
            await until(lambda: one.events == other.events == [first, later])
            assert node.status().waiting["clients"] == 4, "the acknowledgement was of the same commit"
            assert node.drops["store_failed"] == 3, "two deliveries, and what was to be sent"

    run(story())
