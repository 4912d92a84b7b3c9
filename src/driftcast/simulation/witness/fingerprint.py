"""A hash over everything that happens in a run, so that two runs can be told to be the same without keeping either."""

import hashlib
import struct

_CHUNK_BYTES = 1 << 16
_HEAD = struct.Struct("<cqqq")


class Fingerprint:
    """Takes facts in their order. The same facts give the same fingerprint, however much of the trace is kept."""

    __slots__ = ("_hash", "_waiting")

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._waiting = bytearray()

    def add(self, kind: bytes, time_us: int, node: int, peer: int, detail: bytes = b"") -> None:
        """One fact. `kind` is a single byte; `detail` whatever else tells it from others."""
        waiting = self._waiting
        waiting += _HEAD.pack(kind, time_us, node, peer)
        waiting += detail
        if len(waiting) > _CHUNK_BYTES:
            self._hash.update(waiting)
            waiting.clear()

    def text(self) -> str:
        """The fingerprint so far."""
        self._hash.update(self._waiting)
        self._waiting.clear()
        return self._hash.hexdigest()
