"""Readers that are slow, or do not read at all, cost a node little memory; who reads gets everything."""

import asyncio
import json
import socket
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from carrycast.node.api.client import connect
from carrycast.node.node import LiveNode
from tests.live.conftest import MakeConfig, Run

LONG = 60_000
"""Bytes of a payload that still fits a datagram."""


class Beside:
    """Runs a node, with a client that blocks in a thread beside it."""

    def __init__(self, config: MakeConfig, run: Run, folder: Path) -> None:
        self._config = config
        self._run = run
        self._folder = folder

    def __call__(self, client: Callable[[str], None], protocol: str = "flooding") -> dict[str, int]:
        """What the node dropped, by name."""
        drops: dict[str, int] = {}

        async def story() -> None:
            made = self._config(1, protocol, store=self._folder / "store", control=self._folder / "node.sock")
            async with LiveNode(made) as node:
                assert node.control_address is not None
                await asyncio.to_thread(client, node.control_address)
                drops.update(node.drops)

        self._run(story())
        return drops


@pytest.fixture
def beside(config: MakeConfig, run: Run, tmp_path: Path) -> Beside:
    return Beside(config, run, tmp_path)


def plain(address: str) -> socket.socket:
    """A client that does what it is told, line by line."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(20)
    made.connect(address)
    return made


def ask(line: socket.socket, **question: object) -> None:
    line.sendall(json.dumps(question).encode() + b"\n")


def named(address: str, count: int, acknowledge: bool = True) -> socket.socket:
    """A client with as many named subscriptions, which has read nothing but that they stand."""
    made = plain(address)
    answers = made.makefile("rb")
    for n in range(count):
        ask(made, op="subscribe", id=n + 1, filter="n >= 0", name=f"log-{n}", acknowledge=acknowledge)
        assert json.loads(answers.readline())["answer"] == "subscribed"
    return made


def read_on(line: socket.socket, count: int, acknowledge: bool = True) -> dict[int, list[int]]:
    """The numbers of the next events, by subscription, each acknowledged when it has come."""
    found: dict[int, list[int]] = {}
    with line.makefile("rb") as answers:
        while count:
            said = json.loads(answers.readline())
            if said["answer"] != "delivered":
                continue
            count -= 1
            found.setdefault(said["subscription"][1], []).append(said["attributes"]["n"])
            if acknowledge:
                ask(line, op="acknowledge", subscription=said["subscription"], positions=[said["position"]])
    return found


def test_who_reads_none_of_many_named_subscriptions_takes_little_memory_and_gets_all_later(beside: Beside) -> None:
    def client(address: str) -> None:
        with named(address, 8) as idle, connect(address) as busy:
            tracemalloc.start()
            try:
                for n in range(60):
                    busy.publish({"n": n}, bytes(LONG))
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            # 60 events for 8 subscriptions are 38 MB as they are said.
            assert most < 5_000_000
            assert list(read_on(idle, 8 * 60).values()) == [list(range(60))] * 8

    assert "client_slow" not in beside(client)


@pytest.mark.parametrize("acknowledge", [True, False])
def test_where_there_is_room_for_less_than_one_event_they_come_one_by_one(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, acknowledge: bool
) -> None:
    monkeypatch.setattr("carrycast.node.api.outbound_queue.MAX_DURABLE_BYTES", 1)

    def client(address: str) -> None:
        with named(address, 2, acknowledge) as one, connect(address) as busy:
            for n in range(30):
                busy.publish({"n": n}, bytes(LONG))
            assert list(read_on(one, 2 * 30, acknowledge).values()) == [list(range(30))] * 2

    beside(client)


def test_who_does_not_acknowledge_loses_nothing_of_a_name_either(beside: Beside) -> None:
    def client(address: str) -> None:
        with named(address, 1, acknowledge=False) as idle, connect(address) as busy:
            for n in range(100):
                busy.publish({"n": n}, bytes(LONG))
            assert list(read_on(idle, 100, acknowledge=False).values()) == [list(range(100))]

    assert "client_slow" not in beside(client)


def test_what_a_client_reads_of_one_subscription_does_not_pile_up_events_of_another(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carrycast.node.api.client_core.MAX_BUFFERED", 5)

    def client(address: str) -> None:
        with connect(address) as one:
            left, read = one.subscribe("n >= 0"), one.subscribe("n >= 0")
            kept = one.subscribe("n >= 0", name="log")
            for n in range(12):
                one.publish({"n": n})
                assert next(read).attributes["n"] == n
            # Whatever was on its way behind the last.
            one.status()
            assert (left.missed, read.missed, kept.missed) == (7, 0, 0)
            assert [next(left).attributes["n"] for _ in range(5)] == list(range(5))
            assert [next(kept).attributes["n"] for _ in range(12)] == list(range(12))
            one.publish({"n": 12})
            assert next(left).attributes["n"] == 12

    beside(client)


MANY = 2000
"""Events of 2 kB, which are 5.5 MB as they are said: more than may wait for who does not read what just happens."""


def publish_many(address: str) -> None:
    with connect(address) as one:
        for _ in one.publish_all(({"n": n}, bytes(2000)) for n in range(MANY)):
            pass


def test_all_answers_and_all_history_come_however_much_it_is(beside: Beside) -> None:
    def client(address: str) -> None:
        publish_many(address)
        with connect(address) as one:
            found, _ = one.request("n >= 0", 5.0)
            assert [event.attributes["n"] for event in found] == list(range(MANY))
            history = one.subscribe("n >= 0", history=True)
            one.publish({"n": MANY})
            assert sorted(next(history).attributes["n"] for _ in range(MANY + 1)) == list(range(MANY + 1))

    assert "client_slow" not in beside(client, "epidemic")


def test_answers_that_were_asked_for_twice_wait_in_order_for_who_reads_late_and_has_no_more_to_say(
    beside: Beside,
) -> None:
    def client(address: str) -> None:
        publish_many(address)
        with plain(address) as late, late.makefile("rb") as answers:
            for number in (1, 2):
                ask(late, op="request", id=number, filter="n >= 0", patience_s=1)
            late.shutdown(socket.SHUT_WR)
            time.sleep(0.3)
            for number in (1, 2):
                for n in range(MANY):
                    said = json.loads(answers.readline())
                    assert (said["answer"], said["id"], said["attributes"]["n"]) == ("answered", number, n)
            # The node has no neighbor: both stay open for their patience, also for who has said all it wants to.
            for number in (1, 2):
                said = json.loads(answers.readline())
                assert (said["answer"], said["id"], said["complete"]) == ("closed", number, False)
            assert answers.readline() == b""

    assert "client_slow" not in beside(client, "epidemic")


def test_what_waits_for_a_subscription_that_its_client_ends_is_not_said(beside: Beside) -> None:
    def client(address: str) -> None:
        publish_many(address)
        with plain(address) as line, line.makefile("rb") as answers:
            ask(line, op="subscribe", id=1, filter="n >= 0", history=True)
            subscription = json.loads(answers.readline())["subscription"]
            ask(line, op="unsubscribe", id=2, subscription=subscription)
            came = 0
            while json.loads(answers.readline())["answer"] == "delivered":
                came += 1
            assert came < MANY
            ask(line, op="status", id=3)
            assert json.loads(answers.readline())["answer"] == "status"

    beside(client, "epidemic")
