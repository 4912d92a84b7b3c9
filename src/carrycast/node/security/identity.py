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

BATCH = (
    "The most events, published at the same time, that share one signature. With 1 each has its own: 2 to 98 bytes "
    "less for each event of a burst, and ten times the CPU."
)
WARN_DAYS = 30.0
"""Enough time to get a new certificate from an operator that checks once a week."""


class KeysSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[keys]`: the files of this node's key, and of the keys by which it recognizes the members of its network."""

    identity: str
    """The file of this node's private key. Only its owner may be able to read the file."""
    network: str | None = None
    """The file of the network's secret, in a network without an operator. Give either this or `certificate` and
    `operator`."""
    certificate: str | None = None
    """The file of the certificate that the operator has signed for this node."""
    operator: str | None = None
    """The file of the operator's public key."""
    revocations: str | None = None
    """The file of the operator's revocation list. The node replaces it when a newer list arrives, and reads it again on
    SIGHUP."""
    warn_days: Annotated[
        float,
        Meta(gt=0, le=36_500, description="days before the end of its certificate from which the node warns"),
    ] = WARN_DAYS
    signature_batch: Annotated[
        int,
        Meta(ge=1, le=256, description=BATCH),
    ] = SIGNATURE_BATCH
    together: int | None = None
    """The former name of `signature_batch`."""
