"""Scenarios and trace files with something wrong in them: one line that names the file, the place and the cure."""

from pathlib import Path

import pytest

from tests.cli.console import QUICK, call
from tests.cli.movements import CONNECTIONS, NS2, ONE, SCENARIO


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("nodes = 10", "nodes = 10\nspeed = 3", "unknown key 'speed'; allowed: advertise, "),
        ("range_m = 100.0", "range = 100.0", "radio: unknown key 'range'; did you mean 'range_m'?"),
        ("speed_min_mps = 0.5", "speed_min = 0.5", "mobility: unknown key 'speed_min'; did you mean 'speed_min_mps'?"),
        ("nodes = 10", 'nodes = "ten"', "nodes: Expected `int`, got `str` (it is 'ten')"),
        ("[300.0, 300.0]", "300.0", "area_m: Expected `array`"),
        ("range_m = 100.0", "range_m = -100.0", "radio.range_m: Expected `float` > 0.0 (it is -100.0)"),
        ("duration_s = 60.0", "duration_s = -1.0", "duration_s: Expected `float` > 0.0"),
        ("flooding", "floding", "protocol.name: there is no protocol 'floding': did you mean 'flooding'?"),
        ("random_waypoint", "random", "no movement model 'random'"),
        ("topic = 'news'\"", 'topic ="', "filter: expected a value after '=' at position 8: topic ="),
        ("topic = 'news'\"", "topic = 'news\"", "subscribe[0].filter"),
        ("nodes = [0]", "nodes = [10]", "publish[0].nodes"),
        ('model = "disk"', 'model = "laser"', "radio.model: there is no radio 'laser': there are csma, disk"),
        ('model = "disk"\n', "", "radio.model: this key is required; give 'csma' or 'disk'"),
        ("duration_s = 60.0\n", "", "duration_s"),
        ("nodes = 10", "nodes = ", "is not TOML: Invalid value (at line 5, column 9)"),
        ("nodes = 10", "nodes = 10\nnodes = 11", "is not TOML: Cannot overwrite a value (at line 6"),
    ],
)
@pytest.mark.parametrize("command", ["run", "check", "contacts"])
def test_a_wrong_scenario_is_told_with_file_and_key(
    tmp_path: Path, command: str, right: str, wrong: str, told: str
) -> None:
    text = QUICK.read_text()
    assert right in text
    path = tmp_path / "field.toml"
    path.write_text(text.replace(right, wrong, 1))
    more = ["--out", str(tmp_path / "plan")] if command == "contacts" else []
    line = call(command, path, *more).refusal()
    assert str(path) in line
    assert told in line
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_scenario_without_a_protocol_runs_drift(tmp_path: Path, command: str) -> None:
    path = tmp_path / "field.toml"
    path.write_text(QUICK.read_text().replace('[protocol]\nname = "flooding"\n', ""))
    assert "drift" in call(command, path).out
    assert "gossip" in call(command, path, "--protocol", "gossip").out


@pytest.mark.parametrize("command", ["run", "check", "node"])
def test_a_file_that_is_not_there_or_cannot_be_read_is_named(tmp_path: Path, command: str) -> None:
    missing = tmp_path / "none.toml"
    assert call(command, missing).refusal() == f"carrycast: {missing}: there is no such file"
    binary = tmp_path / "binary.toml"
    binary.write_bytes(bytes(range(256)))
    assert f"{binary}: cannot be read: " in call(command, binary).refusal()
    folder = call(command, tmp_path).refusal()
    assert folder.count(str(tmp_path)) == 1, "the path is told once"
    assert "directory" in folder.lower()


def cut(text: str) -> str:
    """The first half of a file, ending in the middle of a line."""
    half = text[: len(text) // 2]
    return half + text[len(half) : text.index("\n", len(half)) - 3] if half.endswith("\n") else half


CUT_TEXTS = {"ns2": ("fleet.ns_movements", cut(NS2)), "one": ("fleet.txt", cut(ONE))}


@pytest.mark.parametrize("format", CUT_TEXTS)
def test_a_movement_file_cut_in_the_middle_is_told_with_the_line(tmp_path: Path, format: str) -> None:
    name, text = CUT_TEXTS[format]
    trace = tmp_path / name
    trace.write_text(text)
    scenario = tmp_path / "field.toml"
    scenario.write_text(SCENARIO.format(movement=f'mobility = {{ model = "{format}", file = "{name}" }}'))
    out = tmp_path / "out"
    commands: list[list[str | Path]] = [
        ["contacts", trace, "--range", "50", "--out", out],
        ["contacts", scenario, "--out", out],
        ["run", scenario],
        ["run", scenario, "--trace", out],
    ]
    for arguments in commands:
        assert f"{trace}:{len(text.splitlines())}: " in call(*arguments).refusal(), arguments[0]
    assert sorted(tmp_path.iterdir()) == sorted([trace, scenario])


def test_a_file_of_connections_cut_in_the_middle_is_told_with_the_line(tmp_path: Path) -> None:
    events = tmp_path / "events.txt"
    scenario = tmp_path / "field.toml"
    scenario.write_text(SCENARIO.format(movement='contacts = "events.txt"'))
    commands: list[list[str | Path]] = [["contacts", events, "--out", tmp_path / "plan"], ["run", scenario]]
    last = CONNECTIONS.rindex("\n", 0, -1) + 1
    for end in range(last + 1, len(CONNECTIONS) - 1):
        events.write_text(CONNECTIONS[:end])
        for arguments in commands:
            assert f"{events}:4: " in call(*arguments).refusal(), CONNECTIONS[last:end]
    assert sorted(tmp_path.iterdir()) == sorted([events, scenario])


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_contact_plan_cut_in_the_middle_is_told(tmp_path: Path, kept: float) -> None:
    assert call("contacts", QUICK, "--out", tmp_path).status == 0
    plan = tmp_path / "contacts.parquet"
    whole = plan.read_bytes()
    plan.write_bytes(whole[: int(kept * len(whole))])
    scenario = tmp_path / "field.toml"
    text = SCENARIO.format(movement='contacts = "contacts.parquet"')
    scenario.write_text(text.replace("nodes = 3", "nodes = 10"))
    commands: list[list[str | Path]] = [["contacts", plan, "--out", tmp_path / "copy"], ["run", scenario]]
    for arguments in commands:
        line = call(*arguments).refusal()
        assert str(plan) in line
        assert "cut off" in line
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    "movement", ['contacts = "none.parquet"', 'mobility = { model = "ns2", file = "none.parquet" }']
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_trace_that_is_not_there_is_named(tmp_path: Path, command: str, movement: str) -> None:
    scenario = tmp_path / "field.toml"
    scenario.write_text(SCENARIO.format(movement=movement))
    line = call(command, scenario).refusal()
    assert str(tmp_path / "none.parquet") in line
    assert "no such file" in line.lower()


@pytest.mark.parametrize("format", CUT_TEXTS)
def test_check_reads_the_movement_file_too(tmp_path: Path, format: str) -> None:
    name, text = CUT_TEXTS[format]
    (tmp_path / name).write_text(text)
    scenario = tmp_path / "field.toml"
    scenario.write_text(SCENARIO.format(movement=f'mobility = {{ model = "{format}", file = "{name}" }}'))
    assert f"{tmp_path / name}:{len(text.splitlines())}: " in call("check", scenario).refusal()


def test_check_reads_the_contact_plan_too(tmp_path: Path) -> None:
    (tmp_path / "contacts.parquet").write_bytes(b"PAR1")
    scenario = tmp_path / "field.toml"
    scenario.write_text(SCENARIO.format(movement='contacts = "contacts.parquet"'))
    assert str(tmp_path / "contacts.parquet") in call("check", scenario).refusal()
