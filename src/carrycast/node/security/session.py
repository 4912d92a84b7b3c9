"""The session of two nodes that have completed a handshake: keys, nonces and replay windows.

Each transmission has its own nonce, and a receiver accepts each nonce once (`ReplayWindow`, one for each key). A
datagram to the group is encrypted once, with a group key that its sender has given to each neighbor. It has a MAC for
each neighbor, with a key that only the sender and this neighbor know. So a neighbor can decrypt the datagram, but
cannot forge one in the sender's name.

The group key is sent to a neighbor within its session, and retransmitted until the neighbor acknowledges it
(`session_control.py`). The key is renewed every hour, and at once when a node that has it is no longer a member. The
previous key is then no longer used. While a neighbor has not acknowledged the new key, group datagrams have no MAC for
it, and it gets a copy that is encrypted in its session, so that no frame is lost by a renewal. After COPIES_S the
copies end, because a neighbor that never acknowledges would cost one datagram for each group datagram.
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
"""The most neighbors with a MAC in one datagram; for more neighbors, more datagrams are sent."""
OVERLAP_S = 10.0
"""How long datagrams with the previous key are accepted: those in flight arrive within seconds."""


class ReceivingKey:
    """A key with which the peer encrypts, for this node or for its group. Each nonce is accepted once."""

    __slots__ = ("_cipher", "_received", "until_s")

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(key)
        self._received = ReplayWindow()
        self.until_s = math.inf

    def decrypt(self, nonce: int, ciphertext: bytes, associated_data: bytes) -> bytes | ReplayCheck | None:
        """Return the plaintext; the result of the replay check if the nonce is not new; None if authentication
        fails."""
        found = self._received.check(nonce)
        if found is not ReplayCheck.NEW:
            return found
        plaintext = self._cipher.decrypt(nonce, ciphertext, associated_data)
        if plaintext is not None:
            self._received.add(nonce)
        return plaintext


class Session:
    """The keys of both directions between this node and its peer, and the group keys of the peer."""

    def __init__(
        self,
        member: Member,
        session: int,
        sending: tuple[bytes, bytes],
        receiving: tuple[bytes, bytes],
        initiated: bool,
        now_s: float,
    ) -> None:
        """`sending` and `receiving` are the encryption key and the MAC key of each direction."""
        self.member = member
        self.session = session
        self.initiated = initiated
        """Whether this node was the initiator of the handshake."""
        self.made_s = now_s
        self.heard_s = now_s
        self.version, self.features = 0, 0
        """The version and features of the link."""
        self.rekey_s = 0.0
        """When the next handshake may be started."""
        self.previous: Session | None = None
        """The session before the last handshake: datagrams that were encrypted in it may still arrive."""
        self.addresses: dict[LinkAddress, None] = {}
        """The addresses at which the peer was heard, the latest at the end."""
        self.acknowledged_epoch: int | None = None
        """The epoch of this node's group key that the peer has acknowledged."""
        self.key_sent_s = now_s
        """When the present group key was first sent to the peer."""
        self.list_number = 0
        """The number of the peer's revocation list, as announced."""
        self.list_attempts = 0
        """How often a download of this list was started."""
        self.list_forged = False
        """Whether the peer has sent a list that the operator did not sign."""
        self.used_tokens = (0.0, now_s)
        """The tokens missing from the peer's bucket, and when that was computed."""
        self.resend_s, self.backoff_s = 0.0, 0.0
        """When control messages that the peer has not acknowledged are sent again, and the present backoff."""
        self._sending, self._send_mac_key = Cipher(sending[0]), sending[1]
        self._receiving, self._receive_mac_key = ReceivingKey(receiving[0]), receiving[1]
        self._group_keys: OrderedDict[int, ReceivingKey] = OrderedDict()
        """The present and the previous group key of the peer, by epoch."""
        self._last_nonce = 0

    @property
    def address(self) -> LinkAddress | None:
        """The address at which the peer was last heard."""
        return next(reversed(self.addresses), None)

    def add_group_key(self, epoch: int, key: bytes, now_s: float) -> None:
        """Add a new group key of the peer."""
        if epoch in self._group_keys:
            return
        for earlier in self._group_keys.values():
            earlier.until_s = min(earlier.until_s, now_s + OVERLAP_S)
        self._group_keys[epoch] = ReceivingKey(key)
        if len(self._group_keys) > 2:
            self._group_keys.popitem(last=False)

    def next_nonce(self) -> int:
        """Return the nonce of the next datagram."""
        self._last_nonce += 1
        return self._last_nonce

    def encrypt(self, nonce: int, plaintext: bytes, associated_data: bytes) -> bytes:
        """Encrypt for the peer."""
        return self._sending.encrypt(nonce, plaintext, associated_data)

    def decrypt(self, nonce: int, ciphertext: bytes, associated_data: bytes) -> bytes | ReplayCheck | None:
        """Decrypt a datagram of the peer; the results are those of `ReceivingKey.decrypt`."""
        return self._receiving.decrypt(nonce, ciphertext, associated_data)

    def make_slot(self, group_digest: bytes) -> bytes:
        """Make the slot of the peer in a group datagram: the slot name of its node, and the MAC."""
        return make_slot_name(self.member.node) + mac(self._send_mac_key, group_digest)

    def decrypt_group(
        self, node: NodeId, nonce: int, body: "GroupBody", associated_data: bytes, now_s: float
    ) -> bytes | ReplayCheck | None:
        """Decrypt a group datagram of the peer; None if it has no valid MAC for this node, or an unknown key."""
        found = find_macs(node, body.slots)
        expected = mac(self._receive_mac_key, compute_group_digest(body.ciphertext, associated_data))
        if not any(hmac.compare_digest(expected, one) for one in found):
            return None
        key = self._group_keys.get(body.epoch)
        if key is None or now_s > key.until_s:
            return None
        return key.decrypt(nonce, body.ciphertext, associated_data)


def compute_group_digest(ciphertext: bytes, associated_data: bytes) -> bytes:
    """Compute the digest over which MACs are computed. The tag of the ciphertext would not suffice: a node that knows
    the group key could make another ciphertext with the same tag."""
    return digest(ciphertext, associated_data)


def make_slot_name(node: NodeId) -> bytes:
    """Return the last 32 bits of a node id, which mark its slot; two nodes may have the same."""
    return (node & 0xFFFFFFFF).to_bytes(4, "big")


def find_macs(node: NodeId, slots: bytes) -> list[bytes]:
    """Return the MACs in the slots of a node."""
    name = make_slot_name(node)
    return [slots[at + 4 : at + SLOT_BYTES] for at in range(0, len(slots), SLOT_BYTES) if slots[at : at + 4] == name]


class GroupBody(NamedTuple):
    """The body of a datagram to the group."""

    epoch: int
    """The epoch of the group key."""
    slots: bytes
    ciphertext: bytes

    def encode(self) -> bytes:
        """Encode the body: epoch (1 byte), number of slots (1), slots, ciphertext."""
        return bytes((self.epoch, len(self.slots) // SLOT_BYTES)) + self.slots + self.ciphertext


def split_group(body: bytes) -> GroupBody | None:
    """Parse the body of a group datagram; None if it is malformed."""
    end = 2 + body[1] * SLOT_BYTES
    return None if len(body) < end else GroupBody(body[0], body[2:end], body[end:])


RENEW_S = 3600.0
"""The longest use of a group key, as of the keys of a session."""
COPIES_S = 30.0
"""How long a neighbor that has not acknowledged the key gets copies. If 30 % of the datagrams are lost in both
directions, one neighbor of a hundred needs longer."""
EPOCHS = 256
"""An epoch is one byte."""


class OwnGroupKey:
    """The key with which this node encrypts for its group on one interface."""

    def __init__(self, now_s: float) -> None:
        self.epoch = secrets.randbelow(EPOCHS)
        self.renew(now_s)

    def renew(self, now_s: float) -> None:
        """Replace the key by a new one, which no neighbor has yet."""
        self.epoch = (self.epoch + 1) % EPOCHS
        self.key = secrets.token_bytes(SECRET_BYTES)
        self._cipher = Cipher(self.key)
        self._last_nonce = 0
        self._made_s, self._made_wall_s = now_s, time.time()
        # Random, so that nodes that started together do not renew their keys together.
        self._lasts_s = RENEW_S * (0.75 + 0.25 * secrets.randbelow(1000) / 1000)

    def is_old(self, now_s: float) -> bool:
        """Whether the key must be renewed, by either clock: only the wall clock advances while a device sleeps, and
        only the monotonic clock is not set back."""
        return now_s - self._made_s >= self._lasts_s or time.time() - self._made_wall_s >= self._lasts_s

    def next_nonce(self) -> int:
        """Return the nonce of the next datagram."""
        self._last_nonce += 1
        return self._last_nonce

    def encrypt(self, nonce: int, plaintext: bytes, associated_data: bytes) -> bytes:
        """Encrypt for all neighbors that have the key."""
        return self._cipher.encrypt(nonce, plaintext, associated_data)

    def is_usable_by(self, session: Session, now_s: float) -> bool:
        """Whether a neighbor has a slot in group datagrams, and gets no copies."""
        return session.acknowledged_epoch == self.epoch or now_s - session.key_sent_s > COPIES_S
