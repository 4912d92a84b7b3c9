"""Which certificates an operator has given, in a file beside its key: a line for each, added and never changed.

To revoke a node takes to know when the last of its certificates ends: until then the node stays on the list.
"""

import os
from pathlib import Path

import msgspec

from carrycast.core.model import NodeId
from carrycast.errors import UserError, WorkError
from carrycast.node.security.certificate import Certificate


class Issued(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One certificate."""

    node: NodeId
    name: str
    issued_s: float
    expires_s: float
    grace_s: float


def ledger_of(operator: Path) -> Path:
    """The file that belongs to an operator's key."""
    return operator.with_name(f"{operator.name}.issued")


def note_issued(operator: Path, certificate: Certificate) -> None:
    """Write down, for good, that a certificate is given."""
    said = certificate
    line = msgspec.json.encode(Issued(said.node, said.name, said.issued_s, said.expires_s, said.grace_s)) + b"\n"
    path = ledger_of(operator)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise WorkError(f"cannot write {path}: {error.strerror or error}") from None


def issued_to(operator: Path, node: NodeId) -> list[Issued]:
    """The certificates that a node was given, as far as is known."""
    path = ledger_of(operator)
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(msgspec.json.decode(line, type=Issued))
        except msgspec.MsgspecError as error:
            raise UserError(f"{path}: line {number}: {error}; mend or remove the line") from None
    return [one for one in found if one.node == node]
