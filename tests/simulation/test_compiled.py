"""The engine compiled ahead of time does what the plain one does, to the last bit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.compiled import MODULES, ROOT, build

EXAMPLES = ("quick", "traffic-report", "drift")


def test_what_is_compiled_exists() -> None:
    assert {"routers/aodv/router.py", "sim/engine/kernel.py", "sim/radio/csma.py"} <= set(MODULES)


def fingerprint(program: list[str], scenario: str) -> str:
    path = ROOT / "examples" / f"{scenario}.toml"
    told = subprocess.run(
        [*program, "run", str(path), "--set", "duration_s=40", "--json"], capture_output=True, text=True, check=True
    )
    found = json.loads(told.stdout)["fingerprint"]
    assert isinstance(found, str)
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_compiled_runs_have_the_fingerprints_of_plain_ones(tmp_path: Path) -> None:
    program = build(tmp_path)
    where = "import carrycast.sim.radio.csma as csma; print(csma.__file__)"
    lib = {"PYTHONPATH": str(tmp_path / "lib")}
    found = subprocess.run([sys.executable, "-c", where], env=lib, capture_output=True, text=True, check=True)
    assert found.stdout.strip().endswith(".so")
    for scenario in EXAMPLES:
        plain = fingerprint([sys.executable, "-m", "carrycast"], scenario)
        assert fingerprint([str(program)], scenario) == plain, scenario
