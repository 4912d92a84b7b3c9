"""Membership of a network: the credential of this node, and the verification of the credentials of others.

In a network with an operator, the credential of a node is its certificate. The members are all nodes that the operator
has certified and not revoked. A handshake sends only the public part of the certificate, the card. In a network with a
shared secret, credential and card are the public key of the node, and every node that knows the secret is a member. The
handshake proves that a node knows the secret.
"""

import enum
import math
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Event, NodeId, Scalar
from carrycast.errors import UserError, WorkError
from carrycast.node.recorder import LOG
from carrycast.node.security.certificate import (
    Card,
    Certificate,
    encode_card,
    explain_unreadable,
    is_issued_by,
    read_card,
    read_certificate,
)
from carrycast.node.security.identity import derive_node_id
from carrycast.node.security.key_files import KeyKind, read_key, write_key
from carrycast.node.security.primitives import PUBLIC_BYTES, DhKeyPair, SigningKey, digest, is_signed_by
from carrycast.node.security.revocations import RevocationList, read_revocation_list

MAX_MEMBERS = 4096
"""The most verified credentials that are cached; the least recently used one is evicted."""
NETWORK_BYTES = 8
"""The length of the identifier of a network."""
CLOCK_SLACK_S = 86_400.0
"""The largest accepted difference between the clocks of a device and of its operator."""


class Rejection(enum.StrEnum):
    """The reasons for which credentials are rejected."""

    MALFORMED = "credential_malformed"
    STRANGER = "credential_of_a_stranger"
    EXPIRED = "credential_expired"
    REVOKED = "credential_revoked"


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the network, and its authorizations, which are unknown while only its card is known."""

    node: NodeId
    key: bytes
    credential: bytes
    publish: Filter | None = None
    """The filter of the events that the node is authorized to publish; None for any."""
    subscribe: Filter | None = None
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    since_s: float = -math.inf
    until_s: float = math.inf
    grace_s: float = 0.0

    def is_valid(self, now_s: float) -> bool:
        """Whether the node is a member at this time."""
        return self.since_s <= now_s < self.until_s

    def accepted_until_s(self, event: Event) -> float:
        """Return the time until which an event of this member is accepted. An event that was signed before the
        certificate expired is accepted until its lease ends, but at most until the end of the grace period, because a
        thief of the key can claim any time for an event. CLOCK_SLACK_S is added for wrong clocks."""
        if event.time_s > self.until_s:
            return self.until_s
        lease_end_s = event.time_s + event.lease_s + CLOCK_SLACK_S
        return min(self.until_s + self.grace_s, max(self.until_s, lease_end_s))


class Membership(ABC):
    """The identity of this node, and the verification of others."""

    secret: bytes = b""
    """The shared secret of the network; empty if there is none."""

    def __init__(self, identity: SigningKey, credential: bytes, card: bytes, network: bytes) -> None:
        self.identity = identity
        self.credential = credential
        self.card = card
        """The part of the credential that handshakes send."""
        self.network = network
        """The identifier of the network."""
        self.static = DhKeyPair()
        """The Noise static key pair, a new one at each start."""
        self.changed: list[Callable[[], None]] = []
        """Functions that are called when nodes may have ceased to be members."""
        self.renewed: list[Callable[[], None]] = []
        """Functions that are called when this node has a new credential."""
        self._members: OrderedDict[bytes, Member] = OrderedDict()
        self.mine = self._verify_own(credential, identity)
        self.binding = self._sign_static_key()
        """This node's signature of its static public key."""

    def verify_credential(self, credential: bytes) -> Member | Rejection:
        """Verify a credential; the member if the credential is valid now."""
        return self._check_validity(self._look_up(credential, self._read_credential))

    def verify_card(self, card: bytes) -> Member | Rejection:
        """Verify a card; the member if the card is valid now."""
        return self._check_validity(self._look_up(card, self._read_card))

    def verify_publisher(self, credential: bytes, event: Event) -> Member | Rejection:
        """Verify the credential of the publisher of an event; the member if the event is accepted now."""
        found = self._look_up(credential, self._read_credential)
        if isinstance(found, Rejection):
            return found
        return found if found.since_s <= time.time() < found.accepted_until_s(event) else Rejection.EXPIRED

    def is_bound(self, member: Member, static: bytes, binding: bytes) -> bool:
        """Whether a neighbor has signed its static public key together with this network and its card."""
        return is_signed_by(
            member.key, binding, b"noise static key", _encode_binding(self.network, member.credential, static)
        )

    def find_problem(self) -> str | None:
        """Explain why other nodes reject this node, as far as it knows; None if they accept it."""
        return None

    def _sign_static_key(self) -> bytes:
        return self.identity.sign(b"noise static key", _encode_binding(self.network, self.card, self.static.public))

    def _look_up(self, credential: bytes, verify: Callable[[bytes], Member | Rejection]) -> Member | Rejection:
        known = self._members.get(credential)
        if known is not None:
            self._members.move_to_end(credential)
            return known
        found = verify(credential)
        if isinstance(found, Member):
            self._members[credential] = found
            if len(self._members) > MAX_MEMBERS:
                self._members.popitem(last=False)
        return found

    @staticmethod
    def _check_validity(found: Member | Rejection) -> Member | Rejection:
        return found if isinstance(found, Rejection) or found.is_valid(time.time()) else Rejection.EXPIRED

    def _verify_own(self, credential: bytes, identity: SigningKey) -> Member:
        """Return this node as a member, valid or expired; a UserError if its credential is rejected."""
        mine = self._read_credential(credential)
        if isinstance(mine, Rejection):
            raise UserError(f"this node's own certificate is rejected: {mine.replace('_', ' ')}")
        if mine.key != identity.public:
            raise UserError("this node's certificate is for another key; ask the operator for one for this key")
        return mine

    @abstractmethod
    def _read_credential(self, credential: bytes) -> Member | Rejection:
        """Read a credential and check who issued it; the member, valid or expired."""

    @abstractmethod
    def _read_card(self, card: bytes) -> Member | Rejection:
        """Read a card and check who issued it; the member, valid or expired."""

    @property
    def number(self) -> int:
        """The number of this node's revocation list; 0 if there is none."""
        return 0

    def encode_delta(self, since: int) -> bytes:
        """Encode the delta of the revocation list to an older one."""
        return b""

    def take_revocations(self, text: bytes) -> bool:
        """Read a complete list or a delta; True if it is newer and signed, and replaces the list of this node."""
        return False


class SharedSecret(Membership):
    """Membership of a network whose members know one secret. To exclude a member, the others need a new secret."""

    def __init__(self, identity: SigningKey, secret: bytes) -> None:
        self.secret = secret
        super().__init__(identity, identity.public, identity.public, digest(b"network", secret)[:NETWORK_BYTES])

    def _read_credential(self, credential: bytes) -> Member | Rejection:
        if len(credential) != PUBLIC_BYTES:
            return Rejection.MALFORMED
        return Member(derive_node_id(credential), credential, credential)

    def _read_card(self, card: bytes) -> Member | Rejection:
        return self._read_credential(card)


def _encode_binding(network: bytes, card: bytes, static: bytes) -> bytes:
    # With the card, so that a static key that was stolen from the memory of a device is useless when the card expires.
    return digest(network, card, static)


class Certified(Membership):
    """Membership of a network with an operator, which certifies nodes."""

    def __init__(self, identity: SigningKey, certificate: bytes, operator: bytes, list_file: Path | None) -> None:
        self._operator = operator
        self._file = list_file
        self._list = RevocationList()
        if list_file is not None and list_file.exists():
            self._list = self._read_file(list_file)
        parsed = _parse_own_certificate(certificate)
        self._issued_s = parsed.issued_s
        super().__init__(identity, certificate, encode_card(parsed), digest(b"operator", operator)[:NETWORK_BYTES])

    @property
    def ends_s(self) -> float:
        """When this node's own certificate expires."""
        return self.mine.until_s

    def find_problem(self) -> str | None:
        now_s = time.time()
        if self._list.revokes(self.mine.node, self._issued_s):
            return "this node's certificate was revoked by its operator: other nodes do not accept what it publishes"
        if now_s >= self.mine.until_s:
            return (
                f"this node's certificate ended on {format_date(self.mine.until_s)}: have the operator certify it "
                f"again, and send the node SIGHUP"
            )
        if now_s < self.mine.since_s:
            return (
                f"this node's certificate begins on {format_date(self.mine.since_s + CLOCK_SLACK_S)}, and its clock "
                f"says {format_date(now_s)}: set the clock"
            )
        return None

    def renew(self, identity: SigningKey, certificate: bytes) -> None:
        """Use a new certificate, and perhaps a new key, from now on; a UserError says why not."""
        parsed, mine = _parse_own_certificate(certificate), self._verify_own(certificate, identity)
        if not mine.is_valid(time.time()):
            raise UserError("the new certificate is not valid at this time; the one before stays")
        if mine.node != self.mine.node:
            raise UserError(f"the certificate is for node {mine.node}, and this is {self.mine.node}; restart the node")
        self.identity, self.credential, self.card, self.mine = (
            identity,
            certificate,
            encode_card(parsed),
            mine,
        )
        self._issued_s = parsed.issued_s
        self.binding = self._sign_static_key()
        for tell in self.renewed:
            tell()

    def _read_credential(self, credential: bytes) -> Member | Rejection:
        certificate = read_certificate(credential)
        if certificate is None:
            return Rejection.MALFORMED
        refusal = self._check_card(certificate.card)
        if refusal is not None:
            return refusal
        try:
            publish, subscribe = (
                None if text is None else Filter(text) for text in (certificate.publish, certificate.subscribe)
            )
        except FilterError:
            return Rejection.MALFORMED
        return _make_member(certificate, credential, publish, subscribe)

    def _read_card(self, card: bytes) -> Member | Rejection:
        found = read_card(card)
        if found is None:
            return Rejection.MALFORMED
        return self._check_card(found) or _make_member(found, card)

    def _check_card(self, card: Card) -> Rejection | None:
        if self._list.revokes(card.node, card.issued_s):
            return Rejection.REVOKED
        return None if is_issued_by(self._operator, card) else Rejection.STRANGER

    @property
    def number(self) -> int:
        return self._list.number

    def encode_delta(self, since: int) -> bytes:
        return self._list.encode_delta(since)

    def take_revocations(self, text: bytes) -> bool:
        read = read_revocation_list(self._operator, text, self._list)
        return read is not None and self._take(read)

    def reload(self) -> str:
        """Read the file of the revocation list again; the result, for the log."""
        if self._file is None or not self._file.exists():
            return "there is no revocation list"
        read, before = self._read_file(self._file), self._list.number
        if self._take(read):
            return f"revocation list number {read.number} is in force from now on"
        if read.number < before:
            # Perhaps the operator has lost its list and started a new one, so this is logged.
            return f"the file's revocation list has number {read.number}, and the newer number {before} is in force"
        return f"revocation list number {before}, nothing new"

    def _read_file(self, file: Path) -> RevocationList:
        read = read_revocation_list(self._operator, read_key(file, KeyKind.REVOCATIONS)[1])
        if read is None:
            raise UserError(f"{file}: is no list of this network's operator that this version of carrycast can read")
        return read

    def _take(self, read: RevocationList) -> bool:
        if read.number <= self._list.number:
            return False
        self._list = read
        self._members.clear()
        LOG.warning("revocation list number %d: %d nodes are revoked", read.number, len(read.entries))
        if self._file is not None:
            try:
                write_key(self._file, KeyKind.REVOCATIONS, read.encode_delta(0), replace=True)
            except WorkError as error:
                LOG.error("%s; the list is in force until this node stops", error)
        for tell in self.changed:
            tell()
        return True


def _parse_own_certificate(certificate: bytes) -> Certificate:
    found = read_certificate(certificate)
    if found is None:
        raise UserError(f"this node's own certificate {explain_unreadable(certificate)}")
    return found


def _make_member(
    parsed: Card | Certificate,
    credential: bytes,
    publish: Filter | None = None,
    subscribe: Filter | None = None,
) -> Member:
    return Member(
        parsed.node,
        parsed.key,
        credential,
        publish,
        subscribe,
        parsed.attributes if isinstance(parsed, Certificate) else {},
        parsed.issued_s - CLOCK_SLACK_S,
        parsed.expires_s,
        parsed.grace_s,
    )


def format_date(time_s: float) -> str:
    """Format a time for messages to people."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(time_s, 253_402_300_799)))
