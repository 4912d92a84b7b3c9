"""The transfer of a newer revocation list from a neighbor, in segments, from one neighbor at a time.

The segments are of the difference to this node's own list. Segments that do not come are requested again, when no other
has come for some round trips. If none at all has come, fewer are requested at once, and later, so that a slow link is
not filled; when all have come, more at once. A neighbor that announces a newer list and sends none delays the transfer
from others for a while only: another that has one gets its turn, and each turn is twice as long as the one before.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

from carrycast.node.security.revocations import MAX_LIST_BYTES
from carrycast.node.security.session import Session

SEGMENT_BYTES = 400
"""With all headers a datagram stays below the 576 bytes that every link of IPv4 carries (RFC 791)."""
MAX_WINDOW = 32
INITIAL_WINDOW = 4
MIN_TIMEOUT_S, INITIAL_TIMEOUT_S, MAX_TIMEOUT_S = 0.05, 0.25, 8.0
"""The bounds, and the timeout before a round trip is known."""
ROUND_TRIPS = 4
TURN_S = 10.0

RequestSegments: TypeAlias = Callable[[Session, int, int, list[int]], None]
"""Requests segments of a neighbor: since which list, of which list, which of them."""


class ListDownload:
    """The transfer that one interface has under way, if any."""

    def __init__(self, request: RequestSegments) -> None:
        self._request = request
        self._from: Session | None = None
        self._turn_s = TURN_S
        self._progress = False
        """Whether any segment has come since the last request."""

    @property
    def active(self) -> bool:
        """Whether a transfer is under way."""
        return self._from is not None

    def is_from(self, session: Session) -> bool:
        """Whether it is from this neighbor, and of the list that it now has."""
        return session is self._from and session.list_number == self._number

    @property
    def next_s(self) -> float:
        """When `retry` has something to do."""
        return self._retry_s if self.active else math.inf

    def start(self, session: Session, since: int, now_s: float) -> None:
        """Download a neighbor's list, as the difference to the list of that number."""
        self._from, self._since, self._number = session, since, session.list_number
        self._begun_s, self._window, self._timeout_s = now_s, INITIAL_WINDOW, INITIAL_TIMEOUT_S
        self._total: int | None = None
        self._segments: dict[int, bytes] = {}
        self._requested: set[int] = set()
        self._request_more(now_s)

    def stop(self, session: Session) -> None:
        """The session with a neighbor has ended."""
        if session is self._from:
            self._from = None

    def end(self) -> bool:
        """All segments have come; whether they are of the whole list, and not of a difference."""
        self._from = None
        self._turn_s = TURN_S
        return self._since == 0

    def on_segment(
        self, session: Session, segment: tuple[int, int, int, int], text: bytes, now_s: float
    ) -> bytes | None:
        """A segment: since which list, of which, how many bytes in all, which segment. All of them, when this is the
        last."""
        since, number, total, index = segment
        if session is not self._from or (since, number) != (self._since, self._number):
            return None
        if self._total not in (None, total) or total > MAX_LIST_BYTES or index in self._segments:
            return None
        if len(text) != min(SEGMENT_BYTES, total - index * SEGMENT_BYTES) or not text:
            return None
        self._total = total
        self._segments[index] = text
        self._requested.discard(index)
        if not self._progress:
            self._progress = True
            self._timeout_s = min(max(ROUND_TRIPS * (now_s - self._requested_s), MIN_TIMEOUT_S), MAX_TIMEOUT_S)
        self._retry_s = now_s + self._timeout_s
        if len(self._segments) == self._count:
            return b"".join(self._segments[at] for at in range(self._count))
        if not self._requested:
            self._window = min(2 * self._window, MAX_WINDOW)
            self._request_more(now_s)
        return None

    def retry(self, now_s: float, others: bool) -> None:
        """Request again; or give up, if others have a list too and this neighbor has had its turn."""
        if others and now_s - self._begun_s > self._turn_s:
            self._turn_s *= 2
            self._from = None
            return
        if not self._progress:
            self._window = max(self._window // 2, 1)
            self._timeout_s = min(2 * self._timeout_s, MAX_TIMEOUT_S)
        self._request_more(now_s)

    @property
    def _count(self) -> int:
        """How many segments there are; one at least, which says how many."""
        return 1 if self._total is None else max(math.ceil(self._total / SEGMENT_BYTES), 1)

    def _request_more(self, now_s: float) -> None:
        assert self._from is not None
        missing: list[int] = []
        for index in range(self._count):
            if index not in self._segments:
                missing.append(index)
                if len(missing) == self._window:
                    break
        self._requested, self._requested_s, self._progress = set(missing), now_s, False
        self._retry_s = now_s + self._timeout_s
        self._request(self._from, self._since, self._number, missing)
