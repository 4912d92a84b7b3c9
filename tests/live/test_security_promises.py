"""Every promise of docs/security.md has a test that names it, and no test names a promise that is not there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def promised() -> set[str]:
    """The promises of the page, by id."""
    text = (ROOT / "docs" / "security.md").read_text()
    [section] = re.findall(r"^## Promises$(.+?)^## ", text, re.M | re.S)
    found = re.findall(r"^\| `([a-z-]+)` \| .+\. \|$", section, re.M)
    assert len(found) == len(set(found)) == section.count("\n| `"), "each once, and a whole sentence"
    return set(found)


def named() -> dict[str, list[str]]:
    """The tests that name a promise."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.promise":
                        [id] = mark.args
                        found.setdefault(ast.literal_eval(id), []).append(node.name)
    return found


def test_every_promise_has_a_test() -> None:
    assert promised() - named().keys() == set()


def test_no_test_names_a_promise_that_is_not_made() -> None:
    assert named().keys() - promised() == set()
