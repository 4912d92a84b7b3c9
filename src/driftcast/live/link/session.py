"""What is sealed and opened between two nodes that have shaken hands.

Each datagram has a number of its own, also one that is sent again, and a receiver takes each number once. What goes to
the group is sealed once, under a key that its speaker has given to each neighbor, and marked for each of them with a
key that only the two know: so a neighbor can read it, and cannot say it to others in the speaker's name.
"""

import hmac

from driftcast.live.keys.membership import Member
from driftcast.live.keys.primitives import MARK_BYTES, Cipher, digest, mark
from driftcast.live.link.address import Address
from driftcast.live.link.frame import WINDOW, Novelty
from driftcast.model import NodeId

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


class Session:
    """One direction each of what two nodes say to each other, and what the other says to its group."""

    def __init__(
        self,
        member: Member,
        session: int,
        sending: tuple[bytes, bytes],
        receiving: tuple[bytes, bytes],
        group_key: bytes,
        began: bool,
        now_s: float,
    ) -> None:
        """Keys and keys of marks, for what is sent and for what is received."""
        self.member = member
        self.session = session
        self.began = began
        self.made_s = now_s
        self.heard_s = now_s
        self.previous: Session | None = None
        """The one before, of the same two starts: what was sealed for it may still be on its way."""
        self.listed = False
        """Whether the other has sent its list of revocations."""
        self.places: dict[Address, None] = {}
        """Where the other was heard, the last place at the end."""
        self._sending, self._send_marks = Cipher(sending[0]), sending[1]
        self._receiving, self._receive_marks = Cipher(receiving[0]), receiving[1]
        self._group = Cipher(group_key)
        self._sent = 0
        self._taken = ReplayWindow()
        self._group_taken = ReplayWindow()

    def next_number(self) -> int:
        """For what is sealed next."""
        self._sent += 1
        return self._sent

    def seal(self, number: int, text: bytes, beside: bytes) -> bytes:
        """For the other node."""
        return self._sending.seal(number, text, beside)

    def open(self, number: int, sealed: bytes, beside: bytes) -> bytes | Novelty | None:
        """What the other node has sealed; or that it was taken before; None if it was not sealed by it."""
        novelty = self._taken.judge(number)
        if novelty is not Novelty.NEW:
            return novelty
        text = self._receiving.open(number, sealed, beside)
        if text is not None:
            self._taken.add(number)
        return text

    def slot(self, stamp: bytes) -> bytes:
        """The mark of a datagram to the group for the other node, by the last bits of whose id it finds it."""
        return slot_of(self.member.node) + mark(self._send_marks, stamp)

    def open_group(self, node: NodeId, number: int, body: tuple[bytes, bytes], beside: bytes) -> bytes | Novelty | None:
        """What the other node has sealed for its group, given slots and text; None if not marked for this one."""
        slots, sealed = body
        found = slots_for(node, slots)
        if not found:
            return None
        stamp = stamp_of(sealed, beside)
        mine = mark(self._receive_marks, stamp)
        if not any(hmac.compare_digest(mine, one) for one in found):
            return None
        novelty = self._group_taken.judge(number)
        if novelty is not Novelty.NEW:
            return novelty
        text = self._group.open(number, sealed, beside)
        if text is not None:
            self._group_taken.add(number)
        return text


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


def split_group(body: bytes) -> tuple[bytes, bytes] | None:
    """Slots and sealed text of a datagram to the group: the number of slots stands first."""
    end = 1 + body[0] * SLOT_BYTES
    return None if len(body) < end else (body[1:end], body[end:])
