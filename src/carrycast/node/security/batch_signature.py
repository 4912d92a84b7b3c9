"""Many texts under one signature: each shows by a path of digests that it is among those that were signed.

The digests of all texts are the leaves of a tree, each pair of digests has one of its own, and the one at the top is
signed. A text and its siblings on the way to the top give the top again, so that each travels alone and is verified
alone; but one verification of the top is enough for all of them. [R. C. Merkle, A digital signature based on a
conventional encryption function, CRYPTO '87]
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

STEP_BYTES = 24
"""Of a digest: who could choose texts would have to try some 2^96 for two with the same."""
MAX_STEPS = 8
"""Of a path, so of 256 texts."""


class Path(NamedTuple):
    """From a text to the top."""

    steps: bytes
    """The siblings that are met, one after another."""
    turns: int
    """A bit for each, the lowest first: whether the sibling stands on the left."""

    @property
    def fits(self) -> bool:
        """Whether it is one that `planted` could have made."""
        number, odd = divmod(len(self.steps), STEP_BYTES)
        return odd == 0 and number <= MAX_STEPS and self.turns >> number == 0


def planted(texts: Sequence[bytes]) -> tuple[bytes, list[Path]]:
    """The top of a tree over texts, and the path of each of them."""
    level = [_leaf(text) for text in texts]
    if not 0 < len(level) <= 1 << MAX_STEPS:
        raise ValueError(f"a tree has 1 to {1 << MAX_STEPS} texts, not {len(level)}")
    below: list[list[int]] = [[n] for n in range(len(level))]
    steps: list[list[bytes]] = [[] for _ in level]
    turns = [0] * len(level)
    while len(level) > 1:
        for at in range(0, len(level) - 1, 2):
            for n in below[at]:
                steps[n].append(level[at + 1])
            for n in below[at + 1]:
                turns[n] |= 1 << len(steps[n])
                steps[n].append(level[at])
        pairs = [_pair(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        joined = [below[at] + below[at + 1] for at in range(0, len(level) - 1, 2)]
        # One without a sibling goes up as it is.
        level = pairs + level[2 * len(pairs) :]
        below = joined + below[2 * len(joined) :]
    return level[0], [Path(b"".join(some), turn) for some, turn in zip(steps, turns, strict=True)]


def top(text: bytes, path: Path) -> bytes:
    """Where a path leads from a text. It is the top that was signed if, and only if, the text was among the signed."""
    found, steps, turns = _leaf(text), path.steps, path.turns
    for at in range(0, len(steps), STEP_BYTES):
        sibling = steps[at : at + STEP_BYTES]
        found = _pair(sibling, found) if turns & 1 else _pair(found, sibling)
        turns >>= 1
    return found


def _leaf(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=STEP_BYTES, person=b"driftcast leaf").digest()


def _pair(left: bytes, right: bytes) -> bytes:
    # No pair is a leaf: they are made under another name.
    return hashlib.blake2b(left + right, digest_size=STEP_BYTES, person=b"driftcast pair").digest()
