"""The handshakes of one interface: starts them, limits their rate and number, and establishes sessions.

When an unknown node is heard, it is sent a cookie, a keyed hash of its address; nothing is stored for it. If the node
returns the cookie, together with a cookie of its own, it really has this address, and the handshake starts. The
responder recognizes its own cookie in the initiation, and replies. Nothing is retransmitted: after a loss, the next
datagram of either node starts again.
"""

import asyncio
import hashlib
import secrets
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from carrycast.core.model import NodeId
from carrycast.node.link import COOKIE_BYTES, HandshakeLimiter, LinkAdapter, LinkAddress, LinkFrame, LinkKind, pack
from carrycast.node.security.handshake import (
    INITIATION_BYTES,
    OFFER_BYTES,
    OURS,
    AuthenticatedPeer,
    LinkEnd,
    VersionOffer,
    derive_link_keys,
    make_introduction,
    read_introduction,
    read_offer,
    start_handshake,
)
from carrycast.node.security.membership import Membership, Rejection
from carrycast.node.security.noise import HandshakeState, NoiseError
from carrycast.node.security.session import Session

COOKIE_S = 10.0
"""The least time for which a cookie is valid; the longest time is twice that."""
REPLY_TIMEOUT_S = 1.0
"""How long a node waits for a reply, and the least time between two handshakes with the same address."""
MAX_HANDSHAKES = 256
"""The most handshakes in progress, initiated by this node or by others; the oldest is evicted."""
HANDSHAKES_PER_S = 50.0
"""The rate limit of the host of a member, or of a prefix of unknown hosts (`link/rate_limit.py`). A handshake takes a
third of a millisecond, so each of them can take 2 % of a core, and all unknown hosts together four times that."""
STEP = 0.5
"""The tokens for one step of a handshake. Each side computes in two steps, and a peer may stop after the first."""
BURST = 100.0
"""The size of the token bucket, in handshakes."""
MAX_HOSTS = 1024
"""The most addresses whose last handshake is remembered."""
HELLO_S = 0.04
"""The least time between two hellos to one address."""
MAX_ADDRESSES = 8192
"""The most addresses whose last hello is remembered."""


K = TypeVar("K")
V = TypeVar("V")


class HandshakeUser(ABC):
    """The channel, which sends datagrams and has the sessions."""

    @abstractmethod
    def transmit(self, datagram: bytes, address: LinkAddress) -> None:
        """Send a datagram without encrypting it."""

    @abstractmethod
    def on_established(self, session: Session, address: LinkAddress) -> None:
        """A handshake is complete: the link has keys, and the peer is authenticated."""

    @abstractmethod
    def on_drop(self, reason: str) -> None:
        """A datagram was rejected."""

    @abstractmethod
    def warn(self, address: LinkAddress, text: str) -> None:
        """Log a warning about the node at an address."""


@dataclass(slots=True)
class _Initiated:
    """A handshake that this node initiated."""

    node: NodeId
    number: int
    state: HandshakeState
    since_s: float


@dataclass(slots=True)
class _Responded:
    """A handshake that another node initiated, and to which this node has replied."""

    initiator: LinkEnd
    number: int
    initiation: bytes
    reply: bytes
    state: HandshakeState
    since_s: float


class HandshakeManager:
    """The handshakes of one interface."""

    def __init__(
        self, me: LinkEnd, membership: Membership, adapter: LinkAdapter, user: HandshakeUser, offer: VersionOffer = OURS
    ) -> None:
        self._me = me
        self._offer = offer
        self._membership = membership
        self._adapter = adapter
        self._user = user
        self._loop = asyncio.get_running_loop()
        self._cookie_key = secrets.token_bytes(32)
        self._initiated: OrderedDict[LinkAddress, _Initiated] = OrderedDict()
        self._responded: OrderedDict[LinkAddress, _Responded] = OrderedDict()
        self._initiated_s: OrderedDict[LinkAddress, float] = OrderedDict()
        self._hello_s: OrderedDict[LinkAddress, float] = OrderedDict()
        self._limiter = HandshakeLimiter(HANDSHAKES_PER_S, BURST)

    def make_hello(self, address: LinkAddress) -> bytes | None:
        """Make a hello for an unknown node; None if the last one was sent just now. A hello is as long as the
        challenge that answers it."""
        now_s = self._loop.time()
        if now_s - self._hello_s.get(address, -HELLO_S) < HELLO_S:
            return None
        _put_newest(self._hello_s, address, now_s, MAX_ADDRESSES)
        body = self._membership.network + bytes(COOKIE_BYTES)
        return pack(LinkFrame(LinkKind.HELLO, *self._me, 0, body))

    def expect(self, address: LinkAddress) -> None:
        """Count the host of an address as a member's: this node wants to reach it, or has a session with it. A flood of
        unknown hosts does not affect its rate limit."""
        self._limiter.add_member(self._adapter.scope_of(address))

    def on_unknown(self, frame: LinkFrame, address: LinkAddress) -> None:
        """A datagram cannot be decrypted: it is from an unknown node, or from a neighbor whose session is lost."""
        now_s = self._loop.time()
        responded = self._responded.get(address)
        if responded is not None and now_s - responded.since_s < REPLY_TIMEOUT_S:
            return  # The datagram has arrived before the message that finishes the handshake.
        if now_s - self._initiated_s.get(address, -REPLY_TIMEOUT_S) < REPLY_TIMEOUT_S:
            return
        cookie = self._make_cookie(address, frame.sender, now_s)
        challenge = LinkFrame(LinkKind.KEYED_CHALLENGE, *self._me, cookie, bytes(COOKIE_BYTES))
        self._user.transmit(pack(challenge), address)

    def on_frame(self, frame: LinkFrame, address: LinkAddress) -> None:
        """A datagram of a handshake has arrived."""
        if frame.kind is LinkKind.KEYED_CHALLENGE:
            cookie = self._make_cookie(address, frame.sender, self._loop.time()).to_bytes(COOKIE_BYTES, "big")
            response = LinkFrame(LinkKind.KEYED_RESPONSE, *self._me, frame.sequence, cookie)
            self._user.transmit(pack(response), address)
        elif frame.kind is LinkKind.KEYED_RESPONSE:
            if self._is_own_cookie(frame.sequence, address, frame.sender):
                self._begin(frame.sender, address, int.from_bytes(frame.body, "big"))
            else:
                self._user.on_drop("link_unexpected_response")
        elif frame.kind is LinkKind.INITIATION:
            self._on_initiation(frame, address)
        elif frame.kind is LinkKind.REPLY:
            self._on_reply(frame, address)
        elif frame.kind is LinkKind.REFUSAL:
            self._on_refusal(frame, address)
        else:
            self._on_finish(frame, address)

    def _begin(self, node: NodeId, address: LinkAddress, number: int) -> None:
        now_s = self._loop.time()
        recent = now_s - self._initiated_s.get(address, -REPLY_TIMEOUT_S) < REPLY_TIMEOUT_S
        if recent or not self._take_step(address, now_s):
            return
        _put_newest(self._initiated_s, address, now_s, MAX_HOSTS)
        state = start_handshake(self._membership, True, self._offer, self._me, node, number)
        body = self._offer.encode() + self._membership.network + state.write_message(b"")
        _put_newest(self._initiated, address, _Initiated(node, number, state, now_s), MAX_HANDSHAKES)
        self._user.transmit(pack(LinkFrame(LinkKind.INITIATION, *self._me, number, body)), address)

    def _on_initiation(self, frame: LinkFrame, address: LinkAddress) -> None:
        if not self._is_own_cookie(frame.sequence, address, frame.sender) or len(frame.body) < INITIATION_BYTES:
            self._user.on_drop("link_unexpected_handshake")
            return
        if frame.body[OFFER_BYTES:INITIATION_BYTES] != self._membership.network:
            self.reject_network(address)
            return
        offer = read_offer(frame.body)
        version = self._offer.choose_version(offer)
        if version is None:
            body = self._offer.encode().ljust(2 * COOKIE_BYTES, b"\0")
            self._user.transmit(pack(LinkFrame(LinkKind.REFUSAL, *self._me, frame.sequence, body)), address)
            self._reject_version(offer, frame, address)
            return
        now_s = self._loop.time()
        initiated = self._initiated.get(address)
        if initiated is not None and now_s - initiated.since_s < REPLY_TIMEOUT_S and self._me.node < frame.sender:
            return  # Both nodes have initiated a handshake; the one with the lower id ignores the other's.
        earlier = self._responded.get(address)
        if earlier is not None and (earlier.initiation, earlier.initiator.node) == (frame.body, frame.sender):
            self._user.transmit(earlier.reply, address)
            return
        if self._take_step(address, now_s):
            self._reply(frame, address, offer, version)

    def _reply(self, frame: LinkFrame, address: LinkAddress, offer: VersionOffer, version: int) -> None:
        initiator = LinkEnd(frame.sender, frame.session)
        state = start_handshake(self._membership, False, offer, initiator, self._me.node, frame.sequence)
        try:
            # The payload is ignored, because later versions may use it.
            state.read_message(frame.body[INITIATION_BYTES:])
            message = state.write_message(make_introduction(self._membership, self._offer, self._me.session))
        except NoiseError:
            # The initiator does not know the secret of the network, or has sent an invalid key.
            self._reject(Rejection.STRANGER, frame, address)
            return
        reply = pack(LinkFrame(LinkKind.REPLY, *self._me, frame.sequence, bytes([version]) + message))
        responded = _Responded(initiator, frame.sequence, frame.body, reply, state, self._loop.time())
        _put_newest(self._responded, address, responded, MAX_HANDSHAKES)
        self._initiated.pop(address, None)
        self._user.transmit(reply, address)

    def _on_reply(self, frame: LinkFrame, address: LinkAddress) -> None:
        initiated = self._initiated.get(address)
        if initiated is None or (initiated.number, initiated.node) != (frame.sequence, frame.sender):
            self._user.on_drop("link_unexpected_handshake")
            return
        if not self._take_step(address, self._loop.time()):
            return
        found = read_introduction(self._membership, initiated.state, frame.body[1:])
        if isinstance(found, Rejection) or found.member.node != frame.sender:
            self._reject(found if isinstance(found, Rejection) else Rejection.STRANGER, frame, address)
            return
        version = self._offer.choose_version(found.offer)
        if version is None or frame.body[0] != version or found.session != frame.session:
            # The encrypted version differs from the one in plaintext: a downgrade attack.
            self._user.on_drop("link_downgraded")
            return
        del self._initiated[address]
        finish = found.state.write_message(make_introduction(self._membership, self._offer, self._me.session))
        self._user.transmit(pack(LinkFrame(LinkKind.FINISH, *self._me, frame.sequence, finish)), address)
        self._establish(found, True, address)

    def _on_finish(self, frame: LinkFrame, address: LinkAddress) -> None:
        responded = self._responded.get(address)
        if responded is None or (responded.number, responded.initiator.node) != (frame.sequence, frame.sender):
            self._user.on_drop("link_unexpected_handshake")
            return
        if not self._take_step(address, self._loop.time()):
            return
        found = read_introduction(self._membership, responded.state, frame.body)
        if isinstance(found, Rejection) or found.member.node != frame.sender:
            self._reject(found if isinstance(found, Rejection) else Rejection.STRANGER, frame, address)
            return
        if found.session != responded.initiator.session:
            self._user.on_drop("link_downgraded")
            return
        del self._responded[address]
        self._establish(found, False, address)

    def _establish(self, found: AuthenticatedPeer, initiated: bool, address: LinkAddress) -> None:
        keys = derive_link_keys(found.state)
        forth, back = keys[:2], keys[2:]
        sending, receiving = (forth, back) if initiated else (back, forth)
        session = Session(found.member, found.session, sending, receiving, initiated, self._loop.time())
        session.version = self._offer.choose_version(found.offer) or 0
        session.features = self._offer.features & found.offer.features
        self._user.on_established(session, address)

    def _on_refusal(self, frame: LinkFrame, address: LinkAddress) -> None:
        """Log a refusal. Any node on the path may have sent it, so it does not end the handshake."""
        initiated = self._initiated.get(address)
        if initiated is None or (initiated.number, initiated.node) != (frame.sequence, frame.sender):
            self._user.on_drop("link_unexpected_handshake")
        else:
            self._reject_version(read_offer(frame.body), frame, address)

    def _reject_version(self, offer: VersionOffer, frame: LinkFrame, address: LinkAddress) -> None:
        self._user.on_drop("link_no_common_version")
        spoken = f"{offer.least} to {offer.most}, and this one {self._offer.least} to {self._offer.most}"
        self._user.warn(address, f"node {frame.sender} there speaks versions {spoken}, of links with keys: update")

    def reject_network(self, address: LinkAddress) -> None:
        """Reject a node that belongs to another network."""
        self._user.on_drop("link_other_network")
        self._user.warn(address, "the node there belongs to another network: it is ignored")

    def _reject(self, rejection: Rejection, frame: LinkFrame, address: LinkAddress) -> None:
        self._user.on_drop(f"link_{rejection}")
        self._user.warn(address, f"node {frame.sender} there is rejected: {rejection.replace('_', ' ')}")

    def _take_step(self, address: LinkAddress, now_s: float) -> bool:
        """Take the tokens for one step of a handshake; False if the rate limit of the address is exceeded."""
        allowed = self._limiter.take(self._adapter.scope_of(address), now_s, STEP)
        if not allowed:
            self._user.on_drop("link_handshakes_full")
        return allowed

    def _make_cookie(self, address: LinkAddress, node: NodeId, now_s: float) -> int:
        text = f"{int(now_s / COOKIE_S)} {node} {self._adapter.format_address(address)}".encode()
        return int.from_bytes(hashlib.blake2b(text, key=self._cookie_key, digest_size=COOKIE_BYTES).digest(), "big")

    def _is_own_cookie(self, cookie: int, address: LinkAddress, node: NodeId) -> bool:
        now_s = self._loop.time()
        return cookie in (self._make_cookie(address, node, now_s), self._make_cookie(address, node, now_s - COOKIE_S))


def _put_newest(kept: "OrderedDict[K, V]", key: K, value: V, most: int) -> None:
    """Add an entry as the newest; the oldest is evicted if there are too many."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
