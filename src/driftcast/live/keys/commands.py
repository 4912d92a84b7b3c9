"""What `driftcast keys` does: makes keys, certificates and lists of revocations, and shows what a file holds."""

import math
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from driftcast.errors import UserError
from driftcast.live.keys.certificate import Certificate, Revocations, issue, read_certificate, read_list, sign_list
from driftcast.live.keys.files import KeyKind, read_key, write_key
from driftcast.live.keys.ids import node_of
from driftcast.live.keys.primitives import PRIVATE_BYTES, SECRET_BYTES, SigningKey
from driftcast.model import MAX_NODE_ID, FilterText, NodeId, Scalar

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DAY_S = 86_400.0
MAX_DAYS = 36_500.0


def new_pair(path: Path, kind: KeyKind) -> Path:
    """A private key, of a node or of an operator, and beside it the file of its public key."""
    public = path.with_name(f"{path.name}.pub")
    if public.exists():
        raise UserError(f"{public}: is there already; choose another name")
    private = secrets.token_bytes(PRIVATE_BYTES)
    # First what may fail for want of the library.
    text = SigningKey(private).public
    write_key(path, kind, private)
    write_key(public, KeyKind.PUBLIC, text)
    return public


def new_network(path: Path) -> None:
    """A secret for all nodes of a network."""
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
) -> Certificate:
    """A node's certificate, from an operator; a UserError says what is wrong."""
    if NAME.fullmatch(name) is None:
        raise UserError(f"--name: {name!r} is no name of a node: letters, digits, dot, underscore, minus; at most 64")
    if not 0 < days <= MAX_DAYS:
        raise UserError(f"--days: above 0 and at most {MAX_DAYS:g}, not {days:g}")
    if node is not None and not 0 <= node <= MAX_NODE_ID:
        raise UserError(f"--id: a number from 0 to {MAX_NODE_ID}, not {node}")
    key = read_key(public, KeyKind.PUBLIC)[1]
    signer = SigningKey(read_key(operator, KeyKind.OPERATOR)[1])
    if key == signer.public:
        raise UserError(f"{public}: is the operator's own key; a node has a key of its own (driftcast keys new)")
    now_s = time.time()
    certificate = Certificate(
        1,
        node_of(name.encode()) if node is None else node,
        key,
        name,
        now_s,
        now_s + days * DAY_S,
        publish,
        subscribe,
        dict(attributes or {}),
    )
    # A newer certificate takes the place of an older one.
    write_key(out, KeyKind.CERTIFICATE, issue(signer, certificate), replace=True)
    return certificate


def revoke(nodes: Sequence[str], operator: Path, list_file: Path) -> Revocations:
    """Add nodes to an operator's list, which is made if there is none."""
    signer = SigningKey(read_key(operator, KeyKind.OPERATOR)[1])
    before = Revocations()
    if list_file.exists():
        read = read_list(signer.public, read_key(list_file, KeyKind.REVOCATIONS)[1])
        if read is None:
            raise UserError(f"{list_file}: is not signed by this operator")
        before = read
    now_s = time.time()
    before_s = {**before.before_s, **{_node(text): now_s for text in nodes}}
    after = Revocations(number=before.number + 1, before_s=before_s)
    write_key(list_file, KeyKind.REVOCATIONS, sign_list(signer, after), replace=True)
    return after


def _node(text: str) -> NodeId:
    """A node by id, by name, or by its certificate."""
    if text.isdecimal():
        if int(text) > MAX_NODE_ID:
            raise UserError(f"{text}: node ids are at most {MAX_NODE_ID}")
        return int(text)
    path = Path(text)
    if path.is_file():
        found = read_certificate(read_key(path, KeyKind.CERTIFICATE)[1])
        if found is None:
            raise UserError(f"{path}: holds no certificate that can be read")
        return found.node
    if NAME.fullmatch(text) is None:
        raise UserError(f"{text}: neither the name nor the id of a node, nor the file of its certificate")
    return node_of(text.encode())


def shown(path: Path) -> dict[str, object]:
    """What a file holds, without its secrets."""
    kind, content = read_key(path, *KeyKind)
    facts: dict[str, object] = {"kind": str(kind)}
    if kind in (KeyKind.IDENTITY, KeyKind.OPERATOR):
        content = SigningKey(content).public
    if kind in (KeyKind.IDENTITY, KeyKind.PUBLIC):
        facts["node"] = node_of(content)
        facts["meaning"] = "the node's id in a network with a secret; a certificate may give another"
    if kind in (KeyKind.IDENTITY, KeyKind.OPERATOR, KeyKind.PUBLIC):
        facts["public"] = content.hex()
    elif kind is KeyKind.CERTIFICATE:
        certificate = read_certificate(content)
        if certificate is None:
            raise UserError(f"{path}: holds no certificate that can be read")
        facts |= {
            "name": certificate.name,
            "node": certificate.node,
            "public": certificate.key.hex(),
            "issued": _date(certificate.issued_s),
            "expires": _date(certificate.expires_s),
            "publish": "anything" if certificate.publish is None else certificate.publish,
            "subscribe": "anything" if certificate.subscribe is None else certificate.subscribe,
            "attributes": certificate.attributes,
            "bytes": len(content),
        }
    elif kind is KeyKind.REVOCATIONS:
        facts |= _list_facts(path, content)
    return facts


def _list_facts(path: Path, content: bytes) -> dict[str, object]:
    import msgspec

    try:
        # Who signed it is for nodes to judge: they know their operator.
        found = msgspec.msgpack.decode(content, type=Revocations)
    except (msgspec.MsgspecError, ValueError):
        raise UserError(f"{path}: holds no list that can be read") from None
    return {"number": found.number, "revoked": {str(node): _date(at_s) for node, at_s in found.before_s.items()}}


def _date(time_s: float) -> str:
    if not math.isfinite(time_s) or time_s > 253_402_300_799:  # the last second of the year 9999
        return "never"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_s))
