"""The notebook runs, cell by cell, from a folder like a checkout's examples."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.console import EXAMPLES

NOTEBOOK = EXAMPLES / "from-scenario-to-metric.ipynb"

pytestmark = pytest.mark.timeout(3600)


def test_every_cell_of_the_notebook_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("quick.toml", "metrics"):
        (tmp_path / name).symlink_to(EXAMPLES / name)
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 8
    names: dict[str, object] = {"__name__": "__main__"}
    for number, text in enumerate(code):
        exec(compile(text, f"{NOTEBOOK.name}, code cell {number}", "exec"), names)
    assert (tmp_path / "out" / "notebook" / "late" / "index.html").is_file()


def test_it_is_kept_without_what_its_cells_printed() -> None:
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if "outputs" in cell)
