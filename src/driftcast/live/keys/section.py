"""The table of keys in a node's configuration; a node without it loads nothing else of this folder."""

import msgspec


class KeysSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files: this node's key, and what shows who belongs to its network."""

    identity: str
    network: str | None = None
    certificate: str | None = None
    operator: str | None = None
    revocations: str | None = None
