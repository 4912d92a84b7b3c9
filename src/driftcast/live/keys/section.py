"""The table of keys in a node's configuration; a node without it loads nothing else of this folder."""

from typing import Annotated

import msgspec
from msgspec import Meta

TOGETHER = 16
"""Of the cost of a signature a sixteenth is left, and a path has 96 bytes."""


class KeysSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files: this node's key, and what shows who belongs to its network."""

    identity: str
    network: str | None = None
    certificate: str | None = None
    operator: str | None = None
    revocations: str | None = None
    together: Annotated[
        int,
        Meta(ge=1, le=256, description="the most events, published at the same time, that one signature is for"),
    ] = TOGETHER
