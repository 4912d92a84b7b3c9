"""Messages too large for one packet: cut into numbered fragments and put together again."""

MAX_FRAGMENTS = 4096
"""Fragments of one message; with packets of a kilobyte more than the largest payload needs."""


def split(body: bytes, fragment_bytes: int) -> list[bytes]:
    """The pieces of a body, each of `fragment_bytes` but the last; an empty body is one empty piece."""
    pieces = [body[first : first + fragment_bytes] for first in range(0, len(body), fragment_bytes)]
    return pieces or [b""]


class Assembly:
    """One message as far as it has come. Fragments are kept after it is complete, so that others may ask for them."""

    __slots__ = ("_pieces", "count", "tries")

    def __init__(self, count: int) -> None:
        self.count = count
        self.tries = 0
        """How often what is missing was asked for since something came; the caller counts."""
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def of(cls, pieces: list[bytes]) -> "Assembly":
        """A complete one."""
        assembly = cls(len(pieces))
        assembly._pieces = dict(enumerate(pieces))
        return assembly

    def add(self, index: int, count: int, piece: bytes) -> bool:
        """Take a fragment in; False if it is here already or does not belong to this message."""
        if count != self.count or not 0 <= index < count or index in self._pieces:
            return False
        self._pieces[index] = piece
        self.tries = 0
        return True

    def piece(self, index: int) -> bytes | None:
        """One fragment, if it is here."""
        return self._pieces.get(index)

    def received(self) -> list[int]:
        """The numbers of the fragments that are here, in order."""
        return sorted(self._pieces)

    def missing(self) -> list[int]:
        """The numbers of those that are not."""
        return [index for index in range(self.count) if index not in self._pieces]

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return len(self._pieces) == self.count

    def body(self) -> bytes:
        """The whole message; only of a complete assembly."""
        return b"".join(self._pieces[index] for index in range(self.count))
