"""Gateways for clients of other protocols, one folder each, loaded only by a node whose configuration names it.

A folder offers `configured(table, place)`: a table of the configuration becomes an `Opener`.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from carrycast.core.model import NodeId
from carrycast.core.protocol import DurableStore
from carrycast.core.protocol import Protocol as Machine
from carrycast.node.api.node_interface import NodeInterface
from carrycast.node.storage.group_commit import GroupCommit
from carrycast.node.storage.store import NodeStore


class Backing(NamedTuple):
    """What a gateway is given of its node."""

    node: NodeInterface
    id: NodeId
    store: DurableStore
    """Its own part of the node's store; in memory if the node has none."""
    group_commit: GroupCommit
    protocol: Machine


class Door(Protocol):
    """Where somebody comes in: opened last when a node starts, and closed first when it stops."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Gateway(Door, Protocol):
    """A door for clients of another protocol."""

    @property
    def address(self) -> str: ...


Opener: TypeAlias = Callable[[Backing], Gateway]


def gateway_named(name: str) -> Callable[[Mapping[str, object], str], Opener]:
    """What makes a gateway of a table in a configuration; a UserError says what is wrong there."""
    configured: Callable[[Mapping[str, object], str], Opener] = importlib.import_module(
        f"carrycast.node.gateways.{name}"
    ).configured
    return configured


def opened(
    openers: Mapping[str, Opener],
    node: NodeInterface,
    id: NodeId,
    file: NodeStore,
    group_commit: GroupCommit,
    protocol: Machine,
) -> dict[str, Gateway]:
    """The gateways of a node, not started yet."""
    return {
        name: opener(Backing(node, id, file.application(f"gateway {name}"), group_commit, protocol))
        for name, opener in openers.items()
    }
