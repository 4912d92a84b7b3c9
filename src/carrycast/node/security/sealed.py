"""The frame channel of nodes with keys: datagrams of the link layer are encrypted for their receivers, and accepted
only from members of the network. The replay window of a session rejects replayed datagrams.

The link layer above is the same as without keys. Each of its datagrams is the plaintext of a sealed datagram:

| kind | sequence number | body |
|---|---|---|
| hello | 0 | network (8 bytes), 8 bytes of 0 |
| challenge, response | cookie for the unknown node | 8 bytes of 0; cookie for the node that sent the challenge |
| initiation, reply, finish, refusal | the cookie of the responder | see `handshake.py` |
| sealed | nonce | encrypted: a datagram, `G` and a datagram to the group, or a message of `session_control.py` |
| sealed to group | nonce | key epoch (1), number of slots (1), slots (4 of id, 8 of MAC), encrypted datagram |

The header is authenticated as associated data, except for the waiting time, which queues change. An attacker could also
increase the waiting time by delaying the datagram. The time that it waited before its encryption is in the plaintext.
"""

import asyncio
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable

from carrycast.core.model import NodeId
from carrycast.node.link import (
    LINK_HEADER_BYTES,
    MAGIC,
    FrameChannel,
    LinkAdapter,
    LinkAddress,
    LinkFlaw,
    LinkFrame,
    LinkKind,
    LogLimiter,
    ReceiveFrame,
    ReplayCheck,
    ReportDrop,
    pack,
    read_associated_data,
    unpack,
)
from carrycast.node.security.handshake import OURS, LinkEnd
from carrycast.node.security.handshake_manager import HandshakeManager, HandshakeUser
from carrycast.node.security.membership import Membership, Rejection
from carrycast.node.security.primitives import TAG_BYTES
from carrycast.node.security.session import (
    MAX_SLOTS,
    OVERLAP_S,
    GroupBody,
    OwnGroupKey,
    Session,
    compute_group_digest,
    find_macs,
    split_group,
)
from carrycast.node.security.session_control import SILENT_S, SessionControl, SessionControlUser

SESSIONS_PER_NODE = 4
"""The most interfaces of one neighbor that may have a session with one interface of this node."""
ADDRESSES_PER_SESSION = 4
"""The most addresses of an interface of a neighbor; it has more than one only while it moves."""
REKEY_S = 3600.0
"""The time between two handshakes of a session, so that a key that is stolen decrypts little (forward secrecy)."""
REKEY_RETRY_S = 10.0
"""The time until a failed handshake is tried again. A session without a new handshake ends after 2 REKEY_S."""
RESPONDER_DELAY_S = 60.0
"""How much later than the initiator the responder of a session starts the new handshake."""
UNADDRESSED_S = 3.0
"""A neighbor that sends to the group without a MAC for this node, and was not heard otherwise for this long, has lost
the session."""
REVIEW_S = 5.0
"""The longest time between two checks of keys, sessions and certificates."""
COPY = b"G"
"""The first byte of a group datagram that is encrypted for one neighbor; other datagrams begin with MAGIC."""


class SealedChannel(FrameChannel, HandshakeUser, SessionControlUser):
    """The frame channel of one interface, with its sessions."""

    def __init__(self, adapter: LinkAdapter, node: NodeId, membership: Membership, neighbors: int) -> None:
        self.adapter = adapter
        self.mtu_bytes = adapter.mtu_bytes - LINK_HEADER_BYTES - len(COPY) - TAG_BYTES
        self.offer = OURS
        self._node = node
        self._membership = membership
        self._max_sessions = neighbors
        self._me = LinkEnd(node, secrets.randbits(32))
        self._log_limiter = LogLimiter()
        self._sessions: OrderedDict[tuple[NodeId, int], Session] = OrderedDict()
        """By node and session of the neighbor; the most recently heard one is the last."""
        self._by_address: dict[LinkAddress, Session] = {}
        self._until_s = math.inf
        """When the first certificate of a node with a session expires."""
        self._receive: ReceiveFrame | None = None
        self._report_drop: ReportDrop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def sessions(self) -> Iterable[Session]:
        return self._sessions.values()

    def open(self, receive: ReceiveFrame, report_drop: ReportDrop) -> None:
        self._receive = receive
        self._report_drop = report_drop
        self._loop = asyncio.get_running_loop()
        self._handshakes = HandshakeManager(self._me, self._membership, self.adapter, self, self.offer)
        self.group_key = OwnGroupKey(self._loop.time())
        self._control = SessionControl(self._membership, self.group_key, self)
        self.adapter.open(self._on_datagram, report_drop)
        self._membership.changed.append(self._on_revoked)
        self._membership.renewed.append(self._on_renewed)
        self.wake(self._loop.time() + REVIEW_S)

    def close(self) -> None:
        if self._timer is not None:  # The channel was opened.
            self._membership.changed.remove(self._on_revoked)
            self._membership.renewed.remove(self._on_renewed)
            self._timer.cancel()
            self._timer = None
        self._receive = None
        self.adapter.close()

    # Sending.

    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        self._review()
        if address == self.adapter.broadcast_address:
            return self._send_to_group(datagram, address)
        session = self._by_address.get(address)
        if session is None:
            return self._send_hello(address)
        return self._send_sealed(session, datagram, address)

    def transmit(self, datagram: bytes, address: LinkAddress) -> None:
        if not self.adapter.send(datagram, address):
            self.on_drop("queue_full")

    def send_control(self, session: Session, plaintext: bytes) -> None:
        if session.address is not None and not self._send_sealed(session, plaintext, session.address):
            self.on_drop("queue_full")

    def _send_sealed(self, session: Session, plaintext: bytes, address: LinkAddress) -> bool:
        nonce = session.next_nonce()
        header = pack(LinkFrame(LinkKind.SEALED, *self._me, nonce, b""))
        return self._send_if_short(header + session.encrypt(nonce, plaintext, read_associated_data(header)), address)

    def _send_to_group(self, datagram: bytes, address: LinkAddress) -> bool:
        now_s, key = self._loop.time(), self.group_key
        heard = [session for session in self._sessions.values() if session.heard_s >= now_s - SILENT_S]
        receivers = [session for session in heard if key.is_usable_by(session, now_s)]
        for session in heard if len(receivers) < len(heard) else ():
            if not key.is_usable_by(session, now_s):
                self.send_control(session, COPY + datagram)
        if not receivers:  # Known neighbors have got copies. Without any, unknown nodes may be in range.
            return bool(heard) or self._send_hello(address)
        nonce = key.next_nonce()
        header = pack(LinkFrame(LinkKind.SEALED_TO_GROUP, *self._me, nonce, b""))
        authenticated = read_associated_data(header)
        ciphertext = key.encrypt(nonce, datagram, authenticated)
        group_digest = compute_group_digest(ciphertext, authenticated)
        for at in range(0, len(receivers), MAX_SLOTS):
            slots = b"".join(session.make_slot(group_digest) for session in receivers[at : at + MAX_SLOTS])
            if not self._send_if_short(header + GroupBody(key.epoch, slots, ciphertext).encode(), address):
                return False
        return True

    def _send_if_short(self, datagram: bytes, address: LinkAddress) -> bool:
        if len(datagram) > self.adapter.mtu_bytes:
            self.on_drop("message_too_long")
            return True
        return self.adapter.send(datagram, address)

    def _send_hello(self, address: LinkAddress) -> bool:
        """Send a hello instead of a datagram that the receiver could not decrypt yet."""
        self._handshakes.expect(address)
        hello = self._handshakes.make_hello(address)
        return hello is None or self.adapter.send(hello, address)

    # Receiving.

    def _on_datagram(self, datagram: bytes, address: LinkAddress, to_group: bool, waited_ms: int) -> None:
        frame = unpack(datagram, keyed=True, waited_ms=waited_ms)
        if isinstance(frame, LinkFlaw):
            self.on_drop(str(frame))
        elif frame.sender == self._node:
            self.on_drop("link_own")
        elif frame.kind <= LinkKind.COALESCED:
            self.on_drop("link_open")
            self.warn(address, "the node there has no keys, and this one has: they cannot communicate")
        elif frame.kind is LinkKind.HELLO:
            if frame.body[: len(self._membership.network)] != self._membership.network:
                self._handshakes.reject_network(address)
            else:
                self._handshakes.on_unknown(frame, address)
        elif frame.kind in (LinkKind.SEALED, LinkKind.SEALED_TO_GROUP):
            self._on_sealed(frame, read_associated_data(datagram), address, to_group)
        else:
            self._handshakes.on_frame(frame, address)

    def _on_sealed(self, frame: LinkFrame, authenticated: bytes, address: LinkAddress, to_group: bool) -> None:
        self._review()
        key = (frame.sender, frame.session)
        session = self._sessions.get(key)
        group = None if session is None or frame.kind is LinkKind.SEALED else split_group(frame.body)
        text = None if session is None else self._decrypt(session, frame, group, authenticated)
        if text is None and session is not None and session.previous is not None:
            text = self._decrypt(session.previous, frame, group, authenticated)
        if session is None or text is None:
            if session is not None and group is not None and self._is_for_others(session, group):
                self.on_drop("link_unmarked")
                return
            self.on_drop("link_stranger" if session is None else "link_unsealed")
            self._handshakes.on_unknown(frame, address)
        elif isinstance(text, ReplayCheck):
            # A replayed datagram, or one that is older than the replay window.
            self.on_drop("link_repeated" if text is ReplayCheck.DUPLICATE else "link_too_old")
        else:
            before_s, session.heard_s = session.heard_s, self._loop.time()
            if session.heard_s - before_s > SILENT_S:  # A silent neighbor was not sent new keys and lists.
                self._control.begin(session, session.heard_s)
            self._sessions.move_to_end(key)
            holder = self._by_address.get(address)
            # A source address can be forged: to take over an address of another node, a handshake has to be completed
            # there.
            if holder is not session and (holder is None or holder.member.node == frame.sender):
                self._set_address(address, session)
            if text[:1] in (COPY, bytes([MAGIC])):
                self._on_decrypted(text.removeprefix(COPY), frame, address, to_group or text[:1] == COPY)
            else:
                self._control.on_message(session, text, session.heard_s)

    def _decrypt(
        self, session: Session, frame: LinkFrame, group: GroupBody | None, authenticated: bytes
    ) -> bytes | ReplayCheck | None:
        if frame.kind is LinkKind.SEALED:
            return session.decrypt(frame.sequence, frame.body, authenticated)
        if group is None:
            return None
        return session.decrypt_group(self._node, frame.sequence, group, authenticated, self._loop.time())

    def _is_for_others(self, session: Session, group: GroupBody) -> bool:
        """Whether a group datagram is for other neighbors, while a copy for this node comes in the session."""
        without_mac = group.slots != b"" and not find_macs(self._node, group.slots)
        return without_mac and self._loop.time() - session.heard_s < UNADDRESSED_S

    def _on_decrypted(self, datagram: bytes, outer: LinkFrame, address: LinkAddress, to_group: bool) -> None:
        inner = unpack(datagram, waited_ms=outer.waited_ms)
        if isinstance(inner, LinkFlaw):
            self.on_drop(str(inner))
        elif inner.sender != outer.sender:
            self.on_drop("link_sender")
        elif self._receive is not None:
            self._receive(inner, address, to_group)

    # Sessions.

    def on_established(self, session: Session, address: LinkAddress) -> None:
        key = (session.member.node, session.session)
        session.previous = previous = self._sessions.pop(key, None)
        if previous is not None:
            self._control.forget(previous)
            previous.previous = None
            session.list_number, session.list_attempts = previous.list_number, previous.list_attempts
            for one in [one for one in previous.addresses if self._by_address.get(one) is previous]:
                self._set_address(one, session)
        theirs = [other for other in self._sessions if other[0] == session.member.node]
        for other in theirs[: max(0, 1 + len(theirs) - SESSIONS_PER_NODE)]:
            self._end_session(other)
        if len(self._sessions) >= self._max_sessions:
            self._end_session(next(iter(self._sessions)))
            self.on_drop("link_neighbors_full")
        self._sessions[key] = session
        self._until_s = min(self._until_s, session.member.until_s)
        self._set_address(address, session)
        self._control.begin(session, self._loop.time())

    def _set_address(self, address: LinkAddress, session: Session) -> None:
        self._by_address[address] = session
        self._handshakes.expect(address)
        session.addresses.pop(address, None)
        session.addresses[address] = None
        if len(session.addresses) > ADDRESSES_PER_SESSION:
            self._remove_address(next(iter(session.addresses)), session)

    def _remove_address(self, address: LinkAddress, session: Session) -> None:
        del session.addresses[address]
        if self._by_address.get(address) is session:
            del self._by_address[address]

    def _end_session(self, key: tuple[NodeId, int]) -> None:
        session = self._sessions.pop(key)
        self._control.forget(session)
        for address in list(session.addresses):
            self._remove_address(address, session)

    def _on_revoked(self) -> None:
        self._end_invalid_sessions()
        self._control.announce_list()

    def _on_renewed(self) -> None:
        """This node has a new certificate: neighbors need it before the old one expires."""
        for session in self._sessions.values():
            session.made_s = min(session.made_s, self._loop.time() - RESPONDER_DELAY_S - REKEY_S)
            self._rekey(session)

    def _end_invalid_sessions(self) -> None:
        """End the sessions of nodes that are no longer members. They know the group key, so it is renewed."""
        for key, session in list(self._sessions.items()):
            if isinstance(self._membership.verify_card(session.member.credential), Rejection):
                self._end_session(key)
        self._until_s = min((session.member.until_s for session in self._sessions.values()), default=math.inf)
        self._renew_group_key()

    def _renew_group_key(self) -> None:
        self.group_key.renew(self._loop.time())
        self._control.begin_all(self._loop.time())

    def wake(self, at_s: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        self.wake(now_s + REVIEW_S)
        self._review()
        for key, session in list(self._sessions.items()):
            age_s = now_s - session.made_s
            if session.previous is not None and age_s > OVERLAP_S:
                session.previous = None
            if age_s > 2 * REKEY_S:
                self._end_session(key)
            elif age_s > REKEY_S + RESPONDER_DELAY_S * (not session.initiated) and now_s >= session.rekey_s:
                self._rekey(session)
        self._control.retry(now_s)

    def _review(self) -> None:
        """Renew the group key if it is too old, and end the sessions of nodes that are no longer members."""
        if time.time() >= self._until_s:
            self._end_invalid_sessions()
        if self.group_key.is_old(self._loop.time()):
            self._renew_group_key()

    def _rekey(self, session: Session) -> None:
        now_s = self._loop.time()
        session.rekey_s = now_s + REKEY_RETRY_S
        if session.address is not None and now_s - session.heard_s < SILENT_S:
            self._handshakes.on_unknown(LinkFrame(LinkKind.HELLO, session.member.node, 0, 0, b""), session.address)

    def on_drop(self, reason: str) -> None:
        if self._report_drop is not None:
            self._report_drop(reason, 1)

    def warn(self, address: LinkAddress, text: str) -> None:
        self._log_limiter.warn(self.adapter.scope_of(address).host, self.adapter.format_address(address), text)
