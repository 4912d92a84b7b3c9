"""Handshakes under way at one interface: with whom, how many at once, and what each has cost so far.

Whoever is heard and not known is sent a cookie, which is a keyed hash of its address: nothing is remembered for it. If
the cookie comes back, with one of the other's, the other is where it says, and is asked. The other sees its own cookie
in that and answers. What is lost is not repeated: the next datagram of either begins anew.
"""

import asyncio
import hashlib
import secrets
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from driftcast.live.keys.membership import NETWORK_BYTES, Membership, Refusal
from driftcast.live.keys.primitives import PUBLIC_BYTES, Ephemeral
from driftcast.live.link.address import Address
from driftcast.live.link.admission import HandshakeBudget
from driftcast.live.link.frame import COOKIE_BYTES, LinkFrame, LinkKind, pack
from driftcast.live.link.handshake import End, LinkKeys, agreed, introduce, introduced, transcript
from driftcast.live.link.notices import Notices
from driftcast.live.link.session import Session
from driftcast.model import NodeId

COOKIE_S = 10.0
"""How long a cookie is good at least; twice that at most."""
PATIENCE_S = 1.0
"""How long an answer is waited for, and how often the same address is asked at most."""
MAX_HANDSHAKES = 256
"""Begun or answered, and not finished; the oldest makes room."""
HANDSHAKES_PER_S = 50.0
"""With one member's host, or one prefix of strangers (`admission.py`). Each costs a third of a millisecond, so that
one of them can cost 2 % of a core, and all strangers together four times that."""
STEP = 0.5
"""Of a handshake, what is computed for one message: each side does so twice, and who breaks off has had its half."""
BURST = 100.0
MAX_HOSTS = 1024


K = TypeVar("K")
V = TypeVar("V")


class GreetingUser(ABC):
    """Who sends, and keeps the sessions."""

    group_key: bytes

    @abstractmethod
    def put(self, address: Address, datagram: bytes) -> None:
        """On the air."""

    @abstractmethod
    def established(self, session: Session, number: int, address: Address) -> None:
        """A link has keys. The other goes by the list of revocations of that number."""

    @abstractmethod
    def dropped(self, reason: str) -> None:
        """Something was refused, by a name."""


@dataclass(slots=True)
class _Begun:
    node: NodeId
    number: int
    ephemeral: Ephemeral
    since_s: float


@dataclass(slots=True)
class _Answered:
    asker: End
    number: int
    asked: bytes
    reply: bytes
    keys: LinkKeys
    seen: bytes
    since_s: float


class Greeting:
    """The handshakes of one interface."""

    def __init__(self, me: End, membership: Membership, notices: Notices, user: GreetingUser) -> None:
        self._me = me
        self._membership = membership
        self._notices = notices
        self._user = user
        self._loop = asyncio.get_running_loop()
        self._cookie_key = secrets.token_bytes(32)
        self._begun: OrderedDict[Address, _Begun] = OrderedDict()
        self._answered: OrderedDict[Address, _Answered] = OrderedDict()
        self._asked_s: OrderedDict[Address, float] = OrderedDict()
        self._budget = HandshakeBudget(HANDSHAKES_PER_S, BURST)

    def hello(self) -> bytes:
        """Said to who is not known yet: as long as what it may be answered with."""
        body = self._membership.network + bytes(COOKIE_BYTES)
        return pack(LinkFrame(LinkKind.HELLO, *self._me, 0, body))

    def expect(self, address: Address) -> None:
        """Somebody whom this node wants to reach, or has a link with: no flood of strangers keeps its host out."""
        self._budget.trust(address[0])

    def on_unknown(self, frame: LinkFrame, address: Address) -> None:
        """A datagram that cannot be read: of a stranger, or of a neighbor whose keys are not known any more."""
        now_s = self._loop.time()
        answered = self._answered.get(address)
        if answered is not None and now_s - answered.since_s < PATIENCE_S:
            return  # It has overtaken what finishes the handshake.
        if now_s - self._asked_s.get(address, -PATIENCE_S) < PATIENCE_S:
            return
        cookie = self._cookie(address, frame.sender, now_s)
        self._user.put(address, pack(LinkFrame(LinkKind.KEYED_CHALLENGE, *self._me, cookie, bytes(COOKIE_BYTES))))

    def on_frame(self, frame: LinkFrame, address: Address) -> None:
        """A datagram of a handshake."""
        if frame.kind is LinkKind.KEYED_CHALLENGE:
            cookie = self._cookie(address, frame.sender, self._loop.time()).to_bytes(COOKIE_BYTES, "big")
            response = LinkFrame(LinkKind.KEYED_RESPONSE, *self._me, frame.sequence, cookie)
            self._user.put(address, pack(response))
        elif frame.kind is LinkKind.KEYED_RESPONSE:
            if self._is_mine(frame.sequence, address, frame.sender):
                self._begin(frame.sender, address, int.from_bytes(frame.body, "big"))
            else:
                self._user.dropped("link_unexpected_response")
        elif frame.kind is LinkKind.INITIATION:
            self._on_initiation(frame, address)
        elif frame.kind is LinkKind.REPLY:
            self._on_reply(frame, address)
        else:
            self._on_finish(frame, address)

    def _begin(self, node: NodeId, address: Address, number: int) -> None:
        now_s = self._loop.time()
        if now_s - self._asked_s.get(address, -PATIENCE_S) < PATIENCE_S or not self._affords(address[0], now_s):
            return
        _enter(self._asked_s, address, now_s, MAX_HOSTS)
        begun = _Begun(node, number, Ephemeral(), now_s)
        _enter(self._begun, address, begun, MAX_HANDSHAKES)
        body = begun.ephemeral.public + self._membership.network
        self._user.put(address, pack(LinkFrame(LinkKind.INITIATION, *self._me, number, body)))

    def _on_initiation(self, frame: LinkFrame, address: Address) -> None:
        if not self._is_mine(frame.sequence, address, frame.sender) or len(frame.body) != PUBLIC_BYTES + NETWORK_BYTES:
            self._user.dropped("link_unexpected_handshake")
            return
        first, network = frame.body[:PUBLIC_BYTES], frame.body[PUBLIC_BYTES:]
        if network != self._membership.network:
            self.refuse_network(address)
            return
        now_s = self._loop.time()
        begun = self._begun.get(address)
        if begun is not None and now_s - begun.since_s < PATIENCE_S and self._me.node < frame.sender:
            return  # Both have begun, and one is enough.
        earlier = self._answered.get(address)
        if earlier is not None and (earlier.asked, earlier.asker.node) == (frame.body, frame.sender):
            self._user.put(address, earlier.reply)
            return
        if not self._affords(address[0], now_s):
            return
        asker, mine = End(frame.sender, frame.session), Ephemeral()
        seen = transcript(network, asker, self._me, first, mine.public)
        keys = agreed(mine, first, self._membership.secret, seen)
        if keys is None:
            self._user.dropped("link_unexpected_handshake")
            return
        sealed = introduce(self._membership, b"reply", keys.reply, seen, self._user.group_key)
        reply = pack(LinkFrame(LinkKind.REPLY, *self._me, frame.sequence, mine.public + sealed))
        answered = _Answered(asker, frame.sequence, frame.body, reply, keys, seen, now_s)
        _enter(self._answered, address, answered, MAX_HANDSHAKES)
        self._begun.pop(address, None)
        self._user.put(address, reply)

    def _on_reply(self, frame: LinkFrame, address: Address) -> None:
        begun = self._begun.get(address)
        if begun is None or (begun.number, begun.node) != (frame.sequence, frame.sender):
            self._user.dropped("link_unexpected_handshake")
            return
        if not self._affords(address[0], self._loop.time()):
            return
        second, sealed = frame.body[:PUBLIC_BYTES], frame.body[PUBLIC_BYTES:]
        seen = transcript(
            self._membership.network, self._me, End(frame.sender, frame.session), begun.ephemeral.public, second
        )
        keys = None
        if len(second) == PUBLIC_BYTES:
            keys = agreed(begun.ephemeral, second, self._membership.secret, seen)
        if keys is None:
            self._user.dropped("link_unexpected_handshake")
            return
        found = introduced(self._membership, b"reply", keys.reply, seen, sealed)
        if isinstance(found, Refusal) or found[0].node != frame.sender:
            self._refuse(found if isinstance(found, Refusal) else Refusal.STRANGER, frame, address)
            return
        del self._begun[address]
        member, introduction = found
        finish = introduce(self._membership, b"finish", keys.finish, seen, self._user.group_key)
        self._user.put(address, pack(LinkFrame(LinkKind.FINISH, *self._me, frame.sequence, finish)))
        sending, receiving = (keys.forth, keys.forth_marks), (keys.back, keys.back_marks)
        made = Session(member, frame.session, sending, receiving, introduction.group_key, True, self._loop.time())
        self._user.established(made, introduction.number, address)

    def _on_finish(self, frame: LinkFrame, address: Address) -> None:
        answered = self._answered.get(address)
        if answered is None or (answered.number, answered.asker.node) != (frame.sequence, frame.sender):
            self._user.dropped("link_unexpected_handshake")
            return
        if not self._affords(address[0], self._loop.time()):
            return
        found = introduced(self._membership, b"finish", answered.keys.finish, answered.seen, frame.body)
        if isinstance(found, Refusal) or found[0].node != frame.sender:
            self._refuse(found if isinstance(found, Refusal) else Refusal.STRANGER, frame, address)
            return
        del self._answered[address]
        member, introduction = found
        keys = answered.keys
        sending, receiving = (keys.back, keys.back_marks), (keys.forth, keys.forth_marks)
        made = Session(
            member, answered.asker.session, sending, receiving, introduction.group_key, False, self._loop.time()
        )
        self._user.established(made, introduction.number, address)

    def refuse_network(self, address: Address) -> None:
        """Somebody of another network."""
        self._user.dropped("link_other_network")
        self._notices.tell(address, "the node there belongs to another network: it stays a stranger")

    def _refuse(self, refusal: Refusal, frame: LinkFrame, address: Address) -> None:
        self._user.dropped(f"link_{refusal}")
        self._notices.tell(address, f"node {frame.sender} there is refused: {refusal.replace('_', ' ')}")

    def _affords(self, host: str, now_s: float) -> bool:
        """Whether a host has a step left; then it is taken."""
        afforded = self._budget.afford(host, now_s, STEP)
        if not afforded:
            self._user.dropped("link_handshakes_full")
        return afforded

    def _cookie(self, address: Address, node: NodeId, now_s: float) -> int:
        text = f"{int(now_s / COOKIE_S)} {node} {address[1]} {address[0]}".encode()
        return int.from_bytes(hashlib.blake2b(text, key=self._cookie_key, digest_size=COOKIE_BYTES).digest(), "big")

    def _is_mine(self, cookie: int, address: Address, node: NodeId) -> bool:
        now_s = self._loop.time()
        return cookie in (self._cookie(address, node, now_s), self._cookie(address, node, now_s - COOKIE_S))


def _enter(kept: "OrderedDict[K, V]", key: K, value: V, most: int) -> None:
    """Keep it as the newest; the oldest makes room."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
