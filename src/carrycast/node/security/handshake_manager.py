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

from carrycast.core.model import NodeId
from carrycast.node.link.frame import COOKIE_BYTES, LinkFrame, LinkKind, pack
from carrycast.node.link.rate_limit import HandshakeBudget, Notices
from carrycast.node.link.socket_address import Address
from carrycast.node.security.handshake import (
    INITIATION_BYTES,
    OFFER_BYTES,
    OURS,
    End,
    Introduced,
    Offer,
    handshake,
    introduce,
    introduced,
    link_keys,
    read_offer,
)
from carrycast.node.security.membership import Membership, Refusal
from carrycast.node.security.noise import HandshakeState, NoiseError
from carrycast.node.security.session import Session

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
HELLO_S = 0.04
"""How often one address is told that this node is here, at most."""
MAX_ADDRESSES = 8192


K = TypeVar("K")
V = TypeVar("V")


class GreetingUser(ABC):
    """Who sends, and keeps the sessions."""

    @abstractmethod
    def put(self, address: Address, datagram: bytes) -> None:
        """On the air."""

    @abstractmethod
    def established(self, session: Session, address: Address) -> None:
        """A link has keys, and the other is authenticated."""

    @abstractmethod
    def dropped(self, reason: str) -> None:
        """Something was refused, by a name."""


@dataclass(slots=True)
class _Begun:
    node: NodeId
    number: int
    state: HandshakeState
    since_s: float


@dataclass(slots=True)
class _Answered:
    asker: End
    number: int
    asked: bytes
    reply: bytes
    state: HandshakeState
    since_s: float


class Greeting:
    """The handshakes of one interface."""

    def __init__(
        self, me: End, membership: Membership, notices: Notices, user: GreetingUser, offer: Offer = OURS
    ) -> None:
        self._me = me
        self._offer = offer
        self._membership = membership
        self._notices = notices
        self._user = user
        self._loop = asyncio.get_running_loop()
        self._cookie_key = secrets.token_bytes(32)
        self._begun: OrderedDict[Address, _Begun] = OrderedDict()
        self._answered: OrderedDict[Address, _Answered] = OrderedDict()
        self._asked_s: OrderedDict[Address, float] = OrderedDict()
        self._greeted_s: OrderedDict[Address, float] = OrderedDict()
        self._budget = HandshakeBudget(HANDSHAKES_PER_S, BURST)

    def hello(self, address: Address) -> bytes | None:
        """Said to who is not known yet, and now and then only: as long as what it may be answered with."""
        now_s = self._loop.time()
        if now_s - self._greeted_s.get(address, -HELLO_S) < HELLO_S:
            return None
        _enter(self._greeted_s, address, now_s, MAX_ADDRESSES)
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
        elif frame.kind is LinkKind.REFUSAL:
            self._on_refusal(frame, address)
        else:
            self._on_finish(frame, address)

    def _begin(self, node: NodeId, address: Address, number: int) -> None:
        now_s = self._loop.time()
        if now_s - self._asked_s.get(address, -PATIENCE_S) < PATIENCE_S or not self._affords(address[0], now_s):
            return
        _enter(self._asked_s, address, now_s, MAX_HOSTS)
        state = handshake(self._membership, True, self._offer, self._me, node, number)
        body = self._offer.text() + self._membership.network + state.write(b"")
        _enter(self._begun, address, _Begun(node, number, state, now_s), MAX_HANDSHAKES)
        self._user.put(address, pack(LinkFrame(LinkKind.INITIATION, *self._me, number, body)))

    def _on_initiation(self, frame: LinkFrame, address: Address) -> None:
        if not self._is_mine(frame.sequence, address, frame.sender) or len(frame.body) < INITIATION_BYTES:
            self._user.dropped("link_unexpected_handshake")
            return
        if frame.body[OFFER_BYTES:INITIATION_BYTES] != self._membership.network:
            self.refuse_network(address)
            return
        offer = read_offer(frame.body)
        version = self._offer.common_version(offer)
        if version is None:
            body = self._offer.text().ljust(2 * COOKIE_BYTES, b"\0")
            self._user.put(address, pack(LinkFrame(LinkKind.REFUSAL, *self._me, frame.sequence, body)))
            self._refuse_version(offer, frame, address)
            return
        now_s = self._loop.time()
        begun = self._begun.get(address)
        if begun is not None and now_s - begun.since_s < PATIENCE_S and self._me.node < frame.sender:
            return  # Both have begun, and one is enough.
        earlier = self._answered.get(address)
        if earlier is not None and (earlier.asked, earlier.asker.node) == (frame.body, frame.sender):
            self._user.put(address, earlier.reply)
            return
        if self._affords(address[0], now_s):
            self._reply(frame, address, offer, version)

    def _reply(self, frame: LinkFrame, address: Address, offer: Offer, version: int) -> None:
        asker = End(frame.sender, frame.session)
        state = handshake(self._membership, False, offer, asker, self._me.node, frame.sequence)
        try:
            # What it says is not looked at: later versions may say something here.
            state.read(frame.body[INITIATION_BYTES:])
            message = state.write(introduce(self._membership, self._offer, self._me.session))
        except NoiseError:
            # Without the network's secret, or with a key that is none.
            self._refuse(Refusal.STRANGER, frame, address)
            return
        reply = pack(LinkFrame(LinkKind.REPLY, *self._me, frame.sequence, bytes([version]) + message))
        answered = _Answered(asker, frame.sequence, frame.body, reply, state, self._loop.time())
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
        found = introduced(self._membership, begun.state, frame.body[1:])
        if isinstance(found, Refusal) or found.member.node != frame.sender:
            self._refuse(found if isinstance(found, Refusal) else Refusal.STRANGER, frame, address)
            return
        version = self._offer.common_version(found.offer)
        if version is None or frame.body[0] != version or found.session != frame.session:
            # Within the seal it says another version than outside: somebody has changed one of them.
            self._user.dropped("link_downgraded")
            return
        del self._begun[address]
        finish = found.state.write(introduce(self._membership, self._offer, self._me.session))
        self._user.put(address, pack(LinkFrame(LinkKind.FINISH, *self._me, frame.sequence, finish)))
        self._establish(found, True, address)

    def _on_finish(self, frame: LinkFrame, address: Address) -> None:
        answered = self._answered.get(address)
        if answered is None or (answered.number, answered.asker.node) != (frame.sequence, frame.sender):
            self._user.dropped("link_unexpected_handshake")
            return
        if not self._affords(address[0], self._loop.time()):
            return
        found = introduced(self._membership, answered.state, frame.body)
        if isinstance(found, Refusal) or found.member.node != frame.sender:
            self._refuse(found if isinstance(found, Refusal) else Refusal.STRANGER, frame, address)
            return
        if found.session != answered.asker.session:
            self._user.dropped("link_downgraded")
            return
        del self._answered[address]
        self._establish(found, False, address)

    def _establish(self, found: Introduced, began: bool, address: Address) -> None:
        keys = link_keys(found.state)
        forth, back = keys[:2], keys[2:]
        sending, receiving = (forth, back) if began else (back, forth)
        made = Session(found.member, found.session, sending, receiving, began, self._loop.time())
        made.version = self._offer.common_version(found.offer) or 0
        made.features = self._offer.features & found.offer.features
        self._user.established(made, address)

    def _on_refusal(self, frame: LinkFrame, address: Address) -> None:
        """Anybody on the way may have said so: it ends nothing, and is only told."""
        begun = self._begun.get(address)
        if begun is None or (begun.number, begun.node) != (frame.sequence, frame.sender):
            self._user.dropped("link_unexpected_handshake")
        else:
            self._refuse_version(read_offer(frame.body), frame, address)

    def _refuse_version(self, offer: Offer, frame: LinkFrame, address: Address) -> None:
        self._user.dropped("link_no_common_version")
        spoken = f"{offer.least} to {offer.most}, and this one {self._offer.least} to {self._offer.most}"
        self._notices.tell(address, f"node {frame.sender} there speaks versions {spoken}, of links with keys: update")

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
