"""Batch signatures: one signature for many texts, each of which has an inclusion proof.

The digests of all texts are the leaves of a Merkle tree, each pair of nodes has a parent, and the Merkle root is
signed. A text and the siblings on its path to the root, its inclusion proof, give the Merkle root again, so that each
text travels and is verified alone; but one verification of the signature is enough for all of them. [R. C. Merkle, A
digital signature based on a conventional encryption function, CRYPTO '87]; inclusion proofs as in RFC 9162, 2.1.3.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

SIBLING_BYTES = 24
"""Of a digest: an attacker that could choose texts would have to try some 2^96 for two with the same."""
MAX_SIBLINGS = 8
"""Of an inclusion proof, so of a batch of 256 texts."""


class InclusionProof(NamedTuple):
    """The path from a text to the Merkle root."""

    siblings: bytes
    """The digests of the siblings on the path, one after another."""
    directions: int
    """A bit for each, the lowest first: whether the sibling stands on the left."""

    @property
    def is_well_formed(self) -> bool:
        """Whether `build_merkle_tree` could have made it."""
        number, odd = divmod(len(self.siblings), SIBLING_BYTES)
        return odd == 0 and number <= MAX_SIBLINGS and self.directions >> number == 0


def build_merkle_tree(texts: Sequence[bytes]) -> tuple[bytes, list[InclusionProof]]:
    """The Merkle root over texts, and the inclusion proof of each of them."""
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
        # One without a sibling goes up as it is.
        level = parents + level[2 * len(parents) :]
        below = joined + below[2 * len(joined) :]
    proofs = [InclusionProof(b"".join(some), bits) for some, bits in zip(siblings, directions, strict=True)]
    return level[0], proofs


def merkle_root(text: bytes, proof: InclusionProof) -> bytes:
    """The root that a text and its inclusion proof lead to. It is the signed one only if the text was in the batch."""
    found, siblings, directions = _hash_leaf(text), proof.siblings, proof.directions
    for at in range(0, len(siblings), SIBLING_BYTES):
        sibling = siblings[at : at + SIBLING_BYTES]
        found = _hash_pair(sibling, found) if directions & 1 else _hash_pair(found, sibling)
        directions >>= 1
    return found


def _hash_leaf(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=SIBLING_BYTES, person=b"driftcast leaf").digest()


def _hash_pair(left: bytes, right: bytes) -> bytes:
    # No pair is a leaf: they are hashed under another name.
    return hashlib.blake2b(left + right, digest_size=SIBLING_BYTES, person=b"driftcast pair").digest()
