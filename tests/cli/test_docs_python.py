"""Every block of Python on a page runs as it stands, in a folder with the examples, or stands below with the reason."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.console import REPOSITORY
from tests.cli.docs_pages import BLOCK, PAGES
from tests.cli.nodes import running_node

NOT_RUN = {
    "docs/mqtt.md": "needs a node with a gateway; tests/gateway/test_tutorial.py runs its blocks",
    "docs/loopback.md": "tests/cli/test_docs_live.py runs its blocks one after the other",
    "docs/python-client.md": "tests/cli/test_docs_live.py runs its blocks one after the other",
}
"""Pages whose blocks another test runs."""
NEEDS_NODE = "examples/live/run/"
"""A block with this address talks to a node that runs."""


class Block(NamedTuple):
    """A block of Python on a page."""

    page: str
    code: str

    @property
    def name(self) -> str:
        return f"{self.page}: {self.first_line}"

    @property
    def first_line(self) -> str:
        return self.code.strip().splitlines()[0]


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for language, code in BLOCK.findall(page.read_text("utf-8")):
            if language == "python":
                yield Block(str(page.relative_to(REPOSITORY)), code)


BLOCKS = list(blocks())


def run_block(block: Block, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(
        [sys.executable, "-c", block.code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{block.name}\n{done.stderr}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    (tmp_path / "out").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "block",
    [block for block in BLOCKS if block.page not in NOT_RUN and NEEDS_NODE not in block.code],
    ids=lambda block: block.name,
)
def test_a_block_runs(block: Block, folder: Path) -> None:
    run_block(block, folder)


@pytest.mark.live
@pytest.mark.parametrize(
    "block",
    [block for block in BLOCKS if block.page not in NOT_RUN and NEEDS_NODE in block.code],
    ids=lambda block: block.name,
)
def test_a_block_that_talks_to_a_node_runs(block: Block, folder: Path) -> None:
    with running_node(REPOSITORY / "examples" / "live" / "car-1.toml"):
        run_block(block, folder)


def test_what_is_not_run_is_still_on_its_page() -> None:
    assert set(NOT_RUN) <= {block.page for block in BLOCKS}
