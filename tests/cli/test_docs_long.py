"""The commands in the docs that take long, shortened where an option allows it: all else is as the page has it.

Those of the README, of traces and of metrics run with all tests, since a newcomer copies them; the rest with `make
test-all`.
"""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from carrycast.cli import parser
from tests.cli.console import EXAMPLES, call
from tests.cli.docs_pages import SHORT_S, Written, of_page, pages_with

ALWAYS = ("README.md", "docs/traces.md", "docs/custom-metrics.md")
SEEDS = {"advise": "2", "compare": "1", "reproduce": "1", "sweep": "2"}


def shortened(command: Written) -> list[str]:
    """Few seeds, few points, short runs; an option that is said twice counts as said last."""
    name, *words = command.words
    if name in SEEDS:
        words += ["--runs", SEEDS[name]]
    if name == "reproduce":
        words += ["--quick"]
    if name == "watch":
        words += ["--once"]
    for lasting_s in {
        SHORT_S[Path(word).stem] for word in words if Path(word).stem in SHORT_S and word.endswith("toml")
    }:
        words += ["--duration", str(lasting_s)] if name == "emulate" else ["--set", f"duration_s={lasting_s}"]
    if "nodes=500" in words:
        words += ["--set", "nodes=50"]
    return [name, *words]


class Desk:
    """Somebody's folder, in which pages are followed from above."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # What was run into which folder: the same runs are not done again for another figure.
        self._done: dict[str, Path] = {}

    def run(self, words: list[str]) -> None:
        """One command, which ends well."""
        if words[0] == "reproduce":
            arguments = parser().parse_args(words)
            out: Path = arguments.out
            experiment = arguments.experiments[0].partition("/")[0]
            if experiment in self._done and not out.exists():
                shutil.copytree(self._done[experiment], out)
            self._done[experiment] = out
        done = call(*words)
        assert done.status == 0, f"{words}: {done.err}"

    def prepare(self, page: str) -> None:
        """What the page takes for granted: an experiment of the reader's own, and what it or another has left."""
        if page in ("docs/experiments.md", "docs/traces.md"):
            self.run(["new", "experiment", "my"])
            file = self.folder / "my" / "experiment.toml"
            file.write_text(file.read_text().replace('\nscenario = "', '\ntrace = "deliveries"\nscenario = "', 1))
        if page == "docs/traces.md":
            self.run(["sweep", "my/experiment.toml", "--runs", "1"])
        if page == "docs/player.md":
            self.run(["reproduce", "adaptive", "--quick", "--runs", "1"])


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    for file in ("scenario.toml", "temperatures.py"):
        (tmp_path / file).symlink_to(EXAMPLES / "live" / "temperatures" / file)
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path)


def marked(page: str) -> object:
    return page if page in ALWAYS else pytest.param(page, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])


@pytest.mark.parametrize("page", [marked(page) for page in pages_with("long")])
def test_long_commands_run(page: str, desk: Desk, spark: SparkSession) -> None:
    desk.prepare(page)
    for command in of_page(page, "quick", "long"):
        if command.way == "long":
            desk.run(shortened(command))
        elif "--trace" in command.words:  # which a later one reads
            desk.run(list(command.words))
