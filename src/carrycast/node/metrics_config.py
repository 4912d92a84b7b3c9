"""What a node's configuration says of the port for monitoring."""

import ipaddress
from pathlib import Path

from carrycast.errors import UserError
from carrycast.node.link.config import Section
from carrycast.node.link.socket_address import Port, SocketAddress


class MetricsSection(Section, frozen=True):
    """Where monitoring asks: this machine only, unless another address is named."""

    port: Port
    host: str = "127.0.0.1"


def metrics_place(section: MetricsSection | None, path: Path) -> SocketAddress | None:
    """An address to listen on, if there is one; a UserError says what is wrong."""
    if section is None:
        return None
    try:
        # An empty text would mean every address of the machine, and nothing there is authenticated.
        host = ipaddress.ip_address("127.0.0.1" if section.host == "localhost" else section.host)
    except ValueError:
        raise UserError(
            f"{path}: metrics.host: {section.host!r} is no IP address of this machine; 0.0.0.0 means all"
        ) from None
    return str(host), section.port
