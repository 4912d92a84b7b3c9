"""Peers that are given by name: whether a name can be one, and how long a node that starts waits for them."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from driftcast.errors import UserError
from driftcast.live.link.interface import InterfaceConfig, LiveInterface

NAMES_S = 2.0
"""A node that starts waits no longer for the addresses of its peers. Those that are numbers are there at once; a name
server that does not answer takes 10 s and more for each name, and a service manager waits 90 s in all."""


def checked_names(interfaces: tuple[InterfaceConfig, ...], path: Path) -> tuple[InterfaceConfig, ...]:
    """The same; a UserError if a peer is called what no host can be, such as 192.168.1..12."""
    for one in interfaces:
        for host, _ in one.peers:
            try:
                host.encode("idna")
            except UnicodeError:
                raise UserError(f"{path}: peers: {host!r} is neither an address nor the name of a host") from None
    return interfaces


async def look_up(interfaces: Iterable[LiveInterface], cleanup: AsyncExitStack) -> None:
    """Find the peers of interfaces; what takes long goes on by itself."""
    tasks = [asyncio.create_task(one.resolve_peers()) for one in interfaces]
    for task in tasks:
        cleanup.callback(task.cancel)
    await asyncio.wait(tasks, timeout=NAMES_S)
