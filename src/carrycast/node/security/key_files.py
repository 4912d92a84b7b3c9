"""Key files: one line of text with the kind of the key and its bytes. Only its owner may read a secret key file."""

import base64
import binascii
import enum
import os
from pathlib import Path

from carrycast.errors import UserError, WorkError
from carrycast.node.security.primitives import PRIVATE_BYTES, PUBLIC_BYTES, SECRET_BYTES
from carrycast.version import FORMER_NAME

MAX_FILE_BYTES = 6 << 20
"""More than the longest revocation list in base64."""


class KeyKind(enum.StrEnum):
    """The kind of a key file."""

    IDENTITY = "identity"
    """A node's private key."""
    OPERATOR = "operator"
    """The private key of the operator of a network."""
    PUBLIC = "public"
    """The public key of a node or of an operator."""
    NETWORK = "network"
    """A secret that all nodes of a network share."""
    CERTIFICATE = "certificate"
    REVOCATIONS = "revocations"


SECRET = frozenset({KeyKind.IDENTITY, KeyKind.OPERATOR, KeyKind.NETWORK})
_LENGTHS = {
    KeyKind.IDENTITY: PRIVATE_BYTES,
    KeyKind.OPERATOR: PRIVATE_BYTES,
    KeyKind.PUBLIC: PUBLIC_BYTES,
    KeyKind.NETWORK: SECRET_BYTES,
}


def format_key(kind: KeyKind, content: bytes) -> str:
    """Return the line of a key file."""
    return f"carrycast-{kind}:{base64.b64encode(content).decode()}\n"


def read_key(path: Path, *kinds: KeyKind) -> tuple[KeyKind, bytes]:
    """Read a key file of one of these kinds: its kind and content. A UserError says what is wrong."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; `carrycast keys --help` says how to make one") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    wanted = " or ".join(kinds)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(b"#")]
    head, colon, body = lines[0].partition(b":") if len(lines) == 1 and len(text) <= MAX_FILE_BYTES else (b"", b"", b"")
    try:
        kind = KeyKind(head.decode().removeprefix(f"{FORMER_NAME}-").removeprefix("carrycast-"))
        content = base64.b64decode(body.strip(), validate=True)
    except (ValueError, binascii.Error):
        colon = b""
    if not colon or len(content) != _LENGTHS.get(kind, len(content)):
        raise UserError(f"{path}: is no key file of carrycast; expected one of kind {wanted}")
    if kind not in kinds:
        raise UserError(f"{path}: holds a key of kind {kind}; expected {wanted}")
    if kind in SECRET and os.name == "posix" and path.stat().st_mode & 0o077:
        raise UserError(f"{path}: others may read this secret; say chmod 600 {path}")
    return kind, content


def write_key(path: Path, kind: KeyKind, content: bytes, replace: bool = False) -> None:
    """Write a key file atomically; a UserError if there is one that must not be replaced."""
    if path.exists() and not replace:
        raise UserError(f"{path}: is there already, and a key that is written over is lost; choose another name")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(unfinished, flags, 0o600 if kind in SECRET else 0o644)
        with os.fdopen(descriptor, "w") as file:
            file.write(format_key(kind, content))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    except OSError as error:
        raise WorkError(f"cannot write {path}: {error.strerror or error}") from None
