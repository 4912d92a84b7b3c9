"""The keys of a node, read from the files that its configuration names."""

from dataclasses import dataclass
from pathlib import Path

from carrycast.errors import UserError
from carrycast.node.security.identity import SIGNATURE_BATCH, WARN_DAYS, KeysSection
from carrycast.node.security.key_files import KeyKind, read_key
from carrycast.node.security.membership import Certified, Membership, SharedSecret
from carrycast.node.security.primitives import SigningKey
from carrycast.node.security.verification import MessageVerifier


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a node. Each start of the node makes its own membership from them."""

    private: bytes
    secret: bytes | None = None
    certificate: bytes = b""
    operator: bytes = b""
    list_file: Path | None = None
    signature_batch: int = SIGNATURE_BATCH
    warn_days: float = WARN_DAYS
    files: tuple[KeysSection, Path] | None = None
    """The table of the configuration and its file, from which the keys can be read again."""

    def make_verifier(self) -> MessageVerifier:
        """Make the verifier of received messages; a UserError says what is wrong with this node's own keys."""
        return MessageVerifier(self.make_membership(), self.signature_batch)

    def reread(self) -> "Keys":
        """Read the files again; a UserError says what is wrong with them."""
        return self if self.files is None else read_keys(*self.files)

    def make_membership(self) -> Membership:
        """Make the membership of this node in its network."""
        identity = SigningKey(self.private)
        if self.secret is not None:
            return SharedSecret(identity, self.secret)
        return Certified(identity, self.certificate, self.operator, self.list_file)


def read_keys(section: KeysSection, path: Path) -> Keys:
    """Read the key files of a configuration at a path; a UserError says what is wrong."""
    folder = path.parent
    if section.together is not None:
        raise UserError(f"{path}: keys.together: is now called signature_batch")
    private = read_key(folder / section.identity, KeyKind.IDENTITY)[1]
    if (section.network is None) == (section.certificate is None):
        raise UserError(
            f"{path}: keys: give either network (the secret of all nodes), or certificate and operator (from who runs "
            f"the network)"
        )
    if section.network is not None:
        for name in ("operator", "revocations"):
            if getattr(section, name) is not None:
                raise UserError(f"{path}: keys.{name}: belongs to a network with certificates; leave it out")
        secret = read_key(folder / section.network, KeyKind.NETWORK)[1]
        return Keys(private, secret, signature_batch=section.signature_batch, files=(section, path))
    if section.certificate is None or section.operator is None:
        raise UserError(f"{path}: keys.operator: name the file of the operator's public key")
    return Keys(
        private,
        None,
        read_key(folder / section.certificate, KeyKind.CERTIFICATE)[1],
        read_key(folder / section.operator, KeyKind.PUBLIC)[1],
        None if section.revocations is None else folder / section.revocations,
        section.signature_batch,
        section.warn_days,
        (section, path),
    )
