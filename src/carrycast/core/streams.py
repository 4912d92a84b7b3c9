"""Named random streams: each purpose on each node has its own random generator.

A stream depends on (seed, purpose, node) and on nothing else: not on the protocol, the experiment or the sweep point.
So runs with the same seed have the same movement and workload, and differ only by the protocol.
"""

import hashlib
from random import Random

import numpy as np

from carrycast.errors import UserError

MAX_SEED = 2**63 - 1
"""Result tables store seeds as signed 64-bit numbers."""


def check_seed(seed: object) -> None:
    """Raise UserError for a seed that result tables cannot store."""
    if not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        raise UserError(f"seed: a whole number from 0 to {MAX_SEED}, not {seed!r}")


def derive(seed: int, purpose: str, node: int | None = None) -> int:
    """The 128-bit seed of a stream."""
    name = f"{seed}/{purpose}" if node is None else f"{seed}/{purpose}/{node}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "big")


def stream(seed: int, purpose: str, node: int | None = None) -> Random:
    """A stream for single draws."""
    return Random(derive(seed, purpose, node))


def array_stream(seed: int, purpose: str) -> np.random.Generator:
    """A numpy generator for drawing arrays."""
    return np.random.Generator(np.random.PCG64(derive(seed, purpose)))
