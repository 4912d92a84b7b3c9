"""Finding where two runs differ, and stopping a run there."""

import json
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

from carrycast.cli import main
from carrycast.errors import UserError
from carrycast.sim.engine.debugging import debug_run
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import load_scenario
from carrycast.trace.diff import diff_tables

QUICK = Path(__file__).parents[2] / "examples" / "quick.toml"


def test_two_runs_of_one_scenario_are_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(QUICK), "--trace", str(tmp_path / "trace")]) == 0
    capsys.readouterr()
    assert main(["diff", str(tmp_path / "trace"), str(QUICK)]) == 0
    assert capsys.readouterr().out == "the runs are equal\n"


def test_the_first_difference_of_two_runs_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, settings in (("a", []), ("b", ["--set", "radio.range_m=40"])):
        assert main(["run", str(QUICK), "--trace", str(tmp_path / name), *settings]) == 0
    capsys.readouterr()
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    text = capsys.readouterr().out
    assert text.startswith("the first difference is in row ")
    assert "  A     time_s=" in text
    assert "  B     time_s=" in text
    assert "carrycast debug SCENARIO --node " in text
    assert main(["diff", "--json", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["equal"]
    difference = found["difference"]
    assert difference["first"] != difference["second"]
    assert all(difference["first"][key] != difference["second"][key] for key in difference["columns"])


def test_a_table_that_ends_earlier_differs_where_it_ends() -> None:
    longer = pa.table({"run": ["a", "a"], "time_s": [1.0, None], "node": [0, 1]})
    found = diff_tables("trace", longer, longer.slice(0, 1))
    assert found is not None
    assert (found.row, found.columns, found.second) == (1, (), None)
    assert found.first == {"time_s": None, "node": 1}
    assert diff_tables("trace", longer, longer) is None, "null equals null"


def test_a_run_stops_in_the_first_handler_of_a_node_after_a_time() -> None:
    stops: list[tuple[str, int, float]] = []

    def stop(frame: FrameType) -> None:
        stops.append((frame.f_code.co_name, frame.f_locals["self"].node, frame.f_locals["now"]))

    scenario = load_scenario(QUICK)
    outcome = debug_run(scenario, 1, node=2, time_s=10.0, stop=stop)
    ((handler, node, now),) = stops
    assert handler.startswith("on_")
    assert node == 2
    assert now >= 10.0
    assert outcome.fingerprint == run(scenario, 1).fingerprint, "stopping changes nothing"


def test_a_stop_outside_the_run_is_refused() -> None:
    scenario = load_scenario(QUICK)
    with pytest.raises(UserError, match="there is no node 1000"):
        debug_run(scenario, 1, node=1000, time_s=0.0)
    with pytest.raises(UserError, match="not within the run"):
        debug_run(scenario, 1, node=0, time_s=1e6)
