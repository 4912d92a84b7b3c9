"""The session of two nodes that have completed a handshake: keys, nonces and replay windows.

Each datagram has a nonce of its own, also one that is sent again, and a receiver accepts each nonce once
(`ReplayWindow`, one for each key). A datagram to the group is encrypted once, under a group key that its sender has
given to each neighbor, and has a MAC for each of them under a key that only the two know: so a neighbor can decrypt it,
and cannot forge others in the sender's name.

A neighbor gets the group key within its session only; it is sent again until the neighbor acknowledges it
(`session_control.py`). The group key is renewed every hour, and at once when a node that has it is no longer a member.
From then on nothing is encrypted under the key before. While a neighbor has not acknowledged the key, group datagrams
have no MAC for it, and it gets a copy of its own, encrypted in the session: so a renewal costs no frame. That ends
after a while, for a neighbor that never acknowledges would cost a datagram for each.
"""

import hmac
import math
import secrets
import time
from collections import OrderedDict
from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.node.link import LinkAddress, ReplayCheck, ReplayWindow
from carrycast.node.security.membership import Member
from carrycast.node.security.primitives import MAC_BYTES, SECRET_BYTES, Cipher, digest, mac

SLOT_BYTES = 4 + MAC_BYTES
MAX_SLOTS = 200
"""Neighbors with a MAC in one datagram; more take another one."""
OVERLAP_S = 10.0
"""How long datagrams under the previous key are accepted: those on their way arrive within seconds."""


class ReceivingKey:
    """A key under which the other node encrypts, for this node or for its group. Each nonce is accepted once."""

    __slots__ = ("_cipher", "_received", "until_s")

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(key)
        self._received = ReplayWindow()
        self.until_s = math.inf

    def decrypt(self, nonce: int, ciphertext: bytes, associated_data: bytes) -> bytes | ReplayCheck | None:
        """The plaintext; or that the nonce was received before; None if it was not encrypted under this key."""
        found = self._received.check(nonce)
        if found is not ReplayCheck.NEW:
            return found
        plaintext = self._cipher.decrypt(nonce, ciphertext, associated_data)
        if plaintext is not None:
            self._received.add(nonce)
        return plaintext


class Session:
    """The keys of both directions between two nodes, and the group keys of the other."""

    def __init__(
        self,
        member: Member,
        session: int,
        sending: tuple[bytes, bytes],
        receiving: tuple[bytes, bytes],
        initiated: bool,
        now_s: float,
    ) -> None:
        """Encryption key and MAC key, for what is sent and for what is received."""
        self.member = member
        self.session = session
        self.initiated = initiated
        """Whether this node began the handshake."""
        self.made_s = now_s
        self.heard_s = now_s
        self.version, self.features = 0, 0
        """Of the link, that both nodes support."""
        self.rekey_s = 0.0
        """When the next handshake may be tried."""
        self.previous: Session | None = None
        """The one before, of the same two starts: datagrams encrypted for it may still be on their way."""
        self.addresses: dict[LinkAddress, None] = {}
        """Where the other was heard, the last address at the end."""
        self.acknowledged_epoch: int | None = None
        """The epoch of this node's group key that the other has acknowledged."""
        self.key_sent_s = now_s
        """When it was first sent the group key that it has not acknowledged yet."""
        self.list_number = 0
        """The number of the other's revocation list, as announced."""
        self.list_attempts = 0
        """How often it was tried to fetch it."""
        self.list_forged = False
        """Whether it has sent a list that the operator did not sign."""
        self.used_tokens = (0.0, now_s)
        """Tokens missing from the bucket of its requests, as of when."""
        self.resend_s, self.backoff_s = 0.0, 0.0
        """When control messages that it has not acknowledged are sent again, and how long after that."""
        self._sending, self._send_mac_key = Cipher(sending[0]), sending[1]
        self._receiving, self._receive_mac_key = ReceivingKey(receiving[0]), receiving[1]
        self._group_keys: OrderedDict[int, ReceivingKey] = OrderedDict()
        """By epoch: the other's group key, and the one before."""
        self._last_nonce = 0

    @property
    def address(self) -> LinkAddress | None:
        """Where the other was heard last."""
        return next(reversed(self.addresses), None)

    def add_group_key(self, epoch: int, key: bytes, now_s: float) -> None:
        """The other encrypts for its group under another key from now on."""
        if epoch in self._group_keys:
            return
        for earlier in self._group_keys.values():
            earlier.until_s = min(earlier.until_s, now_s + OVERLAP_S)
        self._group_keys[epoch] = ReceivingKey(key)
        if len(self._group_keys) > 2:
            self._group_keys.popitem(last=False)

    def next_nonce(self) -> int:
        """For the next datagram."""
        self._last_nonce += 1
        return self._last_nonce

    def encrypt(self, nonce: int, plaintext: bytes, associated_data: bytes) -> bytes:
        """Encrypt for the other node."""
        return self._sending.encrypt(nonce, plaintext, associated_data)

    def decrypt(self, nonce: int, ciphertext: bytes, associated_data: bytes) -> bytes | ReplayCheck | None:
        """Decrypt; or that the nonce was received before; None if the other node did not encrypt it."""
        return self._receiving.decrypt(nonce, ciphertext, associated_data)

    def make_slot(self, group_digest: bytes) -> bytes:
        """The MAC of a group datagram for the other node, after the last bits of its id, by which it finds the slot."""
        return make_slot_name(self.member.node) + mac(self._send_mac_key, group_digest)

    def decrypt_group(
        self, node: NodeId, nonce: int, body: "GroupBody", associated_data: bytes, now_s: float
    ) -> bytes | ReplayCheck | None:
        """Decrypt a group datagram of the other node; None if it has no valid MAC for this one, or another key."""
        found = find_macs(node, body.slots)
        expected = mac(self._receive_mac_key, compute_group_digest(body.ciphertext, associated_data))
        if not any(hmac.compare_digest(expected, one) for one in found):
            return None
        key = self._group_keys.get(body.epoch)
        if key is None or now_s > key.until_s:
            return None
        return key.decrypt(nonce, body.ciphertext, associated_data)


def compute_group_digest(ciphertext: bytes, associated_data: bytes) -> bytes:
    """What MACs are computed of: a node that knows the group key could make another plaintext with the same tag."""
    return digest(ciphertext, associated_data)


def make_slot_name(node: NodeId) -> bytes:
    """How a node is named in the slots; two may have the same name."""
    return (node & 0xFFFFFFFF).to_bytes(4, "big")


def find_macs(node: NodeId, slots: bytes) -> list[bytes]:
    """The MACs that may be for a node."""
    name = make_slot_name(node)
    return [slots[at + 4 : at + SLOT_BYTES] for at in range(0, len(slots), SLOT_BYTES) if slots[at : at + 4] == name]


class GroupBody(NamedTuple):
    """The body of a datagram to the group."""

    epoch: int
    """Of its key."""
    slots: bytes
    ciphertext: bytes

    def encode(self) -> bytes:
        """As it travels: epoch (1 byte), number of slots (1), slots, ciphertext."""
        return bytes((self.epoch, len(self.slots) // SLOT_BYTES)) + self.slots + self.ciphertext


def split_group(body: bytes) -> GroupBody | None:
    """The parts of a body; None if it is malformed."""
    end = 2 + body[1] * SLOT_BYTES
    return None if len(body) < end else GroupBody(body[0], body[2:end], body[end:])


RENEW_S = 3600.0
COPIES_S = 30.0
"""So long a neighbor that has not acknowledged the key gets copies: with three of ten datagrams lost, both ways, one of
a hundred needs longer."""
EPOCHS = 256


class OwnGroupKey:
    """The key under which this node encrypts for its group on one interface."""

    def __init__(self, now_s: float) -> None:
        self.epoch = secrets.randbelow(EPOCHS)
        self.renew(now_s)

    def renew(self, now_s: float) -> None:
        """Another key, which no neighbor has yet."""
        self.epoch = (self.epoch + 1) % EPOCHS
        self.key = secrets.token_bytes(SECRET_BYTES)
        self._cipher = Cipher(self.key)
        self._last_nonce = 0
        self._made_s, self._made_wall_s = now_s, time.time()
        # Nodes that started together do not renew their keys together.
        self._lasts_s = RENEW_S * (0.75 + 0.25 * secrets.randbelow(1000) / 1000)

    def is_old(self, now_s: float) -> bool:
        """Whether it must be renewed, by either clock: only the wall clock goes on while a device sleeps, and only the
        monotonic one while the wall clock is set back."""
        return now_s - self._made_s >= self._lasts_s or time.time() - self._made_wall_s >= self._lasts_s

    def next_nonce(self) -> int:
        """For the next datagram."""
        self._last_nonce += 1
        return self._last_nonce

    def encrypt(self, nonce: int, plaintext: bytes, associated_data: bytes) -> bytes:
        """Encrypt for all nodes that have the key."""
        return self._cipher.encrypt(nonce, plaintext, associated_data)

    def is_usable_by(self, session: Session, now_s: float) -> bool:
        """Whether a neighbor gets group datagrams, rather than copies of its own."""
        return session.acknowledged_epoch == self.epoch or now_s - session.key_sent_s > COPIES_S
