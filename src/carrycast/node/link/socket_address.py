"""Where a datagram comes from or goes to: a numeric host and a port."""

import re
import socket
from typing import TypeAlias

from carrycast.errors import UserError, WorkError

Address: TypeAlias = tuple[str, int]
"""Host and port as the operating system writes them. Scoped IPv6 addresses (`fe80::1%eth0`) are not supported."""

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:\[\]/]+)):(?P<port>[0-9]{1,5})")


def parse_address(text: str) -> Address:
    """`host:port` or `[IPv6 address]:port`; a UserError says so."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise UserError(f"{text!r} is no address; write host:port, for IPv6 [address]:port")
    return found["v6"] or found["host"], int(found["port"])


def format_address(address: Address) -> str:
    """The text that `parse_address` reads."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def resolve(address: Address, family: socket.AddressFamily) -> Address:
    """The numeric form of an address, in the family of the socket that will send to it."""
    # Clients of a node read addresses too, and wait for no loop.
    import asyncio

    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(*address, family=family, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise WorkError(f"cannot resolve {format_address(address)}: {error.strerror or error}") from None
    except UnicodeError:
        raise WorkError(f"cannot resolve {format_address(address)}: that is no name of a host") from None
    host, port = found[0][4][:2]
    return str(host), int(port)
