"""What a protocol needs around it to run at all, said by the protocol itself.

Most run on bare links, or bring their router along. One that needs more, such as nodes in roles, says so in its
folder's package, in tables as a scenario has them: `EXAMPLE = {"router": {"name": "aodv"}, "roles": {"broker": [0]}}`.
"""

import importlib
from collections.abc import Iterator, Mapping

from carrycast.core.protocol import Capability, UsesRouter
from carrycast.core.protocol.registry import protocol_named, protocol_names
from carrycast.core.stacks import select_protocol
from carrycast.errors import UserError


def example_tables(name: str) -> dict[str, object]:
    """The tables that a scenario must have, besides `protocol`, for a protocol to run in it."""
    protocol = protocol_named(name)
    package = importlib.import_module(protocol.__module__.rpartition(".")[0] or protocol.__module__)
    written: object = getattr(package, "EXAMPLE", {})
    if not isinstance(written, Mapping):
        raise UserError(f"{name}: EXAMPLE is a table of scenario keys, not a {type(written).__name__}")
    tables = dict(written)
    if issubclass(protocol, UsesRouter) and not protocol.router and "router" not in tables:
        raise UserError(
            f"{name}: sends through a router; it must name one, or its package offer EXAMPLE = {{'router': ...}}"
        )
    return tables


def examples() -> Iterator[dict[str, object]]:
    """The `protocol` table of every protocol there is: as it comes, and in each of its named variants.

    But for variants that need a map: the networks of tests have no roads.
    """
    for name in protocol_names():
        yield {"name": name}
        for variant in protocol_named(name).variants:
            table: dict[str, object] = {"name": name, "variant": variant}
            if Capability.MAP not in select_protocol(table, "examples")[1].needs():
                yield table
