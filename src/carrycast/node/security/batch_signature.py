"""Batch signatures: one signature over the root of a Merkle tree of many texts, each with its inclusion proof.

The leaves of the tree are the hashes of the texts, and the signature is over the root hash. The inclusion proof of a
text consists of the sibling hashes on its path to the root (RFC 9162, 2.1.3). From the text and its proof a receiver
computes the root hash, so each text can be sent and verified alone. The signature has to be verified only once for the
whole batch. [R. C. Merkle, A digital signature based on a conventional encryption function, CRYPTO '87]

Deviation from RFC 9162: hashes are BLAKE2b of 24 bytes, and a proof has the direction of each sibling in place of the
index of the leaf and the size of the tree.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

SIBLING_BYTES = 24
"""The length of a hash. To find two texts with the same hash, an attacker has to try about 2^96."""
MAX_SIBLINGS = 8
"""The longest inclusion proof, that of a batch of 256 texts."""


class InclusionProof(NamedTuple):
    """The inclusion proof of one text (RFC 9162, 2.1.3)."""

    siblings: bytes
    """The sibling hashes on the path from the leaf to the root, concatenated."""
    directions: int
    """One bit for each sibling, the lowest first: whether the sibling is on the left."""

    @property
    def is_well_formed(self) -> bool:
        """Whether the lengths of its parts are possible."""
        number, odd = divmod(len(self.siblings), SIBLING_BYTES)
        return odd == 0 and number <= MAX_SIBLINGS and self.directions >> number == 0


def build_merkle_tree(texts: Sequence[bytes]) -> tuple[bytes, list[InclusionProof]]:
    """Compute the Merkle root of texts, and the inclusion proof of each."""
    level = [_hash_leaf(text) for text in texts]
    if not 0 < len(level) <= 1 << MAX_SIBLINGS:
        raise ValueError(f"a batch has 1 to {1 << MAX_SIBLINGS} texts, not {len(level)}")
    below: list[list[int]] = [[n] for n in range(len(level))]
    siblings: list[list[bytes]] = [[] for _ in level]
    directions = [0] * len(level)
    while len(level) > 1:
        for at in range(0, len(level) - 1, 2):
            for n in below[at]:
                siblings[n].append(level[at + 1])
            for n in below[at + 1]:
                directions[n] |= 1 << len(siblings[n])
                siblings[n].append(level[at])
        parents = [_hash_pair(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        joined = [below[at] + below[at + 1] for at in range(0, len(level) - 1, 2)]
        # A node without a sibling moves up unchanged.
        level = parents + level[2 * len(parents) :]
        below = joined + below[2 * len(joined) :]
    proofs = [InclusionProof(b"".join(some), bits) for some, bits in zip(siblings, directions, strict=True)]
    return level[0], proofs


def merkle_root(text: bytes, proof: InclusionProof) -> bytes:
    """Compute the root hash from a text and its proof. It is the signed one only if the text was in the batch."""
    found, siblings, directions = _hash_leaf(text), proof.siblings, proof.directions
    for at in range(0, len(siblings), SIBLING_BYTES):
        sibling = siblings[at : at + SIBLING_BYTES]
        found = _hash_pair(sibling, found) if directions & 1 else _hash_pair(found, sibling)
        directions >>= 1
    return found


def _hash_leaf(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=SIBLING_BYTES, person=b"driftcast leaf").digest()


def _hash_pair(left: bytes, right: bytes) -> bytes:
    # Leaves and inner nodes are hashed with different personalization (domain separation, RFC 9162, 2.1.1).
    return hashlib.blake2b(left + right, digest_size=SIBLING_BYTES, person=b"driftcast pair").digest()
