"""This version reads the files of released versions, and its nodes exchange events with nodes of those versions."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from carrycast.trace import BUILT_IN, facts_of_rows, fold_facts, read_trace, usual_metrics
from tests.cli.console import EXAMPLES, REPOSITORY, SOURCE
from tests.patience import PATIENCE_S

HERE = Path(__file__).parent
RELEASES: list[dict[str, str]] = tomllib.loads((HERE / "releases.toml").read_text("utf-8"))["release"]

CONFIG = """
name = "{name}"
[listen]
host = "127.0.0.1"
port = {port}
[discovery]
period_s = 0.1
peers = ["127.0.0.1:{peer}"]
[protocol]
name = "flooding"
[store]
file = "{name}.db"
[control]
socket = "{name}.sock"
"""
KEYS = """
[keys]
identity = "{name}.key"
network = "network.key"
"""


@pytest.fixture
def free_ports() -> tuple[int, int]:
    """Two UDP ports that no program uses."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release["version"])
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder from which a released version is imported."""
    folder = tmp_path_factory.mktemp("release")
    with zipfile.ZipFile(HERE / request.param["wheel"]) as wheel:
        wheel.extractall(folder)
    return folder


def command(source: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    """Start a command of the version in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "carrycast", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(source: Path, *arguments: str | Path) -> str:
    """The output of a command of the version in a folder."""
    with command(source, *arguments) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return out


@contextmanager
def running(source: Path, config: Path) -> Iterator[None]:
    """A node of the version in a folder."""
    with command(source, "node", config) as process:
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
            assert first.startswith("node "), first
            yield
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def status_of(node: str) -> dict[str, Any]:
    """The status of a node."""
    found: dict[str, Any] = json.loads(output_of(SOURCE, "status", "--node", f"{node}.sock", "--json"))
    return found


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release["version"])
def test_a_release_is_the_wheel_that_was_built(release: dict[str, str]) -> None:
    path = HERE / release["wheel"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == release["sha256"]
    with zipfile.ZipFile(path) as wheel:
        assert f'"{release["version"]}"' in wheel.read("carrycast/version.py").decode()


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release["version"])
def test_the_commit_of_a_release_has_the_sources_of_its_wheel(release: dict[str, str]) -> None:
    if git("cat-file", "-e", f"{release['commit']}^{{commit}}").returncode:
        pytest.skip("this checkout does not have the commit: it is shallow, or no clone")
    listed = git("ls-tree", "-r", release["commit"], "src/").stdout.splitlines()
    blobs = {line.partition("\t")[2].removeprefix("src/"): line.split()[2] for line in listed}
    with zipfile.ZipFile(HERE / release["wheel"]) as wheel:
        names = [name for name in wheel.namelist() if name.startswith("carrycast/") and name in blobs]
        assert len(names) > 600
        for name in names:
            text = wheel.read(name)
            assert hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest() == blobs[name], name


def test_the_trace_of_a_release_is_read_and_gives_its_metrics(old: Path, tmp_path: Path) -> None:
    said = json.loads(output_of(old, "run", EXAMPLES / "quick.toml", "--trace", tmp_path / "trace", "--json"))
    (folder,) = {path.parent.parent for path in (tmp_path / "trace").rglob("trace/*.parquet")}
    rows, events, subscriptions = (table.to_pylist() for table in read_trace(folder))
    by_event = {row["event"]: row for row in events}
    by_subscription = {row["subscription"]: row for row in subscriptions}
    folds = [fold() for fold in BUILT_IN]
    for fold in folds:
        fold_facts(fold, facts_of_rows(rows, by_event, by_subscription))
    found = usual_metrics(folds)
    assert found["delivered"]
    assert {name: value for name, value in said["metrics"].items() if name in found} == pytest.approx(
        {name: value for name, value in found.items() if name in said["metrics"]}, rel=1e-9
    )


@pytest.mark.live
@pytest.mark.parametrize(
    "keyed", [pytest.param(False, marks=pytest.mark.slow, id="open"), pytest.param(True, id="keyed")]
)
def test_nodes_of_a_release_and_of_this_version_exchange_events(
    old: Path, tmp_path: Path, keyed: bool, free_ports: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A socket's path has at most 107 bytes, and the folder's name is long.
    monkeypatch.chdir(tmp_path)
    sources = {"old": old, "new": SOURCE}
    ports = dict(zip(sources, free_ports, strict=True))
    if keyed:
        output_of(old, "keys", "network", "network.key")
    for name, other in (("old", "new"), ("new", "old")):
        text = CONFIG.format(name=name, port=ports[name], peer=ports[other])
        if keyed:
            output_of(sources[name], "keys", "new", f"{name}.key")
            text += KEYS.format(name=name)
        Path(f"{name}.toml").write_text(text)
    with running(old, Path("old.toml")), running(SOURCE, Path("new.toml")):
        wait_until(lambda: len(status_of("old")["neighbors"]) == len(status_of("new")["neighbors"]) == 1)
        for publisher, subscriber in (("old", "new"), ("new", "old")):
            arguments = ("sub", "speed > 30", "--node", f"{subscriber}.sock", "--count", "1", "--json")
            with command(sources[subscriber], *arguments) as reader:
                while status_of(subscriber)["subscriptions"] == 0:
                    time.sleep(0.1)
                output_of(sources[publisher], "pub", "--node", f"{publisher}.sock", "speed=31")
                out, err = reader.communicate(timeout=PATIENCE_S)
            assert reader.returncode == 0, err
            assert json.loads(out)["attributes"] == {"speed": 31}


@pytest.mark.live
def test_this_version_opens_the_store_of_a_release(
    old: Path, tmp_path: Path, free_ports: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = CONFIG.format(name="old", port=free_ports[0], peer=free_ports[1])
    Path("old.toml").write_text(config.replace('"flooding"', '"drift"\ndurable = true'))
    arguments = ("sub", "speed > 30", "--node", "old.sock", "--name", "log", "--json")
    with running(old, Path("old.toml")):
        output_of(old, *arguments, "--timeout", "0.1")
        output_of(old, "pub", "--node", "old.sock", "--level", "stored", "speed=31")
    with running(SOURCE, Path("old.toml")):
        assert json.loads(output_of(SOURCE, *arguments, "--count", "1"))["attributes"] == {"speed": 31}
