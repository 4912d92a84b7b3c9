"""Load: a new neighbor catches up on many events, and publishers wait for copies."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Thread, Timer
from types import SimpleNamespace

import pytest

import carrycast
from carrycast.core.model import EventId
from carrycast.core.protocol import BeaconSettings
from carrycast.errors import UserError, WorkError
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.api.client import connect
from carrycast.node.link import interface
from carrycast.node.link.config import LinkSettings
from carrycast.node.link.interface import LiveInterface
from carrycast.node.node import LiveNode
from carrycast.node.runtime import backpressure
from carrycast.node.runtime.publisher import RequiredCopies
from tests.live.addresses import udp_address
from tests.live.conftest import BEACONS, MakeConfig, Run
from tests.live.test_control import with_node
from tests.live.test_delivery import nobody
from tests.live.test_tutorial import free_ports


@pytest.mark.parametrize("protocol", ["epidemic", "drift"])
def test_a_newcomer_catches_up_on_ten_thousand_events_without_a_full_queue(
    protocol: str, config: MakeConfig, run: Run
) -> None:
    async def story() -> None:
        link = LinkSettings()
        async with LiveNode(config(1, protocol, link=link, beacons=BeaconSettings())) as old:
            ids = [old.publish({"n": n}, payload=bytes(180)) for n in range(10_000)]
            async with LiveNode(config(2, protocol, link=link, beacons=BeaconSettings())) as new:
                inbox = Inbox()
                new.subscribe("n >= 0", inbox)
                begun_s = time.process_time()
                new.add_peer(old.address)
                await until(lambda: len(inbox.events) == len(ids), 120)
                # Both nodes together; a busy machine may take longer by the clock.
                assert time.process_time() - begun_s < 10
                assert sorted(inbox.events) == sorted(ids)
                assert (old.drops["queue_full"], new.drops["queue_full"]) == (0, 0)

    run(story())


def test_a_burst_is_as_fast_as_it_is_taken_and_all_of_it_arrives(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    def burst(address: str) -> int:
        with connect(address) as one:
            return sum(1 for _ in one.publish_all(({"n": n}, bytes(180)) for n in range(5000)))

    async def story() -> None:
        link = LinkSettings()
        made = config(1, "epidemic", link=link, beacons=BeaconSettings(), control=tmp_path / "1.sock")
        async with (
            LiveNode(made) as node,
            LiveNode(config(2, "epidemic", link=link, beacons=BeaconSettings())) as other,
        ):
            node.add_peer(other.address)
            other.add_peer(node.address)
            inbox = Inbox()
            other.subscribe("n >= 0", inbox)
            await until(lambda: node.neighbors == [2] and other.neighbors == [1], 20)
            assert await asyncio.to_thread(burst, str(tmp_path / "1.sock")) == 5000
            await until(lambda: len(inbox.events) == 5000, 120)
            assert (node.drops["queue_full"], other.drops["queue_full"]) == (0, 0)

    run(story())


NODE = """
name = "{name}"
[listen]
host = "127.0.0.1"
port = {port}
[discovery]
peers = ["127.0.0.1:{peer}"]
[protocol]
name = "{protocol}"
buffer = 4000
[control]
socket = "{name}.sock"
"""


@pytest.mark.parametrize("protocol", ["epidemic", "drift"])
def test_a_publisher_waits_for_a_neighbor_that_is_held_up(protocol: str, tmp_path: Path) -> None:
    """It ran ahead of it, and what the neighbor had not asked for was gone from the buffer."""
    events = 20_000
    ports = free_ports(2)
    environment = {**os.environ, "PYTHONPATH": str(Path(carrycast.__path__[0]).parent)}
    with ExitStack() as stack:
        processes = []
        for name, port, other in (("a", *ports), ("b", *reversed(ports))):
            path = tmp_path / f"{name}.toml"
            path.write_text(NODE.format(name=name, port=port, peer=other, protocol=protocol))
            command = [sys.executable, "-m", "carrycast.cli", "node", str(path)]
            process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        writer = stack.enter_context(connect(str(tmp_path / "a.sock"), 30))
        reader = stack.enter_context(connect(str(tmp_path / "b.sock"), 30))
        deliveries = reader.subscribe("n >= 0")
        while not (writer.status().neighbors and reader.status().neighbors):
            time.sleep(0.05)
        came: set[EventId] = set()

        def read() -> None:
            while len(came) < events and (delivery := deliveries.next_delivery(15.0)) is not None:
                came.add(delivery.event.id)

        reading = Thread(target=read)
        reading.start()
        for done, _ in enumerate(writer.publish_all(({"n": n}, bytes(180)) for n in range(events))):
            if done == events // 4:
                processes[1].send_signal(signal.SIGSTOP)
                Timer(1.0, processes[1].send_signal, [signal.SIGCONT]).start()
        reading.join()
        assert len(came) == events


def test_a_publisher_that_would_not_wait_is_refused(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def client(address: str) -> None:
        with connect(address) as one:
            one.publish({"n": 1}, busy="refuse")
            monkeypatch.setattr(interface, "BUSY_SHARE", 0.0)
            with pytest.raises(WorkError, match="the node cannot keep up"):
                one.publish({"n": 2}, busy="refuse")
            assert one.status().drops == {"busy": 1}

    with_node(config, run, tmp_path / "1.sock", client)


@pytest.mark.parametrize("protocol", ["epidemic", "drift"])
@pytest.mark.parametrize(
    ("buffer", "events"),
    [
        # The marks lie further and further apart: 16, 32, 64 and then five times 128 events.
        (10_000, 752),
        # Of a small buffer no more than a quarter waits.
        (512, 128),
        (64, 16),
        (2, 1),
    ],
)
def test_a_node_is_busy_after_so_many_events_of_which_a_neighbor_has_taken_none(
    buffer: int, events: int, protocol: str, config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        nodes = [LiveNode(config(number, protocol, buffer=buffer)) for number in (1, 2)]
        async with nodes[0] as node, nodes[1] as neighbor:
            node.add_peer(neighbor.address)
            await until(lambda: bool(node.neighbors and neighbor.neighbors))
            published = 0
            # The neighbor runs in the same loop, and takes nothing before this one ends.
            while not node.is_busy():
                node.publish({"n": published})
                published += 1
            assert published == events
            monkeypatch.setattr(backpressure, "MAX_STALL_S", 0.0)
            assert not node.is_busy(), "nobody waits for ever for a neighbor that takes nothing"

    run(story())


@pytest.mark.parametrize(
    ("neighbors", "waiting", "longest", "busy"),
    [
        (1, 1023, 1023, False),
        (1, 1024, 1024, True),
        # All of it is for one of two, the other takes what it gets.
        (2, 2000, 2000, False),
        (2, 2000, 1000, False),
        (2, 2048, 1024, True),
        (2, 3072, 3072, True),
    ],
)
def test_one_neighbor_that_takes_its_time_holds_up_nobody(
    neighbors: int, waiting: int, longest: int, busy: bool
) -> None:
    """It asked for everything, acknowledged late, and its publishers were refused nine events of ten."""
    one = SimpleNamespace(
        _link_layer=SimpleNamespace(pending=waiting, longest_queue=longest),
        _config=SimpleNamespace(link=LinkSettings(queue=4096)),
        neighbors=range(neighbors),
    )
    assert LiveInterface.busy.fget(one) is busy  # type: ignore[attr-defined]


@pytest.mark.skipif("sys.platform != 'linux'", reason="only Linux tells of datagrams that found no room")
def test_datagrams_that_the_system_drops_are_counted(config: MakeConfig, run: Run, stranger: socket.socket) -> None:
    async def story() -> None:
        async with LiveNode(config(1)) as node:
            for _ in range(40_000):
                stranger.sendto(bytes(1000), udp_address(node))
            await until(lambda: node.drops["link_bad_magic"] > 0)
            # What was dropped is told with the next datagram that is not, and the next may be dropped as well.
            sent = 40_000
            while sum(node.drops.values()) < sent:
                assert sent < 40_500
                stranger.sendto(bytes(1000), udp_address(node))
                sent += 1
                await asyncio.sleep(0.05)
            assert sum(node.drops.values()) == sent
            assert node.drops["socket_full"] > 1000

    run(story())


@pytest.mark.parametrize("protocol", ["epidemic", "drift"])
def test_a_publisher_is_told_when_enough_neighbors_hold_its_event(
    protocol: str, config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    """G-19, G-20"""

    async def story() -> None:
        made = (config(n, protocol, store=tmp_path / str(n), durable=True) for n in range(3))
        async with LoopbackNetwork(made) as network:
            network.link(0, 1)
            network.link(0, 2)
            await network.wait_until_discovered()
            held: list[int] = []
            node = network.nodes[0]
            node.publish({"n": 1}, on_stored=nobody, copies=RequiredCopies(2, 5.0, held.append))
            await until(lambda: held == [2])
            # One neighbor too many: patience ends it.
            node.publish({"n": 2}, copies=RequiredCopies(3, 0.5, held.append))
            await until(lambda: held == [2, 2])
            assert not node._publisher.replication._waits
        async with LiveNode(config(3, "flooding")) as node:
            with pytest.raises(UserError, match="flooding does not know who holds an event"):
                node.publish({"n": 1}, copies=RequiredCopies(1, 1.0, held.append))

    run(story())


def test_a_client_waits_for_copies_and_is_told_how_many_there_are(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    def client(address: str) -> EventId:
        with connect(address) as one:
            with pytest.raises(WorkError, match="held by 1 of 2 neighbors after"):
                one.publish({"n": 1}, level="held", copies=2, patience_s=0.3)
            return one.publish({"n": 2}, level="held")

    async def story() -> None:
        first = config(1, "epidemic", store=tmp_path / "1", durable=True, control=tmp_path / "1.sock", beacons=BEACONS)
        second = config(2, "epidemic", store=tmp_path / "2", durable=True)
        async with LiveNode(first) as node, LiveNode(second) as other:
            node.add_peer(other.address)
            other.add_peer(node.address)
            await until(lambda: node.neighbors == [2] and other.neighbors == [1])
            event = await asyncio.to_thread(client, str(tmp_path / "1.sock"))
            assert event in other._runtime.protocol._buffered  # type: ignore[attr-defined]

    run(story())
