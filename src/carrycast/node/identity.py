"""Who a node is, by its configuration."""

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.core.model import NodeId
from carrycast.errors import UserError, WorkError
from carrycast.node.security.identity import KeysSection, node_of

if TYPE_CHECKING:
    from carrycast.node.security.config import Keys

KEY_BYTES = 32


def identity(name: str, key_file: str | None, keys: KeysSection | None, path: Path) -> tuple["Keys | None", NodeId]:
    """The keys of a node that has some, and its id; a UserError says what is wrong."""
    if keys is None:
        return None, node_of(name.encode() if key_file is None else key_of(path.parent / key_file))
    if key_file is not None:
        raise UserError(f"{path}: key_file: is for nodes without [keys], whose identity is their key; leave it out")
    from carrycast.node.security.config import read_keys

    read = read_keys(keys, path)
    return read, read.membership().mine.node


def key_of(path: Path) -> bytes:
    """The key in a file; made at random, and readable to its owner only, if there is no file yet."""
    try:
        if not path.exists():
            _create(path)
        with path.open("rb") as file:
            key = file.read(KEY_BYTES + 1)
    except OSError as error:
        raise WorkError(f"cannot use the key file {path}: {error.strerror or error}") from None
    if len(key) != KEY_BYTES:
        raise WorkError(f"the key file {path} must hold {KEY_BYTES} bytes; move it away to get a new key")
    return key


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Under its name only when it is whole: a key cut short would be another node.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    # A start that was cut short leaves one behind, and in a container every process has the same number.
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
