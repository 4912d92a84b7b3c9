"""Node ids, which are derived from keys and names, and the `[keys]` table of a configuration.

A node without keys imports nothing else of this package.
"""

import hashlib
from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.model import NodeId


def derive_node_id(text: bytes) -> NodeId:
    """Derive the node id of a name or a key: 63 bits of a hash."""
    # The former name of carrycast stays in the hash, so that nodes of earlier versions derive the same ids.
    digest = hashlib.blake2b(text, digest_size=8, person=b"driftcast node").digest()
    return int.from_bytes(digest, "big") >> 1


SIGNATURE_BATCH = 16
"""Each event then costs a sixteenth of a signature, and its inclusion proof has 96 bytes."""

WARN_DAYS = 30.0
"""Enough time to get a new certificate from an operator that checks once a week."""


class KeysSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[keys]`: the files of this node's key, and of the keys by which it recognizes the members of its network."""

    identity: str
    network: str | None = None
    certificate: str | None = None
    operator: str | None = None
    revocations: str | None = None
    warn_days: Annotated[
        float,
        Meta(gt=0, le=36_500, description="how long before the end of its certificate a node begins to warn"),
    ] = WARN_DAYS
    signature_batch: Annotated[
        int,
        Meta(ge=1, le=256, description="the most events, published at the same time, that share one signature"),
    ] = SIGNATURE_BATCH
    together: int | None = None
    """The former name of `signature_batch`."""
