"""What is sealed and opened between two nodes that have shaken hands.

Each datagram has a number of its own, also one that is sent again, and a receiver takes each number once. What goes to
the group is sealed once, under a key that its speaker has given to each neighbor, and marked for each of them with a
key that only the two know: so a neighbor can read it, and cannot say it to others in the speaker's name.

The key under which a node speaks to its group, and who has it.

A neighbor is given the key within the session with it, and only there; it is sent again until the neighbor acknowledges
it (`upkeep.py`). It is renewed every hour, and at once when somebody who has it is no longer a member. From then on
nothing is sealed under the key before.

While a neighbor has not acknowledged the key, it is not marked in what goes to the group, and gets a copy of its own,
sealed in the session: so a renewal costs no frame. That ends after a while, for one that never acknowledges would cost
a datagram for each.
"""

import hmac
import math
import secrets
import time
from collections import OrderedDict
from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.node.link.frame import WINDOW, Novelty
from carrycast.node.link.socket_address import Address
from carrycast.node.security.membership import Member
from carrycast.node.security.primitives import MARK_BYTES, SECRET_BYTES, Cipher, digest, mark

SLOT_BYTES = 4 + MARK_BYTES
MAX_SLOTS = 200
"""Neighbors for which one datagram is marked; more take another one."""


class ReplayWindow:
    """Which numbers were taken: the newest, and a bit for each just below it. All of them were sealed by the sender."""

    __slots__ = ("_bits", "_newest")

    def __init__(self) -> None:
        self._newest = -1
        self._bits = 0

    def judge(self, number: int) -> Novelty:
        """What is known of a number."""
        behind = self._newest - number
        if behind < 0:
            return Novelty.NEW
        if behind >= WINDOW:
            return Novelty.TOO_OLD
        return Novelty.REPEATED if self._bits >> behind & 1 else Novelty.NEW

    def add(self, number: int) -> None:
        """A number that was new is taken."""
        ahead = number - self._newest
        if ahead >= WINDOW:
            self._bits, self._newest = 1, number
        elif ahead > 0:
            self._bits = (self._bits << ahead | 1) & ((1 << WINDOW) - 1)
            self._newest = number
        else:
            self._bits |= 1 << -ahead


OVERLAP_S = 10.0
"""How long what was sealed under the key before is accepted: frames that are on their way are there within seconds."""


class ReceivingKey:
    """A key under which the other node speaks, to this one or to its group. Each number is accepted once."""

    __slots__ = ("_cipher", "_taken", "until_s")

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(key)
        self._taken = ReplayWindow()
        self.until_s = math.inf

    def open(self, number: int, sealed: bytes, beside: bytes) -> bytes | Novelty | None:
        """What was sealed under it; or that it was taken before; None if it was not."""
        novelty = self._taken.judge(number)
        if novelty is not Novelty.NEW:
            return novelty
        text = self._cipher.open(number, sealed, beside)
        if text is not None:
            self._taken.add(number)
        return text


class Session:
    """One direction each of what two nodes say to each other, and what the other says to its group."""

    def __init__(
        self,
        member: Member,
        session: int,
        sending: tuple[bytes, bytes],
        receiving: tuple[bytes, bytes],
        began: bool,
        now_s: float,
    ) -> None:
        """Keys and keys of marks, for what is sent and for what is received."""
        self.member = member
        self.session = session
        self.began = began
        self.made_s = now_s
        self.heard_s = now_s
        self.version, self.features = 0, 0
        """Of the link, that both speak and have."""
        self.rekey_s = 0.0
        """When it may next be tried to make it again."""
        self.previous: Session | None = None
        """The one before, of the same two starts: what was sealed for it may still be on its way."""
        self.places: dict[Address, None] = {}
        """Where the other was heard, the last place at the end."""
        self.key_given: int | None = None
        """The epoch of this node's key to the group that the other has acknowledged."""
        self.key_sent_s = now_s
        """When it was first sent the key that it has not acknowledged yet."""
        self.list_number = 0
        """Of the list of revocations that the other goes by, as it says."""
        self.list_tried = 0
        """How often it was tried to fetch it."""
        self.list_doubted = False
        """Whether it has brought a list that is none."""
        self.allowance = (0.0, now_s)
        """How much of it was spent on what it asked for, as of when."""
        self.resend_s, self.backoff_s = 0.0, 0.0
        """When what it has not acknowledged is sent again, and how long after that."""
        self._sending, self._send_marks = Cipher(sending[0]), sending[1]
        self._receiving, self._receive_marks = ReceivingKey(receiving[0]), receiving[1]
        self._group: OrderedDict[int, ReceivingKey] = OrderedDict()
        """By epoch: the key to the other's group, and the one before."""
        self._sent = 0

    @property
    def place(self) -> Address | None:
        """Where the other was heard last."""
        return next(reversed(self.places), None)

    def take_group_key(self, epoch: int, key: bytes, now_s: float) -> None:
        """The other speaks to its group under another key from now on."""
        if epoch in self._group:
            return
        for earlier in self._group.values():
            earlier.until_s = min(earlier.until_s, now_s + OVERLAP_S)
        self._group[epoch] = ReceivingKey(key)
        if len(self._group) > 2:
            self._group.popitem(last=False)

    def next_number(self) -> int:
        """For what is sealed next."""
        self._sent += 1
        return self._sent

    def seal(self, number: int, text: bytes, beside: bytes) -> bytes:
        """For the other node."""
        return self._sending.seal(number, text, beside)

    def open(self, number: int, sealed: bytes, beside: bytes) -> bytes | Novelty | None:
        """What the other node has sealed; or that it was taken before; None if it was not sealed by it."""
        return self._receiving.open(number, sealed, beside)

    def slot(self, stamp: bytes) -> bytes:
        """The mark of a datagram to the group for the other node, by the last bits of whose id it finds it."""
        return slot_of(self.member.node) + mark(self._send_marks, stamp)

    def open_group(
        self, node: NodeId, number: int, body: "GroupBody", beside: bytes, now_s: float
    ) -> bytes | Novelty | None:
        """What the other node has sealed for its group; None if it is not marked for this one, or not sealed so."""
        found = slots_for(node, body.slots)
        mine = mark(self._receive_marks, stamp_of(body.sealed, beside))
        if not any(hmac.compare_digest(mine, one) for one in found):
            return None
        key = self._group.get(body.epoch)
        if key is None or now_s > key.until_s:
            return None
        return key.open(number, body.sealed, beside)


def stamp_of(sealed: bytes, beside: bytes) -> bytes:
    """What marks are made of: whoever knows the group's key could make another text with the same seal."""
    return digest(sealed, beside)


def slot_of(node: NodeId) -> bytes:
    """How a node is called among the slots; two may be called the same."""
    return (node & 0xFFFFFFFF).to_bytes(4, "big")


def slots_for(node: NodeId, slots: bytes) -> list[bytes]:
    """The marks that may be for a node."""
    name = slot_of(node)
    return [slots[at + 4 : at + SLOT_BYTES] for at in range(0, len(slots), SLOT_BYTES) if slots[at : at + 4] == name]


class GroupBody(NamedTuple):
    """The body of a datagram to the group."""

    epoch: int
    """Of its key."""
    slots: bytes
    sealed: bytes

    def text(self) -> bytes:
        """As it travels: epoch (1 byte), number of slots (1), slots, what is sealed."""
        return bytes((self.epoch, len(self.slots) // SLOT_BYTES)) + self.slots + self.sealed


def split_group(body: bytes) -> GroupBody | None:
    """A body taken apart; None if it is none."""
    end = 2 + body[1] * SLOT_BYTES
    return None if len(body) < end else GroupBody(body[0], body[2:end], body[end:])


RENEW_S = 3600.0
COPIES_S = 30.0
"""So long a neighbor that has not acknowledged the key gets copies: with three of ten datagrams lost, both ways, one of
a hundred needs longer."""
EPOCHS = 256


class OwnGroupKey:
    """Of one interface."""

    def __init__(self, now_s: float) -> None:
        self.epoch = secrets.randbelow(EPOCHS)
        self.renew(now_s)

    def renew(self, now_s: float) -> None:
        """Another key, which nobody has yet."""
        self.epoch = (self.epoch + 1) % EPOCHS
        self.key = secrets.token_bytes(SECRET_BYTES)
        self._cipher = Cipher(self.key)
        self._sent = 0
        self._made_s, self._made_wall_s = now_s, time.time()
        # Nodes that started together do not renew their keys together.
        self._lasts_s = RENEW_S * (0.75 + 0.25 * secrets.randbelow(1000) / 1000)

    def is_old(self, now_s: float) -> bool:
        """Whether it must be renewed. A device that slept has a clock of the day that knows, and a clock that was set
        back has another one that does."""
        return now_s - self._made_s >= self._lasts_s or time.time() - self._made_wall_s >= self._lasts_s

    def next_number(self) -> int:
        """For what is sealed next."""
        self._sent += 1
        return self._sent

    def seal(self, number: int, text: bytes, beside: bytes) -> bytes:
        """For all who have the key."""
        return self._cipher.seal(number, text, beside)

    def is_marked(self, session: Session, now_s: float) -> bool:
        """Whether a neighbor reads what goes to the group, rather than a copy of its own."""
        return session.key_given == self.epoch or now_s - session.key_sent_s > COPIES_S
