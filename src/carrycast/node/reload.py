"""Reloads a node's configuration while the node runs (SIGHUP).

The `peers`, the settings that the stack can retune (`discovery`, `protocol`, `router`) and `log` can change. All other
changes need a restart, and are named in the log. A file with an error changes nothing.
"""

import asyncio
from pathlib import Path
from typing import Protocol

import msgspec

from carrycast.core.model import Scalar
from carrycast.core.protocol import Interface, Settings, StackPlan
from carrycast.errors import UserError, WorkError
from carrycast.node.config import NodeConfig, load_config
from carrycast.node.config_file import NodeFile, read_config_file
from carrycast.node.link import RESOLVE_S, InterfaceConfig, LinkAdapter, LinkAddress
from carrycast.node.logs import set_up_logging
from carrycast.node.recorder import LOG

TUNED = ("discovery", "protocol", "router")
"""The tables of the settings of the stack."""
PARTLY_RELOADABLE = frozenset({*TUNED, "interfaces", "log"})
"""Tables of which some keys can change."""


class ReloadableNode(Protocol):
    """The methods of a node that a reload uses."""

    config: NodeConfig

    def add_peer(self, address: LinkAddress, on: Interface | None = None) -> None: ...

    def remove_peer(self, address: LinkAddress, on: Interface | None = None) -> None: ...

    def tune(self, name: str, value: Scalar) -> str: ...


class ConfigReload:
    """The configuration file of one node, and the configuration that the node runs with. Each reload is compared with
    the latter: a change that needs a restart is named every time until it is undone."""

    def __init__(self, node: ReloadableNode, path: Path) -> None:
        self._node = node
        self._path = path
        self._file = read_config_file(path)
        self._tuned = {
            f"{place}.{key}": getattr(settings, key)
            for place, settings in _find_settings(node.config.plan).items()
            for key in (() if settings is None else settings.__struct_fields__)
        }
        self._peers = {one.name: set(one.peers) for one in node.config.interfaces}
        self._resolving: dict[tuple[Interface, LinkAddress], asyncio.Task[None]] = {}
        """Peers of a later reload whose host names are not resolved yet."""
        self._turn = asyncio.Lock()

    async def reload(self) -> list[str]:
        """Read the file again and apply the changes; returns the keys that need a restart."""
        # Resolving host names takes time: a later reload must not be overtaken by an earlier one.
        async with self._turn:
            return await self._reload()

    async def _reload(self) -> list[str]:
        try:
            file, config = read_config_file(self._path), load_config(self._path)
        except (UserError, WorkError) as error:
            LOG.error("the configuration is not changed: %s", error)
            return []
        left = [key for key in NodeFile.__struct_fields__ if key not in PARTLY_RELOADABLE and self._differs(file, key)]
        left += await self._reload_interfaces(config)
        left += self._tune(config.plan)
        plan = self._node.config.plan
        if config.plan.protocol is not plan.protocol or config.plan.router is not plan.router:
            left.append("protocol.name, router.name")
        set_up_logging(file.log)
        if left:
            LOG.warning("restart the node for what cannot change while it runs: %s", ", ".join(left))
        LOG.info("the configuration was read again", extra={"fields": {"file": str(self._path)}})
        return left

    def _differs(self, file: NodeFile, key: str) -> bool:
        return bool(getattr(file, key) != getattr(self._file, key))

    async def _reload_interfaces(self, config: NodeConfig) -> list[str]:
        """Only the peers of an interface can change; its socket is open."""
        before = {one.name: one for one in self._node.config.interfaces}
        after = {one.name: one for one in config.interfaces}
        left = [f"interface {name}" for name in before.keys() ^ after.keys()]
        for name in before.keys() & after.keys():
            old, new = before[name], after[name]
            if (old.kind, old.adapter, old.link) != (new.kind, new.adapter, new.link):
                left.append(f"host, port, group and link of interface {name}")
            left += await self._reload_peers(old, set(new.peers))
        return left

    async def _reload_peers(self, one: InterfaceConfig, wanted: set[LinkAddress]) -> list[str]:
        """Add new peers and remove old ones. Returns the peers that cannot be removed, because their names cannot be
        resolved."""
        left, adapter = [], one.make_adapter()
        for peer in self._peers[one.name] - wanted:
            resolving = self._resolving.pop((one.name, peer), None)
            if resolving is None or resolving.done():
                try:
                    address = await adapter.resolve_address(peer)
                except WorkError as error:
                    LOG.warning("%s", error, extra={"fields": {"peer": adapter.format_address(peer)}})
                    left.append(f"peer {adapter.format_address(peer)}")
                    continue
                # The same peer may now be written as a number in place of its name.
                if address not in wanted:
                    self._node.remove_peer(address, one.name)
            else:
                resolving.cancel()
            self._peers[one.name].discard(peer)
        for peer in wanted - self._peers[one.name]:
            self._peers[one.name].add(peer)
            try:
                self._node.add_peer(await adapter.resolve_address(peer), one.name)
            except WorkError as error:
                LOG.warning("%s; it is tried again", error, extra={"fields": {"interface": one.name}})
                self._resolving[one.name, peer] = asyncio.create_task(self._resolve_later(peer, one.name, adapter))
        return left

    async def _resolve_later(self, peer: LinkAddress, on: Interface, adapter: LinkAdapter) -> None:
        """Resolve a host name repeatedly, as at the start of the node."""
        while True:
            await asyncio.sleep(RESOLVE_S)
            try:
                address = await adapter.resolve_address(peer)
            except WorkError:
                continue
            self._node.add_peer(address, on)
            LOG.info("a peer is found", extra={"fields": {"peer": adapter.format_address(peer), "interface": on}})
            return

    def _tune(self, plan: StackPlan) -> list[str]:
        left = []
        before = _find_settings(self._node.config.plan)
        for place, wanted in _find_settings(plan).items():
            if wanted is None or type(wanted) is not type(before[place]):
                continue
            for key in wanted.__struct_fields__:
                name, value = f"{place}.{key}", getattr(wanted, key)
                if value == self._tuned[name]:
                    continue
                if self._node.tune(name, msgspec.to_builtins(value)):
                    left.append(name)
                else:
                    self._tuned[name] = value
        return left


def _find_settings(plan: StackPlan) -> dict[str, Settings | None]:
    """Return the settings of a stack by their tables in the file."""
    return {"discovery": plan.beacons, "protocol": plan.settings, "router": plan.router_settings}
