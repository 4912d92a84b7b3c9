"""Every guarantee of docs/security.md has a test that names it, and every guarantee that a test names exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def read_guarantees() -> set[str]:
    """Return the ids of the guarantees on the page."""
    text = (ROOT / "docs" / "security.md").read_text()
    [section] = re.findall(r"^## Guarantees$(.+?)^## ", text, re.M | re.S)
    found = re.findall(r"^\| `([a-z-]+)` \| .+\. \|$", section, re.M)
    assert len(found) == len(set(found)) == section.count("\n| `"), "each once, and a whole sentence"
    return set(found)


def find_tests() -> dict[str, list[str]]:
    """Return the tests of each guarantee."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.guarantee":
                        [id] = mark.args
                        found.setdefault(ast.literal_eval(id), []).append(node.name)
    return found


def test_every_guarantee_has_a_test() -> None:
    assert read_guarantees() - find_tests().keys() == set()


def test_no_test_names_an_unknown_guarantee() -> None:
    assert find_tests().keys() - read_guarantees() == set()
