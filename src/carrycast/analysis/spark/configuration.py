"""Spark's settings as a user gives them: `--conf KEY=VALUE`, and the file `spark-defaults.conf` that Spark reads.

What is said on the command line comes first, then the file, then what carrycast would choose.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from carrycast.errors import UserError

DEFAULTS_FILE = "spark-defaults.conf"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
"""Added to, never replaced: ours keep Spark's log in one line."""
PYTHON = "spark.pyspark.python"
_KEY = re.compile(r"spark\.[A-Za-z0-9_.\-]+")
_LINE = re.compile(r"\s*([^\s=:]+)\s*[=:\s]\s*(.*?)\s*")
MOST_BYTES = 1 << 20


def parse_conf(texts: Sequence[str]) -> dict[str, str]:
    """What `--conf` was given; a UserError for what is no setting."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key, value = key.strip(), value.strip()
        if not equals or not _KEY.fullmatch(key) or not value:
            raise UserError(f"--conf {text!r}: is not of the form spark.KEY=VALUE, as in spark.executor.memory=2g")
        if key == "spark.master":
            raise UserError(f"--conf {text!r}: say --master {value}")
        found[key] = value
    return found


def defaults(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What stands in the `spark-defaults.conf` of SPARK_CONF_DIR, else of SPARK_HOME. Where the runs are is said by
    `--master` alone."""
    folder = environment.get("SPARK_CONF_DIR")
    home = environment.get("SPARK_HOME")
    if not folder and not home:
        return {}
    path = Path(folder) if folder else Path(str(home), "conf")
    found = _read(path / DEFAULTS_FILE)
    found.pop("spark.master", None)
    return found


def together(ours: Mapping[str, str], fixed: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """All settings of a session: `fixed` are ours that a file may not change, since something would break."""
    written = defaults()
    made = {**ours, **written, **fixed, **asked}
    given = asked.get(JAVA_OPTIONS, written.get(JAVA_OPTIONS))
    if given is not None:
        made[JAVA_OPTIONS] = f"{fixed[JAVA_OPTIONS]} {given}"
    return made


def _read(path: Path) -> dict[str, str]:
    """A file of Java's properties; a line that ends in a backslash goes on in the next."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"{path}: has more than {MOST_BYTES} bytes, so it is no file of Spark's settings")
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    found: dict[str, str] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line.strip() and line.lstrip()[0] not in "#!" and (parts := _LINE.fullmatch(line)) is not None and parts[2]:
            found[parts[1]] = parts[2]
    return found
