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
SOURCE = ROOT / "src" / "carrycast"
_PATTERNS = (
    "routers/aodv/*.py",
    "routers/gpsr/*.py",
    "sim/engine/observers/*.py",
    "sim/radio/*.py",
    *(
        f"sim/engine/{name}.py"
        for name in ("context", "host", "interfaces", "kernel", "missed_events", "network", "node")
    ),
    "sim/mobility/trajectory.py",
)
# msgspec builds the classes of settings and messages when they are imported, so these modules stay as they are.
_DECLARATIONS = frozenset({"__init__.py", "disk_settings.py", "dot11.py", "messages.py", "radio.py", "settings.py"})
MODULES = tuple(
    sorted(
        str(path.relative_to(SOURCE))
        for pattern in _PATTERNS
        for path in SOURCE.glob(pattern)
        if path.name not in _DECLARATIONS
    )
)
"""Where the time of a run goes. Plug-ins of a compiled program cannot inherit from the classes in them."""
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
