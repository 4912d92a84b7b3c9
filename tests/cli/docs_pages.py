"""The commands that stand in the docs, and how each of them is tried."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cli.console import REPOSITORY

PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted((REPOSITORY / "examples").rglob("*.md")),
    *sorted((REPOSITORY / "src").rglob("*.md")),
]
SHELLS = ("", "sh", "bash", "console")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHORT_S = {
    "community": 110, "head-to-head": 30, "traffic-report": 15, "police-surveillance": 15, "sparse": 30,
    "brokers": 12, "overlay": 22,
}  # fmt: skip
"""Examples that take minutes, or that go by the clock: how long they last if they are only to run."""
CLOCKED = ("brokers", "overlay")
QUICK = (
    "run", "protocols", "routers", "applications", "mobility", "experiments", "check", "contacts", "show", "new",
    "policy", "explain", "keys",
)  # fmt: skip
LIVE = ("node", "pub", "sub", "position", "status", "request")
TUTORIAL = "docs/tutorial-processors.md"
"""`tests/live/test_tutorial.py` follows it line by line."""


class Written(NamedTuple):
    """A command as a page has it."""

    page: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return shlex.join(("carrycast", *self.words))

    @property
    def way(self) -> str:
        """`tutorial`, `live` (with nodes that run), `cluster` (with one, as in tests/pipeline/test_standalone.py),
        `debugger` (interactive, as in tests/cli/test_debug.py), `quick` (a second or two), or `long`."""
        name = self.words[0]
        if name == "debug":
            return "debugger"
        if any(word.startswith(("spark://", "local-cluster")) for word in self.words):
            return "cluster"
        if name in LIVE or {"--node", "--live"} & {*self.words} or any(word.startswith("node-") for word in self.words):
            return "tutorial" if self.page == TUTORIAL else "live"
        minutes = any(Path(word).stem in SHORT_S and Path(word).stem not in CLOCKED for word in self.words)
        # Of a reader's own files, and of what a sweep has left.
        others = any(
            word.startswith(
                ("scenario.", "out/sweep", "out/reproduce", "out/buses", "out/gps", "out/logs", "my_", "TRACE", "FILE")
            )
            for word in self.words
        )
        return "quick" if name in QUICK and not minutes and not others else "long"


def commands(page: Path) -> Iterator[Written]:
    """Yield the commands in the code blocks of a page, without shell operators."""
    for language, block in BLOCK.findall(page.read_text("utf-8")):
        for line in block.replace("\\\n", " ").splitlines() if language in SHELLS else ():
            if (command := re.match(r"(?:\$ )?(?:\w+=\S+ )*(carrycast .*)", line)) is not None:
                words = shlex.split(command[1], comments=True)
                end = next((place for place, word in enumerate(words) if word in ("&", "|", ">")), len(words))
                yield Written(str(page.relative_to(REPOSITORY)), tuple(words[1:end]))


def mentions(page: Path) -> Iterator[str]:
    """Yield the commands in the running text; some of them are only a part of a command."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    yield from (" ".join(found.split()) for found in re.findall(r"`carrycast ([^`]+)`", text))


WRITTEN = list(dict.fromkeys(command for page in PAGES for command in commands(page)))


def of_page(page: str, *ways: str) -> list[Written]:
    """Its commands that are tried in these ways, in its order: one may need what another before it left."""
    return [command for command in WRITTEN if command.page == page and command.way in ways]


def pages_with(way: str) -> list[str]:
    """The pages that have commands to be tried so."""
    return list(dict.fromkeys(command.page for command in WRITTEN if command.way == way))
