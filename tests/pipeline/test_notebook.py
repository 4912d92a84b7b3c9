"""The notebooks run, cell by cell, in a fresh folder; they need only `import carrycast`, and each shows pictures."""

import ast
import asyncio
import inspect
import json
import socket
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.console import EXAMPLES

NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))
MADE = {
    "compare-protocols": [
        "paper/comparison.pdf",
        "paper/comparison.svg",
        "paper/delivery.pdf",
        "paper/range.pdf",
        "paper/compare/index.html",
    ],
    "fleet-from-a-log": ["fleet/degree.pdf", "fleet/advice/advice.md", "fleet/buses.html"],
    "live-nodes": ["live/nodes.html"],
}
"""The files that each notebook leaves below `out`."""

pytestmark = pytest.mark.timeout(3600)


def cells(path: Path) -> list[str]:
    """The code cells of a notebook."""
    found = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def free_port() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def value_of(text: str, where: str, names: dict[str, object], loop: asyncio.AbstractEventLoop) -> object:
    """Run a cell as a notebook does: with `await` at its top level, and the value of its last expression."""
    tree = ast.parse(text, where)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    parts: list[ast.Module | ast.Expression] = [tree]
    if isinstance(last, ast.Expr):
        parts.append(ast.Expression(last.value))
    value: object = None
    for part in parts:
        mode = "eval" if isinstance(part, ast.Expression) else "exec"
        value = eval(compile(part, where, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.iscoroutine(value):
            value = loop.run_until_complete(value)
    return value


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_of_a_notebook_runs(
    spark: SparkSession, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ports = {"7461": free_port(), "7462": free_port()}
    names: dict[str, object] = {"__name__": "__main__"}
    shown = []
    loop = asyncio.new_event_loop()
    try:
        for number, text in enumerate(cells(path)):
            for port, free in ports.items():
                text = text.replace(port, free)  # noqa: PLW2901
            shown.append(value_of(text, f"{path.name}, code cell {number}", names, loop))
    finally:
        loop.close()
    for file in MADE[path.stem]:
        written = (tmp_path / "out" / file).read_bytes()
        assert not file.endswith(".svg") or b"delivery ratio" in written, "text, not outlines"
    assert any(hasattr(value, "_repr_png_") for value in shown), "it shows a picture"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_needs_only_carrycast(path: Path) -> None:
    imported = {
        alias.name
        for text in cells(path)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {"carrycast"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_what_its_cells_printed(path: Path) -> None:
    found = json.loads(path.read_text("utf-8"))["cells"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in found if "outputs" in cell)
