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
from tests.live.test_tutorial import free_ports

NOT_RUN = {
    "docs/mqtt.md": "needs a node with a gateway; tests/gateway/test_tutorial.py runs its blocks",
    "docs/loopback.md": "tests/cli/test_docs_live.py runs its blocks one after the other",
    "docs/python-client.md": "tests/cli/test_docs_live.py runs its blocks one after the other",
}
"""Pages whose blocks another test runs."""
NEEDS_NODE = "examples/live/run/"
"""A block with this address talks to a node that runs."""
NEEDS_MQTT = "port=1883"
"""A block with this port talks to a node that is an MQTT broker."""


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


def needs_node(block: Block) -> bool:
    return NEEDS_NODE in block.code or NEEDS_MQTT in block.code


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
    [block for block in BLOCKS if block.page not in NOT_RUN and not needs_node(block)],
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


@pytest.mark.live
@pytest.mark.parametrize(
    "block",
    [block for block in BLOCKS if block.page not in NOT_RUN and NEEDS_MQTT in block.code],
    ids=lambda block: block.name,
)
def test_a_block_that_speaks_mqtt_runs(block: Block, folder: Path, tmp_path: Path) -> None:
    listen, group, mqtt = free_ports(3)
    text = (REPOSITORY / "examples" / "live" / "mqtt.toml").read_text("utf-8")
    for old, new in (("7403", listen), ("7400", group), ("1883", mqtt)):
        assert old in text
        text = text.replace(old, str(new))
    (tmp_path / "mqtt.toml").write_text(text, "utf-8")
    with running_node(tmp_path / "mqtt.toml"):
        run_block(block._replace(code=block.code.replace("1883", str(mqtt))), folder)


def test_what_is_not_run_is_still_on_its_page() -> None:
    assert set(NOT_RUN) <= {block.page for block in BLOCKS}
