"""A configuration that is read again: peers by names that are known later, or no more, and signals before the start."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from carrycast.errors import WorkError
from carrycast.lab.loopback.network import until
from carrycast.node import commands, reload
from carrycast.node.config import load_config
from carrycast.node.link import interface, udp
from carrycast.node.link.adapter import AddressUnavailableError
from carrycast.node.link.socket_address import SocketAddress
from carrycast.node.node import LiveNode
from carrycast.node.recorder import LOG
from carrycast.node.reload import ConfigReload
from tests.live.conftest import Run

CONFIG = """
name = "car-1"
[listen]
host = "127.0.0.1"
port = 0
[discovery]
peers = {peers}
"""


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The names that are known, and what they stand for."""
    known: dict[str, str] = {}

    async def resolved(address: SocketAddress, family: socket.AddressFamily) -> SocketAddress:
        await asyncio.sleep(0.001)
        host, port = address
        if host.endswith(".invalid") and host not in known:
            raise WorkError(f"cannot resolve {host}:{port}")
        return known.get(host, host), port

    monkeypatch.setattr(udp, "resolve_socket_address", resolved)
    for module in (interface, reload):
        monkeypatch.setattr(module, "RESOLVE_S", 0.02)
    level, handlers, propagates = LOG.level, list(LOG.handlers), LOG.propagate
    yield known
    LOG.setLevel(level)
    LOG.handlers[:] = handlers
    LOG.propagate = propagates


def peers_of(node: LiveNode) -> list[SocketAddress]:
    return sorted(address for address in node._runtime.interfaces["udp"].peers if isinstance(address, tuple))


def written(path: Path, *peers: str) -> Path:
    path.write_text(CONFIG.format(peers=list(peers)))
    return path


def test_a_new_peer_whose_name_is_not_known_yet_is_looked_up_again(
    tmp_path: Path, run: Run, names: dict[str, str]
) -> None:
    path = written(tmp_path / "car-1.toml")

    async def story() -> None:
        async with LiveNode(load_config(path)) as node:
            reloading = ConfigReload(node, path)
            written(path, "barn.invalid:9", "shed.invalid:9")
            assert await reloading.reload() == []
            assert peers_of(node) == []
            # Who is no longer asked for is not found later.
            written(path, "barn.invalid:9")
            assert await reloading.reload() == []
            names.update({"barn.invalid": "127.0.0.2", "shed.invalid": "127.0.0.3"})
            await until(lambda: peers_of(node) != [], 20)
            await asyncio.sleep(0.1)
            assert peers_of(node) == [("127.0.0.2", 9)]
            written(path)
            assert await reloading.reload() == []
            assert peers_of(node) == []

    run(story())


def test_a_peer_that_is_gone_and_has_no_address_any_more_is_named(
    tmp_path: Path, run: Run, names: dict[str, str]
) -> None:
    names["barn.invalid"] = "127.0.0.2"
    path = written(tmp_path / "car-1.toml", "barn.invalid:9")

    async def story() -> None:
        async with LiveNode(load_config(path)) as node:
            reloading = ConfigReload(node, path)
            names.clear()
            written(path)
            assert await reloading.reload() == ["peer barn.invalid:9"]
            names["barn.invalid"] = "127.0.0.2"
            assert await reloading.reload() == []
            assert peers_of(node) == []

    run(story())


def test_a_number_in_the_place_of_a_name_is_the_same_peer(tmp_path: Path, run: Run, names: dict[str, str]) -> None:
    hosts = {f"barn-{k}.invalid": f"127.0.1.{k}" for k in range(1, 20)}
    names.update(hosts)
    path = written(tmp_path / "car-1.toml", *(f"{name}:9" for name in hosts))

    async def story() -> None:
        async with LiveNode(load_config(path)) as node:
            before = peers_of(node)
            written(path, *(f"{number}:9" for number in hosts.values()))
            assert await ConfigReload(node, path).reload() == []
            assert peers_of(node) == before

    run(story())


def test_a_reading_is_not_overtaken_by_an_earlier_one(tmp_path: Path, run: Run, names: dict[str, str]) -> None:
    path = written(tmp_path / "car-1.toml")

    async def story() -> None:
        async with LiveNode(load_config(path)) as node:
            reloading = ConfigReload(node, path)
            written(path, "127.0.0.2:9")
            first = asyncio.create_task(reloading.reload())
            await asyncio.sleep(0)
            written(path)
            await asyncio.gather(first, reloading.reload())
            assert peers_of(node) == []

    run(story())


def test_a_node_that_waits_for_its_interface_reads_its_file_again_when_it_has_started(
    tmp_path: Path, run: Run, names: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "car-1.toml")
    waits = [True]
    start = LiveNode.start

    async def started(node: LiveNode) -> None:
        if waits:
            # As far as it comes without the address: all is made, and thrown away.
            await start(node)
            await node.stop()
            raise AddressUnavailableError("cannot listen")
        await start(node)

    async def story() -> None:
        node = LiveNode(load_config(path))
        task = asyncio.create_task(commands._run(node, path))
        await asyncio.sleep(0.1)
        written(path, "127.0.0.2:9")
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.1)
        waits.clear()
        await until(lambda: node._running and peers_of(node) == [("127.0.0.2", 9)], 20)
        os.kill(os.getpid(), signal.SIGTERM)
        await task

    monkeypatch.setattr(LiveNode, "start", started)
    monkeypatch.setattr(commands, "BOOT_RETRY_S", 0.02)
    run(story())
