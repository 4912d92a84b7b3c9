"""To whom a node speaks: what the operating system would refuse later, and how long it waits for names of peers."""

import asyncio
import ipaddress
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from carrycast.errors import UserError
from carrycast.node.link.config import InterfaceConfig
from carrycast.node.link.interface import LiveInterface
from carrycast.node.link.socket_address import Address

EVERYWHERE = "0.0.0.0"
NAMES_S = 2.0
"""A node that starts waits no longer for the addresses of its peers. Those that are numbers are there at once; a name
server that does not answer takes 10 s and more for each name, and a service manager waits 90 s in all."""


def checked(interfaces: tuple[InterfaceConfig, ...], path: Path) -> tuple[InterfaceConfig, ...]:
    """The same, with peers that are numbers first, for names are looked up one by one. A UserError if a group cannot be
    heard, or a peer is called what no host can be, such as 192.168.1..12."""
    for one in interfaces:
        if one.group is not None and one.host == EVERYWHERE and one.port == one.group[1] != 0:
            # Whoever hears a port at every address leaves nothing of it for the group's own socket.
            raise UserError(
                f"{path}: host: with a group on the same port it is this machine's own address, not {one.host}"
            )
        for host, _ in one.peers:
            try:
                host.encode("idna")
            except UnicodeError:
                raise UserError(f"{path}: peers: {host!r} is neither an address nor the name of a host") from None
    return tuple(replace(one, peers=tuple(sorted(one.peers, key=_is_name))) for one in interfaces)


def _is_name(peer: Address) -> bool:
    try:
        ipaddress.ip_address(peer[0])
    except ValueError:
        return True
    return False


async def look_up(interfaces: Iterable[LiveInterface], cleanup: AsyncExitStack) -> None:
    """Find the peers of interfaces; what takes long goes on by itself."""
    tasks = [asyncio.create_task(one.resolve_peers()) for one in interfaces]
    for task in tasks:
        cleanup.callback(task.cancel)
    await asyncio.wait(tasks, timeout=NAMES_S)
