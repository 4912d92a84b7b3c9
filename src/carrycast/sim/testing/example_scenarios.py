"""The scenario tables that a protocol needs to run at all, declared by the protocol itself.

Most protocols run on bare links or name their router. A protocol that needs more, such as nodes in roles, declares it
in its folder's package, as tables of a scenario: `EXAMPLE = {"router": {"name": "aodv"}, "roles": {"broker": [0]}}`.
"""

import importlib
from collections.abc import Iterator, Mapping

from carrycast.core.plugins import PROTOCOLS, folders_of
from carrycast.core.protocol import Capability, UsesRouter, find_protocol, protocol_names
from carrycast.core.stacks import select_protocol
from carrycast.errors import UserError


def example_tables(name: str, scenario: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the tables that a scenario must have, besides `protocol`, for a protocol to run in it.

    Tables that `scenario` already has replace those of the protocol's package.
    """
    protocol = find_protocol(name)
    offered: object = getattr(importlib.import_module(_package_of(name, protocol)), "EXAMPLE", {})
    if not isinstance(offered, Mapping):
        raise UserError(f"{name}: EXAMPLE is a table of scenario keys, not a {type(offered).__name__}")
    tables = {**offered, **(scenario or {})}
    if issubclass(protocol, UsesRouter) and not protocol.router and "router" not in tables:
        raise UserError(
            f"{name}: sends through a router; it must name one, or its package offer EXAMPLE = {{'router': ...}}"
        )
    return tables


def _package_of(name: str, protocol: type) -> str:
    """Return the package that offers a protocol. A protocol's folder may import its class from another package."""
    if name in folders_of(PROTOCOLS):
        return f"{PROTOCOLS}.{name}"
    return protocol.__module__.rpartition(".")[0] or protocol.__module__


def examples() -> Iterator[dict[str, object]]:
    """Yield the `protocol` table of every protocol: with its defaults, and in each of its named variants.

    Variants that need a map are left out: the networks of tests have no roads.
    """
    for name in protocol_names():
        yield {"name": name}
        for variant in find_protocol(name).variants:
            table: dict[str, object] = {"name": name, "variant": variant}
            if Capability.MAP not in select_protocol(table, "examples")[1].needs():
                yield table
