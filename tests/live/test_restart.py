"""State that survives a restart: sequence numbers, named subscriptions, the store of the protocol."""

import sqlite3
from pathlib import Path

import pytest

from carrycast.core.wire import Layer
from carrycast.errors import UserError, WorkError
from carrycast.lab.loopback.network import Inbox, until
from carrycast.node.node import LiveNode
from carrycast.node.storage.sequence_numbers import BLOCK, SequenceNumbers
from carrycast.node.storage.store import NodeStore
from tests.live.conftest import MakeConfig, Run
from tests.live.talker import Talker


def test_no_event_id_is_used_twice_with_or_without_a_store(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story(store: Path | None) -> None:
        ids = []
        for _ in range(3):
            async with LiveNode(config(1, store=store)) as node:
                ids += [node.publish({"n": n}) for n in range(3)]
        assert len(set(ids)) == 9

    run(story(None))
    run(story(tmp_path / "store"))


def test_numbers_are_reserved_before_they_are_given_away(tmp_path: Path) -> None:
    store = NodeStore(tmp_path / "store", 1)
    numbers = SequenceNumbers("event", store)
    assert [numbers.take() for _ in range(BLOCK + 1)] == list(range(BLOCK + 1))
    # No close: the process is gone, and its lock with it.
    store._database.close()
    again = NodeStore(tmp_path / "store", 1)
    assert SequenceNumbers("event", again).take() == 2 * BLOCK
    again.close()


def test_a_named_subscription_stands_across_restarts(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        made = config(1, store=tmp_path / "store")
        async with LiveNode(made) as node:
            named = node.subscribe("n > 1", None, name="logger")
            node.subscribe("n > 1", Inbox())
            ended = node.subscribe("n > 2", None, name="ended")
            node.subscribe("n > 3", None, name="brief", lease_s=0.05)
            assert node.unsubscribe(ended)
        async with LiveNode(made) as node:
            await until(lambda: node.status().subscriptions == 1)
            event = node.publish({"n": 2})
            inbox = Inbox()
            assert node.subscribe("n > 1", inbox, name="logger") == named
            await until(lambda: inbox.events == [event])
            later = node.publish({"n": 3})
            await until(lambda: inbox.events == [event, later])

    run(story())


def test_a_lease_ends_a_subscription(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LiveNode(config(1)) as node:
            inbox = Inbox()
            ended = node.subscribe("n > 1", inbox, lease_s=0.05)
            node.publish({"n": 2})
            await until(lambda: node.status().subscriptions == 0)
            node.publish({"n": 2})
            assert len(inbox.events) == 1
            with pytest.raises(UserError, match="the subscription has ended, perhaps with its lease"):
                node.acknowledge(ended, [1], None)
            assert node.trace.subscriptions().to_pylist()[0]["to_s"] is not None

    run(story())


def test_a_named_subscription_has_one_listener_and_a_new_filter_replaces_it(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LiveNode(config(1)) as node:
            first = node.subscribe("n > 1", Inbox(), name="logger")
            with pytest.raises(UserError, match="another application listens"):
                node.subscribe("n > 1", Inbox(), name="logger")
            node.detach(first)
            second = node.subscribe("n > 5", Inbox(), name="logger")
            assert second != first
            assert node.status().subscriptions == 1

    run(story())


def test_incarnations_grow_and_a_layers_store_is_its_own(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        incarnations = []
        for number in range(3):
            async with LiveNode(config(1, Talker, store=tmp_path / "store")):
                store = Talker.all[1].host.store
                assert store.get(b"count") == (None if number == 0 else bytes([number - 1]))
                store.put(b"count", bytes([number]))
                store.put(b"other", b"x")
                store.put(b"cou", b"y")
                assert list(store.items(b"cou")) == [(b"cou", b"y"), (b"count", bytes([number]))]
                store.delete(b"other")
                store.delete(b"never there")
                incarnations.append(Talker.all[1].host.incarnation)
        assert incarnations == [0, 1, 2]

    run(story())
    store = NodeStore(tmp_path / "store", 1)
    assert list(store.layer(Layer.ROUTING).items()) == []
    assert [key for key, _ in store.layer(Layer.DISSEMINATION).items()] == [b"cou", b"count"]
    store.close()


def test_a_store_serves_one_node_at_a_time_and_only_its_own(tmp_path: Path) -> None:
    store = NodeStore(tmp_path / "store", 1)
    with pytest.raises(WorkError, match="in use by another node"):
        NodeStore(tmp_path / "store", 1)
    store.close()
    with pytest.raises(WorkError, match="belongs to node 1, not to node 2"):
        NodeStore(tmp_path / "store", 2)
    (tmp_path / "letter").write_text("Dear store, " * 200)
    with pytest.raises(WorkError, match="is damaged, or none of carrycast"):
        NodeStore(tmp_path / "letter", 1)
    with pytest.raises(WorkError, match="cannot open the store"):
        NodeStore(tmp_path / "nowhere" / "store", 1)


def test_a_subscription_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    NodeStore(tmp_path / "store", 1).close()
    with sqlite3.connect(tmp_path / "store") as database:
        database.execute("INSERT INTO subscriptions VALUES (1, x'c1')")
    database.close()
    store = NodeStore(tmp_path / "store", 1)
    with pytest.raises(WorkError, match="a subscription that cannot be read"):
        store.read_subscriptions()
    store.close()


def test_a_protocol_that_cannot_read_what_it_held_does_not_write_over_it(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "store"

    async def story() -> None:
        node = LiveNode(config(1, "epidemic", store=path, durable=True))
        with pytest.raises(WorkError, match="the protocol could not start, perhaps for what is in the store"):
            await node.start()

    store = NodeStore(path, 1)
    held = [(b"held/" + bytes(8), b"of another version")]
    store.layer(Layer.DISSEMINATION).put(*held[0])
    store.commit()
    store.close()
    run(story())
    store = NodeStore(path, 1)
    assert store.layer(Layer.DISSEMINATION).items() == held
    store.close()
