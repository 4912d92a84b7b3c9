"""`protocols`, `routers`, `applications`, `mobility`, `experiments`: all there is, for people and for programs."""

from functools import cache
from pathlib import Path

import pytest

from carrycast.analysis.spark.experiment import experiment_names
from carrycast.core.protocol.application import applications
from carrycast.core.protocol.registry import find_protocol, find_router, protocol_names, router_names
from carrycast.sim.mobility.model import movement_models
from tests.cli.console import QUICK, call, environment, spawn

NAMES = {
    "protocols": protocol_names(),
    "routers": router_names(),
    "applications": list(applications()),
    "mobility": list(movement_models()),
    "experiments": experiment_names(),
}


@cache
def rows(*arguments: str) -> list[dict[str, object]]:
    found = call(*arguments, "--json").object()
    assert list(found) == [arguments[0]]
    listed = found[arguments[0]]
    assert isinstance(listed, list)
    return listed


@pytest.mark.parametrize("command", NAMES)
def test_everything_registered_is_listed(command: str) -> None:
    done = call(command)
    assert (done.status, done.err) == (0, "")
    assert NAMES[command]
    first_words = [line.split()[0] for line in done.out.splitlines() if line.strip()]
    assert set(NAMES[command]) <= set(first_words)
    listed = rows(command)
    assert [row["name"] for row in listed] == NAMES[command]
    assert all(row["summary"] for row in listed)


@pytest.mark.parametrize("name", NAMES["protocols"])
def test_a_protocol_is_shown_with_all_its_settings(name: str) -> None:
    done = call("protocols", name)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"{name}: ")
    (row,) = rows("protocols", name)
    settings = row["settings"]
    assert isinstance(settings, list)
    assert [setting["name"] for setting in settings] == list(find_protocol(name).settings_type.__struct_fields__)
    for setting in settings:
        assert f"\n{setting['name']} " in done.out
        assert setting["meaning"], f"{setting['name']} says what it is for"


@pytest.mark.parametrize("name", NAMES["applications"])
def test_an_application_is_shown_with_all_its_settings(name: str) -> None:
    done = call("applications", name)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"{name}: ")
    (row,) = rows("applications", name)
    settings = row["settings"]
    assert isinstance(settings, list)
    assert [setting["name"] for setting in settings] == list(applications()[name].settings_type.__struct_fields__)
    for setting in settings:
        assert setting["meaning"], f"{setting['name']} says what it is for"


@pytest.mark.parametrize("name", NAMES["routers"])
def test_a_router_is_shown_with_all_its_settings(name: str) -> None:
    done = call("routers", name)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"{name}: ")
    (row,) = rows("routers", name)
    settings = row["settings"]
    assert isinstance(settings, list)
    assert [setting["name"] for setting in settings] == list(find_router(name).settings_type.__struct_fields__)
    for setting in settings:
        assert f"\n{setting['name']} " in done.out
        assert setting["meaning"], f"{setting['name']} says what it is for"
    variants = row["variants"]
    assert isinstance(variants, dict)
    assert all(variant in call("routers").out for variant in variants)


def test_a_router_that_is_not_there_is_named() -> None:
    done = call("routers", "aodw")
    assert done.status == 2
    assert "did you mean 'aodv'?" in done.err


@pytest.mark.parametrize("name", NAMES["mobility"])
def test_a_movement_model_is_shown_with_all_its_settings(name: str) -> None:
    done = call("mobility", name)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"{name}: ")
    (row,) = rows("mobility", name)
    settings = row["settings"]
    assert isinstance(settings, list)
    for setting in settings:
        assert f"\n{setting['name']} " in done.out
        assert setting["meaning"], f"{setting['name']} says what it is for"


def test_an_experiment_tells_how_many_runs_it_has() -> None:
    (row,) = [row for row in rows("experiments") if row["name"] == "baselines"]
    assert row["runs"] == 10 * 20, "two settings, five protocols, twenty seeds"


@pytest.mark.parametrize("name", experiment_names())
def test_the_figures_of_an_experiment_are_listed(name: str) -> None:
    done = call("experiments", name)
    assert (done.status, done.err) == (0, "")
    (row,) = rows("experiments", name)
    figures = row["figures"]
    assert isinstance(figures, list)
    assert all(f"  {figure['name']} " in done.out for figure in figures)
    assert f"{row['runs']} runs at {row['points']} points" in done.out


def test_an_experiment_that_is_not_there_is_named() -> None:
    done = call("experiments", "adaptiv")
    assert done.status == 2
    assert "did you mean 'adaptive'?" in done.err


def test_variants_are_listed() -> None:
    (row,) = rows("protocols", "semi_probabilistic")
    variants = row["variants"]
    assert isinstance(variants, dict)
    assert variants
    assert all(variant in call("protocols", "semi_probabilistic").out for variant in variants)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("def broken(:", "SyntaxError: "),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("", "must offer a subclass of Protocol as PROTOCOL"),
    ],
)
def test_a_protocol_that_does_not_import_is_one_line_and_hides_no_other(tmp_path: Path, text: str, why: str) -> None:
    folder = tmp_path / "carrycast" / "protocols" / "fleet_cast"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(text)
    done = spawn("protocols", env=environment(tmp_path))
    assert (done.status, done.err) == (0, "")
    [line] = [line for line in done.out.splitlines() if line.startswith("fleet_cast")]
    assert why in line
    assert {"flooding", "epidemic", "gossip"} <= {line.split()[0] for line in done.out.splitlines()}
    assert why in spawn("run", QUICK, "--protocol", "fleet_cast", env=environment(tmp_path)).refusal()


def test_the_examples_are_listed_with_what_they_are() -> None:
    listed = {str(row["name"]): row["summary"] for row in rows("examples")}
    assert {"quick", "sparse", "fleet/scenario", "live/temperatures/scenario"} <= set(listed)
    assert any(name.endswith(".ipynb") for name in listed)
    assert not any(name.startswith("live/car") for name in listed)
    assert all(listed.values())
    assert "carrycast examples DIR" in call("examples").out


def test_the_examples_are_copied_into_a_new_folder(tmp_path: Path) -> None:
    target = tmp_path / "mine"
    assert call("examples", target, "--json").object() == {"copied": str(target)}
    assert (target / "quick.toml").read_bytes() == QUICK.read_bytes()
    assert (target / "fleet" / "gps.csv").is_file()
    assert f"{target}: exists already" in call("examples", target).refusal()
    (tmp_path / "empty").mkdir()
    assert call("examples", tmp_path / "empty").status == 0
    (tmp_path / "file").write_text("")
    assert "cannot be copied there" in call("examples", tmp_path / "file" / "below").refusal()
