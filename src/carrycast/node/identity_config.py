"""Who a node is, by its configuration."""

from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.core.model import NodeId
from carrycast.errors import UserError
from carrycast.node.runtime.identity import key_of
from carrycast.node.security.identity import KeysSection, node_of

if TYPE_CHECKING:
    from carrycast.node.security.config import Keys


def identity(name: str, key_file: str | None, keys: KeysSection | None, path: Path) -> tuple["Keys | None", NodeId]:
    """The keys of a node that has some, and its id; a UserError says what is wrong."""
    if keys is None:
        return None, node_of(name.encode() if key_file is None else key_of(path.parent / key_file))
    if key_file is not None:
        raise UserError(f"{path}: key_file: is for nodes without [keys], whose identity is their key; leave it out")
    from carrycast.node.security.config import read_keys

    read = read_keys(keys, path)
    return read, read.membership().mine.node
