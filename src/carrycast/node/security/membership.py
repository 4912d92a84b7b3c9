"""Who belongs to this node's network, as far as a voucher can show: a certificate, or a public key.

In a network with an operator the voucher of a node is its certificate, of which a link is shown the public part alone,
the card. In one with a shared secret both are the node's public key: whoever knows the secret belongs to the network,
which links show and vouchers need not.
"""

import enum
import math
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from carrycast.core.matching import Filter
from carrycast.core.model import Event, NodeId, Scalar
from carrycast.errors import UserError
from carrycast.node.security.ids import node_of
from carrycast.node.security.primitives import PUBLIC_BYTES, AgreementKey, SigningKey, digest, signed_by

MAX_MEMBERS = 4096
"""Vouchers that are remembered as good; the one used least recently makes room."""
NETWORK_BYTES = 8
CLOCK_SLACK_S = 86_400.0
"""How far the clock of a device may be from its operator's."""


class Refusal(enum.StrEnum):
    """Why a voucher shows nothing."""

    MALFORMED = "voucher_malformed"
    STRANGER = "voucher_of_a_stranger"
    EXPIRED = "voucher_expired"
    REVOKED = "voucher_revoked"


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the network, and what it may do. Of a neighbor, whose card alone is known, no rights are known."""

    node: NodeId
    key: bytes
    voucher: bytes
    publish: Filter | None = None
    """What it may publish; None for anything."""
    subscribe: Filter | None = None
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    since_s: float = -math.inf
    until_s: float = math.inf
    grace_s: float = 0.0

    def is_valid(self, now_s: float) -> bool:
        """Whether it is a member at this time."""
        return self.since_s <= now_s < self.until_s

    def accepted_until_s(self, event: Event) -> float:
        """When an event of this member is no longer accepted. What was signed before the end of the certificate is
        accepted for its lease, and for the grace after that end at most: the time of an event is only claimed, and
        whoever has the key can claim any. Clocks that are wrong by a day cost no lease."""
        if event.time_s > self.until_s:
            return self.until_s
        lease_end_s = event.time_s + event.lease_s + CLOCK_SLACK_S
        return min(self.until_s + self.grace_s, max(self.until_s, lease_end_s))


class Membership(ABC):
    """A node's own identity, and its judgment of others'."""

    secret: bytes = b""
    """What all nodes know and nobody else does; empty where there is none."""

    def __init__(self, identity: SigningKey, voucher: bytes, card: bytes, network: bytes) -> None:
        self.identity = identity
        self.voucher = voucher
        self.card = card
        """What of the voucher links are shown."""
        self.network = network
        """By which nodes of different networks tell each other apart."""
        self.static = AgreementKey()
        """The Noise static key, another one at each start."""
        self.changed: list[Callable[[], None]] = []
        """Called when somebody who was believed may no longer be."""
        self.renewed: list[Callable[[], None]] = []
        """Called when this node's own voucher is another."""
        self._members: OrderedDict[bytes, Member] = OrderedDict()
        self.mine = self._own(voucher, identity)
        self.binding = self._bound()
        """Shows to whom the static key belongs."""

    def member(self, voucher: bytes) -> Member | Refusal:
        """Whose voucher this is; only while it is valid."""
        return self._valid(self._known(voucher, self._judged))

    def neighbor(self, card: bytes) -> Member | Refusal:
        """Whose card this is; only while it is valid."""
        return self._valid(self._known(card, self._judged_card))

    def publisher(self, voucher: bytes, event: Event) -> Member | Refusal:
        """Who published an event, if it is accepted under this voucher."""
        found = self._known(voucher, self._judged)
        if isinstance(found, Refusal):
            return found
        return found if found.since_s <= time.time() < found.accepted_until_s(event) else Refusal.EXPIRED

    def is_bound(self, member: Member, static: bytes, binding: bytes) -> bool:
        """Whether a neighbor has said that a static key is its own in this network, under the card that it shows."""
        return signed_by(member.key, binding, b"noise static key", _statement(self.network, member.voucher, static))

    def trouble(self) -> str | None:
        """Why other nodes do not take this one for a member, as far as it can tell; None while they do."""
        return None

    def _bound(self) -> bytes:
        return self.identity.sign(b"noise static key", _statement(self.network, self.card, self.static.public))

    def _known(self, voucher: bytes, judge: Callable[[bytes], Member | Refusal]) -> Member | Refusal:
        known = self._members.get(voucher)
        if known is not None:
            self._members.move_to_end(voucher)
            return known
        found = judge(voucher)
        if isinstance(found, Member):
            self._members[voucher] = found
            if len(self._members) > MAX_MEMBERS:
                self._members.popitem(last=False)
        return found

    @staticmethod
    def _valid(found: Member | Refusal) -> Member | Refusal:
        return found if isinstance(found, Refusal) or found.is_valid(time.time()) else Refusal.EXPIRED

    def _own(self, voucher: bytes, identity: SigningKey) -> Member:
        """This node as a member, whatever time it is; a UserError if it never can be one."""
        mine = self._judged(voucher)
        if isinstance(mine, Refusal):
            raise UserError(f"this node's own certificate does not count: {mine.replace('_', ' ')}")
        if mine.key != identity.public:
            raise UserError("this node's certificate is for another key; ask the operator for one for this key")
        return mine

    @abstractmethod
    def _judged(self, voucher: bytes) -> Member | Refusal:
        """Whose voucher it is, at whatever time."""

    @abstractmethod
    def _judged_card(self, card: bytes) -> Member | Refusal:
        """Whose card it is, at whatever time."""

    @property
    def number(self) -> int:
        """How new the list of revocations is that this node goes by; 0 without any."""
        return 0

    def difference(self, since: int) -> bytes:
        """What changed in that list since another, as it travels."""
        return b""

    def take_revocations(self, text: bytes) -> bool:
        """Another list, or what changed since this one; True if it is newer, and signed, and counts from now on."""
        return False


class SharedSecret(Membership):
    """All who know one secret. Nobody can be put out but by a new secret."""

    def __init__(self, identity: SigningKey, secret: bytes) -> None:
        self.secret = secret
        super().__init__(identity, identity.public, identity.public, digest(b"network", secret)[:NETWORK_BYTES])

    def _judged(self, voucher: bytes) -> Member | Refusal:
        if len(voucher) != PUBLIC_BYTES:
            return Refusal.MALFORMED
        return Member(node_of(voucher), voucher, voucher)

    def _judged_card(self, card: bytes) -> Member | Refusal:
        return self._judged(card)


def _statement(network: bytes, card: bytes, static: bytes) -> bytes:
    # With the card, a static key that was stolen from the memory of a device is of no use after the card's end.
    return digest(network, card, static)
