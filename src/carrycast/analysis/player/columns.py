"""Columns of integers in few bytes: variable-length integers, compressed together and encoded as text."""

import base64
import gzip

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
MAX_BYTES = 10
"""Seven bits to a byte: 64 bits take ten."""


class Columns:
    """Columns by name, in the order in which they were added."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._places: dict[str, list[int]] = {}
        self._size_bytes = 0

    def add(self, name: str, values: Integers, rising: bool = False) -> None:
        """Add a column. One that mostly rises is stored as differences."""
        assert name not in self._places, f"{name} is there twice"
        values = np.asarray(values, dtype=np.int64)
        kept = np.diff(values, prepend=0) if rising else values
        part = encode_integers(kept)
        self._places[name] = [self._size_bytes, len(values), int(rising)]
        self._parts.append(part)
        self._size_bytes += len(part)

    def places(self) -> dict[str, list[int]]:
        """The first byte of each column, its length, and whether it holds differences."""
        return dict(self._places)

    def text(self) -> str:
        """All columns as text, without a time stamp, so that the same run gives the same file."""
        return base64.b64encode(gzip.compress(b"".join(self._parts), compresslevel=6, mtime=0)).decode("ascii")


def encode_integers(values: Integers) -> bytes:
    """Encode integers in LEB128 after ZigZag, as Protocol Buffers do: the sign in the lowest bit."""
    if not len(values):
        return b""
    folded = ((values << 1) ^ (values >> 63)).astype(np.uint64)
    length = np.ones(len(folded), dtype=np.int64)
    for place in range(1, MAX_BYTES):
        length += folded >= np.uint64(1 << (7 * place))
    start = np.cumsum(length) - length
    out = np.zeros(int(length.sum()), dtype=np.uint8)
    for place in range(int(length.max())):
        here = np.flatnonzero(length > place)
        bits = (folded[here] >> np.uint64(7 * place)) & np.uint64(0x7F)
        more = np.where(length[here] > place + 1, 0x80, 0).astype(np.uint64)
        out[start[here] + place] = (bits | more).astype(np.uint8)
    return out.tobytes()
