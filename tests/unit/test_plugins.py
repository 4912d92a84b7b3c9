"""Plug-ins by name: built in, in folders, and by the entry points of installed packages."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from carrycast.core import plugins
from carrycast.core.plugins import (
    KINDS,
    BrokenPluginError,
    find_plugin,
    installed_packages,
    package_files,
    plugin_names,
    plugin_source,
)
from carrycast.errors import UserError

RADIO = """
from typing import ClassVar
from carrycast.sim.radio.radio import Radio

class Tetra(Radio, frozen=True, kw_only=True):
    name: ClassVar[str] = "tetra"
    range_m: float = 5000.0

class Other(Radio, frozen=True, kw_only=True):
    name: ClassVar[str] = "other"
    range_m: float = 5000.0
"""
ENTRY_POINTS = """
[carrycast.radios]
tetra = far_radios.tetra:Tetra
renamed = far_radios.tetra:Other
absent = far_radios.tetra:Absent
number = far_radios:NUMBER
broken = far_radios.broken:Radio
disk = far_radios.tetra:Tetra
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package on the search path as pip leaves it."""
    package = tmp_path / "far_radios"
    package.mkdir()
    (package / "__init__.py").write_text("NUMBER = 7\n")
    (package / "tetra.py").write_text(RADIO)
    (package / "broken.py").write_text("import nothing_of_that_name\n")
    info = tmp_path / "far_radios-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: far-radios\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    plugins._entry_points.cache_clear()
    yield package
    plugins._entry_points.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
def test_every_built_in_plugin_can_be_used(kind: str) -> None:
    for name in plugin_names(kind):
        assert isinstance(find_plugin(kind, name), type)


def test_an_installed_plugin_is_found_by_its_name(installed: Path) -> None:
    assert find_plugin("radios", "tetra").__module__ == "far_radios.tetra"
    assert {"csma", "disk", "tetra"} <= set(plugin_names("radios"))
    assert plugin_source("radios", "tetra") == "far-radios 1.2"


def test_a_built_in_name_always_means_the_built_in_plugin(installed: Path) -> None:
    assert find_plugin("radios", "disk").__module__.startswith("carrycast.")
    assert plugin_source("radios", "disk") == "built in"


def test_the_files_of_a_plugin_are_those_of_its_package(installed: Path) -> None:
    assert list(package_files("far_radios")) == [f"far_radios/{name}.py" for name in ("__init__", "broken", "tetra")]
    assert "carrycast/protocols/flooding/__init__.py" in package_files("carrycast.protocols.flooding")
    assert next(entry_point.name for entry_point in installed_packages()["far_radios"]) == "tetra"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("absent", "the radio 'absent': far_radios.tetra has no Absent"),
        ("number", "the entry point far_radios:NUMBER must offer a subclass of Radio"),
        ("renamed", "the radio 'renamed' calls itself 'other'; the two names must be one"),
        ("broken", "the radio 'broken' does not import: ModuleNotFoundError: No module named 'nothing_of_that_name' ("),
    ],
)
def test_a_plugin_that_cannot_be_used_says_why(installed: Path, name: str, complaint: str) -> None:
    with pytest.raises(BrokenPluginError) as caught:
        find_plugin("radios", name)
    assert str(caught.value).startswith(complaint)


def test_an_unknown_name_gets_a_suggestion_and_the_list(installed: Path) -> None:
    with pytest.raises(
        UserError, match=r"^there is no radio 'tetro': did you mean 'tetra'\? there are absent, broken, c"
    ):
        find_plugin("radios", "tetro")


def test_built_in_names_are_found_without_reading_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(group: str) -> None:
        raise AssertionError(f"entry points of {group} were read")

    monkeypatch.setattr(plugins, "_entry_points", read)
    for kind, name in (("radios", "disk"), ("protocols", "flooding"), ("movement_models", "line")):
        find_plugin(kind, name)
