"""The tutorial on processors, executed line by line: files and outputs are those that it shows."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

import carrycast
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.live

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "tutorial-processors.md"
FOLDER = Path("examples/live/temperatures")


class Block(NamedTuple):
    """A part of the page between fences."""

    language: str
    text: str


def blocks(*languages: str) -> list[Block]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [Block(language, text) for language, text in found if language in languages]


def written(text: str) -> Counter[str]:
    """The lines of an output, without what differs from run to run: times, ids of events, ports, and how tables are
    set."""
    text = re.sub(r"\b\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME", text)
    without_ids = re.sub(r"\b\d{10,}:\d{10,}", "ID", text)
    without_ports = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", without_ids)
    return Counter(" ".join(line.split()) for line in without_ports.splitlines())


class Terminal:
    """A shell in a folder, into which lines are copied, and what it has printed since."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "terminal.txt"
        commands = folder / "bin"
        commands.mkdir()
        command = commands / "carrycast"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m carrycast "$@"\n')
        command.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(Path(carrycast.__path__[0]).parent),
        }
        with self._output.open("wb") as output:
            self.shell = subprocess.Popen(
                ["bash"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                cwd=folder,
                env=environment,
                # One group for the shell and the nodes in its background, so that none of them is left behind.
                start_new_session=True,
            )
        self._read = 0

    def copy(self, lines: str) -> None:
        """Type lines; what is printed from now on belongs to them."""
        assert self.shell.stdin is not None
        self._read = len(self.printed())
        self.shell.stdin.write(lines)
        self.shell.stdin.flush()

    def printed(self) -> str:
        return self._output.read_text()

    def shows(self, expected: str) -> None:
        """Wait until every expected line stands there."""
        deadline = time.monotonic() + PATIENCE_S
        while missing := written(expected) - written(self.printed()[self._read :]):
            assert time.monotonic() < deadline, f"missing: {list(missing)}\nprinted:\n{self.printed()}"
            time.sleep(0.05)

    def close(self) -> None:
        """End the shell and whatever it has started, if it still runs."""
        with ExitStack() as closing:
            closing.callback(self.shell.wait, 10)
            if self.shell.stdin is not None:
                closing.callback(self.shell.stdin.close)
            try:
                os.killpg(self.shell.pid, signal.SIGTERM)
            except ProcessLookupError:
                return


def free_ports(count: int) -> list[int]:
    """Ports that neither UDP nor TCP uses: nodes talk over the one and serve metrics over the other."""
    found: list[int] = []
    with ExitStack() as opened:
        while len(found) < count:
            stream, datagrams = (
                opened.enter_context(socket.socket(socket.AF_INET, kind))
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
            )
            stream.bind(("127.0.0.1", 0))
            with suppress(OSError):
                datagrams.bind(stream.getsockname())
                found.append(stream.getsockname()[1])
    return found


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A shell beside a copy of the examples, with ports that are free, so that no other nodes are met."""
    shutil.copytree(REPOSITORY / FOLDER, tmp_path / FOLDER, ignore=shutil.ignore_patterns("__pycache__"))
    configs = [path for path in (tmp_path / FOLDER).glob("*.toml") if path.name != "scenario.toml"]
    ports = sorted({port for path in configs for port in re.findall(r"\b75\d\d\b", path.read_text())})
    chosen = dict(zip(ports, free_ports(len(ports)), strict=True))
    for path in configs:
        path.write_text(re.sub(r"\b75\d\d\b", lambda found: str(chosen[found[0]]), path.read_text()))
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


def test_the_files_that_the_tutorial_shows_are_the_files_that_it_runs() -> None:
    folder = REPOSITORY / FOLDER
    assert [block.text for block in blocks("python")] == [(folder / "temperatures.py").read_text()]
    assert [block.text for block in blocks("toml")] == [(folder / "station-a.toml").read_text()]
    lines = [line for line in (folder / "temperatures.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 10


def test_the_tutorial_shows_what_happens(terminal: Terminal) -> None:
    steps = blocks("sh", "text")
    assert [block.text for block in steps if "carrycast pub" in block.text]
    for block in steps:
        if block.language == "sh":
            terminal.copy(block.text)
        else:
            terminal.shows(block.text)
    assert terminal.shell.stdin is not None
    terminal.shell.stdin.close()
    assert terminal.shell.wait(PATIENCE_S) == 0, terminal.printed()
    printed = terminal.printed()
    # Each of the four readings was converted once, but for the one that has no temperature in Kelvin.
    shown = Counter(re.findall(r"unit=\S+ value=\S+", printed))
    fahrenheit = [f"unit=F value={value}" for value in (68.9, 69.8, -508.0, 70.7)]
    kelvin = [f"unit=K value={value}" for value in (293.65, 294.15, 294.65)]
    assert shown == Counter(fahrenheit + kelvin)
    assert "Traceback" not in printed
