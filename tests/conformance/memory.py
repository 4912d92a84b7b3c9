"""What a state machine keeps in memory, found by walking over it; so it works for protocols yet to come."""

import gc
from collections import deque
from random import Random
from types import BuiltinFunctionType, FunctionType, ModuleType

import msgspec

from driftcast.matching import Filter
from driftcast.protocol import Host, Port, Protocol

# Beyond these lies the world.
_WORLD = (Port, Host, Random, type, ModuleType, FunctionType, BuiltinFunctionType)
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


def size(protocol: Protocol) -> int:
    """How many things it keeps."""
    return sum(len(container) for container in containers(protocol))
