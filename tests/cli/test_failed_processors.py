"""`carrycast run` tells people which processors failed, and why."""

from pathlib import Path

from tests.cli.console import call

SCENARIO = """
duration_s = 10.0
nodes = 3
mobility = { model = "line" }
protocol = { name = "processor_flooding" }
publish = [{ nodes = [1], attributes = { topic = "t" }, interval_s = 1.0, from_s = 5.0, to_s = 7.0 }]

[[processors]]
id = "p"
function = "functions.py:broken"
nodes = [1]

[[processors]]
id = "fine"
function = "functions.py:fine"
nodes = [2]
"""
FUNCTIONS = """
def broken(event):
    raise RuntimeError("out\\nof order")


def fine(event):
    return None
"""


def test_each_processor_that_failed_is_named_with_its_first_error(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    path = tmp_path / "walk.toml"
    path.write_text(SCENARIO)
    told = call("run", path)
    assert told.status == 0
    lines = [line for line in told.out.splitlines() if line.startswith("processor ")]
    assert lines == ["processor p failed 3 times: p raised RuntimeError: out of order"]
    found = call("run", path, "--json").object()
    assert found["processors_failed"] == {"p": {"times": 3, "first_error": "p raised RuntimeError: out of order"}}


def test_a_protocol_that_runs_none_is_said_to_with_those_that_do(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    path = tmp_path / "walk.toml"
    path.write_text(SCENARIO.replace('{ name = "processor_flooding" }', '{ name = "flooding" }'))
    able = "asp, drift, overlay, processor_flooding"
    said = f"processors: flooding runs no processors, so nothing is made of events; --protocol {able} do"
    for command in ("run", "check"):
        assert f"carrycast: warning: {said}" in call(command, path).err.splitlines()
        assert said in str(call(command, path, "--json").object()["warnings"])
        assert "runs no processors" not in call(command, path, "--protocol", "processor_flooding").err
