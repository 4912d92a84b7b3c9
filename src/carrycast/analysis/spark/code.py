"""A digest of the code on which the outcome of a run depends: the simulator, the plug-ins in use, and their imports.

The digest covers *units*: a layer of carrycast, or the folder of one protocol or router. Imports are followed from unit
to unit, starting at the simulator and the plug-ins. Tests, the analysis and the live environment are not part of it.
"""

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from carrycast.core.plugins import PROTOCOLS, ROUTERS
from carrycast.sim.engine import Simulation

PACKAGE = "carrycast"
_OPEN = (PROTOCOLS, ROUTERS)
"""Packages in which every folder is a unit: a run uses one folder and the imports of that folder."""
_LAYERED = (f"{PACKAGE}.core", f"{PACKAGE}.sim")
"""Packages whose modules and folders are units of their own. The package itself contributes only its `__init__`."""


@cache
def code_digest(*packages: str) -> str:
    """Return the digest for a run that uses plug-ins from these modules, such as
    `carrycast.protocols.flooding.protocol`."""
    hashed = hashlib.blake2b(digest_size=16)
    for unit in code_units(*packages):
        for name, path in _source_files(unit):
            hashed.update(f"{unit}/{name}\0".encode() + path.read_bytes() + b"\0")
    return hashed.hexdigest()


def code_units(*packages: str) -> list[str]:
    """Return the units whose code is part of the digest."""
    found: set[str] = set()
    waiting = [_unit(Simulation.__module__), *map(_unit, packages)]
    while waiting:
        unit = waiting.pop()
        if unit in found:
            continue
        found.add(unit)
        for name, path in _source_files(unit):
            if path.suffix != ".py":
                continue
            waiting += _find_imports(path, ".".join([unit, *Path(name).parent.parts]))
    return sorted(found)


def is_test(path: Path) -> bool:
    """Whether a file is a test. Protocols have their tests beside them."""
    return path.name.startswith("test_") or path.name == "conftest.py" or "tests" in path.parts


def _unit(module: str) -> str:
    """Return the unit that a module belongs to. The unit of an installed plug-in is its whole package."""
    if not module.startswith(f"{PACKAGE}."):
        return module.split(".", maxsplit=1)[0]
    depth = next((3 for package in (*_OPEN, *_LAYERED) if module.startswith(f"{package}.")), 2)
    return ".".join(module.split(".")[:depth])


def _find_imports(path: Path, package: str) -> Iterator[str]:
    """Yield the units of carrycast from which a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            # The imported name may itself be a unit: `from carrycast.protocols import asp`.
            names = [origin, *(f"{origin}.{name.name}" for name in node.names)]
        for unit in map(_unit, names):
            if unit.startswith(f"{PACKAGE}.") and unit not in _OPEN and _exists(unit):
                yield unit


@cache
def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _source_files(unit: str) -> list[tuple[str, Path]]:
    """Return the files of a unit except tests, wherever on the search path they are, with their relative names."""
    spec = importlib.util.find_spec(unit)
    if spec is None:
        return []
    if not spec.submodule_search_locations:
        return [] if spec.origin is None else [("", Path(spec.origin))]
    if unit in _LAYERED:
        return [] if spec.origin is None else [("__init__.py", Path(spec.origin))]
    found: dict[str, Path] = {}
    for place in map(Path, spec.submodule_search_locations):
        # Maps that come with carrycast (TOML) affect runs as code does.
        for path in sorted([*place.rglob("*.py"), *place.rglob("*.toml")]):
            name = path.relative_to(place)
            if not is_test(name):
                found.setdefault(str(name), path)
    return sorted(found.items())
