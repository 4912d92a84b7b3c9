"""The commands of `carrycast keys`: make keys, certificates and revocation lists, and describe key files.

The issuance log of an operator is an append-only file beside its key, with a line for each certificate that it issued.
The log tells when the last certificate of a node expires. Until then a revoked node stays on the revocation list.
"""

import math
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from carrycast.core.model import MAX_NODE_ID, FilterText, NodeId, Scalar
from carrycast.errors import UserError, WorkError
from carrycast.node.security.certificate import (
    DAY_S,
    FORMAT,
    GRACE_S,
    Certificate,
    explain_unreadable,
    issue_certificate,
    read_certificate,
)
from carrycast.node.security.identity import derive_node_id
from carrycast.node.security.key_files import KeyKind, read_key, write_key
from carrycast.node.security.membership import CLOCK_SLACK_S
from carrycast.node.security.primitives import PRIVATE_BYTES, SECRET_BYTES, SigningKey
from carrycast.node.security.revocations import (
    NEVER_S,
    RevocationList,
    RevocationTimes,
    read_revocation_list,
    read_unsigned,
    revoke_nodes,
)


class IssuedCertificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the issuance log."""

    node: NodeId
    name: str
    issued_s: float
    expires_s: float
    grace_s: float


def issuance_log_path(operator: Path) -> Path:
    """Return the path of an operator's issuance log."""
    return operator.with_name(f"{operator.name}.issued")


def log_issuance(operator: Path, certificate: Certificate) -> None:
    """Append a certificate to the issuance log, durably."""
    issued = IssuedCertificate(
        certificate.node, certificate.name, certificate.issued_s, certificate.expires_s, certificate.grace_s
    )
    line = msgspec.json.encode(issued) + b"\n"
    path = issuance_log_path(operator)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise WorkError(f"cannot write {path}: {error.strerror or error}") from None


def read_issued_certificates(operator: Path, node: NodeId) -> list[IssuedCertificate]:
    """Read the certificates of a node in the issuance log."""
    path = issuance_log_path(operator)
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(msgspec.json.decode(line, type=IssuedCertificate))
        except msgspec.MsgspecError as error:
            raise UserError(f"{path}: line {number}: {error}; mend or remove the line") from None
    return [one for one in found if one.node == node]


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_DAYS = 36_500.0


def make_key_pair(path: Path, kind: KeyKind) -> Path:
    """Write a new private key of a node or an operator, and its public key beside it; the path of the latter."""
    public = path.with_name(f"{path.name}.pub")
    if public.exists():
        raise UserError(f"{public}: is there already; choose another name")
    private = secrets.token_bytes(PRIVATE_BYTES)
    # Before a file is written, because this fails without the library.
    text = SigningKey(private).public
    write_key(path, kind, private)
    write_key(public, KeyKind.PUBLIC, text)
    return public


def make_network_secret(path: Path) -> None:
    """Write a new secret for all nodes of a network."""
    write_key(path, KeyKind.NETWORK, secrets.token_bytes(SECRET_BYTES))


def certify(
    public: Path,
    operator: Path,
    out: Path,
    name: str,
    node: NodeId | None = None,
    publish: FilterText | None = None,
    subscribe: FilterText | None = None,
    attributes: Mapping[str, Scalar] | None = None,
    days: float = 365.0,
    grace_days: float = GRACE_S / DAY_S,
) -> Certificate:
    """Issue a certificate of a node; a UserError says what is wrong."""
    if NAME.fullmatch(name) is None:
        raise UserError(f"--name: {name!r} is no name of a node: letters, digits, dot, underscore, minus; at most 64")
    if not 0 < days <= MAX_DAYS:
        raise UserError(f"--days: above 0 and at most {MAX_DAYS:g}, not {days:g}")
    if not 0 <= grace_days <= MAX_DAYS:
        raise UserError(f"--grace: at least 0 and at most {MAX_DAYS:g}, not {grace_days:g}")
    if node is not None and not 0 <= node <= MAX_NODE_ID:
        raise UserError(f"--id: a number from 0 to {MAX_NODE_ID}, not {node}")
    key = read_key(public, KeyKind.PUBLIC)[1]
    signer = SigningKey(read_key(operator, KeyKind.OPERATOR)[1])
    if key == signer.public:
        raise UserError(f"{public}: is the operator's own key; a node has a key of its own (carrycast keys new)")
    node = derive_node_id(name.encode()) if node is None else node
    # Later than all earlier certificates, even if a clock was ahead: a revocation of those must not include this one.
    now_s = max([time.time(), *(one.issued_s + 1.0 for one in read_issued_certificates(operator, node))])
    certificate = Certificate(
        FORMAT,
        node,
        key,
        name,
        now_s,
        now_s + days * DAY_S,
        publish,
        subscribe,
        dict(attributes or {}),
        grace_days * DAY_S,
    )
    issued = issue_certificate(signer, certificate)
    # Logged first: the end of a certificate that is not in the log would be unknown when it is revoked.
    log_issuance(operator, certificate)
    # A newer certificate replaces an older one.
    write_key(out, KeyKind.CERTIFICATE, issued, replace=True)
    return certificate


def revoke(nodes: Sequence[str], operator: Path, list_file: Path) -> RevocationList:
    """Add nodes to an operator's revocation list, which is created if there is none. A node stays on the list until its
    last certificate and the grace period have ended, with a margin of a day for wrong clocks; for ever, if its
    certificates are not in the issuance log."""
    signer = SigningKey(read_key(operator, KeyKind.OPERATOR)[1])
    before = RevocationList()
    if list_file.exists():
        read = read_revocation_list(signer.public, read_key(list_file, KeyKind.REVOCATIONS)[1])
        if read is None:
            raise UserError(f"{list_file}: is no list of this operator that this version of carrycast can read")
        before = read
    revoked, now_s = dict[NodeId, RevocationTimes](), time.time()
    for text in nodes:
        node = _parse_node(text)
        given = read_issued_certificates(operator, node)
        # If a clock was ahead, certificates may be dated in the future; these are revoked, too.
        before_s = max([now_s, *(one.issued_s for one in given)])
        end_s = max((one.expires_s + one.grace_s + CLOCK_SLACK_S for one in given), default=NEVER_S)
        revoked[node] = RevocationTimes(before_s, end_s)
    after = revoke_nodes(signer, before, revoked, now_s)
    write_key(list_file, KeyKind.REVOCATIONS, after.encode_delta(0), replace=True)
    return after


def _parse_node(text: str) -> NodeId:
    """Return the id of a node that is given by id, by name, or by the file of its certificate."""
    if text.isdecimal():
        if int(text) > MAX_NODE_ID:
            raise UserError(f"{text}: node ids are at most {MAX_NODE_ID}")
        return int(text)
    path = Path(text)
    if path.is_file():
        return _parse_certificate(path, read_key(path, KeyKind.CERTIFICATE)[1]).node
    if NAME.fullmatch(text) is None:
        raise UserError(f"{text}: neither the name nor the id of a node, nor the file of its certificate")
    return derive_node_id(text.encode())


def _parse_certificate(path: Path, content: bytes) -> Certificate:
    found = read_certificate(content)
    if found is None:
        raise UserError(f"{path}: {explain_unreadable(content)}")
    return found


def describe_key_file(path: Path) -> dict[str, object]:
    """Describe the content of a key file, without its secrets."""
    kind, content = read_key(path, *KeyKind)
    facts: dict[str, object] = {"kind": str(kind)}
    if kind in (KeyKind.IDENTITY, KeyKind.OPERATOR):
        content = SigningKey(content).public
    if kind in (KeyKind.IDENTITY, KeyKind.PUBLIC):
        facts["node"] = derive_node_id(content)
        facts["meaning"] = "the node's id in a network with a secret; a certificate may give another"
    if kind in (KeyKind.IDENTITY, KeyKind.OPERATOR, KeyKind.PUBLIC):
        facts["public"] = content.hex()
    elif kind is KeyKind.CERTIFICATE:
        certificate = _parse_certificate(path, content)
        facts |= {
            "name": certificate.name,
            "node": certificate.node,
            "public": certificate.key.hex(),
            "issued": _format_time(certificate.issued_s),
            "expires": _format_time(certificate.expires_s),
            "events accepted until": _format_time(certificate.expires_s + certificate.grace_s),
            "publish": "anything" if certificate.publish is None else certificate.publish,
            "subscribe": "anything" if certificate.subscribe is None else certificate.subscribe,
            "attributes": certificate.attributes,
            "bytes": len(content),
        }
    elif kind is KeyKind.REVOCATIONS:
        facts |= _describe_list(path, content)
    return facts


def _describe_list(path: Path, content: bytes) -> dict[str, object]:
    # Not verified here: only nodes know the key of their operator.
    found = read_unsigned(content)
    if found is None:
        raise UserError(f"{path}: holds no list that can be read")
    revoked = {
        str(node): f"{_format_time(one.before_s)}, on the list until {_format_time(one.until_s)}"
        for node, one in found.entries.items()
    }
    return {"number": found.number, "issued": _format_time(found.issued_s), "revoked": revoked}


def _format_time(time_s: float) -> str:
    if not math.isfinite(time_s) or time_s > 253_402_300_799:  # the last second of the year 9999
        return "never"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_s))
