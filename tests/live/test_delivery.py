"""The delivery contract: stored means on disk, unacknowledged comes again and says so, acknowledged does not."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from carrycast.core.model import EventId, SubscriptionId
from carrycast.core.wire import Layer
from carrycast.errors import UserError, WorkError
from carrycast.lab.loopback.network import Inbox, until
from carrycast.node.api.client import connect
from carrycast.node.api.durable_subscription import Consumer, LocalDelivery
from carrycast.node.node import LiveNode
from carrycast.node.storage.backlog import BacklogSettings
from carrycast.node.storage.group_commit import GroupCommit
from carrycast.node.storage.store import FORMAT, NodeStore
from tests.live.conftest import MakeConfig, Run
from tests.live.test_control import with_node


class Taker:
    """An application that takes deliveries and acknowledges nothing by itself."""

    def __init__(self) -> None:
        self.taken: list[LocalDelivery] = []
        self.reader = Consumer(self._read, acknowledges=True)

    def _read(self, id: SubscriptionId, delivery: LocalDelivery) -> None:
        self.taken.append(delivery)

    @property
    def events(self) -> list[EventId]:
        return [delivery.event.id for delivery in self.taken]


def nobody(lost: WorkError | None) -> None:
    assert lost is None


def test_what_is_not_acknowledged_comes_again_marked_and_what_is_does_not(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    """G-22"""

    async def story() -> None:
        made = config(1, "epidemic", store=tmp_path / "store", durable=True)
        async with LiveNode(made) as node:
            taker = Taker()
            subscription = node.subscribe("n >= 0", taker.reader, name="log")
            ids = [node.publish({"n": n}) for n in range(4)]
            await until(lambda: taker.events == ids)
            assert [delivery.redelivered for delivery in taker.taken] == [False] * 4
            confirmed: list[WorkError | None] = []
            positions = [taker.taken[n].position or 0 for n in (0, 2)]
            node.acknowledge(subscription, positions, confirmed.append)
            await until(lambda: confirmed == [None])
            await node.crash()
        async with LiveNode(made) as node:
            later = node.publish({"n": 9})
            taker = Taker()
            assert node.subscribe("n >= 0", taker.reader, name="log") == subscription
            await until(lambda: taker.events == [ids[1], ids[3], later])
            assert [delivery.redelivered for delivery in taker.taken] == [True, True, False]
            # Who goes without a word gets them again, those never handed over before included.
            node.detach(subscription)
            other = Taker()
            node.subscribe("n >= 0", other.reader, name="log")
            await until(lambda: other.events == [ids[1], ids[3], later])
            assert all(delivery.redelivered for delivery in other.taken)

    run(story())


def test_a_copy_that_a_forgetful_protocol_brings_again_is_dropped_by_name(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    """Epidemic in memory takes everything again after a restart, and would deliver it again."""

    async def story() -> None:
        made = config(2, "epidemic", store=tmp_path / "store")
        async with LiveNode(config(1, "epidemic")) as publisher:
            async with LiveNode(made) as node:
                node.add_peer(publisher.address)
                inbox = Inbox()
                node.subscribe("n >= 0", inbox, name="log")
                ids = [publisher.publish({"n": n}) for n in range(3)]
                await until(lambda: inbox.events == ids)
            async with LiveNode(made) as node:
                node.add_peer(publisher.address)
                inbox = Inbox()
                node.subscribe("n >= 0", inbox, name="log")
                await until(lambda: node.drops["delivered_before"] == 3)
                assert inbox.events == []

    run(story())


def test_a_backlog_is_bounded_in_bytes_and_in_age_and_leases_end_in_it(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        small = replace(config(1), backlog=BacklogSettings(max_bytes=1000))
        async with LiveNode(small) as node:
            node.subscribe("n >= 0", None, name="log")
            ids = [node.publish({"n": n}, payload=bytes(300)) for n in range(5)]
            inbox = Inbox()
            node.subscribe("n >= 0", inbox, name="log")
            await until(lambda: inbox.events == ids[3:])
            assert node.drops["backlog_full"] == 3
        brief = replace(config(1), backlog=BacklogSettings(max_age_s=1e-6))
        async with LiveNode(brief) as node:
            node.subscribe("n >= 0", None, name="log")
            node.publish({"n": 1})
            await until(lambda: not node._group_commit.is_pending)
            node._subscriptions._clean_up()
            assert node.drops["backlog_old"] == 1
        async with LiveNode(config(1)) as node:
            node.subscribe("n >= 0", None, name="log")
            node.publish({"n": 1}, lease_s=1e-6)
            lasting = node.publish({"n": 2})
            inbox = Inbox()
            node.subscribe("n >= 0", inbox, name="log")
            await until(lambda: inbox.events == [lasting])
            # In the backlog; and on its way to others, if the disk took its time.
            assert node.drops["lease_over"] in (1, 2)

    run(story())


def test_a_name_that_is_asked_for_wrongly_keeps_what_waits_for_it(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LiveNode(config(1)) as node:
            node.subscribe("n >= 0", None, name="log")
            ids = [node.publish({"n": n}) for n in range(3)]
            await until(lambda: node.status().waiting["clients"] == 3)
            with pytest.raises(UserError, match="flooding stores nothing that could be history"):
                node.subscribe("n > 1", None, name="log", history=True)
            with pytest.raises(UserError, match="subscription:"):
                node.subscribe("n > 1", None, name="log", attributes={"x" * 10_000: 1})
            taker = Taker()
            node.subscribe("n >= 0", taker.reader, name="log")
            await until(lambda: taker.events == ids)

    run(story())


def test_of_a_subscription_that_ended_while_its_node_was_away_nothing_is_left(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    async def story() -> None:
        made = config(1, store=tmp_path / "store")
        async with LiveNode(made) as node:
            node.subscribe("n >= 0", None, name="log", lease_s=0.3)
            node.publish({"n": 1})
            await asyncio.sleep(0.05)  # It is committed.
            await node.crash()
        await asyncio.sleep(0.4)
        async with LiveNode(made) as node:
            assert node.status().subscriptions == 0

    run(story())
    store = NodeStore(tmp_path / "store", 1)
    for table in ("subscriptions", "backlog", "taken"):
        assert store.query(f"SELECT count(*) FROM {table}") == [(0,)], table
    store.close()


@pytest.mark.parametrize("damage", [b"\xc1", b"", None, "text"])
def test_what_waits_and_cannot_be_read_is_dropped_by_name_and_the_reader_goes_on(
    config: MakeConfig, run: Run, tmp_path: Path, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        made = config(1, "epidemic", store=tmp_path / "store", durable=True)
        async with LiveNode(made) as node:
            node.subscribe("n >= 0", None, name="log")
            ids = [node.publish({"n": n}) for n in range(5)]
        with closing(sqlite3.connect(tmp_path / "store")) as database, database:
            database.execute("UPDATE backlog SET event = ? WHERE position IN (1, 2, 4)", (damage,))
        async with LiveNode(made) as node:
            taker = Taker()
            subscription = node.subscribe("n >= 0", taker.reader, name="log")
            await until(lambda: taker.events == [ids[2], ids[4]])
            assert node.drops["backlog_unreadable"] == 3
            assert node.status().waiting["clients"] == 2
            node.acknowledge(subscription, [delivery.position or 0 for delivery in taker.taken], nobody)
            later = node.publish({"n": 5})
            await until(lambda: taker.events[2:] == [later])

    run(story())
    assert len([record for record in caplog.records if "cannot be read" in record.message]) == 1


def test_a_reader_has_a_window_and_the_rest_waits_in_the_store(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carrycast.node.api.durable_subscription.PREFETCH", 3)

    async def story() -> None:
        async with LiveNode(config(1)) as node:
            taker = Taker()
            subscription = node.subscribe("n >= 0", taker.reader, name="log")
            ids = [node.publish({"n": n}) for n in range(8)]
            await until(lambda: taker.events == ids[:3])
            node.acknowledge(subscription, [taker.taken[1].position or 0, 77_777], nobody)
            await until(lambda: taker.events == ids[:4])
            node.acknowledge(subscription, [delivery.position or 0 for delivery in taker.taken], nobody)
            await until(lambda: taker.events == ids[:7])

    run(story())


def test_stored_is_refused_where_nothing_is_kept_with_what_to_do(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    """G-20"""

    async def story() -> None:
        async with LiveNode(config(1, store=tmp_path / "flooding")) as node:
            with pytest.raises(
                UserError, match="flooding does not keep on disk what is published; publish at level accepted"
            ):
                node.publish({"n": 1}, on_stored=nobody)
            assert node.status().counts.get("published", 0) == 0
        async with LiveNode(config(1, "epidemic", store=tmp_path / "memory")) as node:
            with pytest.raises(UserError, match=r"say durable = true in \[protocol\]"):
                node.publish({"n": 1}, on_stored=nobody)

    run(story())


def test_a_client_iterates_and_what_it_was_given_before_is_acknowledged(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    def client(address: str) -> None:
        with connect(address) as one:
            log = one.subscribe("n >= 0", name="log")
            ids = [one.publish({"n": n}) for n in range(3)]
            assert [next(log).id for _ in range(2)] == ids[:2]
            first = log.next_delivery(5)
            assert first is not None
            # Two were given and the second is not done with; all are said to be.
            log.acknowledge(ids[0])
        with connect(address, 5) as one:
            log = one.subscribe("n >= 0", name="log")
            redelivered = [log.next_delivery(5) for _ in range(2)]
            assert [(one.event.id, one.again) for one in redelivered if one] == [(ids[1], True), (ids[2], True)]
            log.acknowledge()
        with connect(address, 5) as one:
            assert one.subscribe("n >= 0", name="log").next_event(0.2) is None
            with pytest.raises(UserError, match="this client has no subscription"):
                one.acknowledge(SubscriptionId(1, 12345), [1])

    with_node(config, run, tmp_path / "1.sock", client)


def test_an_older_store_is_taken_over_and_a_newer_one_refused_with_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = NodeStore(path, 1)
    store.layer(Layer.DISSEMINATION).put(b"key", b"value")
    store.commit()
    store.close()
    with sqlite3.connect(path) as database:
        for table in ("backlog", "taken"):
            database.execute(f"DROP TABLE {table}")
        database.execute("UPDATE store SET format = 1")
    database.close()
    store = NodeStore(path, 1)
    assert store.query("SELECT format FROM store") == [(FORMAT,)]
    assert store.query("SELECT count(*) FROM backlog") == [(0,)]
    assert store.layer(Layer.DISSEMINATION).get(b"key") == b"value"
    store.close()
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE store SET format = {FORMAT + 1}")
    database.close()
    with pytest.raises(WorkError, match=r"written by a newer carrycast .* move the file away"):
        NodeStore(path, 1)


def test_a_database_of_another_program_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "photos"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE photos (name TEXT)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(WorkError, match="photos is a database of another program"):
        NodeStore(path, 1)
    assert path.read_bytes() == before


def test_a_damaged_store_is_refused_with_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = NodeStore(path, 1)
    for n in range(1000):
        store.layer(Layer.DISSEMINATION).put(n.to_bytes(8), bytes(100))
    store.commit()
    store.close()
    whole = path.read_bytes()
    page = 4096
    for damaged in (
        whole[: len(whole) // 2],
        whole[: 20 * page] + b"\xff" * page + whole[21 * page :],
        b"no database" * 1000,
    ):
        path.write_bytes(damaged)
        with pytest.raises(
            WorkError, match=r"store is damaged, or none of carrycast: .*; move the file away to start again"
        ):
            NodeStore(path, 1)


def test_a_handler_that_raises_takes_only_its_own_writes_with_it(tmp_path: Path) -> None:
    store = NodeStore(tmp_path / "store", 1)
    layer = store.layer(Layer.DISSEMINATION)
    layer.put(b"first", b"1")
    store.release_savepoint()
    layer.put(b"second", b"2")
    layer.delete(b"first")
    store.rollback_savepoint()
    layer.put(b"third", b"3")
    store.commit()
    assert [key for key, _ in layer.items()] == [b"first", b"third"]
    store.close()


def test_what_waits_for_a_commit_that_fails_is_told_and_the_node_goes_on(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        store = NodeStore(tmp_path / "store", 1)
        group_commit = GroupCommit(store)
        layer = store.layer(Layer.DISSEMINATION)
        told: list[WorkError | None] = []
        store.query(f"PRAGMA max_page_count = {store.query('PRAGMA page_count')[0][0]}")
        layer.put(b"small", b"1")
        group_commit.release_savepoint()
        group_commit.when_synced(told.append)
        with pytest.raises(WorkError, match="full"):
            layer.put(b"big", bytes(100_000))
        group_commit.rollback_savepoint()
        await until(lambda: len(told) == 1)
        store.query("PRAGMA max_page_count = 1000000")
        if told[0] is not None:
            assert layer.get(b"small") is None
            assert "what is written meanwhile is lost" in caplog.text
        else:
            assert layer.get(b"small") == b"1"
        layer.put(b"big", bytes(100_000))
        group_commit.when_synced(told.append)
        await until(lambda: len(told) == 2)
        assert told[1] is None
        await group_commit.stop()
        store.close()

    run(story())


@pytest.mark.skipif("sys.platform == 'win32'", reason="modes of files are those of Unix")
def test_a_store_is_for_nobody_else_on_the_machine(tmp_path: Path) -> None:
    """What is sealed on its way lies in it as it is."""
    store = NodeStore(tmp_path / "store", 1)
    store.execute("INSERT OR REPLACE INTO counters VALUES ('event', 1)", ())
    store.commit()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    store.close()
