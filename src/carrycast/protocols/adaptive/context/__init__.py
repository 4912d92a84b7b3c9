"""Context attributes: what makes a node a good carrier [004 §3]. Each is one file of this folder and nothing else.

A file defines one class that derives from `HostAttribute` or `InterestAttribute`; its `name` is what the setting
`weights` calls it by.
"""

import importlib
import pkgutil
from functools import cache

from carrycast.protocols.adaptive.context.attribute import ContextAttribute


@cache
def attributes() -> dict[str, type[ContextAttribute]]:
    """All context attributes by name."""
    found: dict[str, type[ContextAttribute]] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for thing in vars(module).values():
            if isinstance(thing, type) and issubclass(thing, ContextAttribute) and thing.__module__ == module.__name__:
                if not thing.name:  # a base of attributes, not an attribute
                    continue
                if thing.name in found:
                    raise TypeError(f"two context attributes are named {thing.name}: {found[thing.name]} and {thing}")
                found[thing.name] = thing
    return dict(sorted(found.items()))
