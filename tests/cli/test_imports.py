"""Help, completion and `pub` start fast, because they import few modules."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.console import QUICK, environment
from tests.cli.nodes import running_node, write_config
from tests.patience import PATIENCE_S

HEAVY = {
    "numpy", "pyarrow", "pandas", "pyspark", "py4j", "matplotlib", "scipy", "rich", "networkx", "msgspec", "asyncio",
    "multiprocessing", "sqlite3", "logging", "http", "unittest", "xml",
}  # fmt: skip
SCRIPT = """
import sys
from carrycast.cli import main
try:
    status = main(sys.argv[1:])
except SystemExit as end:
    status = end.code
print("\\n".join(sorted(sys.modules)), file=sys.stderr)
sys.exit(status)
"""


def list_imports(*arguments: str | Path) -> set[str]:
    """All modules of a process that ran a command, after it ended well."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def packages(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize("arguments", [["--help"], [], ["run", "--help"], ["--version"], ["completion", "bash"]])
def test_help_and_completion_import_nothing_heavy(arguments: list[str]) -> None:
    modules = list_imports(*arguments)
    assert "carrycast.cli" in modules
    assert packages(modules) & HEAVY == set()


@pytest.mark.live
def test_pub_imports_what_a_client_needs(tmp_path: Path) -> None:
    with running_node(write_config(tmp_path, "sensor")):
        modules = list_imports("pub", "speed=31", "--node", tmp_path / "sensor.sock")
    # Messages of the control channel are msgspec's.
    assert packages(modules) & HEAVY <= {"msgspec"}
    assert "carrycast.sim.engine" not in modules
    assert "carrycast.protocols" not in modules


def test_what_simulates_is_heavy() -> None:
    """So that the names above are names of modules that are there."""
    assert {"numpy", "rich", "msgspec"} <= packages(list_imports("run", QUICK))
