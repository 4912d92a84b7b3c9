"""The retention contract of live nodes: acknowledged events are kept, others are refused, and the accounts balance."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread, Timer

import pytest

import carrycast
from carrycast.core.model import EventId
from carrycast.errors import UserError, WorkError
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.api import client_publishing
from carrycast.node.api.client import Client, connect
from carrycast.node.api.messages import Level, RetentionReport
from carrycast.node.node import LiveNode
from carrycast.node.runtime import backpressure
from tests.live.conftest import MakeConfig, Run
from tests.live.test_delivery import nobody
from tests.live.test_metrics import asked, get
from tests.live.test_tutorial import free_ports

NODE = """
name = "{name}"
[listen]
host = "127.0.0.1"
port = {port}
[discovery]
peers = ["127.0.0.1:{peer}"]
[protocol]
name = "{protocol}"
durable = {durable}
buffer = {buffer}
[store]
file = "{name}.db"
[control]
socket = "{name}.sock"
"""


def check_books(node: LiveNode) -> None:
    """Of each level events accepted = events kept + events removed by name, and the log says the same."""
    retention = node.status().retention
    assert [flaw for level, one in retention.items() if (flaw := one.flaw(level)) is not None] == []
    assert node._recorder.retention_accounts.imbalance() is None


def until_refused(publications: Iterator[EventId]) -> tuple[int, str]:
    """Return how many events were published before one was refused, and the reason."""
    published = 0
    try:
        for _ in publications:
            published += 1
    except WorkError as error:
        return published, str(error)
    return published, ""


@contextmanager
def two_processes(
    folder: Path, protocol: str, durable: bool, buffer: int
) -> Iterator[tuple[Client, Client, subprocess.Popen[bytes]]]:
    """A publisher's client, a subscriber's client, and the process of the subscriber's node."""
    ports = free_ports(2)
    environment = {**os.environ, "PYTHONPATH": str(Path(carrycast.__path__[0]).parent)}
    with ExitStack() as stack:
        for name, port, other in (("a", *ports), ("b", *reversed(ports))):
            path = folder / f"{name}.toml"
            text = NODE.format(
                name=name, port=port, peer=other, protocol=protocol, durable=str(durable).lower(), buffer=buffer
            )
            path.write_text(text)
            command = [sys.executable, "-m", "carrycast.cli", "node", str(path)]
            process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        writer = stack.enter_context(connect(str(folder / "a.sock"), 60))
        reader = stack.enter_context(connect(str(folder / "b.sock"), 60))
        while not (writer.status().neighbors and reader.status().neighbors):
            time.sleep(0.05)
        yield writer, reader, process


@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["epidemic", "drift"])
@pytest.mark.parametrize("level", ["stored", "accepted"])
def test_a_burst_to_a_neighbor_that_pauses_at_the_start_comes_whole(
    level: Level, protocol: str, tmp_path: Path
) -> None:
    """G-2, G-3, G-12. The publisher ran ahead before the first event was taken, and the buffer let go of the others."""
    events = 6000
    with two_processes(tmp_path, protocol, level == "stored", buffer=2000) as (writer, reader, process):
        deliveries = reader.subscribe("n >= 0")
        came: set[EventId] = set()

        def read() -> None:
            while len(came) < events and (delivery := deliveries.next_delivery(60.0)) is not None:
                came.add(delivery.event.id)

        reading = Thread(target=read)
        reading.start()
        process.send_signal(signal.SIGSTOP)
        Timer(1.0, process.send_signal, [signal.SIGCONT]).start()
        ids = list(writer.publish_all((({"n": n}, bytes(180)) for n in range(events)), level=level))
        reading.join()
        assert came == set(ids)
        kept = writer.status().retention[level]
        assert kept.flaw(level) is None
        assert kept.accepted == events
        if level == "stored":
            assert kept.kept == events


@pytest.mark.parametrize(("buffer", "most"), [(1, 1), (4, 1), (40, 10), (400, 100), (10_000, 2500)])
def test_publishers_wait_before_a_quarter_of_the_buffer_is_held_by_nobody(
    buffer: int, most: int, config: MakeConfig, run: Run
) -> None:
    """G-12"""

    async def story() -> None:
        async with LoopbackNetwork([config(1, "epidemic", buffer=buffer), config(2, "flooding")]) as network:
            network.link(1, 2)
            await network.wait_until_discovered()
            node, published = network.nodes[1], 0
            while not node.is_busy():
                together = 1
                while together < 64 and not node.is_busy(together):
                    together += 1
                for _ in range(together):
                    node.publish({"n": published})
                    published += 1
            assert published <= most

    run(story())


def test_long_events_make_publishers_wait_by_their_bytes(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    """G-12. The buffer has room for thousands, and the log for a few of them."""

    async def story() -> None:
        made = config(1, "epidemic", store=tmp_path / "1", durable=True, log_bytes=1 << 20)
        async with LoopbackNetwork([made, config(2, "flooding")]) as network:
            network.link(1, 2)
            await network.wait_until_discovered()
            node, published = network.nodes[1], 0
            while not node.is_busy():
                node.publish({"n": published}, bytes(10_000))
                published += 1
            assert 1 < published <= 8
            assert "buffer_full" not in node.status().retention["accepted"].removed

    run(story())


@pytest.mark.timeout(120)
def test_without_neighbors_stored_events_are_admitted_until_the_log_is_full_and_then_refused(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    """G-3, G-4, G-7"""

    def client() -> int:
        with connect(str(tmp_path / "1.sock")) as one:
            publications = one.publish_all((({"n": n}, bytes(4000)) for n in range(1000)), level="stored")
            stored, refused = until_refused(publications)
            assert "the retention log is full" in refused
            for n in range(300):
                one.publish({"n": n}, bytes(4000))
            assert one.status().drops["not_stored"] >= 1
            return stored

    async def story() -> None:
        made = replace(
            config(1, "epidemic", store=tmp_path / "1", control=tmp_path / "1.sock", durable=True, log_bytes=1 << 20),
            metrics=("127.0.0.1", 0),
        )
        async with LiveNode(made) as node:
            stored = await asyncio.to_thread(client)
            assert 100 < stored < 131
            retention = node.status().retention
            assert retention["stored"] == RetentionReport(stored, stored, {}, retention["stored"].log_bytes)
            assert retention["accepted"].removed["buffer_full"] > 0, "they make room for each other"
            check_books(node)
            state, _, body = await asked(node.metrics.port, get("/health"))
            assert state == "503 Service Unavailable"
            assert body.startswith("the retention log is full")
        async with LiveNode(made) as again:
            assert again.status().retention["stored"] == retention["stored"]
            assert again.status().retention["accepted"] == retention["accepted"]
            check_books(again)

    run(story())


def test_a_lease_that_cannot_be_kept_is_refused_and_none_is_that_of_the_protocol(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    """G-5, G-6"""

    async def story() -> None:
        async with LiveNode(config(1, "epidemic", store=tmp_path / "1", durable=True, max_lease_s=60.0)) as node:
            inbox = Inbox()
            node.subscribe("n >= 0", inbox)
            with pytest.raises(UserError, match="its lease of 61 s is longer than any event is kept here \\(60 s\\)"):
                node.publish({"n": 1}, lease_s=61.0, on_stored=nobody)
            node.publish({"n": 2}, on_stored=nobody)
            node.publish({"n": 3}, lease_s=10.0, on_stored=nobody)
            node.publish({"n": 4}, lease_s=61.0)
            await until(lambda: len(inbox.events) == 3)
            log = node._publisher.retention.log
            assert log is not None
            held = node._runtime.protocol._buffered  # type: ignore[attr-defined]
            assert [held[id].event.lease_s for id in inbox.events] == [60.0, 10.0, 61.0]

    run(story())


@pytest.mark.parametrize("protocol", ["epidemic", "drift", "spray_and_wait", "first_contact", "prophet", "direct"])
def test_books_go_on_over_a_kill(protocol: str, config: MakeConfig, run: Run, tmp_path: Path) -> None:
    """G-2, G-7, G-8"""

    async def story() -> None:
        made = config(1, protocol, store=tmp_path / "1", durable=True, buffer=3)
        network = LoopbackNetwork([made])
        async with network:
            for passed in range(1, 4):
                node = network.nodes[1]
                told: list[WorkError | None] = []
                for n in range(4):
                    node.publish({"n": n}, on_stored=told.append)
                    node.publish({"n": n})
                node.publish({"n": 9}, lease_s=0.2, on_stored=told.append)
                await until(lambda told=told: told == [None] * 5)  # type: ignore[misc]
                ended = {"lease_over": passed}
                await until(lambda node=node, ended=ended: node.status().retention["stored"].removed == ended)  # type: ignore[misc]
                check_books(node)
                await network.crash(1)
                await network.start(1)
                again = network.nodes[1].status().retention
                assert again["stored"].accepted == 5 * passed
                assert again["stored"].kept == 4 * passed
                assert again["accepted"].kept <= 3
                check_books(network.nodes[1])

    run(story())


def test_custody_moves_an_event_to_a_node_that_keeps_it_and_to_no_other(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    """G-10, G-11"""

    async def story() -> None:
        kept = config(1, "first_contact", store=tmp_path / "1", durable=True, again_s=0.2)
        forgetful = config(2, "first_contact", again_s=0.2)
        durable = config(3, "first_contact", store=tmp_path / "3", durable=True, again_s=0.2)
        async with LoopbackNetwork([kept, forgetful, durable]) as network:
            network.link(1, 2)
            await network.wait_until_discovered()
            event = network.nodes[1].publish({"n": 1}, on_stored=nobody)
            await until(lambda: network.nodes[2].status().retention.get("carried") is not None)
            await asyncio.sleep(0.5)
            assert network.nodes[1].status().retention["stored"].kept == 1, "node 2 has no disk"
            network.cut(1, 2)
            network.link(1, 3)
            await network.wait_until_discovered()
            await until(lambda: network.nodes[1].status().retention["stored"].removed == {"custody": 1})
            await network.crash(3)
            await network.start(3)
            assert network.nodes[3].status().retention["custody"].kept == 1
            assert event in network.nodes[3]._runtime.protocol.buffer.events  # type: ignore[attr-defined]
            for node in (1, 3):
                check_books(network.nodes[node])

    run(story())


def test_protocols_that_keep_nothing_say_so_of_each_event(config: MakeConfig, run: Run) -> None:
    """G-1, G-9, G-20"""

    async def story() -> None:
        for protocol in ("flooding", "gossip"):
            async with LiveNode(config(1, protocol)) as node:
                for n in range(3):
                    node.publish({"n": n})
                assert node.status().retention == {"accepted": RetentionReport(3, 0, {"not_kept": 3})}
                with pytest.raises(UserError, match="does not keep on disk"):
                    node.publish({"n": 3}, on_stored=nobody)

    run(story())


def test_what_memory_lets_go_of_is_counted_at_its_publisher(config: MakeConfig, run: Run) -> None:
    """G-9"""

    async def story() -> None:
        async with LiveNode(config(1, "epidemic", buffer=4)) as node:
            for n in range(10):
                node.publish({"n": n})
            assert node.status().retention == {"accepted": RetentionReport(10, 4, {"buffer_full": 6})}

    run(story())


def test_metrics_and_the_control_channel_show_the_books(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    """G-7"""

    async def story() -> None:
        made = replace(
            config(1, "epidemic", store=tmp_path / "1", control=tmp_path / "1.sock", durable=True),
            metrics=("127.0.0.1", 0),
        )
        async with LiveNode(made) as node:
            told: list[WorkError | None] = []
            node.publish({"n": 1}, on_stored=told.append)
            node.publish({"n": 2}, lease_s=0.1, on_stored=told.append)
            await until(lambda: told == [None, None])
            await until(lambda: node.status().retention["stored"].kept == 1)
            _, _, body = await asked(node.metrics.port, get("/metrics"))
            lines = body.split("\n")
            assert 'carrycast_retention_accepted_total{level="stored"} 2' in lines
            assert 'carrycast_retention_kept{level="stored"} 1' in lines
            assert 'carrycast_retention_removed_total{level="stored",reason="lease_over"} 1' in lines
            assert any(line.startswith('carrycast_retention_log_bytes{level="stored"}') for line in lines)

            def client() -> RetentionReport:
                with connect(str(tmp_path / "1.sock")) as one:
                    return one.status().retention["stored"]

            kept = await asyncio.to_thread(client)
            assert (kept.accepted, kept.kept, kept.removed) == (2, 1, {"lease_over": 1})

    run(story())


def test_publishers_wait_from_the_first_events_on_and_are_refused_in_the_end(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-12, G-13"""
    monkeypatch.setattr(client_publishing, "WAIT_S", 0.3)
    monkeypatch.setattr(backpressure, "PATIENCE_S", 3600.0)
    monkeypatch.setattr(backpressure, "MAX_STALL_S", 3600.0)

    def client() -> int:
        with connect(str(tmp_path / "1.sock")) as one:
            published, refused = until_refused(one.publish_all(({"n": n}, b"") for n in range(1000)))
            assert "neighbors have not taken what was published" in refused
            assert one.status().drops["busy"] >= 1
        return published

    async def story() -> None:
        # A neighbor that is there, hears what it is told, and never takes an event: of another protocol.
        made = config(1, "epidemic", control=tmp_path / "1.sock", buffer=400)
        async with LoopbackNetwork([made, config(2, "flooding")]) as network:
            network.link(1, 2)
            await network.wait_until_discovered()
            published = await asyncio.to_thread(client)
            assert published <= 100, "a quarter of the buffer, before anything had to make room"
            assert "buffer_full" not in network.nodes[1].status().retention["accepted"].removed

    run(story())


def test_nobody_waits_for_neighbors_that_want_nothing(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-12"""
    monkeypatch.setattr(backpressure, "PATIENCE_S", 0.2)

    def client() -> None:
        with connect(str(tmp_path / "1.sock")) as one:
            assert sum(1 for _ in one.publish_all(({"n": n}, b"") for n in range(1000))) == 1000

    async def story() -> None:
        made = config(1, "epidemic", control=tmp_path / "1.sock", buffer=400)
        async with LoopbackNetwork([made, config(2, "flooding")]) as network:
            network.link(1, 2)
            await network.wait_until_discovered()
            await asyncio.to_thread(client)
            account = network.nodes[1].status().retention["accepted"]
            assert account == RetentionReport(1000, 400, {"buffer_full": 600})

    run(story())
