"""A newer list of revocations, fetched from a neighbor piece by piece, from one neighbor at a time.

The pieces are of what changed since this node's own list. Pieces that do not come are asked for again, when no other
has come for some round trips. If none at all has come, fewer are asked for at once, and later, so that a slow link is
not filled; when all have come, more at once. A neighbor that says it has a newer list, and brings none, keeps others
from bringing theirs for a while only: another that has one gets its turn, and each turn is twice as long as the one
before.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

from carrycast.node.security.revocations import MAX_LIST_BYTES
from carrycast.node.security.session import Session

PIECE_BYTES = 400
"""With all headers a datagram stays below the 576 bytes that every link of IPv4 carries."""
MAX_AT_ONCE = 32
FIRST_AT_ONCE = 4
LEAST_RETRY_S, RETRY_S, MAX_RETRY_S = 0.05, 0.25, 8.0
"""Before a round trip is known, and the bounds."""
ROUND_TRIPS = 4
TURN_S = 10.0

Ask: TypeAlias = Callable[[Session, int, int, list[int]], None]
"""A neighbor for pieces: since which list, of which list, which of them."""


class Fetching:
    """Of one interface."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._from: Session | None = None
        self._turn_s = TURN_S
        self._comes = False
        """Whether anything has come since it was asked for."""

    @property
    def active(self) -> bool:
        """Whether something is being fetched."""
        return self._from is not None

    def is_from(self, session: Session) -> bool:
        """Whether it is fetched from this neighbor, and of the list that it now has."""
        return session is self._from and session.list_number == self._number

    @property
    def next_s(self) -> float:
        """When `retry` has something to do."""
        return self._retry_s if self.active else math.inf

    def start(self, session: Session, since: int, now_s: float) -> None:
        """Fetch what a neighbor says it has, as changes to the list of that number."""
        self._from, self._since, self._number = session, since, session.list_number
        self._begun_s, self._at_once, self._wait_s = now_s, FIRST_AT_ONCE, RETRY_S
        self._total: int | None = None
        self._pieces: dict[int, bytes] = {}
        self._asked: set[int] = set()
        self._ask_more(now_s)

    def stop(self, session: Session) -> None:
        """The neighbor is gone."""
        if session is self._from:
            self._from = None

    def end(self) -> bool:
        """All has come; whether that is the whole list, and not what changed."""
        self._from = None
        self._turn_s = TURN_S
        return self._since == 0

    def on_piece(self, session: Session, piece: tuple[int, int, int, int], text: bytes, now_s: float) -> bytes | None:
        """A piece: since which list, of which, how many bytes in all, which piece. All of them, when this is the
        last."""
        since, number, total, index = piece
        if session is not self._from or (since, number) != (self._since, self._number):
            return None
        if self._total not in (None, total) or total > MAX_LIST_BYTES or index in self._pieces:
            return None
        if len(text) != min(PIECE_BYTES, total - index * PIECE_BYTES) or not text:
            return None
        self._total = total
        self._pieces[index] = text
        self._asked.discard(index)
        if not self._comes:
            self._comes = True
            self._wait_s = min(max(ROUND_TRIPS * (now_s - self._asked_s), LEAST_RETRY_S), MAX_RETRY_S)
        self._retry_s = now_s + self._wait_s
        if len(self._pieces) == self._count:
            return b"".join(self._pieces[at] for at in range(self._count))
        if not self._asked:
            self._at_once = min(2 * self._at_once, MAX_AT_ONCE)
            self._ask_more(now_s)
        return None

    def retry(self, now_s: float, others: bool) -> None:
        """Ask again; or give up, if others have a list too and this one has had its turn."""
        if others and now_s - self._begun_s > self._turn_s:
            self._turn_s *= 2
            self._from = None
            return
        if not self._comes:
            self._at_once = max(self._at_once // 2, 1)
            self._wait_s = min(2 * self._wait_s, MAX_RETRY_S)
        self._ask_more(now_s)

    @property
    def _count(self) -> int:
        """How many pieces there are; one at least, which says how many."""
        return 1 if self._total is None else max(math.ceil(self._total / PIECE_BYTES), 1)

    def _ask_more(self, now_s: float) -> None:
        assert self._from is not None
        wanted: list[int] = []
        for index in range(self._count):
            if index not in self._pieces:
                wanted.append(index)
                if len(wanted) == self._at_once:
                    break
        self._asked, self._asked_s, self._comes = set(wanted), now_s, False
        self._retry_s = now_s + self._wait_s
        self._ask(self._from, self._since, self._number, wanted)
