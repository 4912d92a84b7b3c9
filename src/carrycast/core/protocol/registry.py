"""Protocols and routers by name, found by scanning folders: adding a folder is all it takes.

The name of a protocol is the name of its folder, and the folder's package offers the class as `PROTOCOL` (a router as
`ROUTER`). `carrycast.protocols` and `carrycast.routers` are open packages: a folder
`carrycast/protocols/<name>/` anywhere on the module search path is found too.
"""

import difflib
import importlib
from types import ModuleType
from typing import cast

from carrycast.core.folders import PROTOCOLS, ROUTERS, folders_of
from carrycast.core.protocol.machine import Protocol, Router, StateMachine
from carrycast.errors import UserError


class BrokenFolderError(UserError):
    """There is a folder of that name, and what is in it cannot be used."""


def _load(package: str, name: str, what: str) -> ModuleType:
    names = folders_of(package)
    if name not in names:
        close = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UserError(f"there is no {what} {name!r}: {hint}there are {', '.join(names) or 'none'}")
    try:
        return importlib.import_module(f"{package}.{name}")
    except (Exception, SystemExit) as error:
        raise BrokenFolderError(f"the {what} {name!r} does not import: {_told(error, package, name)}") from error


def _told(error: BaseException, package: str, name: str) -> str:
    """What an import raised and where in the folder, in one line."""
    said = " ".join(str(error).split())
    place, trace = "", error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module == f"{package}.{name}" or module.startswith(f"{package}.{name}."):
            place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        said, place = error.msg, f"{error.filename}:{error.lineno}"
    return f"{type(error).__name__}: {said}" + (f" ({place})" if place else "")


def _offered(package: str, name: str, what: str, base: type[StateMachine]) -> object:
    """What a folder offers under the name of its kind."""
    found = getattr(_load(package, name, what), what.upper(), None)
    _checked(found, base, name)
    return found


def _checked(machine: object, base: type[StateMachine], name: str) -> None:
    if not (isinstance(machine, type) and issubclass(machine, base)):
        kind = base.__name__
        raise BrokenFolderError(f"the folder of {name!r} must offer a subclass of {kind} as {kind.upper()}")
    if machine.name != name:
        raise BrokenFolderError(f"the folder {name!r} offers {machine.name!r}; the two names must be one")


def protocol_names() -> list[str]:
    """Every protocol there is."""
    return folders_of(PROTOCOLS)


def router_names() -> list[str]:
    """Every router there is."""
    return folders_of(ROUTERS)


def protocol_named(name: str) -> type[Protocol]:
    """A protocol's class; a UserError names those there are."""
    return cast("type[Protocol]", _offered(PROTOCOLS, name, "protocol", Protocol))


def router_named(name: str) -> type[Router]:
    """A router's class; a UserError names those there are."""
    return cast("type[Router]", _offered(ROUTERS, name, "router", Router))
