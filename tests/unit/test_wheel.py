"""The wheel contains all of carrycast except the tests beside its protocols."""

import tomllib
import zipfile
from pathlib import Path

import pytest
from pathspec import GitIgnoreSpec

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src"


def sources() -> tuple[set[str], set[str]]:
    """The files of the package as a wheel names them, and those of them that are tests."""
    names = {path.relative_to(SOURCE) for path in (SOURCE / "carrycast").rglob("*") if path.is_file()}
    kept = {name for name in names if "__pycache__" not in name.parts}
    tests = {name for name in kept if name.name.startswith("test_") or "tests" in name.parts or name.stem == "conftest"}
    return {str(name) for name in kept - tests}, {str(name) for name in tests}


def test_the_rules_leave_out_the_tests_and_nothing_else() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    product, tests = sources()
    assert len(tests) > 15
    rules = GitIgnoreSpec.from_lines(settings["exclude"])
    assert {name for name in product | tests if rules.match_file(f"src/{name}")} == tests


def test_a_wheel_holds_no_tests(tmp_path: Path) -> None:
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(REPOSITORY))
    (wheel,) = builder.build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert held == sources()[0]
