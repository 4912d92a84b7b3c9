"""What two nodes tell each other within a session besides datagrams: keys to groups, and lists of revocations.

| first byte | then | meaning |
|---|---|---|
| `K` | epoch (1), key (32) | the sender's key to its group |
| `k` | epoch (1) | the receiver has that key |
| `V` | number (8), number (8) | of the sender's list of revocations, and what it takes the receiver's to be |
| `Q` | since (8), number (8), indexes (4 each) | asks for pieces of what changed between two lists |
| `F` | since (8), number (8), bytes in all (4), index (4), text | such a piece |

What a neighbor has not acknowledged is sent again, ever more rarely, for as long as the neighbor is heard. The
acknowledgement of a list is a `V` with its number. What is not known is ignored, also at the end of what is: later
versions may say more.
"""

import math
import secrets
import struct
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable

from carrycast.node.security.list_transfer import MAX_AT_ONCE, PIECE_BYTES, Fetching
from carrycast.node.security.membership import Membership
from carrycast.node.security.primitives import SECRET_BYTES
from carrycast.node.security.session import OwnGroupKey, Session

KEY, KEY_TAKEN, NUMBERS, ASKED, PIECE = b"K", b"k", b"V", b"Q", b"F"
_KEY = struct.Struct(f">B{SECRET_BYTES}s")
_NUMBERS = struct.Struct(">QQ")
_PIECE = struct.Struct(">QQII")
_INDEX = struct.Struct(">I")
RESEND_S, MAX_RESEND_S = 0.25, 10.0
SILENT_S = 300.0
"""Who was not heard for so long is sent nothing again, and gets no slot in what goes to the group."""
ALLOWANCE_PER_S, ALLOWANCE = 50.0, 100.0
"""What a neighbor may ask for: a request for pieces is one, and ten if they must be made first."""
MAKING = 10.0
MAX_MADE = 2
"""Texts of which pieces are handed out, that are kept."""


class UpkeepUser(ABC):
    """Who keeps the sessions."""

    @property
    @abstractmethod
    def sessions(self) -> Iterable[Session]:
        """All of them."""

    @abstractmethod
    def tell(self, session: Session, text: bytes) -> None:
        """Seal something for a neighbor, and send it."""

    @abstractmethod
    def wake(self, at_s: float) -> None:
        """`retry` has something to do then."""

    @abstractmethod
    def dropped(self, reason: str) -> None:
        """Something was refused, by a name."""


class Upkeep:
    """Of one interface."""

    def __init__(self, membership: Membership, group_key: OwnGroupKey, user: UpkeepUser) -> None:
        self._membership = membership
        self._group_key = group_key
        self._user = user
        self._fetching = Fetching(self._ask)
        self._made: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def begin(self, session: Session, now_s: float) -> None:
        """Tell a neighbor what it has not acknowledged yet: at once, and again when it does not answer."""
        if session.key_given != self._group_key.epoch:
            session.key_sent_s = now_s
        session.backoff_s = RESEND_S
        self._send(session, now_s)
        self._fetch(now_s)

    def begin_all(self, now_s: float) -> None:
        """The same of all neighbors: this node has another key, and perhaps another list."""
        for session in list(self._user.sessions):
            self.begin(session, now_s)

    def tell_list(self) -> None:
        """This node has another list. Whoever it came from learns that it has arrived."""
        for session in list(self._user.sessions):
            self._tell_numbers(session)

    def forget(self, session: Session) -> None:
        """A neighbor is gone."""
        self._fetching.stop(session)

    def retry(self, now_s: float) -> None:
        """Send again, and ask again, what is due."""
        if now_s >= self._fetching.next_s:
            others = sum(self._is_newer(session) for session in self._user.sessions) > 1
            self._fetching.retry(now_s, others)
            self._fetch(now_s)
        for session in list(self._user.sessions):
            if self._is_behind(session) and now_s - session.heard_s < SILENT_S and now_s >= session.resend_s:
                session.backoff_s = min(2 * session.backoff_s, MAX_RESEND_S)
                self._send(session, now_s)
        due = [session.resend_s for session in self._user.sessions if self._is_behind(session)]
        # Those in the past are of neighbors that are silent: they are looked at when something else is due.
        self._user.wake(min((at_s for at_s in (*due, self._fetching.next_s) if at_s > now_s), default=math.inf))

    def on_text(self, session: Session, text: bytes, now_s: float) -> None:
        """Something that is no datagram."""
        kind, body = text[:1], text[1:]
        try:
            if kind == PIECE:
                self._on_piece(session, body, now_s)
            elif not self._allows(session, 1.0, now_s):
                self._user.dropped("neighbor_over_quota")
            elif kind == KEY:
                epoch, key = _KEY.unpack_from(body)
                session.take_group_key(epoch, key, now_s)
                self._user.tell(session, KEY_TAKEN + bytes([epoch]))
            elif kind == KEY_TAKEN:
                session.key_given = body[0]
            elif kind == NUMBERS:
                self._on_numbers(session, _NUMBERS.unpack_from(body), now_s)
            elif kind == ASKED:
                self._on_asked(session, body, now_s)
            else:
                self._user.dropped("link_control_unknown")
        except (struct.error, IndexError):
            self._user.dropped("link_control_malformed")

    # Sending.

    def _is_behind(self, session: Session) -> bool:
        return session.key_given != self._group_key.epoch or session.list_number < self._membership.number

    def _send(self, session: Session, now_s: float) -> None:
        if session.key_given != self._group_key.epoch:
            self._user.tell(session, KEY + _KEY.pack(self._group_key.epoch, self._group_key.key))
        if session.list_number < self._membership.number:
            self._tell_numbers(session)
        session.resend_s = now_s + session.backoff_s
        self._user.wake(session.resend_s)

    def _tell_numbers(self, session: Session) -> None:
        self._user.tell(session, NUMBERS + _NUMBERS.pack(self._membership.number, session.list_number))

    # Lists of revocations.

    def _on_numbers(self, session: Session, numbers: tuple[int, int], now_s: float) -> None:
        theirs, mine = numbers
        session.list_number = max(session.list_number, theirs)
        if mine != self._membership.number:
            self._tell_numbers(session)
        self._fetch(now_s)

    def _is_newer(self, session: Session) -> bool:
        return session.list_number > self._membership.number and not session.list_doubted

    def _fetch(self, now_s: float) -> None:
        """Begin to fetch a newer list, if a neighbor has one and none is fetched yet."""
        newer = [session for session in self._user.sessions if self._is_newer(session)]
        if any(self._fetching.is_from(session) for session in newer) or not newer:
            return
        # A neighbor that has had its turn is the last to get another. Of the others a random one: a liar cannot make
        # itself the first.
        fewest = min(session.list_tried for session in newer)
        chosen = secrets.choice([session for session in newer if session.list_tried == fewest])
        chosen.list_tried += 1
        self._fetching.start(chosen, self._membership.number, now_s)
        self._user.wake(self._fetching.next_s)

    def _ask(self, session: Session, since: int, number: int, indexes: list[int]) -> None:
        text = b"".join(map(_INDEX.pack, indexes))
        self._user.tell(session, ASKED + _NUMBERS.pack(since, number) + text)

    def _on_asked(self, session: Session, body: bytes, now_s: float) -> None:
        since, number = _NUMBERS.unpack_from(body)
        if number != self._membership.number or since >= number:
            self._tell_numbers(session)
            return
        text = self._made.get((since, number))
        if text is None:
            if not self._allows(session, MAKING, now_s):
                self._user.dropped("neighbor_over_quota")
                return
            text = self._made[since, number] = self._membership.difference(since)
            if len(self._made) > MAX_MADE:
                self._made.popitem(last=False)
        indexes = [index for (index,) in _INDEX.iter_unpack(body[_NUMBERS.size :])][:MAX_AT_ONCE]
        for index in indexes:
            piece = text[index * PIECE_BYTES : (index + 1) * PIECE_BYTES]
            if piece:
                self._user.tell(session, PIECE + _PIECE.pack(since, number, len(text), index) + piece)

    def _on_piece(self, session: Session, body: bytes, now_s: float) -> None:
        if not self._fetching.is_from(session):
            self._user.dropped("link_unexpected_piece")
            return
        text = self._fetching.on_piece(session, _PIECE.unpack_from(body), body[_PIECE.size :], now_s)
        self._user.wake(self._fetching.next_s)
        if text is None:
            return
        whole = self._fetching.end()
        if not self._membership.take_revocations(text) and self._is_newer(session):
            if not whole:
                # What changed does not fit to this node's own list; all of it may.
                self._fetching.start(session, 0, now_s)
                return
            session.list_doubted = True
            self._user.dropped("link_list_forged")
        self._fetch(now_s)

    def _allows(self, session: Session, much: float, now_s: float) -> bool:
        spent, since_s = session.allowance
        spent = max(spent - (now_s - since_s) * ALLOWANCE_PER_S, 0.0) + much
        if spent > ALLOWANCE:
            return False
        session.allowance = (spent, now_s)
        return True
