"""`make compiled`: carrycast with its engine compiled ahead of time, for experiments that take hours.

The sources are copied to `build/compiled/lib`, the modules below are compiled there by mypyc, and the program
`build/compiled/carrycast` starts the copy. So nothing compiled ever stands beside a source that somebody edits, and a
sweep's keys, which are digests of sources, are those of the plain program: one goes on where the other stopped.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
OUT = ROOT / "build" / "compiled"
# Where the time of a run goes, less what declares settings and messages (msgspec builds those classes when they are
# imported) and what programs and tests inherit from as they like (mypyc's classes refuse that).
MODULES = (
    "mobility/trajectory.py",
    "radio/contention.py",
    "radio/csma.py",
    "radio/disk.py",
    "radio/ether.py",
    "radio/medium.py",
    "radio/station.py",
    "radio/vicinity.py",
    "routing/aodv/control.py",
    "routing/aodv/discovery.py",
    "routing/aodv/errors.py",
    "routing/aodv/hello.py",
    "routing/aodv/router.py",
    "routing/aodv/rules.py",
    "routing/aodv/station.py",
    "routing/aodv/table.py",
    "routing/aodv/waiting.py",
    "routing/gpsr/beacons.py",
    "routing/gpsr/geometry.py",
    "routing/gpsr/neighbors.py",
    "routing/gpsr/passed.py",
    "routing/gpsr/perimeter.py",
    "routing/gpsr/planar.py",
    "routing/gpsr/router.py",
    "simulation/host.py",
    "simulation/interfaces.py",
    "simulation/kernel.py",
    "simulation/missed.py",
    "simulation/network.py",
    "simulation/node.py",
    "simulation/witness/amounts.py",
    "simulation/witness/answers.py",
    "simulation/witness/checkers.py",
    "simulation/witness/fingerprint.py",
    "simulation/witness/meter.py",
    "simulation/witness/outputs.py",
    "simulation/witness/pairs.py",
    "simulation/witness/recorder.py",
    "simulation/witness/tally.py",
    "simulation/world.py",
)
_START = """#!/bin/sh
# carrycast with its engine compiled: made by `make compiled`, from the sources as they stood then.
PYTHONPATH="{lib}${{PYTHONPATH:+:$PYTHONPATH}}" exec "{python}" -m carrycast "$@"
"""


def build(out: Path = OUT) -> Path:
    """Compile, and return the program that runs what was compiled."""
    lib = out / "lib"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "carrycast", lib / "carrycast", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    flags = ["--namespace-packages", "--explicit-package-bases", "--ignore-missing-imports"]
    mypyc = [sys.executable, "-m", "mypyc", *flags, *(f"carrycast/{module}" for module in MODULES)]
    done = subprocess.run(mypyc, cwd=lib, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"mypyc could not compile carrycast:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    program = out / "carrycast"
    program.write_text(_START.format(lib=lib, python=sys.executable))
    program.chmod(0o755)
    return program


if __name__ == "__main__":
    sys.stdout.write(f"{build().relative_to(ROOT)} is carrycast with its engine compiled.\n")
