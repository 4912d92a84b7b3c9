"""The wheel contains the examples and all of carrycast except the tests beside its protocols."""

import json
import os
import subprocess
import sys
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


def examples() -> set[str]:
    """The files of the examples as a wheel names them."""
    files = [path.relative_to(REPOSITORY) for path in (REPOSITORY / "examples").rglob("*") if path.is_file()]
    return {f"carrycast/{name}" for name in files if not {"__pycache__", "run"} & set(name.parts)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    # A node of a checkout leaves its socket here, which no archive can hold.
    left = REPOSITORY / "examples" / "live" / "run" / f"left-behind-{os.getpid()}.sock"
    left.parent.mkdir(exist_ok=True)
    left.touch()
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(REPOSITORY))
    try:
        (path,) = builder.build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    finally:
        left.unlink()
    return Path(path)


def test_a_wheel_holds_the_package_and_the_examples_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert held == sources()[0] | examples() | {"carrycast/CITATION.cff"}


def test_an_installed_wheel_lists_copies_and_runs_the_examples(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    fresh = tmp_path / "fresh"
    fresh.mkdir()

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "carrycast", *arguments],
            env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
            cwd=fresh,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = json.loads(run("examples", "--json"))["examples"]
    assert {"quick", "fleet/scenario"} <= {row["name"] for row in listed}
    assert "run one: carrycast run mine/quick.toml" in run("examples", "mine")
    assert {path.name for path in (fresh / "mine").iterdir()} >= {"quick.toml", "fleet", "live"}
    assert json.loads(run("run", "mine/quick.toml", "--json"))["metrics"]["delivery_ratio"] > 0
    assert json.loads(run("check", "mine/fleet/scenario.toml", "--json"))["ok"] is True
