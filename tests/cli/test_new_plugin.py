"""`carrycast new KIND NAME`: a package that works as it comes, for every kind of plug-in."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from carrycast.cli.scaffold import PACKAGED
from carrycast.core.plugins import KINDS
from tests.cli.console import call, environment
from tests.patience import PATIENCE_S


def pretend_installed(folder: Path) -> None:
    """Write the file that lists the entry points of a package, as pip does."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines: list[str] = []
    for group, values in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in values.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def test_every_kind_has_a_template() -> None:
    assert {*PACKAGED.values(), "protocols"} == set(KINDS)


@pytest.mark.parametrize("kind", PACKAGED)
def test_a_new_plugin_passes_its_own_test(tmp_path: Path, kind: str) -> None:
    done = call("new", kind, "night_bus", "--out", tmp_path)
    folder = tmp_path / "carrycast-night-bus"
    assert (done.status, done.err) == (0, "")
    assert not [path for path in folder.iterdir() if re.search(r"@\w+@", path.read_text())], "every blank is filled"
    pretend_installed(folder)
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder],
        cwd=tmp_path,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert tested.returncode == 0, tested.stdout


def test_it_says_how_to_install_and_test_it(tmp_path: Path) -> None:
    folder = tmp_path / "carrycast-long-range"
    assert call("new", "radio", "long_range", "--out", tmp_path).out.splitlines() == [
        f"made {folder}",
        f"install it: pip install --editable {folder}",
        f"test it:    python -m pytest {folder}",
    ]


def test_names_that_are_taken_or_wrong_are_refused(tmp_path: Path) -> None:
    assert "there is a radio 'csma' already" in call("new", "radio", "csma", "--out", tmp_path).refusal()
    assert "lower-case letters" in call("new", "radio", "Long-Range", "--out", tmp_path).refusal()
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_exists_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "carrycast-long-range"
    folder.mkdir()
    assert f"{folder}: exists already" in call("new", "radio", "long_range", "--out", tmp_path).refusal()
    assert list(folder.iterdir()) == []
