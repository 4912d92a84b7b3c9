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
from collections.abc import Iterable

from carrycast.node.security.list_transfer import MAX_WINDOW, SEGMENT_BYTES, ListDownload
from carrycast.node.security.membership import Membership
from carrycast.node.security.primitives import SECRET_BYTES
from carrycast.node.security.session import OwnGroupKey, Session

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
