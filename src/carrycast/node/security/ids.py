"""Node ids from keys and names."""

import hashlib

from carrycast.core.model import NodeId


def node_of(text: bytes) -> NodeId:
    """The node id of a name or a key: 63 bits of a hash."""
    digest = hashlib.blake2b(text, digest_size=8, person=b"carrycast node").digest()
    return int.from_bytes(digest, "big") >> 1
