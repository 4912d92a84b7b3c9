"""The tutorial on flood watch, followed line by line: a modulator moves while showers go on, and none is lost."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import carrycast
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.live

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "tutorial-flood-watch.md"
FOLDER = REPOSITORY / "examples" / "live" / "flood-watch"


def blocks(*languages: str) -> list[tuple[str, str]]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [(language, text) for language, text in found if language in languages]


def lines(text: str) -> list[str]:
    """Without how tables are set."""
    return [" ".join(line.split()) for line in text.splitlines()]


def printed(commands: str) -> list[str]:
    """Return the output of lines that are copied into a terminal."""
    shown: list[str] = []
    environment = {**os.environ, "PYTHONPATH": str(Path(carrycast.__path__[0]).parent)}
    for command in commands.splitlines():
        program, *arguments = command.split()
        line = [sys.executable, *(["-m", "carrycast"] if program == "carrycast" else []), *arguments]
        done = subprocess.run(
            line, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        shown += lines(done.stdout)
    return shown


def test_the_file_that_the_tutorial_shows_is_the_file_that_it_runs() -> None:
    assert [text for _, text in blocks("toml")] == [(FOLDER / "laptop-b.toml").read_text()]


def test_the_tutorial_shows_what_happens() -> None:
    shown: list[str] = []
    for language, text in blocks("sh", "text"):
        if language == "sh":
            shown = printed(text)
        else:
            assert [line for line in lines(text) if line not in shown] == [], shown
