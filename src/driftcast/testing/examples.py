"""What a protocol needs around it to run at all, said by the protocol itself.

Most run on bare links. One that needs more, a router beneath or nodes in roles, says so in its folder's package:
`EXAMPLE = {"router": {"name": "shortest_path"}, "roles": {"broker": [0]}}`, tables as a scenario has them.
"""

import importlib
from collections.abc import Iterator, Mapping

from driftcast.errors import UserError
from driftcast.protocol import UsesRouter
from driftcast.protocol.registry import PROTOCOLS, protocol_named, protocol_names


def example_tables(name: str) -> dict[str, object]:
    """The tables that a scenario must have, besides `protocol`, for a protocol to run in it."""
    protocol = protocol_named(name)
    written: object = getattr(importlib.import_module(f"{PROTOCOLS}.{name}"), "EXAMPLE", {})
    if not isinstance(written, Mapping):
        raise UserError(f"{name}: EXAMPLE is a table of scenario keys, not a {type(written).__name__}")
    tables = dict(written)
    if issubclass(protocol, UsesRouter) and "router" not in tables:
        raise UserError(
            f"{name}: sends through a router; its package must offer EXAMPLE = {{'router': {{'name': ...}}}}"
        )
    return tables


def examples() -> Iterator[dict[str, object]]:
    """The `protocol` table of every protocol there is: as it comes, and in each of its named variants."""
    for name in protocol_names():
        yield {"name": name}
        for variant in protocol_named(name).variants:
            yield {"name": name, "variant": variant}
