"""Who belongs to this node's network, as far as a voucher can show: a certificate, or a public key.

In a network with an operator the voucher of a node is its certificate. In one with a shared secret it is the node's
public key: whoever knows the secret belongs to it, which links show and vouchers need not.
"""

import enum
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from driftcast.errors import UserError, WorkError
from driftcast.live.keys.certificate import Certificate, Revocations, issued_by, read_certificate, read_list
from driftcast.live.keys.files import KeyKind, read_key, write_key
from driftcast.live.keys.ids import node_of
from driftcast.live.keys.primitives import PUBLIC_BYTES, SigningKey, digest
from driftcast.live.record import LOG
from driftcast.matching import Filter, FilterError
from driftcast.model import NodeId, Scalar

MAX_MEMBERS = 4096
"""Vouchers that are remembered as good; the one used least recently makes room."""

NETWORK_BYTES = 8


class Refusal(enum.StrEnum):
    """Why a voucher shows nothing."""

    MALFORMED = "voucher_malformed"
    STRANGER = "voucher_of_a_stranger"
    EXPIRED = "voucher_expired"
    REVOKED = "voucher_revoked"


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the network, and what it may do."""

    node: NodeId
    key: bytes
    name: str
    voucher: bytes
    publish: Filter | None = None
    """What it may publish; None for anything."""
    subscribe: Filter | None = None
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    until_s: float = float("inf")


class Membership(ABC):
    """A node's own identity, and its judgment of others'."""

    def __init__(self, identity: SigningKey, voucher: bytes, network: bytes) -> None:
        self.identity = identity
        self.voucher = voucher
        self.network = network
        """By which nodes of different networks tell each other apart."""
        self.changed: list[Callable[[], None]] = []
        """Called when somebody who was believed may no longer be."""
        self._members: OrderedDict[bytes, Member] = OrderedDict()
        mine = self.member(voucher)
        if isinstance(mine, Refusal):
            raise UserError(f"this node's own certificate does not count: {mine.replace('_', ' ')}")
        self.mine = mine

    secret: bytes = b""
    """What all nodes know and nobody else does; empty where there is none."""

    def member(self, voucher: bytes) -> Member | Refusal:
        """Whose voucher this is."""
        known = self._members.get(voucher)
        if known is not None:
            if known.until_s > time.time():
                self._members.move_to_end(voucher)
                return known
            del self._members[voucher]
        found = self._judged(voucher)
        if isinstance(found, Member):
            self._members[voucher] = found
            if len(self._members) > MAX_MEMBERS:
                self._members.popitem(last=False)
        return found

    @abstractmethod
    def _judged(self, voucher: bytes) -> Member | Refusal: ...

    @property
    def number(self) -> int:
        """How new the list of revocations is that this node goes by."""
        return 0

    @property
    def revocations(self) -> bytes:
        """That list, signed."""
        return b""

    def take_revocations(self, text: bytes) -> bool:
        """Another list; True if it is newer, and signed, and counts from now on."""
        return False

    def reload(self) -> bool:
        """Read the file of the list again; True if it holds a newer one."""
        return False


class SharedSecret(Membership):
    """All who know one secret. Nobody can be put out but by a new secret."""

    def __init__(self, identity: SigningKey, secret: bytes) -> None:
        self.secret = secret
        super().__init__(identity, identity.public, digest(b"network", secret)[:NETWORK_BYTES])

    def _judged(self, voucher: bytes) -> Member | Refusal:
        if len(voucher) != PUBLIC_BYTES:
            return Refusal.MALFORMED
        return Member(node_of(voucher), voucher, "", voucher)


class Certified(Membership):
    """All whom an operator has certified and not revoked."""

    def __init__(self, identity: SigningKey, certificate: bytes, operator: bytes, list_file: Path | None) -> None:
        self._operator = operator
        self._file = list_file
        self._text = b""
        self._list = Revocations()
        if list_file is not None and list_file.exists():
            self._text = read_key(list_file, KeyKind.REVOCATIONS)[1]
            read = read_list(operator, self._text)
            if read is None:
                raise UserError(f"{list_file}: is not signed by this network's operator")
            self._list = read
        super().__init__(identity, certificate, digest(b"operator", operator)[:NETWORK_BYTES])
        if self.mine.key != identity.public:
            raise UserError("this node's certificate is for another key; ask the operator for one for this key")

    def _judged(self, voucher: bytes) -> Member | Refusal:
        certificate = read_certificate(voucher)
        if certificate is None:
            return Refusal.MALFORMED
        if self._list.revokes(certificate):
            return Refusal.REVOKED
        if not certificate.issued_s - CLOCK_SLACK_S <= time.time() < certificate.expires_s:
            return Refusal.EXPIRED
        if not issued_by(self._operator, certificate):
            return Refusal.STRANGER
        return _member(certificate, voucher) or Refusal.MALFORMED

    @property
    def number(self) -> int:
        return self._list.number

    @property
    def revocations(self) -> bytes:
        return self._text

    def take_revocations(self, text: bytes) -> bool:
        read = read_list(self._operator, text)
        if read is None or read.number <= self._list.number:
            return False
        self._list, self._text = read, text
        self._members.clear()
        LOG.warning("list of revocations number %d: %d nodes are out", read.number, len(read.before_s))
        if self._file is not None:
            try:
                write_key(self._file, KeyKind.REVOCATIONS, text, replace=True)
            except WorkError as error:
                LOG.error("%s; the list counts until this node stops", error)
        for tell in self.changed:
            tell()
        return True

    def reload(self) -> bool:
        if self._file is None or not self._file.exists():
            return False
        return self.take_revocations(read_key(self._file, KeyKind.REVOCATIONS)[1])


CLOCK_SLACK_S = 86_400.0
"""How far the clock of a device may be behind its operator's."""


def _member(certificate: Certificate, voucher: bytes) -> Member | None:
    try:
        publish, subscribe = (
            None if text is None else Filter(text) for text in (certificate.publish, certificate.subscribe)
        )
    except FilterError:
        return None
    return Member(
        certificate.node,
        certificate.key,
        certificate.name,
        voucher,
        publish,
        subscribe,
        certificate.attributes,
        certificate.expires_s,
    )
