"""The commands in the docs that are for live nodes, with nodes that run: who copies them gets what the page says."""

import re
import shutil
import signal
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen, run
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

from carrycast.node.config import config_from
from tests.cli.console import EXAMPLES, REPOSITORY, call
from tests.cli.docs_pages import BLOCK, Written, of_page, pages_with
from tests.cli.nodes import running_node, start, status_of, stop, until, write_config
from tests.cli.test_policy import config as policy_config
from tests.live.test_tutorial import free_ports
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.live

LIVE = Path("examples") / "live"


@pytest.fixture
def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the configurations of the examples, at ports that are free, so that no other nodes are met."""
    (tmp_path / LIVE).mkdir(parents=True)
    configs = [Path(shutil.copy(path, tmp_path / LIVE)) for path in sorted((EXAMPLES / "live").glob("*.toml"))]
    ports = sorted({port for path in configs for port in re.findall(r"\b74\d\d\b", path.read_text())})
    chosen = dict(zip(ports, free_ports(len(ports)), strict=True))
    for path in configs:
        path.write_text(re.sub(r"\b74\d\d\b", lambda found: str(chosen[found[0]]), path.read_text()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Terminal:
    """Runs commands as somebody would who copies them, and keeps what goes on in the background."""

    def __init__(self, background: ExitStack) -> None:
        self._background = background
        self._subscriber: Popen[str] | None = None

    def run(self, command: Written) -> None:
        """To its end; a node or a subscriber until the page is over."""
        name, *words = command.words
        if name == "node":
            self._background.enter_context(running_node(Path(words[0])))
        elif name == "sub":
            self._subscriber = self._background.enter_context(start(*command.words))
            socket = Path(words[words.index("--node") + 1])
            until(lambda: status_of(socket)["subscriptions"] == 1)
        elif "--live" in words:
            watch(command)
        else:
            done = call(*command.words)
            assert (done.status, done.err) == (0, ""), command.text
            if name == "pub":
                self._hears(done.out.strip(), words)

    def _hears(self, event: str, words: list[str]) -> None:
        assert self._subscriber is not None
        assert self._subscriber.stdout is not None
        line = self._subscriber.stdout.readline()
        assert line.startswith(f"{event}  {next(word for word in words if '=' in word)}")


def watch(command: Written) -> None:
    """The page is there, until Ctrl-C."""
    with start(*command.words) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        with urlopen(told.split()[1].rstrip(";"), timeout=PATIENCE_S) as page:
            assert b"<canvas" in page.read()
        assert stop(process, signal.SIGINT) == (0, "", "")


STREETS = (
    *("README.md", "docs/start-developer.md", "docs/access.md", "docs/live.md", "docs/live-configuration.md"),
    "docs/player.md",
)
"""The pages with nodes on this machine that find each other."""


def test_no_page_is_left_out() -> None:
    told = {*STREETS, "docs/traces.md", "docs/policy.md"}
    # That one is followed by `tests/gateway/test_tutorial.py`.
    assert set(pages_with("live")) == told | {"docs/mqtt.md"}


@pytest.mark.parametrize("page", STREETS)
def test_a_network_on_this_machine(page: str, street: Path) -> None:
    commands = of_page(page, "live")
    with ExitStack() as background:
        terminal = Terminal(background)
        if not any(command.words[0] == "node" for command in commands):
            for name in ("car-1", "car-2"):
                background.enter_context(running_node(LIVE / f"{name}.toml"))
        for command in commands:
            terminal.run(command)


@pytest.mark.parametrize("page", ["python-client.md", "loopback.md"])
def test_python_programs_of_a_page_run(page: str, street: Path) -> None:
    text = (REPOSITORY / "docs" / page).read_text("utf-8")
    programs = [program for language, program in BLOCK.findall(text) if language == "python"]
    assert programs
    [port] = free_ports(1)
    with ExitStack() as background:
        for name in ("car-1", "car-2") if page == "python-client.md" else ():
            background.enter_context(running_node(LIVE / f"{name}.toml"))
        for program in programs:
            own = program.replace("9473", str(port))
            done = run([sys.executable, "-c", own], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            assert (done.returncode, done.stderr) == (0, ""), program
            assert done.stdout or "print" not in program, program
            assert "None" not in done.stdout.splitlines(), "an event arrives in time"


@pytest.mark.parametrize("page", ["live.md", "live-configuration.md"])
def test_configurations_of_a_page_are_accepted(page: str, tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / page).read_text("utf-8")
    configurations = [tomllib.loads(block) for language, block in BLOCK.findall(text) if language == "toml"]
    assert configurations
    for tables in configurations:
        # Some show only the tables that the text explains.
        listen = {} if "interfaces" in tables else {"listen": {"port": 7400}}
        config_from({"name": "car", **listen, **tables}, tmp_path)


@pytest.fixture
def policies(street: Path) -> Iterator[None]:
    """A tool, a repository and a sensor, with what the operator wrote."""
    shutil.copy(EXAMPLES / "policy" / "night.policy", street)
    with ExitStack() as background:
        background.enter_context(running_node(policy_config(street, "a", "policy_tool", settings="stored_s = 20")))
        address = str(status_of(street / "a.sock")["address"])
        background.enter_context(running_node(policy_config(street, "b", "policy_repository", address)))
        sensor = policy_config(street, "c", "policy_decision", address, roles='"sensor"', settings="retry_s = 0.2")
        background.enter_context(running_node(sensor))
        until(lambda: call("policy", "check", "night.policy", "--node", "a.sock").status == 0)
        yield


def test_policies(policies: None) -> None:
    for command in of_page("docs/policy.md", "live"):
        done = call(*command.words)
        assert done.status == 0, f"{command.text}: {done.err}"


def test_the_traces_of_nodes_are_judged_as_one_network(street: Path, spark: SparkSession) -> None:
    first, second = (street / name / f"{name}.sock" for name in ("node-a", "node-b"))
    with ExitStack() as background:
        nodes: list[Popen[str]] = []
        for name in ("node-a", "node-b"):
            (street / name).mkdir()
            known = [str(status_of(first)["address"])] if nodes else []
            file = write_config(street / name, name, *known)
            file.write_text(file.read_text() + '[trace]\ndirectory = "traces"\nlevel = "full"\n')
            nodes.append(background.enter_context(running_node(file)))
        with start("sub", "--node", second, "--count", "1") as subscriber:
            until(lambda: status_of(second)["subscriptions"] == 1)
            assert call("pub", "speed=31", "--node", first).status == 0
            assert subscriber.wait(PATIENCE_S) == 0
        for node in nodes:
            assert stop(node)[0] == 0
    for command in of_page("docs/traces.md", "live"):
        done = call(*command.words)
        assert done.status == 0, done.err
        assert re.search(r"^delivery_ratio +1 ", done.out, re.MULTILINE), done.out
