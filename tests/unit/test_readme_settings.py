"""The tables of settings in the READMEs of protocols are those of the code."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "settings.py"
spec = importlib.util.spec_from_file_location("carrycast_docs_settings", SCRIPT)
assert spec is not None
assert spec.loader is not None
written = importlib.util.module_from_spec(spec)
spec.loader.exec_module(written)

READMES: dict[Path, type] = written.machines()


def test_every_protocol_is_there() -> None:
    assert len(READMES) >= 7
    assert all(path.is_file() for path in READMES)


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_a_readme_has_the_settings_of_the_code(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(written.SECTION.findall(text)) == 1, "wants one section between <!-- settings --> and its end"
    assert written.renewed(text, READMES[path]) == text, "run `python docs/settings.py`"


def test_a_stale_table_is_noticed() -> None:
    path = next(path for path in READMES if path.parent.name == "epidemic")
    text = path.read_text("utf-8")
    assert "| `asks` | `20` |" in text
    assert written.renewed(text.replace("| `asks` | `20` |", "| `asks` | `5` |"), READMES[path]) == text
