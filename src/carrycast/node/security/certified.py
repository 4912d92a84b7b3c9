"""Membership in a network with an operator: all whom it has certified and not revoked."""

import time
from pathlib import Path

from carrycast.core.matching import Filter, FilterError
from carrycast.errors import UserError, WorkError
from carrycast.node.record import LOG
from carrycast.node.security.certificate import (
    Card,
    Certificate,
    issued_by,
    read_card,
    read_certificate,
    why_unreadable,
    written_card,
)
from carrycast.node.security.files import KeyKind, read_key, write_key
from carrycast.node.security.membership import CLOCK_SLACK_S, NETWORK_BYTES, Member, Membership, Refusal
from carrycast.node.security.primitives import SigningKey, digest
from carrycast.node.security.revocations import Revocations, read_list


class Certified(Membership):
    """A node whom an operator has certified, and its judgment of others."""

    def __init__(self, identity: SigningKey, certificate: bytes, operator: bytes, list_file: Path | None) -> None:
        self._operator = operator
        self._file = list_file
        self._list = Revocations()
        if list_file is not None and list_file.exists():
            self._list = self._read_file(list_file)
        said = _readable(certificate)
        self._issued_s = said.issued_s
        super().__init__(identity, certificate, written_card(said), digest(b"operator", operator)[:NETWORK_BYTES])

    @property
    def ends_s(self) -> float:
        """When this node's own certificate ends."""
        return self.mine.until_s

    def trouble(self) -> str | None:
        now_s = time.time()
        if self._list.revokes(self.mine.node, self._issued_s):
            return "this node's certificate was revoked by its operator: other nodes do not accept what it publishes"
        if now_s >= self.mine.until_s:
            return (
                f"this node's certificate ended on {date_of(self.mine.until_s)}: have the operator certify it again, "
                f"and send the node SIGHUP"
            )
        if now_s < self.mine.since_s:
            return (
                f"this node's certificate begins on {date_of(self.mine.since_s + CLOCK_SLACK_S)}, and its clock says "
                f"{date_of(now_s)}: set the clock"
            )
        return None

    def renew(self, identity: SigningKey, certificate: bytes) -> None:
        """Go by another certificate, and perhaps another key, from now on; a UserError says why not."""
        said, mine = _readable(certificate), self._own(certificate, identity)
        if not mine.is_valid(time.time()):
            raise UserError("the new certificate is not valid at this time; the one before stays")
        if mine.node != self.mine.node:
            raise UserError(f"the certificate is for node {mine.node}, and this is {self.mine.node}; restart the node")
        self.identity, self.voucher, self.card, self.mine = identity, certificate, written_card(said), mine
        self._issued_s = said.issued_s
        self.binding = self._bound()
        for tell in self.renewed:
            tell()

    def _judged(self, voucher: bytes) -> Member | Refusal:
        certificate = read_certificate(voucher)
        if certificate is None:
            return Refusal.MALFORMED
        refusal = self._refusal(certificate.card)
        if refusal is not None:
            return refusal
        try:
            publish, subscribe = (
                None if text is None else Filter(text) for text in (certificate.publish, certificate.subscribe)
            )
        except FilterError:
            return Refusal.MALFORMED
        return _member(certificate, voucher, publish, subscribe)

    def _judged_card(self, card: bytes) -> Member | Refusal:
        found = read_card(card)
        if found is None:
            return Refusal.MALFORMED
        return self._refusal(found) or _member(found, card)

    def _refusal(self, card: Card) -> Refusal | None:
        if self._list.revokes(card.node, card.issued_s):
            return Refusal.REVOKED
        return None if issued_by(self._operator, card) else Refusal.STRANGER

    @property
    def number(self) -> int:
        return self._list.number

    def difference(self, since: int) -> bytes:
        return self._list.difference(since)

    def take_revocations(self, text: bytes) -> bool:
        read = read_list(self._operator, text, self._list)
        return read is not None and self._take(read)

    def reload(self) -> str:
        """Read the file of the list again; what came of it, for the log."""
        if self._file is None or not self._file.exists():
            return "there is no list of revocations"
        read, before = self._read_file(self._file), self._list.number
        if self._take(read):
            return f"list of revocations number {read.number} counts from now on"
        if read.number < before:
            # Perhaps the operator's file was lost, and another begun: that must not go unnoticed.
            return f"the file's list of revocations has number {read.number}, and the newer number {before} counts"
        return f"list of revocations number {before}, nothing new"

    def _read_file(self, file: Path) -> Revocations:
        read = read_list(self._operator, read_key(file, KeyKind.REVOCATIONS)[1])
        if read is None:
            raise UserError(f"{file}: is no list of this network's operator that this version of carrycast can read")
        return read

    def _take(self, read: Revocations) -> bool:
        if read.number <= self._list.number:
            return False
        self._list = read
        self._members.clear()
        LOG.warning("list of revocations number %d: %d nodes are out", read.number, len(read.entries))
        if self._file is not None:
            try:
                write_key(self._file, KeyKind.REVOCATIONS, read.difference(0), replace=True)
            except WorkError as error:
                LOG.error("%s; the list counts until this node stops", error)
        for tell in self.changed:
            tell()
        return True


def _readable(certificate: bytes) -> Certificate:
    found = read_certificate(certificate)
    if found is None:
        raise UserError(f"this node's own certificate {why_unreadable(certificate)}")
    return found


def _member(
    said: Card | Certificate, voucher: bytes, publish: Filter | None = None, subscribe: Filter | None = None
) -> Member:
    return Member(
        said.node,
        said.key,
        voucher,
        publish,
        subscribe,
        said.attributes if isinstance(said, Certificate) else {},
        said.issued_s - CLOCK_SLACK_S,
        said.expires_s,
        said.grace_s,
    )


def date_of(time_s: float) -> str:
    """A time as people read it."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(time_s, 253_402_300_799)))
