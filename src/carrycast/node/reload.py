"""A configuration that is read again while its node runs (SIGHUP): what can change does, what cannot is named.

What can: who the `peers` are, whatever the stack can retune (`discovery`, `protocol`, `router`), and `log`. Everything
else needs a restart, and the log says so. A file that is wrong changes nothing.
"""

import asyncio
from pathlib import Path
from typing import Protocol

import msgspec

from carrycast.core.model import Scalar
from carrycast.core.protocol import Interface, StackPlan
from carrycast.core.protocol.machine import Settings
from carrycast.errors import UserError, WorkError
from carrycast.node.config import NodeConfig, NodeFile, load_config, read_file
from carrycast.node.link.adapter import LinkAdapter, LinkAddress
from carrycast.node.link.config import InterfaceConfig
from carrycast.node.link.interface import RESOLVE_S
from carrycast.node.logs import set_up
from carrycast.node.recorder import LOG

TUNED = ("discovery", "protocol", "router")
ELSEWHERE = frozenset({*TUNED, "interfaces", "log"})
"""Sections of which some keys can change."""


class Reloaded(Protocol):
    """What is asked of the node."""

    config: NodeConfig

    def add_peer(self, address: LinkAddress, on: Interface | None = None) -> None: ...

    def remove_peer(self, address: LinkAddress, on: Interface | None = None) -> None: ...

    def tune(self, name: str, value: Scalar) -> str: ...


class Reloading:
    """One node's file, and what the node goes by. Each reading is held against that, not against the one before: what
    waits for a restart is named every time, and what was taken back is not."""

    def __init__(self, node: Reloaded, path: Path) -> None:
        self._node = node
        self._path = path
        self._file = read_file(path)
        self._tuned = {
            f"{place}.{key}": getattr(settings, key)
            for place, settings in _settings(node.config.plan).items()
            for key in (() if settings is None else settings.__struct_fields__)
        }
        self._peers = {one.name: set(one.peers) for one in node.config.interfaces}
        self._looked_for: dict[tuple[Interface, LinkAddress], asyncio.Task[None]] = {}
        """Peers of a later reading whose names are not known yet."""
        self._turn = asyncio.Lock()

    async def reload(self) -> list[str]:
        """Read it again and change what can be changed; what cannot, by name."""
        # Names take their time: what is read later must not be overtaken by what was read before.
        async with self._turn:
            return await self._reload()

    async def _reload(self) -> list[str]:
        try:
            file, config = read_file(self._path), load_config(self._path)
        except (UserError, WorkError) as error:
            LOG.error("the configuration stays as it was: %s", error)
            return []
        left = [key for key in NodeFile.__struct_fields__ if key not in ELSEWHERE and self._differs(file, key)]
        left += await self._reload_interfaces(config)
        left += self._tune(config.plan)
        plan = self._node.config.plan
        if config.plan.protocol is not plan.protocol or config.plan.router is not plan.router:
            left.append("protocol.name, router.name")
        set_up(file.log)
        if left:
            LOG.warning("restart the node for what cannot change while it runs: %s", ", ".join(left))
        LOG.info("the configuration was read again", extra={"fields": {"file": str(self._path)}})
        return left

    def _differs(self, file: NodeFile, key: str) -> bool:
        return bool(getattr(file, key) != getattr(self._file, key))

    async def _reload_interfaces(self, config: NodeConfig) -> list[str]:
        """Peers come and go; the rest of an interface is for its socket, which is open."""
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
        """Add those that are new and remove those that are gone; whom it cannot remove, for want of an address."""
        left, adapter = [], one.make_adapter()
        for peer in self._peers[one.name] - wanted:
            looked_for = self._looked_for.pop((one.name, peer), None)
            if looked_for is None or looked_for.done():
                try:
                    address = await adapter.resolve_address(peer)
                except WorkError as error:
                    LOG.warning("%s", error, extra={"fields": {"peer": adapter.format_address(peer)}})
                    left.append(f"peer {adapter.format_address(peer)}")
                    continue
                # Whoever writes a number in the place of a name means the same peer.
                if address not in wanted:
                    self._node.remove_peer(address, one.name)
            else:
                looked_for.cancel()
            self._peers[one.name].discard(peer)
        for peer in wanted - self._peers[one.name]:
            self._peers[one.name].add(peer)
            try:
                self._node.add_peer(await adapter.resolve_address(peer), one.name)
            except WorkError as error:
                LOG.warning("%s; it is tried again", error, extra={"fields": {"interface": one.name}})
                self._looked_for[one.name, peer] = asyncio.create_task(self._look_for(peer, one.name, adapter))
        return left

    async def _look_for(self, peer: LinkAddress, on: Interface, adapter: LinkAdapter) -> None:
        """A name may not be known yet, as at the start of the node."""
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
        before = _settings(self._node.config.plan)
        for place, wanted in _settings(plan).items():
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


def _settings(plan: StackPlan) -> dict[str, Settings | None]:
    """Of a stack what may be retuned, by its place in the file."""
    return {"discovery": plan.beacons, "protocol": plan.settings, "router": plan.router_settings}
