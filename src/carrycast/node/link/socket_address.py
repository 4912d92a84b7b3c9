"""Addresses of internet sockets: parse, format and resolve a host and a port."""

import re
import socket
from typing import Annotated, TypeAlias

from msgspec import Meta

from carrycast.errors import UserError, WorkError

SocketAddress: TypeAlias = tuple[str, int]
"""Host and port as the operating system writes them. Scoped IPv6 addresses (`fe80::1%eth0`) are not supported."""

Port: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:\[\]/]+)):(?P<port>[0-9]{1,5})")


def parse_socket_address(text: str) -> SocketAddress:
    """Parse `host:port` or `[IPv6 address]:port`; a UserError if the text is neither."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise UserError(f"{text!r} is no address; write host:port, for IPv6 [address]:port")
    return found["v6"] or found["host"], int(found["port"])


def format_socket_address(address: SocketAddress) -> str:
    """Return the text that `parse_socket_address` parses."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def resolve_socket_address(address: SocketAddress, family: socket.AddressFamily) -> SocketAddress:
    """Resolve the host of an address to a number, in the family of the socket that will send to it."""
    # Imported here, because clients of a node parse addresses without asyncio.
    import asyncio

    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(*address, family=family, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise WorkError(f"cannot resolve {format_socket_address(address)}: {error.strerror or error}") from None
    except UnicodeError:
        raise WorkError(f"cannot resolve {format_socket_address(address)}: that is no name of a host") from None
    host, port = found[0][4][:2]
    return str(host), int(port)
