"""Finds the movement models: every model class in a file of this folder."""

import importlib
import pkgutil
from difflib import get_close_matches
from functools import cache
from types import ModuleType

import carrycast.sim.mobility
from carrycast.errors import UserError
from carrycast.sim.mobility.model import MobilityModel


def scan(package: ModuleType) -> dict[str, type[MobilityModel]]:
    """The models defined in the modules of a package, by name, in the order of their names."""
    found: dict[str, type[MobilityModel]] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for thing in vars(module).values():
            if not (
                isinstance(thing, type) and issubclass(thing, MobilityModel) and thing.__module__ == module.__name__
            ):
                continue
            if not thing.name:  # a base of models, not a model
                continue
            if thing.name in found:
                raise TypeError(f"two movement models are named {thing.name}: {found[thing.name]} and {thing}")
            found[thing.name] = thing
    return dict(sorted(found.items()))


@cache
def _models() -> dict[str, type[MobilityModel]]:
    return scan(carrycast.sim.mobility)


def models() -> dict[str, type[MobilityModel]]:
    """All movement models, by name."""
    return dict(_models())


def lookup(name: str) -> type[MobilityModel]:
    """The model of a name."""
    known = _models()
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    raise UserError(f"there is no movement model {name!r}.{hint} Available: {', '.join(known)}")
