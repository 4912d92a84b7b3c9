"""Protocols and routers by name."""

from carrycast.core.plugins import find_plugin, plugin_names
from carrycast.core.protocol.machine import Protocol, Router


def protocol_names() -> list[str]:
    """Every protocol there is."""
    return plugin_names("protocols")


def router_names() -> list[str]:
    """Every router there is."""
    return plugin_names("routers")


def protocol_named(name: str) -> type[Protocol]:
    """A protocol's class; a UserError names those there are."""
    return find_plugin("protocols", name)


def router_named(name: str) -> type[Router]:
    """A router's class; a UserError names those there are."""
    return find_plugin("routers", name)
