"""What a state machine keeps in memory, found by walking over it; so it works for protocols yet to come."""

import gc
import sys
from collections import deque
from collections.abc import Mapping
from random import Random
from types import BuiltinFunctionType, FunctionType, ModuleType

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.protocol import DurableStore, Host, Port, Protocol

# Beyond these lies the world.
_WORLD = (Port, Host, DurableStore, Random, type, ModuleType, FunctionType, BuiltinFunctionType)
# Events, subscriptions, settings (structs) and parsed filters never change, so they may be shared.
_VALUES = (msgspec.Struct, Filter, str, bytes, int, float)

Container = dict[object, object] | list[object] | set[object] | deque[object] | bytearray


def containers(protocol: Protocol) -> list[Container]:
    """Every container that the protocol alone refers to, directly or not."""
    found: list[Container] = []
    met: set[int] = set()
    waiting: list[object] = [protocol]
    while waiting:
        here = waiting.pop()
        if id(here) in met or isinstance(here, _WORLD + _VALUES):
            continue
        met.add(id(here))
        if isinstance(here, dict | list | set | deque | bytearray):
            found.append(here)
        waiting += gc.get_referents(here)
    return found


def globals_of(package: str) -> dict[str, str]:
    """What containers there are in the modules and classes of a package, and what is in them."""
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if name != package and not name.startswith(f"{package}."):
            continue
        places: list[tuple[str, Mapping[str, object]]] = [(name, vars(module))]
        places += [(f"{name}.{key}", vars(kind)) for key, kind in vars(module).items() if isinstance(kind, type)]
        for place, names in places:
            for key, value in names.items():
                if not key.startswith("__") and isinstance(value, dict | list | set | deque | bytearray):
                    found[f"{place}.{key}"] = repr(value)
    return found


def size(protocol: Protocol) -> int:
    """How many things it keeps."""
    return sum(len(container) for container in containers(protocol))
