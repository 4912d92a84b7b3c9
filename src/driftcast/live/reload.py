"""A configuration that is read again while its node runs (SIGHUP): what can change does, what cannot is named.

What can: who the `peers` are, whatever the stack can retune (`discovery`, `protocol`, `router`), and `log`. Everything
else needs a restart, and the log says so. A file that is wrong changes nothing.
"""

from pathlib import Path
from typing import Protocol

import msgspec

from driftcast.errors import UserError, WorkError
from driftcast.live.config import NodeConfig, NodeFile, load_config, read_file
from driftcast.live.link.address import Address, format_address, resolve
from driftcast.live.logs import set_up
from driftcast.live.record import LOG
from driftcast.model import Scalar
from driftcast.protocol import Interface
from driftcast.protocol.machine import Settings

TUNED = ("discovery", "protocol", "router")
ELSEWHERE = frozenset({*TUNED, "interfaces", "log"})
"""Sections of which some keys can change."""


class Reloaded(Protocol):
    """What is asked of the node."""

    config: NodeConfig

    def add_peer(self, address: Address, on: Interface | None = None) -> None: ...

    def remove_peer(self, address: Address, on: Interface | None = None) -> None: ...

    def tune(self, name: str, value: Scalar) -> str: ...


class Reloading:
    """One node's file, as it was read last."""

    def __init__(self, node: Reloaded, path: Path) -> None:
        self._node = node
        self._path = path
        self._file = read_file(path)
        self._config = node.config

    async def reload(self) -> list[str]:
        """Read it again and change what can be changed; what cannot, by name."""
        try:
            file, config = read_file(self._path), load_config(self._path)
        except (UserError, WorkError) as error:
            LOG.error("the configuration stays as it was: %s", error)
            return []
        left = [key for key in NodeFile.__struct_fields__ if key not in ELSEWHERE and self._differs(file, key)]
        left += await self._reload_interfaces(config)
        for place, before, after in (
            ("discovery", self._config.plan.beacons, config.plan.beacons),
            ("protocol", self._config.plan.settings, config.plan.settings),
            ("router", self._config.plan.router_settings, config.plan.router_settings),
        ):
            left += self._tune(place, before, after)
        if config.plan.protocol is not self._config.plan.protocol or config.plan.router is not self._config.plan.router:
            left.append("protocol.name, router.name")
        set_up(file.log)
        self._file, self._config = file, config
        if left:
            LOG.warning("restart the node for what cannot change while it runs: %s", ", ".join(left))
        LOG.info("the configuration was read again", extra={"fields": {"file": str(self._path)}})
        return left

    def _differs(self, file: NodeFile, key: str) -> bool:
        return bool(getattr(file, key) != getattr(self._file, key))

    async def _reload_interfaces(self, config: NodeConfig) -> list[str]:
        """Peers come and go; the rest of an interface is for its socket, which is open."""
        before = {one.name: one for one in self._config.interfaces}
        after = {one.name: one for one in config.interfaces}
        left = [f"interface {name}" for name in before.keys() ^ after.keys()]
        for name in before.keys() & after.keys():
            old, new = before[name], after[name]
            if (old.host, old.port, old.group, old.link) != (new.host, new.port, new.group, new.link):
                left.append(f"host, port, group and link of interface {name}")
            family = new.transport().family
            for peer in set(old.peers) ^ set(new.peers):
                try:
                    address = await resolve(peer, family)
                except WorkError as error:
                    LOG.warning("%s", error, extra={"fields": {"peer": format_address(peer)}})
                    continue
                (self._node.add_peer if peer in new.peers else self._node.remove_peer)(address, name)
        return left

    def _tune(self, place: str, before: Settings | None, after: Settings | None) -> list[str]:
        left = []
        if before is None or after is None or type(before) is not type(after):
            return []
        for key in before.__struct_fields__:
            value = getattr(after, key)
            if value == getattr(before, key):
                continue
            refusal = self._node.tune(f"{place}.{key}", msgspec.to_builtins(value))
            if refusal:
                left.append(f"{place}.{key}")
        return left
