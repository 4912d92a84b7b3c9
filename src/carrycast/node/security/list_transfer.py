"""The download of a newer revocation list, in segments, from one neighbor at a time.

The delta to this node's own list is divided into segments. Missing segments are requested again when none has arrived
for some round trips. If none of the requested segments has arrived, the window is halved and the timeout is doubled, so
that a slow link is not overloaded; if all have arrived, the window is doubled. A neighbor that announces a newer list
and does not send it delays the download only for its turn: then another neighbor is tried. Each turn is twice as long
as the one before.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

from carrycast.node.security.revocations import MAX_LIST_BYTES
from carrycast.node.security.session import Session

SEGMENT_BYTES = 400
"""With all headers, a datagram has less than the 576 bytes that every host accepts (RFC 791, 3.1)."""
MAX_WINDOW = 32
INITIAL_WINDOW = 4
"""Segments that are requested at once."""
MIN_TIMEOUT_S, INITIAL_TIMEOUT_S, MAX_TIMEOUT_S = 0.05, 0.25, 8.0
"""The bounds of the timeout, and its value until a round trip is measured."""
ROUND_TRIPS = 4
"""The timeout in round-trip times."""
TURN_S = 10.0
"""The first turn of a neighbor, if others have a newer list, too."""

RequestSegments: TypeAlias = Callable[[Session, int, int, list[int]], None]
"""Requests segments from a neighbor: the number of the older list, of the newer list, and the indexes."""


class ListDownload:
    """The download of one interface, if one is in progress."""

    def __init__(self, request: RequestSegments) -> None:
        self._request = request
        self._from: Session | None = None
        self._turn_s = TURN_S
        self._progress = False
        """Whether a segment has arrived since the last request."""

    @property
    def active(self) -> bool:
        """Whether a download is in progress."""
        return self._from is not None

    def is_from(self, session: Session) -> bool:
        """Whether the download is from this neighbor, and of its present list."""
        return session is self._from and session.list_number == self._number

    @property
    def next_s(self) -> float:
        """When `retry` has to be called."""
        return self._retry_s if self.active else math.inf

    def start(self, session: Session, since: int, now_s: float) -> None:
        """Download a neighbor's list, as the delta to the list with the number `since`."""
        self._from, self._since, self._number = session, since, session.list_number
        self._begun_s, self._window, self._timeout_s = now_s, INITIAL_WINDOW, INITIAL_TIMEOUT_S
        self._total: int | None = None
        self._segments: dict[int, bytes] = {}
        self._requested: set[int] = set()
        self._request_more(now_s)

    def stop(self, session: Session) -> None:
        """Stop the download if it is from this neighbor, whose session has ended."""
        if session is self._from:
            self._from = None

    def end(self) -> bool:
        """End the download; whether it was of a complete list, and not of a delta."""
        self._from = None
        self._turn_s = TURN_S
        return self._since == 0

    def on_segment(
        self, session: Session, segment: tuple[int, int, int, int], text: bytes, now_s: float
    ) -> bytes | None:
        """A segment has arrived: the numbers of the older and the newer list, the total length in bytes, and the index.
        Returns the whole text after the last segment."""
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
        """Request missing segments again; or give up, if `others` have a newer list and the turn is over."""
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
        """The number of segments; 1 until the first has arrived, which contains the total length."""
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
