"""Fragmentation: messages too large for one packet are split into numbered fragments and reassembled."""

MAX_FRAGMENTS = 4096
"""Fragments of one message; with packets of a kilobyte more than the largest payload needs."""


def split(body: bytes, fragment_bytes: int) -> list[bytes]:
    """The fragments of a body, each of `fragment_bytes` but the last; an empty body is one empty fragment."""
    pieces = [body[first : first + fragment_bytes] for first in range(0, len(body), fragment_bytes)]
    return pieces or [b""]


class Assembly:
    """A partly received message. Its fragments are kept after it is complete, for nodes that request them."""

    __slots__ = ("_pieces", "count", "tries")

    def __init__(self, count: int) -> None:
        self.count = count
        self.tries = 0
        """Requests for missing fragments since the last one arrived; counted by the caller."""
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def of(cls, pieces: list[bytes]) -> "Assembly":
        """A complete assembly."""
        assembly = cls(len(pieces))
        assembly._pieces = dict(enumerate(pieces))
        return assembly

    def add(self, index: int, count: int, piece: bytes) -> bool:
        """Add a fragment; False if it is a duplicate or does not belong to this message."""
        if count != self.count or not 0 <= index < count or index in self._pieces:
            return False
        self._pieces[index] = piece
        self.tries = 0
        return True

    def piece(self, index: int) -> bytes | None:
        """A fragment, if it was received."""
        return self._pieces.get(index)

    def list_received(self) -> list[int]:
        """The indices of the received fragments, in order."""
        return sorted(self._pieces)

    def list_missing(self) -> list[int]:
        """The indices of the missing fragments, in order."""
        return [index for index in range(self.count) if index not in self._pieces]

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return len(self._pieces) == self.count

    def body(self) -> bytes:
        """The whole message; only of a complete assembly."""
        return b"".join(self._pieces[index] for index in range(self.count))
