"""Gateways: servers for clients of other protocols, loaded only by a node whose configuration names them.

A gateway is a plug-in of the kind `gateways` (`carrycast.core.plugins`): a subclass of `Gateway`, built in or from an
entry point of the group `carrycast.gateways`. The configuration of a node has a table `[gateways.NAME]` for it; that of
the built-in gateway for MQTT is `[mqtt]`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from carrycast.core.model import NodeId
from carrycast.core.plugins import find_plugin
from carrycast.core.protocol import DurableStore, Protocol as DisseminationProtocol
from carrycast.node.api import NodeInterface
from carrycast.node.storage import GroupCommit, NodeStore

GATEWAYS = {"mqtt": "carrycast.node.gateways.mqtt.gateway:MqttGateway"}
"""The built-in gateways by name."""


class GatewayContext(NamedTuple):
    """The parts of a node that a gateway uses."""

    node: NodeInterface
    id: NodeId
    store: DurableStore
    """The gateway's own keys in the node's store; in memory if the node has none."""
    group_commit: GroupCommit
    protocol: DisseminationProtocol


class Gateway(ABC):
    """A server for clients of another protocol. A node starts its gateways last and stops them first."""

    @abstractmethod
    def __init__(self, context: GatewayContext, settings: Any) -> None:
        """Make the gateway with the settings that `read_settings` has returned."""

    @classmethod
    @abstractmethod
    def read_settings(cls, table: Mapping[str, object], where: str) -> Any:
        """Read the gateway's table of the configuration `where`. Raises UserError if it is wrong."""

    @property
    @abstractmethod
    def address(self) -> str:
        """The address that clients connect to."""

    @abstractmethod
    async def start(self) -> None:
        """Listen for clients. Raises WorkError if the address is in use."""

    @abstractmethod
    async def stop(self) -> None:
        """Disconnect all clients and stop listening."""


GatewayFactory: TypeAlias = Callable[[GatewayContext], Gateway]


def configure_gateway(name: str, table: Mapping[str, object], where: str) -> GatewayFactory:
    """Check the settings of a gateway and return a function that makes it. Raises UserError if they are wrong."""
    kind: type[Gateway] = find_plugin("gateways", name)
    settings = kind.read_settings(table, where)
    return lambda context: kind(context, settings)


def make_gateways(
    factories: Mapping[str, GatewayFactory],
    node: NodeInterface,
    id: NodeId,
    store: NodeStore,
    group_commit: GroupCommit,
    protocol: DisseminationProtocol,
) -> dict[str, Gateway]:
    """Make the gateways of a node, without starting them."""
    return {
        name: factory(GatewayContext(node, id, store.application(f"gateway {name}"), group_commit, protocol))
        for name, factory in factories.items()
    }
