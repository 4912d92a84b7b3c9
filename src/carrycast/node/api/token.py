"""The token of a control port: every program that can read the token file may connect.

Only its owner can open a Unix socket. A port of 127.0.0.1 is open to every user of the machine, and to every web page
in a browser on it, so the first line of a client is the content of the node's token file.
"""

import hmac
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from carrycast.errors import UserError, WorkError

if TYPE_CHECKING:
    import asyncio

TOKEN_BYTES = 32
MAX_TOKEN_LINE = 512
PATIENCE_S = 10.0
"""How long a client may take to send its token."""
TOKEN_REQUIRED = "this port needs the node's token: connect to FILE@HOST:PORT, where FILE is the node's token file"

_HTTP = re.compile(rb"(?:GET|POST|PUT|HEAD|OPTIONS|DELETE|PATCH|CONNECT|TRACE|PRI) ")


class TokenMessage(msgspec.Struct, frozen=True, tag_field="op", tag="token", forbid_unknown_fields=True):
    """The first line of a client of a port."""

    token: str


_decoder: msgspec.json.Decoder[TokenMessage] = msgspec.json.Decoder(TokenMessage)


def read_or_create_token(path: Path) -> str:
    """The token in a file. If there is no file it is created, readable to its owner only."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(TOKEN_BYTES) + "\n")
        return read_token(path)
    except OSError as error:
        raise WorkError(f"cannot use the token file {path}: {error.strerror or error}") from None


def read_token(path: Path) -> str:
    """The token in a file; a UserError if there is none."""
    try:
        with path.open() as file:
            token = file.read(MAX_TOKEN_LINE).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read: {reason}; it is the token file of the node's control port") from None
    if len(token) != 2 * TOKEN_BYTES or re.fullmatch("[0-9a-f]*", token) is None:
        raise UserError(f"{path}: holds no token of a control port; move it away, and the node makes a new one")
    return token


def split_token(address: str) -> tuple[str | None, str]:
    """The token and the place of a client's address, `FILE@HOST:PORT` or only a place."""
    file, at, place = address.rpartition("@")
    if not at or re.search(r":[0-9]+$", place) is None:
        return None, address
    return read_token(Path(file)), place


def first_line(token: str) -> bytes:
    """The line that a client sends first."""
    return msgspec.json.encode(TokenMessage(token)) + b"\n"


async def is_admitted(reader: "asyncio.StreamReader", token: str) -> bool:
    """Whether a client sends the token in time."""
    # Synchronous clients import this module too, and need no asyncio.
    import asyncio

    try:
        async with asyncio.timeout(PATIENCE_S):
            line = await reader.readuntil(b"\n")
        message = _decoder.decode(line) if len(line) <= MAX_TOKEN_LINE else TokenMessage("")
    except (TimeoutError, asyncio.LimitOverrunError, asyncio.IncompleteReadError, ConnectionError):
        return False
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return hmac.compare_digest(message.token.encode(), token.encode())


def looks_like_http(line: bytes) -> bool:
    """Whether a line is a request of a browser: a web page may have sent it here, with lines of its own."""
    return _HTTP.match(line) is not None
