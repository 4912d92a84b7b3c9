"""The digest of the code: all that decides an outcome, and nothing else."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from carrycast.analysis.spark.code import code_units, decisive_content
from tests.patience import PATIENCE_S
from tests.unit.test_architecture import MAY_IMPORT

SOURCE = Path(__file__).parents[2] / "src"
FLOODING = "carrycast.protocols.flooding"
SCRIPT = """
import json, shutil, sys
from pathlib import Path
from carrycast.analysis.spark.code import code_digest

def digest():
    code_digest.cache_clear()
    return code_digest(machine)

machine, *paths = sys.argv[1:]
before, changed = digest(), []
for path in map(Path, paths):
    text = path.read_text() if path.exists() else None
    new = not path.parent.exists()
    path.parent.mkdir(exist_ok=True)
    path.write_text((text or "") + "\\nCHANGED = 1\\n")
    if digest() != before:
        changed.append(str(path))
    if new:
        shutil.rmtree(path.parent)
    else:
        path.write_text(text)
    assert digest() == before
print(json.dumps([before, changed]))
"""


def digest(root: Path, machine: str, *paths: str, also: Path | None = None) -> tuple[str, list[str]]:
    """As a process with the sources of that folder computes it, and the files that change it if they do."""
    files = [root / "carrycast" / path for path in paths]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, machine, *map(str, files)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *([str(also)] if also else [])])},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    before, changed = json.loads(done.stdout)
    return before, [str(Path(path).relative_to(root / "carrycast")) for path in changed]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    shutil.copytree(SOURCE / "carrycast", root / "carrycast", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def test_the_layers_that_count_are_those_that_the_simulator_may_import() -> None:
    allowed = {"sim.engine", "errors", "version", "exports", "core", "sim"}
    for layer in reversed(MAY_IMPORT):
        if layer in allowed:
            allowed |= set(MAY_IMPORT[layer].split())
    found = {unit.removeprefix("carrycast.") for unit in code_units()}
    assert found <= allowed
    layers = {"core.stacks", "sim.engine", "sim.radio", "sim.mobility", "core.protocol", "core.wire", "core.matching"}
    assert layers | {"core.model"} <= found
    assert code_units(FLOODING) == sorted({*code_units(), FLOODING, "carrycast.core.parts"})


DECIDES = [
    "core/stacks.py",
    "sim/engine/simulation.py",
    "core/parts/seen.py",
    "core/matching/filter.py",
    "protocols/flooding/protocol.py",
    "protocols/flooding/__init__.py",
]
DECIDES_NOTHING = [
    "protocols/flooding/test_flooding.py",
    "protocols/flooding/tests/test_more.py",
    "protocols/flooding/README.md",
    "protocols/epidemic/protocol.py",
    "analysis/spark/sweep.py",
    "node/node.py",
    "cli/live.py",
]


def test_all_code_that_decides_changes_the_digest_and_no_other_does(sources: Path) -> None:
    assert digest(sources, FLOODING, *DECIDES, *DECIDES_NOTHING)[1] == DECIDES


def test_a_protocol_of_ones_own_counts_with_what_it_imports(sources: Path, tmp_path: Path) -> None:
    folder = tmp_path / "carrycast" / "protocols" / "shout"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from .protocol import Shout as PROTOCOL\n")
    (folder / "protocol.py").write_text("from ..gossip import PROTOCOL as Shout\n")
    gossip = "protocols/gossip/protocol.py"
    before, changed = digest(sources, "carrycast.protocols.shout", gossip, DECIDES[-1], also=tmp_path)
    assert changed == [gossip]
    assert digest(sources, FLOODING, also=tmp_path) == digest(sources, FLOODING)
    (folder / "protocol.py").write_text("from ..gossip import PROTOCOL as Shout\nCHANGED = 1\n")
    assert digest(sources, "carrycast.protocols.shout", also=tmp_path)[0] != before


def test_an_installed_plugin_counts_with_its_whole_package(sources: Path, tmp_path: Path) -> None:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "radio.py").write_text("from carrycast.core.parts.seen import SeenCache\n")
    (folder / "formula.py").write_text("")
    before, changed = digest(sources, "outside.radio", "core/parts/seen.py", "node/node.py", also=tmp_path)
    assert changed == ["core/parts/seen.py"]
    (folder / "formula.py").write_text("CHANGED = 1\n")
    assert digest(sources, "outside.radio", also=tmp_path)[0] != before


PYTHON = '''"""A module."""

import math

RANGE_M = 100.0  # as far as a voice carries
"""How far."""


class Shout:
    """A protocol."""

    def reach_m(self, loud: bool) -> float:
        """Return the range."""
        # Twice as far if loud.
        return f"{RANGE_M}" and RANGE_M * (2 if loud else 1)
'''
NATIVE = """
/* The engine of
   a run. */
static const char *scheme = "http://"; // not the rest of a string
static const auto quote = R"x(a // b)" /* c )x"; // done
static const long many = 1'000'000; char both = '"'; // as many as there are
"""


@pytest.mark.parametrize(
    ("ending", "text", "before", "after", "changes"),
    [
        (".py", PYTHON, "as far as a voice carries", "a guess", False),
        (".py", PYTHON, "# Twice as far if loud.", "", False),
        (".py", PYTHON, "Return the range.", "Return how far it reaches.", False),
        (".py", PYTHON, "A protocol.", "A protocol that shouts.", False),
        (".py", PYTHON, '"""A module."""', "", False),
        (".py", PYTHON, '"""How far."""', "", False),
        (".py", PYTHON, "(2 if loud else 1)", "(\n            2 if loud else 1\n        )", False),
        (".py", PYTHON, "100.0", "101.0", True),
        (".py", PYTHON, "100.0", "100", True),
        (".py", PYTHON, "100.0", "None", True),
        (".py", PYTHON, "2 if", "True if", True),
        (".py", PYTHON, "loud: bool", "loud: bool = None", True),
        (".py", PYTHON, "RANGE_M * ", "RANGE_M / ", True),
        (".py", PYTHON, 'f"{RANGE_M}"', 'f"{RANGE_M!r}"', True),
        (".py", 'A = "# as written"\n', "written", "said", True),
        (".py", f"{PYTHON}HELP = __doc__\n", "A module.", "A changed module.", True),
        (".cpp", NATIVE, "The engine of", "All of", False),
        (".cpp", NATIVE, "// as many as there are", "", False),
        (".cpp", NATIVE, "static const long", "// A line more.\nstatic const long", False),
        (".cpp", NATIVE, "// done", "// really done", False),
        (".cpp", NATIVE, "http://", "http:// ", True),
        (".cpp", NATIVE, "a // b", "a // c", True),
        (".cpp", NATIVE, "/* c", "/* d", True),
        (".cpp", NATIVE, "1'000'000", "1'000'001", True),
        (".cpp", NATIVE, "char both", "char all", True),
        (".toml", "a = 1 # one", "# one", "# two", True),
    ],
)
def test_comments_and_docstrings_keep_the_digest_and_a_constant_changes_it(
    tmp_path: Path, ending: str, text: str, before: str, after: str, changes: bool
) -> None:
    assert text.count(before) >= 1
    path = tmp_path / f"shout{ending}"
    path.write_text(text)
    old = decisive_content(path)
    path.write_text(text.replace(before, after, 1))
    assert (decisive_content(path) != old) is changes


def test_a_comment_keeps_the_key_of_a_plugin_and_a_constant_changes_it(sources: Path, tmp_path: Path) -> None:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "core.cpp").write_text("int step = 1;\n")
    found = []
    for constant, text in ((1, "first"), (1, "second"), (2, "second")):
        (folder / "radio.py").write_text(f'"""The {text}."""\nSTEP = {constant}  # {text}\n')
        found.append(digest(sources, "outside.radio", also=tmp_path)[0])
    assert found[0] == found[1] != found[2]
    (folder / "core.cpp").write_text("int step = 2;\n")
    assert digest(sources, "outside.radio", also=tmp_path)[0] != found[2]


SENT = """
import sys
from pathlib import Path
from carrycast.analysis.spark.cluster.artifacts import send_code

class Context:
    def addPyFile(self, path):
        print(path)

class Session:
    sparkContext = Context()

send_code(Session(), Path(sys.argv[1]))
"""
FOUND = "from carrycast.core.plugins import find_plugin; print(find_plugin('radios', 'far_lora').__module__)"


def test_installed_plugins_are_sent_to_executors_and_found_there(tmp_path: Path) -> None:
    here, sent = tmp_path / "here", tmp_path / "sent"
    (here / "far-1.dist-info").mkdir(parents=True)
    sent.mkdir()
    (here / "far-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: far\nVersion: 1\n")
    (here / "far-1.dist-info" / "entry_points.txt").write_text("[carrycast.radios]\nfar_lora = far.lora:FarLora\n")
    (here / "far").mkdir()
    (here / "far" / "__init__.py").write_text("")
    (here / "far" / "lora.py").write_text(
        "from carrycast.sim.radio.radio import Radio\n\n\n"
        "class FarLora(Radio, frozen=True, kw_only=True):\n    name = 'far_lora'\n"
    )

    def python(code: str, *arguments: Path, path: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    archive = python(SENT, sent, path=f"{SOURCE}{os.pathsep}{here}")
    assert python(FOUND, path=archive) == "far.lora"
