"""Protocols and routers by name, found by scanning folders: adding a folder is all it takes.

The name of a protocol is the name of its folder, and the folder's package offers the class as `PROTOCOL` (a router as
`ROUTER`). `driftcast.dissemination` and `driftcast.routing` are open packages: a folder
`driftcast/dissemination/<name>/` anywhere on the module search path is found too.
"""

import difflib
import importlib
import pkgutil
from types import ModuleType

from driftcast.errors import UserError
from driftcast.protocol.machine import Protocol, Router, StateMachine

PROTOCOLS = "driftcast.dissemination"
ROUTERS = "driftcast.routing"


def _names(package: str) -> list[str]:
    module = importlib.import_module(package)
    return sorted(found.name for found in pkgutil.iter_modules(module.__path__) if found.ispkg)


def _load(package: str, name: str, what: str) -> ModuleType:
    names = _names(package)
    if name not in names:
        close = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UserError(f"there is no {what} {name!r}: {hint}there are {', '.join(names) or 'none'}")
    return importlib.import_module(f"{package}.{name}")


def _checked(machine: object, base: type[StateMachine], name: str) -> None:
    if not (isinstance(machine, type) and issubclass(machine, base)):
        raise TypeError(f"the folder of {name!r} must offer a subclass of {base.__name__}")
    if machine.name != name:
        raise TypeError(f"the folder {name!r} offers {machine.name!r}; the two names must be one")


def protocol_names() -> list[str]:
    """Every protocol there is."""
    return _names(PROTOCOLS)


def router_names() -> list[str]:
    """Every router there is."""
    return _names(ROUTERS)


def protocol_named(name: str) -> type[Protocol]:
    """A protocol's class; a UserError names those there are."""
    machine: type[Protocol] = _load(PROTOCOLS, name, "protocol").PROTOCOL
    _checked(machine, Protocol, name)
    return machine


def router_named(name: str) -> type[Router]:
    """A router's class; a UserError names those there are."""
    machine: type[Router] = _load(ROUTERS, name, "router").ROUTER
    _checked(machine, Router, name)
    return machine
