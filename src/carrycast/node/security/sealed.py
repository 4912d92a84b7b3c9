"""A transport between nodes with keys: what the link layer sends is sealed for whom it is meant, and only what a member
of the network has sealed is heard.

The link layer above is the same as without keys. A datagram of it goes whole into the body of a sealed one:

| kind | number | body |
|---|---|---|
| hello | 0 | network (8 bytes), 8 bytes of 0 |
| challenge, response | cookie of who is heard | 8 bytes of 0; cookie of who challenged |
| initiation, reply, finish, refusal | the cookie of the responder | see `handshake.py` |
| sealed | a number of its own | sealed: a datagram, or `G` and one that went to the group, or see `upkeep.py` |
| sealed to group | the same | key epoch (1), number of slots (1), slots (4 of the id, 8 of the mark), sealed datagram |

The header is protected by the seal, but for the time that a datagram has waited: whoever carries it could make it wait,
so it can be made older. What waited before it was sealed is within.
"""

import asyncio
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable

from carrycast.core.model import NodeId
from carrycast.node.link.adapter import Receive, Transport, Trouble
from carrycast.node.link.frame import (
    MAGIC,
    MAX_DATAGRAM_BYTES,
    LinkFlaw,
    LinkFrame,
    LinkKind,
    Novelty,
    older,
    pack,
    unchanging,
    unpack,
)
from carrycast.node.link.rate_limit import Notices
from carrycast.node.link.socket_address import Address
from carrycast.node.security.handshake import OURS, End
from carrycast.node.security.handshake_manager import Greeting, GreetingUser
from carrycast.node.security.membership import Membership, Refusal
from carrycast.node.security.session import (
    MAX_SLOTS,
    OVERLAP_S,
    GroupBody,
    OwnGroupKey,
    Session,
    slots_for,
    split_group,
    stamp_of,
)
from carrycast.node.security.session_control import SILENT_S, Upkeep, UpkeepUser

SESSIONS_PER_NODE = 4
"""As many interfaces of a neighbor may be heard over one of this node's."""
PLACES_PER_SESSION = 4
"""Addresses where an interface of a neighbor was heard last: one, but while it moves."""
REKEY_S = 3600.0
"""Sessions are made again after so long, so that keys that are found later open little."""
REKEY_RETRY_S = 10.0
"""When it is tried again. After another REKEY_S a session ends that could not be made again."""
LATER_S = 60.0
"""After the initiator, the responder of a session tries."""
UNMARKED_S = 3.0
"""Who sends to the group, marks nothing for this node and was not heard otherwise for so long has forgotten it."""
REVIEW_S = 5.0
"""How often keys, sessions and certificates are looked at, whatever is sent or heard."""
COPY = b"G"
"""What a datagram to the group begins with that is sealed for one neighbor; other datagrams begin with MAGIC."""


class SealedTransport(Transport, GreetingUser, UpkeepUser):
    """Between a transport and a link layer."""

    def __init__(self, inner: Transport, node: NodeId, membership: Membership, neighbors: int) -> None:
        self.family = inner.family
        self.offer = OURS
        self._inner = inner
        self._node = node
        self._membership = membership
        self._most = neighbors
        self._me = End(node, secrets.randbits(32))
        self._notices = Notices()
        self._sessions: OrderedDict[tuple[NodeId, int], Session] = OrderedDict()
        """By node and session of the other; the one heard last at the end."""
        self._at: dict[Address, Session] = {}
        self._until_s = math.inf
        """When the first certificate ends of those who have a session."""
        self._receive: Receive | None = None
        self._trouble: Trouble | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> Address:
        return self._inner.address

    @property
    def group(self) -> Address | None:
        return self._inner.group

    @property
    def sessions(self) -> Iterable[Session]:
        return self._sessions.values()

    def open(self, receive: Receive, trouble: Trouble) -> None:
        self._receive = receive
        self._trouble = trouble
        self._loop = asyncio.get_running_loop()
        self._greeting = Greeting(self._me, self._membership, self._notices, self, self.offer)
        self.group_key = OwnGroupKey(self._loop.time())
        self._upkeep = Upkeep(self._membership, self.group_key, self)
        self._inner.open(self._hear, trouble)
        self._membership.changed.append(self._on_revoked)
        self._membership.renewed.append(self._on_renewed)
        self.wake(self._loop.time() + REVIEW_S)

    def close(self) -> None:
        if self._timer is not None:  # It was opened.
            self._membership.changed.remove(self._on_revoked)
            self._membership.renewed.remove(self._on_renewed)
            self._timer.cancel()
            self._timer = None
        self._receive = None
        self._inner.close()

    # What is sent.

    def send(self, address: Address, datagram: bytes) -> bool:
        self._review()
        if address == self._inner.group:
            return self._send_to_group(address, datagram)
        session = self._at.get(address)
        if session is None:
            return self._greet(address)
        return self._send_sealed(session, address, datagram)

    def put(self, address: Address, datagram: bytes) -> None:
        if not self._inner.send(address, datagram):
            self.dropped("queue_full")

    def tell(self, session: Session, text: bytes) -> None:
        if session.place is not None and not self._send_sealed(session, session.place, text):
            self.dropped("queue_full")

    def _send_sealed(self, session: Session, address: Address, text: bytes) -> bool:
        number = session.next_number()
        header = pack(LinkFrame(LinkKind.SEALED, *self._me, number, b""))
        return self._send_if_short(address, header + session.seal(number, text, unchanging(header)))

    def _send_to_group(self, address: Address, datagram: bytes) -> bool:
        now_s, key = self._loop.time(), self.group_key
        heard = [session for session in self._sessions.values() if session.heard_s >= now_s - SILENT_S]
        marked = [session for session in heard if key.is_marked(session, now_s)]
        for session in heard if len(marked) < len(heard) else ():
            if not key.is_marked(session, now_s):
                self.tell(session, COPY + datagram)
        if not marked:  # Who does not know this node yet may be there, and who does has a copy.
            return bool(heard) or self._greet(address)
        number = key.next_number()
        header = pack(LinkFrame(LinkKind.SEALED_TO_GROUP, *self._me, number, b""))
        beside = unchanging(header)
        sealed = key.seal(number, datagram, beside)
        stamp = stamp_of(sealed, beside)
        for at in range(0, len(marked), MAX_SLOTS):
            slots = b"".join(session.slot(stamp) for session in marked[at : at + MAX_SLOTS])
            if not self._send_if_short(address, header + GroupBody(key.epoch, slots, sealed).text()):
                return False
        return True

    def _send_if_short(self, address: Address, datagram: bytes) -> bool:
        if len(datagram) > MAX_DATAGRAM_BYTES:
            self.dropped("message_too_long")
            return True
        return self._inner.send(address, datagram)

    def _greet(self, address: Address) -> bool:
        """The other cannot read anything yet, so it is told no more than that this node is here."""
        self._greeting.expect(address)
        hello = self._greeting.hello(address)
        return hello is None or self._inner.send(address, hello)

    # What is heard.

    def _hear(self, datagram: bytes, address: Address, to_group: bool) -> None:
        frame = unpack(datagram, keyed=True)
        if isinstance(frame, LinkFlaw):
            self.dropped(str(frame))
        elif frame.sender == self._node:
            self.dropped("link_own")
        elif frame.kind <= LinkKind.COMPOUND:
            self.dropped("link_open")
            self._notices.tell(address, "the node there has no keys, and this one has: they stay strangers")
        elif frame.kind is LinkKind.HELLO:
            if frame.body[: len(self._membership.network)] != self._membership.network:
                self._greeting.refuse_network(address)
            else:
                self._greeting.on_unknown(frame, address)
        elif frame.kind in (LinkKind.SEALED, LinkKind.SEALED_TO_GROUP):
            self._on_sealed(frame, unchanging(datagram), address, to_group)
        else:
            self._greeting.on_frame(frame, address)

    def _on_sealed(self, frame: LinkFrame, beside: bytes, address: Address, to_group: bool) -> None:
        self._review()
        key = (frame.sender, frame.session)
        session = self._sessions.get(key)
        text = None if session is None else self._opened(session, frame, beside)
        if text is None and session is not None and session.previous is not None:
            text = self._opened(session.previous, frame, beside)
        if session is None or text is None:
            if session is not None and self._is_unmarked(session, frame):
                self.dropped("link_unmarked")
                return
            self.dropped("link_stranger" if session is None else "link_unsealed")
            self._greeting.on_unknown(frame, address)
        elif isinstance(text, Novelty):
            self.dropped("link_repeated" if text is Novelty.REPEATED else "link_too_old")
        else:
            before_s, session.heard_s = session.heard_s, self._loop.time()
            if session.heard_s - before_s > SILENT_S:  # It was not told what was new.
                self._upkeep.begin(session, session.heard_s)
            self._sessions.move_to_end(key)
            holder = self._at.get(address)
            # Who only speaks from another's address may have written it; to take it over it has to shake hands there.
            if holder is not session and (holder is None or holder.member.node == frame.sender):
                self._place(address, session)
            if text[:1] in (COPY, bytes([MAGIC])):
                self._on_text(text.removeprefix(COPY), frame, address, to_group or text[:1] == COPY)
            else:
                self._upkeep.on_text(session, text, session.heard_s)

    def _opened(self, session: Session, frame: LinkFrame, beside: bytes) -> bytes | Novelty | None:
        if frame.kind is LinkKind.SEALED:
            return session.open(frame.sequence, frame.body, beside)
        body, now_s = split_group(frame.body), self._loop.time()
        return None if body is None else session.open_group(self._node, frame.sequence, body, beside, now_s)

    def _is_unmarked(self, session: Session, frame: LinkFrame) -> bool:
        """Whether it went to others of the group, while a copy for this node comes in the session."""
        body = split_group(frame.body) if frame.kind is LinkKind.SEALED_TO_GROUP else None
        unmarked = body is not None and body.slots != b"" and not slots_for(self._node, body.slots)
        return unmarked and self._loop.time() - session.heard_s < UNMARKED_S

    def _on_text(self, text: bytes, frame: LinkFrame, address: Address, to_group: bool) -> None:
        inner = unpack(text)
        if isinstance(inner, LinkFlaw):
            self.dropped(str(inner))
        elif inner.sender != frame.sender:
            self.dropped("link_sender")
        elif self._receive is not None:
            self._receive(older(text, frame.waited_ms / 1000), address, to_group)

    # Sessions.

    def established(self, session: Session, address: Address) -> None:
        key = (session.member.node, session.session)
        session.previous = previous = self._sessions.pop(key, None)
        if previous is not None:
            self._upkeep.forget(previous)
            previous.previous = None
            session.list_number, session.list_tried = previous.list_number, previous.list_tried
            for place in [place for place in previous.places if self._at.get(place) is previous]:
                self._place(place, session)
        theirs = [other for other in self._sessions if other[0] == session.member.node]
        for other in theirs[: max(0, 1 + len(theirs) - SESSIONS_PER_NODE)]:
            self._forget(other)
        if len(self._sessions) >= self._most:
            self._forget(next(iter(self._sessions)))
            self.dropped("link_neighbors_full")
        self._sessions[key] = session
        self._until_s = min(self._until_s, session.member.until_s)
        self._place(address, session)
        self._upkeep.begin(session, self._loop.time())

    def _place(self, address: Address, session: Session) -> None:
        self._at[address] = session
        self._greeting.expect(address)
        session.places.pop(address, None)
        session.places[address] = None
        if len(session.places) > PLACES_PER_SESSION:
            self._leave(next(iter(session.places)), session)

    def _leave(self, address: Address, session: Session) -> None:
        del session.places[address]
        if self._at.get(address) is session:
            del self._at[address]

    def _forget(self, key: tuple[NodeId, int]) -> None:
        session = self._sessions.pop(key)
        self._upkeep.forget(session)
        for address in list(session.places):
            self._leave(address, session)

    def _on_revoked(self) -> None:
        self._put_out()
        self._upkeep.tell_list()

    def _on_renewed(self) -> None:
        """This node has another certificate: neighbors should know, before the one that they know ends."""
        for session in self._sessions.values():
            session.made_s = min(session.made_s, self._loop.time() - LATER_S - REKEY_S)
            self._rekey(session)

    def _put_out(self) -> None:
        """End the sessions of those who are members no longer. They know the key to the group: the others get
        another, which counts at once."""
        for key, session in list(self._sessions.items()):
            if isinstance(self._membership.neighbor(session.member.voucher), Refusal):
                self._forget(key)
        self._until_s = min((session.member.until_s for session in self._sessions.values()), default=math.inf)
        self._renew_group_key()

    def _renew_group_key(self) -> None:
        self.group_key.renew(self._loop.time())
        self._upkeep.begin_all(self._loop.time())

    def wake(self, at_s: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        self.wake(now_s + REVIEW_S)
        self._review()
        for key, session in list(self._sessions.items()):
            age_s = now_s - session.made_s
            if session.previous is not None and age_s > OVERLAP_S:
                session.previous = None
            if age_s > 2 * REKEY_S:
                self._forget(key)
            elif age_s > REKEY_S + LATER_S * (not session.began) and now_s >= session.rekey_s:
                self._rekey(session)
        self._upkeep.retry(now_s)

    def _review(self) -> None:
        """Nothing is sealed under a key that is too old, or that somebody has who is no longer a member."""
        if time.time() >= self._until_s:
            self._put_out()
        if self.group_key.is_old(self._loop.time()):
            self._renew_group_key()

    def _rekey(self, session: Session) -> None:
        now_s = self._loop.time()
        session.rekey_s = now_s + REKEY_RETRY_S
        if session.place is not None and now_s - session.heard_s < SILENT_S:
            self._greeting.on_unknown(LinkFrame(LinkKind.HELLO, session.member.node, 0, 0, b""), session.place)

    def dropped(self, reason: str) -> None:
        if self._trouble is not None:
            self._trouble(reason, 1)
