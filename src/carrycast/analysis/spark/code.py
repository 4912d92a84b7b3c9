"""A digest of the code on which the outcome of a run depends: the simulator, the plug-ins in use, and their imports.

The digest covers *units*: a layer of carrycast, or the folder of one protocol or router. Imports are followed from unit
to unit, starting at the simulator and the plug-ins. Tests, the analysis and the live environment are not part of it.

What a comment or a docstring says decides nothing, so it is not part of the digest: of a Python file counts the syntax
tree, of a file in C++ the text without comments. Other files, such as maps, count as a whole.
"""

import ast
import hashlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from carrycast.core.plugins import PROTOCOLS, ROUTERS
from carrycast.sim.engine import Simulation

PACKAGE = "carrycast"
_OPEN = (PROTOCOLS, ROUTERS)
"""Packages in which every folder is a unit: a run uses one folder and the imports of that folder."""
_LAYERED = (f"{PACKAGE}.core", f"{PACKAGE}.sim")
"""Packages whose modules and folders are units of their own. The package itself contributes only its `__init__`."""


_NATIVE = frozenset({".c", ".cc", ".cpp", ".h", ".hpp"})
"""Endings of the sources of extensions."""
_SOURCES = frozenset({".py", ".toml", *_NATIVE})
"""Endings of the files that count. Maps that come with carrycast (TOML) affect runs as code does."""


@cache
def code_digest(*packages: str) -> str:
    """Return the digest for a run that uses plug-ins from these modules, such as
    `carrycast.protocols.flooding.protocol`."""
    hashed = hashlib.blake2b(digest_size=16)
    for unit in code_units(*packages):
        for name, path in _source_files(unit):
            hashed.update(f"{unit}/{name}\0".encode() + decisive_content(path) + b"\0")
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


class _PythonFile(NamedTuple):
    """What of a Python file counts."""

    tree: bytes
    """A digest of its syntax tree."""
    imports: list[tuple[int, str, list[str]]]
    """Of each import: its level, its module, and the names that are imported from there."""


def decisive_content(path: Path) -> bytes:
    """Return what of a source file can affect a run."""
    content = path.read_bytes()
    if path.suffix == ".py":
        return _read_python(content).tree
    if path.suffix in _NATIVE:
        return _NATIVE_SPACE.sub(lambda found: found["kept"] or (b"\n" if b"\n" in found[0] else b" "), content)
    return content


@lru_cache(maxsize=2048)
def _read_python(content: bytes) -> _PythonFile:
    """Parse a file. Runs of other plug-ins need most files again. A file that reads `__doc__` keeps its docstrings."""
    tree = ast.parse(content)
    imports: list[tuple[int, str, list[str]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.append((0, "", [name.name for name in node.names]))
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or "", [name.name for name in node.names]))
    parts: list[str] = []
    _add_tree(tree, b"__doc__" in content, parts)
    text = "".join(parts).encode("utf-8", "surrogatepass")
    return _PythonFile(hashlib.blake2b(text, digest_size=16).digest(), imports)


def _add_tree(node: object, documented: bool, parts: list[str]) -> None:
    """Add the text of a syntax tree: names of nodes and of fields that are set, and constants.

    Positions are left out. So are empty fields, because versions of Python differ in them.
    """
    if isinstance(node, ast.AST):
        parts.append(f"({type(node).__name__}")
        for name in node._fields:
            value = getattr(node, name, None)
            if value is not None and value != [] and name != "kind":
                parts.append(f" {name}=")
                _add_tree(value, documented, parts)
        if isinstance(node, ast.Constant) and node.value is None:
            parts.append("None")
        parts.append(")")
    elif isinstance(node, list):
        parts.append("[")
        for item in node:
            if documented or not _is_bare_string(item):
                _add_tree(item, documented, parts)
                parts.append(",")
        parts.append("]")
    else:
        parts.append(f"{type(node).__name__} {node!r}")


def _is_bare_string(node: object) -> bool:
    """Whether a statement is only a string: a docstring, or the description of an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


_NATIVE_SPACE = re.compile(
    rb"""(?P<kept>
        \b\d(?:'?[\w.])*                              # a number, whose digits may be separated by '
      | R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"   # a raw string
      | "(?:\\.|[^"\\\n])*"                          # a string
      | '(?:\\.|[^'\\\n])*'                          # a character
    ) | (?: \s | //(?:\\\r?\n|[^\n])* | /\*.*?\*/ )+ """,
    re.DOTALL | re.VERBOSE,
)
"""Comments with the space around them, or what may look as if it had a comment: `kept`."""


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
    for level, module, imported in _read_python(path.read_bytes()).imports:
        names = imported
        if level or module:
            origin = importlib.util.resolve_name("." * level + module, package)
            # The imported name may itself be a unit: `from carrycast.protocols import asp`.
            names = [origin, *(f"{origin}.{name}" for name in imported)]
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
        # The native core is no part of it: its results are those of the Python code.
        is_source = spec.origin is not None and spec.origin.endswith(".py")
        return [("", Path(str(spec.origin)))] if is_source else []
    if unit in _LAYERED:
        return [] if spec.origin is None else [("__init__.py", Path(spec.origin))]
    found: dict[str, Path] = {}
    for place in map(Path, spec.submodule_search_locations):
        for path in sorted(place.rglob("*")):
            name = path.relative_to(place)
            if path.suffix in _SOURCES and not is_test(name):
                found.setdefault(str(name), path)
    return sorted(found.items())
