"""The identity of a node: from its keys, from a key file, or from its name."""

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.core.model import NodeId
from carrycast.errors import UserError, WorkError
from carrycast.node.security import KeysSection, derive_node_id

if TYPE_CHECKING:
    from carrycast.node.security import Keys

KEY_BYTES = 32


def read_identity(
    name: str, key_file: str | None, keys: KeysSection | None, path: Path
) -> tuple["Keys | None", NodeId]:
    """The keys of a node, if it has any, and its id; a UserError says what is wrong."""
    if keys is None:
        return None, derive_node_id(name.encode() if key_file is None else read_or_create_key(path.parent / key_file))
    if key_file is not None:
        raise UserError(f"{path}: key_file: is for nodes without [keys], whose identity is their key; leave it out")
    from carrycast.node.security import read_keys

    read = read_keys(keys, path)
    return read, read.make_membership().mine.node


def read_or_create_key(path: Path) -> bytes:
    """The random key in a file. If there is no file it is created, readable to its owner only."""
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
    # Renamed when it is complete: a truncated key would be another node.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    # A start that was killed leaves one behind, and in a container every process has the same id.
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
