"""A transport between nodes with keys: what the link layer sends is sealed for whom it is meant, and only what a member
of the network has sealed is heard.

The link layer above is the same as without keys. A datagram of it goes whole into the body of a sealed one:

| kind | number | body |
|---|---|---|
| hello | 0 | network (8 bytes), 8 bytes of 0 |
| challenge | cookie of who is heard | 8 bytes of 0 |
| response | the same | cookie of who challenged |
| initiation, reply, finish | the cookie of who is asked | see `handshake.py` |
| sealed | a number of its own | the datagram, sealed |
| sealed to group | the same | number of slots (1), slots (4 of the id, 8 of the mark), the datagram, sealed |

The header is protected by the seal, but for the time that a datagram has waited: whoever carries it could make it wait,
so it can be made older. What waited before it was sealed is within.
"""

import asyncio
import math
import secrets
import time
from collections import OrderedDict

from driftcast.live.keys.membership import Membership, Refusal
from driftcast.live.keys.primitives import SECRET_BYTES, Cipher
from driftcast.live.link.address import Address
from driftcast.live.link.frame import (
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
from driftcast.live.link.greeting import Greeting, GreetingUser
from driftcast.live.link.handshake import End
from driftcast.live.link.notices import Notices
from driftcast.live.link.session import MAX_SLOTS, Session, split_group, stamp_of
from driftcast.live.link.transport import Receive, Transport, Trouble
from driftcast.model import NodeId

SESSIONS_PER_NODE = 4
"""As many interfaces of a neighbor may be heard over one of this node's."""
PLACES_PER_SESSION = 4
"""Addresses where an interface of a neighbor was heard last: one, but while it moves."""
REKEY_S = 3600.0
"""Sessions are made anew after so long, so that keys that are found later open little."""
HELLO_S = 0.04
"""How often one address is told that this node is here, at most."""
SILENT_S = 300.0
"""Who was not heard for so long gets no slot in what goes to the group."""
LIST = b"R"
"""What a sealed list of revocations begins with; other datagrams begin with MAGIC."""
MAX_ADDRESSES = 8192

assert LIST[0] != MAGIC


class SealedTransport(Transport, GreetingUser):
    """Between a transport and a link layer."""

    def __init__(self, inner: Transport, node: NodeId, membership: Membership, neighbors: int) -> None:
        self.family = inner.family
        self.group_key = secrets.token_bytes(SECRET_BYTES)
        self._inner = inner
        self._node = node
        self._membership = membership
        self._most = neighbors
        self._me = End(node, secrets.randbits(32))
        self._notices = Notices()
        self._group_cipher = Cipher(self.group_key)
        self._group_sent = 0
        self._sessions: OrderedDict[tuple[NodeId, int], Session] = OrderedDict()
        """By node and session of the other; the one heard last at the end."""
        self._at: dict[Address, Session] = {}
        self._until_s = math.inf
        """When the first certificate ends of those who know the key to the group."""
        self._greeted_s: OrderedDict[Address, float] = OrderedDict()
        self._receive: Receive | None = None
        self._trouble: Trouble | None = None

    @property
    def address(self) -> Address:
        return self._inner.address

    @property
    def group(self) -> Address | None:
        return self._inner.group

    def open(self, receive: Receive, trouble: Trouble) -> None:
        self._receive = receive
        self._trouble = trouble
        self._loop = asyncio.get_running_loop()
        self._greeting = Greeting(self._me, self._membership, self._notices, self)
        self._membership.changed.append(self._on_revoked)
        self._inner.open(self._hear, trouble)

    def close(self) -> None:
        if self._on_revoked in self._membership.changed:
            self._membership.changed.remove(self._on_revoked)
        self._receive = None
        self._inner.close()

    # What is sent.

    def send(self, address: Address, datagram: bytes) -> bool:
        if time.time() >= self._until_s:
            self._renew()
        if address == self._inner.group:
            return self._send_to_group(address, datagram)
        session = self._at.get(address)
        if session is None:
            return self._greet(address)
        now_s = self._loop.time()
        if session.began and now_s - session.made_s > REKEY_S:
            session.made_s = now_s
            self._greeting.on_unknown(LinkFrame(LinkKind.HELLO, session.member.node, 0, 0, b""), address)
        return self._send_sealed(session, address, datagram)

    def put(self, address: Address, datagram: bytes) -> None:
        if not self._inner.send(address, datagram):
            self.dropped("queue_full")

    def _send_sealed(self, session: Session, address: Address, text: bytes) -> bool:
        number = session.next_number()
        header = pack(LinkFrame(LinkKind.SEALED, *self._me, number, b""))
        return self._send_if_short(address, header + session.seal(number, text, unchanging(header)))

    def _send_to_group(self, address: Address, datagram: bytes) -> bool:
        self._group_sent += 1
        header = pack(LinkFrame(LinkKind.SEALED_TO_GROUP, *self._me, self._group_sent, b""))
        beside = unchanging(header)
        sealed = self._group_cipher.seal(self._group_sent, datagram, beside)
        stamp = stamp_of(sealed, beside)
        since_s = self._loop.time() - SILENT_S
        slots = [session.slot(stamp) for session in self._sessions.values() if session.heard_s >= since_s]
        for at in range(0, len(slots) or 1, MAX_SLOTS):
            some = slots[at : at + MAX_SLOTS]
            if not self._send_if_short(address, header + bytes([len(some)]) + b"".join(some) + sealed):
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
        now_s = self._loop.time()
        if now_s - self._greeted_s.get(address, -HELLO_S) < HELLO_S:
            return True
        self._greeted_s[address] = now_s
        self._greeted_s.move_to_end(address)
        if len(self._greeted_s) > MAX_ADDRESSES:
            self._greeted_s.popitem(last=False)
        return self._inner.send(address, self._greeting.hello())

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
        if time.time() >= self._until_s:
            self._renew()
        key = (frame.sender, frame.session)
        session = self._sessions.get(key)
        text = None if session is None else self._opened(session, frame, beside)
        if text is None and session is not None and session.previous is not None:
            text = self._opened(session.previous, frame, beside)
        if session is None or text is None:
            self.dropped("link_stranger" if session is None else "link_unsealed")
            self._greeting.on_unknown(frame, address)
        elif isinstance(text, Novelty):
            self.dropped("link_repeated" if text is Novelty.REPEATED else "link_too_old")
        else:
            session.heard_s = self._loop.time()
            self._sessions.move_to_end(key)
            holder = self._at.get(address)
            # Who only speaks from another's address may have written it; to take it over it has to shake hands there.
            if holder is not session and (holder is None or holder.member.node == frame.sender):
                self._place(address, session)
            if text[:1] == LIST:
                self._on_list(text[1:], session)
            else:
                self._on_text(text, frame, address, to_group)

    def _opened(self, session: Session, frame: LinkFrame, beside: bytes) -> bytes | Novelty | None:
        if frame.kind is LinkKind.SEALED:
            return session.open(frame.sequence, frame.body, beside)
        body = split_group(frame.body)
        return None if body is None else session.open_group(self._node, frame.sequence, body, beside)

    def _on_list(self, text: bytes, session: Session) -> None:
        """A session brings one: if it is newer all are made anew, and to verify more would be on nobody's account."""
        if session.listed:
            self.dropped("neighbor_over_quota")
        else:
            session.listed = True
            self._membership.take_revocations(text)

    def _on_text(self, text: bytes, frame: LinkFrame, address: Address, to_group: bool) -> None:
        inner = unpack(text)
        if isinstance(inner, LinkFlaw):
            self.dropped(str(inner))
        elif inner.sender != frame.sender:
            self.dropped("link_sender")
        elif self._receive is not None:
            self._receive(older(text, frame.waited_ms / 1000), address, to_group)

    # Sessions.

    def established(self, session: Session, number: int, address: Address) -> None:
        key = (session.member.node, session.session)
        session.previous = previous = self._sessions.pop(key, None)
        if previous is not None:
            previous.previous = None
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
        if number < self._membership.number:
            self._send_sealed(session, address, LIST + self._membership.revocations)

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
        for address in list(session.places):
            self._leave(address, session)

    def _on_revoked(self) -> None:
        """Some are out. The others are told."""
        for address, session in list(self._at.items()):
            if not isinstance(self._membership.member(session.member.voucher), Refusal):
                self._send_sealed(session, address, LIST + self._membership.revocations)
        self._renew()

    def _renew(self) -> None:
        """All shake hands anew, for who is out knows the key to the group."""
        self._sessions.clear()
        self._at.clear()
        self._until_s = math.inf
        self.group_key = secrets.token_bytes(SECRET_BYTES)
        self._group_cipher, self._group_sent = Cipher(self.group_key), 0

    def dropped(self, reason: str) -> None:
        if self._trouble is not None:
            self._trouble(reason, 1)
