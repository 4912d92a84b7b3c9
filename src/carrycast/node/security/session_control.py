"""Control messages within a session: group keys and revocation lists.

| first byte | then | meaning |
|---|---|---|
| `K` | epoch (1), key (32) | the sender's group key |
| `k` | epoch (1) | the receiver has that key |
| `V` | number (8), number (8) | the numbers of the sender's revocation list, and of the receiver's as far as it knows |
| `Q` | since (8), number (8), indexes (4 each) | requests segments of the delta between two lists |
| `F` | since (8), number (8), bytes in all (4), index (4), text | such a segment |

A message that a neighbor has not acknowledged is sent again with exponential backoff, as long as the neighbor is heard.
The acknowledgement of a list is a `V` with its number. Unknown messages, and unknown bytes at the end of known
messages, are ignored, because later versions may use them.
"""

import math
import secrets
import struct
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from carrycast.node.security.membership import Membership
from carrycast.node.security.primitives import SECRET_BYTES
from carrycast.node.security.revocations import MAX_LIST_BYTES
from carrycast.node.security.session import OwnGroupKey, Session

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
    """The download of a newer list, in segments, from one neighbor of an interface at a time.

    The delta to this node's own list is divided into segments. Missing segments are requested again when none has
    arrived for some round trips. If none of the requested segments has arrived, the window is halved and the timeout is
    doubled, so that a slow link is not overloaded; if all have arrived, the window is doubled. A neighbor that
    announces a newer list and does not send it delays the download only for its turn: then another neighbor is tried.
    Each turn is twice as long as the one before.
    """

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


GROUP_KEY, KEY_ACK, LIST_NUMBERS, LIST_REQUEST, LIST_SEGMENT = b"K", b"k", b"V", b"Q", b"F"
_KEY = struct.Struct(f">B{SECRET_BYTES}s")
_NUMBERS = struct.Struct(">QQ")
_SEGMENT = struct.Struct(">QQII")
_INDEX = struct.Struct(">I")
RESEND_S, MAX_RESEND_S = 0.25, 10.0
"""The first and the longest backoff."""
SILENT_S = 300.0
"""A neighbor that was silent for this long gets no retransmissions, and no slot in group datagrams."""
REQUESTS_PER_S, REQUEST_BURST = 50.0, 100.0
"""The token bucket of a neighbor: rate and size. Each control message but a segment takes one token."""
DELTA_TOKENS = 10.0
"""The tokens that a request takes if the delta has to be encoded first."""
MAX_DIFFERENCES = 2
"""The most encoded deltas that are cached."""


class SessionControlUser(ABC):
    """The channel that has the sessions."""

    @property
    @abstractmethod
    def sessions(self) -> Iterable[Session]:
        """All sessions."""

    @abstractmethod
    def send_control(self, session: Session, plaintext: bytes) -> None:
        """Encrypt a control message for a neighbor, and send it."""

    @abstractmethod
    def wake(self, at_s: float) -> None:
        """Call `retry` at this time at the latest."""

    @abstractmethod
    def on_drop(self, reason: str) -> None:
        """A message was rejected."""


class SessionControl:
    """The control messages of one interface."""

    def __init__(self, membership: Membership, group_key: OwnGroupKey, user: SessionControlUser) -> None:
        self._membership = membership
        self._group_key = group_key
        self._user = user
        self._download = ListDownload(self._request)
        self._differences: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def begin(self, session: Session, now_s: float) -> None:
        """Send a neighbor the messages that it has not acknowledged yet, and retransmit them until it does."""
        if session.acknowledged_epoch != self._group_key.epoch:
            session.key_sent_s = now_s
        session.backoff_s = RESEND_S
        self._send(session, now_s)
        self._fetch(now_s)

    def begin_all(self, now_s: float) -> None:
        """Do the same for all neighbors: this node has a new group key, and perhaps a new list."""
        for session in list(self._user.sessions):
            self.begin(session, now_s)

    def announce_list(self) -> None:
        """Announce a new list of this node. For the neighbor that it came from, this is the acknowledgement."""
        for session in list(self._user.sessions):
            self._send_numbers(session)

    def forget(self, session: Session) -> None:
        """Forget a session that has ended."""
        self._download.stop(session)

    def retry(self, now_s: float) -> None:
        """Retransmit the messages and requests that are due."""
        if now_s >= self._download.next_s:
            others = sum(self._is_newer(session) for session in self._user.sessions) > 1
            self._download.retry(now_s, others)
            self._fetch(now_s)
        for session in list(self._user.sessions):
            if self._is_behind(session) and now_s - session.heard_s < SILENT_S and now_s >= session.resend_s:
                session.backoff_s = min(2 * session.backoff_s, MAX_RESEND_S)
                self._send(session, now_s)
        due = [session.resend_s for session in self._user.sessions if self._is_behind(session)]
        # Times in the past belong to silent neighbors, which are checked when something else is due.
        self._user.wake(min((at_s for at_s in (*due, self._download.next_s) if at_s > now_s), default=math.inf))

    def on_message(self, session: Session, text: bytes, now_s: float) -> None:
        """A control message has arrived."""
        kind, body = text[:1], text[1:]
        try:
            if kind == LIST_SEGMENT:
                self._on_segment(session, body, now_s)
            elif not self._take_tokens(session, 1.0, now_s):
                self._user.on_drop("neighbor_over_quota")
            elif kind == GROUP_KEY:
                epoch, key = _KEY.unpack_from(body)
                session.add_group_key(epoch, key, now_s)
                self._user.send_control(session, KEY_ACK + bytes([epoch]))
            elif kind == KEY_ACK:
                session.acknowledged_epoch = body[0]
            elif kind == LIST_NUMBERS:
                self._on_numbers(session, _NUMBERS.unpack_from(body), now_s)
            elif kind == LIST_REQUEST:
                self._on_request(session, body, now_s)
            else:
                self._user.on_drop("link_control_unknown")
        except (struct.error, IndexError):
            self._user.on_drop("link_control_malformed")

    # Sending.

    def _is_behind(self, session: Session) -> bool:
        return session.acknowledged_epoch != self._group_key.epoch or session.list_number < self._membership.number

    def _send(self, session: Session, now_s: float) -> None:
        if session.acknowledged_epoch != self._group_key.epoch:
            self._user.send_control(session, GROUP_KEY + _KEY.pack(self._group_key.epoch, self._group_key.key))
        if session.list_number < self._membership.number:
            self._send_numbers(session)
        session.resend_s = now_s + session.backoff_s
        self._user.wake(session.resend_s)

    def _send_numbers(self, session: Session) -> None:
        self._user.send_control(session, LIST_NUMBERS + _NUMBERS.pack(self._membership.number, session.list_number))

    # Revocation lists.

    def _on_numbers(self, session: Session, numbers: tuple[int, int], now_s: float) -> None:
        theirs, mine = numbers
        session.list_number = max(session.list_number, theirs)
        if mine != self._membership.number:
            self._send_numbers(session)
        self._fetch(now_s)

    def _is_newer(self, session: Session) -> bool:
        return session.list_number > self._membership.number and not session.list_forged

    def _fetch(self, now_s: float) -> None:
        """Begin to download a newer list, if a neighbor has one and no download is under way."""
        newer = [session for session in self._user.sessions if self._is_newer(session)]
        if any(self._download.is_from(session) for session in newer) or not newer:
            return
        # A random one of the neighbors that were tried least: a malicious member cannot make itself the first.
        fewest = min(session.list_attempts for session in newer)
        chosen = secrets.choice([session for session in newer if session.list_attempts == fewest])
        chosen.list_attempts += 1
        self._download.start(chosen, self._membership.number, now_s)
        self._user.wake(self._download.next_s)

    def _request(self, session: Session, since: int, number: int, indexes: list[int]) -> None:
        text = b"".join(map(_INDEX.pack, indexes))
        self._user.send_control(session, LIST_REQUEST + _NUMBERS.pack(since, number) + text)

    def _on_request(self, session: Session, body: bytes, now_s: float) -> None:
        since, number = _NUMBERS.unpack_from(body)
        if number != self._membership.number or since >= number:
            self._send_numbers(session)
            return
        text = self._differences.get((since, number))
        if text is None:
            if not self._take_tokens(session, DELTA_TOKENS, now_s):
                self._user.on_drop("neighbor_over_quota")
                return
            text = self._differences[since, number] = self._membership.encode_delta(since)
            if len(self._differences) > MAX_DIFFERENCES:
                self._differences.popitem(last=False)
        indexes = [index for (index,) in _INDEX.iter_unpack(body[_NUMBERS.size :])][:MAX_WINDOW]
        for index in indexes:
            segment = text[index * SEGMENT_BYTES : (index + 1) * SEGMENT_BYTES]
            if segment:
                self._user.send_control(
                    session, LIST_SEGMENT + _SEGMENT.pack(since, number, len(text), index) + segment
                )

    def _on_segment(self, session: Session, body: bytes, now_s: float) -> None:
        if not self._download.is_from(session):
            self._user.on_drop("link_unexpected_piece")
            return
        text = self._download.on_segment(session, _SEGMENT.unpack_from(body), body[_SEGMENT.size :], now_s)
        self._user.wake(self._download.next_s)
        if text is None:
            return
        whole = self._download.end()
        if not self._membership.take_revocations(text) and self._is_newer(session):
            if not whole:
                # The delta does not fit to this node's own list, so the complete list is fetched.
                self._download.start(session, 0, now_s)
                return
            session.list_forged = True
            self._user.on_drop("link_list_forged")
        self._fetch(now_s)

    def _take_tokens(self, session: Session, tokens: float, now_s: float) -> bool:
        """Take tokens from the bucket of a neighbor; False if it has too few."""
        used, since_s = session.used_tokens
        used = max(used - (now_s - since_s) * REQUESTS_PER_S, 0.0) + tokens
        if used > REQUEST_BURST:
            return False
        session.used_tokens = (used, now_s)
        return True
