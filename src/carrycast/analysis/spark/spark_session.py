"""The SparkSession of a process: embedded in the process unless a cluster is named.

The settings suit the jobs of carrycast: few, long, independent simulations in Python, and small tables. The Java side
should cost little in comparison."""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.spark.cluster.artifacts import own_import_paths, send_code
from carrycast.analysis.spark.cluster.executors import await_executors
from carrycast.analysis.spark.java import find_java, make_java_home
from carrycast.analysis.spark.master import (
    await_master,
    check_master,
    count_available_cores,
    count_cores,
    is_local,
    is_on_this_machine,
)
from carrycast.errors import UserError, WorkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS_FILE = "spark-defaults.conf"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
"""User options are appended to ours, which reduce Spark's log to one line per error."""
PYTHON = "spark.pyspark.python"
_KEY = re.compile(r"spark\.[A-Za-z0-9_.\-]+")
_LINE = re.compile(r"\s*([^\s=:]+)\s*[=:\s]\s*(.*?)\s*")
MAX_PROPERTIES_BYTES = 1 << 20


def parse_conf(texts: Sequence[str]) -> dict[str, str]:
    """Parse the values of `--conf`; raise a UserError for one that is no Spark setting."""
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


def read_spark_defaults(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Read the `spark-defaults.conf` of SPARK_CONF_DIR, else of SPARK_HOME, without `spark.master`: only `--master`
    sets the master."""
    folder = environment.get("SPARK_CONF_DIR")
    home = environment.get("SPARK_HOME")
    if not folder and not home:
        return {}
    path = Path(folder) if folder else Path(str(home), "conf")
    found = _read_properties(path / DEFAULTS_FILE)
    found.pop("spark.master", None)
    return found


def merge_settings(ours: Mapping[str, str], fixed: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """Merge all settings of a session. `fixed` are ours that the file may not change, because carrycast needs them."""
    written = read_spark_defaults()
    made = {**ours, **written, **fixed, **asked}
    given = asked.get(JAVA_OPTIONS, written.get(JAVA_OPTIONS))
    if given is not None:
        made[JAVA_OPTIONS] = f"{fixed[JAVA_OPTIONS]} {given}"
    return made


def _read_properties(path: Path) -> dict[str, str]:
    """Read a Java properties file. A line that ends with a backslash continues on the next line."""
    try:
        if path.stat().st_size > MAX_PROPERTIES_BYTES:
            raise UserError(f"{path}: has more than {MAX_PROPERTIES_BYTES} bytes, so it is no file of Spark's settings")
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


# Spark's own default on clusters (spark.task.maxFailures); embedded, Spark would not retry a task.
ATTEMPTS_PER_TASK = 4
# Spark itself takes 200 MB. Tables of metrics and the shuffles of a trace fit into the rest.
DRIVER_MEMORY = "1g"
# The time for the Java process to clean up, also on a busy machine, before it is killed.
STOP_TIMEOUT_S = 60.0

# Errors of Spark are logged as one line each. Errors that the caller gets as exceptions anyway are not logged.
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m %ex{short.message}%n%ex{none}
logger.context.name = org.apache.spark.SparkContext
logger.context.level = off
logger.task.name = org.apache.spark.TaskContextImpl
logger.task.level = off
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = off
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = off
logger.python.name = org.apache.spark.api.python
logger.python.level = off
# Spark announces on standard error that it sets the root level to this logger's, unless the two agree.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.files.name = org.apache.spark.sql.execution.datasources
logger.files.level = off
logger.tasks.name = org.apache.spark.util.Utils
logger.tasks.level = off
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = off
"""


class _RunningSession:
    """A started session, its master, and its temporary directory."""

    def __init__(self, spark: "SparkSession", master: str, scratch: Path) -> None:
        self.spark = spark
        self.master = master
        self.scratch = scratch


# One Java process serves a Python process, so its session is process-wide.
_lock = threading.RLock()
_running: _RunningSession | None = None
_requested: dict[str, str] = {}


def configure(settings: Mapping[str, str]) -> None:
    """Set the Spark settings of this process' session; raise a UserError if it already runs with others."""
    global _requested
    with _lock:
        if _running is not None and dict(settings) != _requested:
            raise UserError(f"Spark already runs on {_running.master} in this process: stop it to change its settings")
        _requested = dict(settings)


def scratch_folder(spark: "SparkSession") -> Path:
    """Return the temporary directory of the session, which is removed when the session stops."""
    with _lock:
        if _running is None or _running.spark is not spark:
            raise WorkError("on a cluster only a session of carrycast.analysis.spark.spark_session can be used")
        return _running.scratch


def session(name: str, master: str | None = None, cores: int | None = None) -> "SparkSession":
    """Return the SparkSession of this process, which starts on the first call.

    `master` is the address of a cluster. Without one, Spark runs inside this process on `cores` cores (default: all).
    Embedded workers can import all that this process can import. The executors of a cluster are sent carrycast and the
    modules imported from outside the installation.
    """
    global _running
    with _lock:
        wanted = check_master(master) if master is not None else _local_master(cores)
        if _running is not None and _running.spark.sparkContext._jsc is not None:
            if (master is not None or cores is not None) and wanted != _running.master:
                raise UserError(f"Spark already runs on {_running.master} in this process: stop it to use {wanted}")
            return _running.spark
        stop_session()
        await_master(wanted)
        scratch = Path(tempfile.mkdtemp(prefix="carrycast-"))
        spark: SparkSession | None = None
        try:
            spark = _start(name, wanted, scratch)
            if not is_local(wanted):
                send_code(spark, scratch)
                await_executors(spark, wanted)
        except BaseException:
            if spark is not None:
                spark.stop()
            _end_java()
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        _running = _RunningSession(spark, wanted, scratch)
        return spark


SMALL_SWEEP = 100
"""Up to so many runs are executed without Spark: starting it, and its jobs over so few rows, would take longer."""


class LazySession:
    """A Spark session that is started when it is first needed."""

    def __init__(self, master: str | None = None, running: "SparkSession | None" = None) -> None:
        if master is not None:
            check_master(master)
        self._master = master
        self._spark = running

    def __call__(self) -> "SparkSession":
        """Return the session, started if it has to be."""
        if self._spark is None:
            self._spark = session("carrycast", self._master)
        return self._spark

    def is_needed(self, rows: int) -> bool:
        """Whether work on so many runs is Spark's: there are many, or the user asked for Spark, or it runs anyway."""
        asked = self._spark is not None or self._master is not None or bool(_requested)
        return asked or _running is not None or rows > SMALL_SWEEP


def as_lazy(spark: "SparkSession | LazySession") -> LazySession:
    """Return a session that runs already as one that may be started later."""
    return spark if isinstance(spark, LazySession) else LazySession(running=spark)


def stop_session() -> None:
    """Stop the session of this process, if there is one, with its Java process and its files."""
    global _running
    with _lock:
        if _running is None:
            return
        running, _running = _running, None
        running.spark.stop()
        _end_java()
        shutil.rmtree(running.scratch, ignore_errors=True)


atexit.register(stop_session)


def _local_master(cores: int | None) -> str:
    if cores is not None and cores < 1:
        raise UserError(f"Spark cannot run on {cores} cores: give 1 or more")
    return f"local[{cores or count_available_cores()},{ATTEMPTS_PER_TASK}]"


def check_reports_installed() -> None:
    """Raise a UserError if the libraries of statistics and figures are not installed. Work without Spark needs them."""
    try:
        import matplotlib  # noqa: F401
        import scipy  # noqa: F401
    except ImportError as error:
        raise UserError("figures and statistics are not installed: `pip install 'carrycast[pipeline]'`") from error


def check_spark_installed() -> None:
    """Raise a UserError if Spark is not installed. Commands call this before they print or write anything."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise UserError("Spark is not installed: `pip install 'carrycast[pipeline]'`") from error


def _start(name: str, master: str, scratch: Path) -> "SparkSession":
    check_spark_installed()
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    java_home = make_java_home(scratch, find_java())
    settings = _settings(master, scratch)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with _environment(_variables(master, java_home, settings, scratch)):
        try:
            return SparkSession.builder.appName(name).config(conf=conf).getOrCreate()
        except (Py4JError, PySparkRuntimeError) as error:
            cause = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
            reason = cause.strip().splitlines()[0]
            if "stopped SparkContext" in reason:
                reason = "the cluster has ended it, as it does when executors fail at once; its workers' logs say why"
            raise WorkError(f"Spark did not start on {master}: {reason}") from error


def _settings(master: str, scratch: Path) -> dict[str, str]:
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOGGING)
    java_options = [
        f"-Dlog4j2.configurationFile={logging.as_uri()}",
        # For short jobs, parallel garbage collection and full compilation cost more CPU than they save.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        # TieredStopAtLevel=1 reduces the code cache to 48 MB, too little for a stream that runs for hours.
        "-XX:ReservedCodeCacheSize=192m",
        # Write no performance counters to the temporary directory.
        "-XX:-UsePerfData",
    ]
    ours = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.task.maxFailures": str(ATTEMPTS_PER_TASK),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    fixed = {
        "spark.master": master,
        JAVA_OPTIONS: " ".join(java_options),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    cores = count_cores(master)
    if cores is not None:
        fixed |= {"spark.default.parallelism": str(cores), "spark.sql.shuffle.partitions": str(cores)}
    if is_on_this_machine(master):
        fixed |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if is_local(master):
        fixed["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(own_import_paths())
    else:
        # Results arrive with each task, and only those of a few tasks are in memory at once.
        ours["spark.driver.maxResultSize"] = "0"
    return merge_settings(ours, fixed, _requested)


def _variables(master: str, java_home: Path, settings: Mapping[str, str], scratch: Path) -> dict[str, str]:
    variables = {"JAVA_HOME": str(java_home)}
    if is_on_this_machine(master):
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    if PYTHON in settings:
        variables["PYSPARK_PYTHON"] = settings[PYTHON]
    elif is_local(master) or "PYSPARK_PYTHON" not in os.environ:
        variables["PYSPARK_PYTHON"] = sys.executable
    if master.startswith("local"):
        # Use the Spark that is installed with this Python, even if the machine has another.
        package = find_spec("pyspark")
        assert package is not None
        assert package.origin is not None
        home = Path(package.origin).parent
        variables["SPARK_HOME"] = str(home if is_local(master) else _link_spark_home(home, scratch / "spark"))
    return variables


def _link_spark_home(home: Path, to: Path) -> Path:
    """Make a folder of links to Spark's files, because the workers of a `local-cluster` write into SPARK_HOME."""
    to.mkdir()
    for path in home.iterdir():
        (to / path.name).symlink_to(path)
    return to


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the body runs, for the processes that it starts."""
    before = {key: os.environ.get(key) for key in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def _end_java() -> None:
    """End the Java process, which Spark would keep, with its settings, until Python exits."""
    pyspark = sys.modules.get("pyspark")
    gateway = pyspark.SparkContext._gateway if pyspark is not None else None
    if pyspark is None or gateway is None:
        return
    gateway.shutdown()
    process = gateway.proc
    pyspark.SparkContext._gateway = None
    pyspark.SparkContext._jvm = None
    if process is None:
        return
    with suppress(OSError):
        process.stdin.close()  # Spark's gateway ends when its standard input does.
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
