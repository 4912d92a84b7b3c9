"""An attacker that sends single handshake messages, with any keys, on the medium of `air.py`."""

from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.node.link.adapter import LinkAddress
from carrycast.node.link.frame import LinkFlaw, LinkFrame, LinkKind, pack, unpack
from carrycast.node.security.handshake import (
    OURS,
    LinkEnd,
    VersionOffer,
    derive_link_keys,
    make_introduction,
    start_handshake,
)
from carrycast.node.security.membership import Membership
from carrycast.node.security.noise import HandshakeState, NoiseError
from carrycast.node.security.session import GroupBody, Session, split_group
from tests.live.air import Air, Ear, Speaker


class Reply(NamedTuple):
    """The second message, as far as the attacker can read it."""

    frame: LinkFrame
    payload: bytes
    state: HandshakeState


class Attacker:
    """Records all frames, answers none by itself, and sends what a test chooses."""

    def __init__(self, air: Air, membership: Membership, node: NodeId = 66, port: int = 66) -> None:
        """The keys of the membership may be forged, of another network, revoked or stolen."""
        self.air = air
        self.me = LinkEnd(node, 1)
        self.membership = membership
        self.ear = Ear(air, port)
        self.frames: list[tuple[LinkFrame, bytes, LinkAddress]] = []
        """The frames to the attacker or to the group, with their datagrams."""
        self.ear.open(self._hear, lambda reason, times: None)

    def _hear(self, datagram: bytes, address: LinkAddress, to_group: bool, waited_ms: int) -> None:
        frame = unpack(datagram, keyed=True)
        assert not isinstance(frame, LinkFlaw)
        self.frames.append((frame, datagram, address))

    def of(self, kind: LinkKind) -> list[LinkFrame]:
        """Return the received frames of a kind."""
        return [frame for frame, _, _ in self.frames if frame.kind is kind]

    def say(self, to: Speaker, kind: LinkKind, number: int, body: bytes) -> None:
        self.ear.send(pack(LinkFrame(kind, *self.me, number, body)), to.ear.address)
        self.air.carry()

    def cookie(self, of: Speaker) -> int:
        """Get a cookie; the attacker does have the address that it claims."""
        self.say(of, LinkKind.KEYED_CHALLENGE, 5, bytes(8))
        return int.from_bytes(self.of(LinkKind.KEYED_RESPONSE)[-1].body, "big")

    def initiate(self, target: Speaker, offer: VersionOffer = OURS, sent: VersionOffer | None = None) -> Reply | None:
        """Start a handshake and read the reply; `sent` is the offer as changed by an attacker on the path."""
        cookie = self.cookie(target)
        state = start_handshake(self.membership, True, offer, self.me, target.node, cookie)
        body = (sent or offer).encode() + self.membership.network + state.write_message(b"")
        self.frames.clear()
        self.say(target, LinkKind.INITIATION, cookie, body)
        replies = self.of(LinkKind.REPLY)
        if not replies:
            return None
        try:
            return Reply(replies[-1], state.read_message(replies[-1].body[1:]), state)
        except NoiseError:
            return Reply(replies[-1], b"", state)

    def finish(self, target: Speaker, reply: Reply, offer: VersionOffer = OURS) -> Session:
        """Send the third message, and derive the keys as if it had been accepted."""
        message = reply.state.write_message(make_introduction(self.membership, offer, self.me.session))
        self.say(target, LinkKind.FINISH, reply.frame.sequence, message)
        keys = derive_link_keys(reply.state)
        return Session(target.membership.mine, reply.frame.session, keys[:2], keys[2:], True, 0.0)

    def decrypt_all(self, session: Session) -> list[bytes]:
        """Return the plaintexts of all received datagrams that the keys of a session decrypt."""
        found: list[bytes] = []
        for frame, datagram, _ in self.frames:
            if frame.kind is LinkKind.SEALED:
                text = session.decrypt(frame.sequence, frame.body, datagram[:23])
                found += [text] if isinstance(text, bytes) else []
        return found


def group_bodies(air: Air, node: NodeId) -> list[tuple[LinkFrame, bytes, GroupBody]]:
    """Return the group datagrams of a node."""
    found = []
    for _, _, datagram in air.said:
        frame = unpack(datagram, keyed=True)
        if isinstance(frame, LinkFrame) and frame.kind is LinkKind.SEALED_TO_GROUP and frame.sender == node:
            body = split_group(frame.body)
            assert body is not None
            found.append((frame, datagram[:23], body))
    return found
