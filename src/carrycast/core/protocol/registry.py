"""Protocols and routers by name."""

from carrycast.core.plugins import find_plugin, plugin_names
from carrycast.core.protocol.machine import Protocol, Router


def protocol_names() -> list[str]:
    """The names of all protocols."""
    return plugin_names("protocols")


def router_names() -> list[str]:
    """The names of all routers."""
    return plugin_names("routers")


def find_protocol(name: str) -> type[Protocol]:
    """Return the class of a protocol. For an unknown name, the UserError lists the known ones."""
    return find_plugin("protocols", name)


def find_router(name: str) -> type[Router]:
    """Return the class of a router. For an unknown name, the UserError lists the known ones."""
    return find_plugin("routers", name)
