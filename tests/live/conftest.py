"""Fixtures of the tests of live nodes."""

import asyncio
import importlib
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from carrycast.core.model import NodeId
from carrycast.core.protocol import BeaconSettings, Interface, Protocol as Machine, StackPlan
from carrycast.core.protocol.registry import find_protocol
from carrycast.node.config import NodeConfig
from carrycast.node.link.config import UDP, InterfaceConfig, LinkSettings
from carrycast.node.link.frame import LinkFrame, LinkKind, pack, unpack
from carrycast.node.trace_files import TraceConfig
from carrycast.trace import Level

BEACONS = BeaconSettings(period_s=0.05, missed=3)
FULL = TraceConfig(Level.FULL)
LINK = LinkSettings(ack_timeout_s=0.05, retries=2)


class MakeConfig(Protocol):
    """Makes the configuration of a node with short periods and timeouts."""

    def __call__(
        self,
        node: NodeId,
        protocol: str | type[Machine] = "flooding",
        *,
        link: LinkSettings = LINK,
        interfaces: Mapping[Interface, LinkSettings] | None = None,
        store: Path | None = None,
        control: Path | int | None = None,
        trace: TraceConfig = FULL,
        beacons: BeaconSettings = BEACONS,
        **settings: object,
    ) -> NodeConfig: ...


Run = Callable[[Coroutine[object, object, None]], None]


@pytest.fixture
def config() -> MakeConfig:
    """A maker of configurations."""

    def make(
        node: NodeId,
        protocol: str | type[Machine] = "flooding",
        *,
        link: LinkSettings = LINK,
        interfaces: Mapping[Interface, LinkSettings] | None = None,
        store: Path | None = None,
        control: Path | int | None = None,
        trace: TraceConfig = FULL,
        beacons: BeaconSettings = BEACONS,
        **options: object,
    ) -> NodeConfig:
        kind = find_protocol(protocol) if isinstance(protocol, str) else protocol
        plan = StackPlan(kind, kind.settings_type(**options), beacons=beacons)
        made = tuple(InterfaceConfig(name, link=settings) for name, settings in (interfaces or {UDP: link}).items())
        return NodeConfig(f"node-{node}", node, plan, made, store=store, control=control, trace=trace)

    return make


@pytest.fixture(scope="session", autouse=True)
def _tables() -> None:
    """Import pyarrow before the tests: on a busy machine the import takes seconds, which would block running nodes."""
    importlib.import_module("pyarrow")


@pytest.fixture
def run() -> Run:
    """Runs a coroutine; afterwards no task may be left, and no exception may have gone unnoticed."""

    def run_story(story: Coroutine[object, object, None]) -> None:
        unseen: list[dict[str, object]] = []

        async def watched() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
            await story
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, left

        asyncio.run(watched())
        assert not unseen, unseen

    return run_story


def meet(stranger: socket.socket, address: tuple[str, int], sender: NodeId) -> None:
    """Validate the path from a socket that is no node; its frame (number 0) contains no message."""
    stranger.sendto(pack(LinkFrame(LinkKind.DATA, sender, 1, 0, b"x")), address)
    challenge = unpack(stranger.recv(1000))
    assert isinstance(challenge, LinkFrame)
    assert challenge.kind is LinkKind.CHALLENGE
    stranger.sendto(pack(challenge._replace(kind=LinkKind.RESPONSE, sender=sender)), address)


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    """A socket that is no node."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("127.0.0.1", 0))
        opened.settimeout(5)
        yield opened
