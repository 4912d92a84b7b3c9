"""What a node's configuration says of the way in for clients."""

from pathlib import Path

from carrycast.errors import UserError
from carrycast.node.link.config import Section
from carrycast.node.link.socket_address import Port


class ControlSection(Section, frozen=True):
    """Where clients reach the node: a Unix socket, or a port on 127.0.0.1 and the file of its token."""

    socket: str | None = None
    port: Port | None = None
    token_file: str | None = None


def control_place(section: ControlSection, path: Path) -> Path | int:
    """A socket or a port; a UserError says what is wrong."""
    if section.socket is not None and section.port is None:
        return path.parent / section.socket
    if section.port is not None and section.socket is None:
        return section.port
    raise UserError(f"{path}: control: give either socket (a path) or port (on 127.0.0.1)")


def token_file(section: ControlSection | None, path: Path) -> Path | None:
    """Where the token of a port is, beside the configuration if it does not say."""
    if section is None or section.port is None:
        return None
    return path.parent / (section.token_file or f"{path.stem}.token")
