"""Processors in a run: what is refused before it, and what their mistakes do to it."""

from pathlib import Path

import pytest

from carrycast.errors import UserError
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import load_scenario
from carrycast.sim.testing import Net
from carrycast.trace import Kind

FUNCTIONS = """
import sys
import numpy as np


def exits(event):
    sys.exit("enough")


def numpy(event):
    return {"topic": "k", "value": np.float64(event.attributes["value"])}


def surrogate(event):
    return {"topic": "k", "value": "\\ud800"}


def tuples(event):
    return {("a", "b"): 1}


def half(event):
    return [{"topic": "k", "value": 1}, {"topic": "k", "value": None}]


def careless(event):
    event.attributes["value"] = -1.0


def fine(event):
    return {"topic": "k", "value": 1}
"""

SCENARIO = """
duration_s = 10.0
nodes = 3
mobility = { model = "line" }
protocol = { name = "asp" }
publish = [{ nodes = [0], attributes = { topic = "t", value = 1.5 }, interval_s = 1.0 }]
"""


def net_with(base: Path, protocol: str, *names: str) -> Net:
    (base / "functions.py").write_text(FUNCTIONS)
    entries = [
        {"id": name, "function": f"functions.py:{name}", "nodes": [1], "filter": "topic = 't'"} for name in names
    ]
    return Net.line(3, protocol, {"base": str(base), "processors": entries})


@pytest.mark.parametrize("protocol", ["asp", "processor_flooding"])
@pytest.mark.parametrize("name", ["exits", "numpy", "surrogate", "tuples", "half"])
def test_a_processor_that_does_wrong_ends_no_run(tmp_path: Path, protocol: str, name: str) -> None:
    net = net_with(tmp_path, protocol, name)
    net.subscribe(2, "topic in ('t', 'k')")
    event = net.publish(0, {"topic": "t", "value": 1.5})
    net.run(2)
    assert net.list_delivered(2) == [event]
    assert len(net.rows(Kind.DROP, reason="processor_failed")) == 1
    assert len(net.rows(Kind.PUBLISH)) == 1, "of results that were refused none has been"


def test_a_processor_cannot_change_an_event_that_others_hold(tmp_path: Path) -> None:
    net = net_with(tmp_path, "asp", "careless")
    net.subscribe(2, "topic = 't'")
    event = net.publish(0, {"topic": "t", "value": 1.5})
    net.run(2)
    assert [one.attributes["value"] for one in net.list_delivered(2)] == [1.5]
    assert event.attributes["value"] == 1.5


def test_what_a_processor_said_when_it_failed_is_in_the_trace_and_in_the_outcome(tmp_path: Path) -> None:
    net = net_with(tmp_path, "processor_flooding", "exits", "fine")
    for value in (1.5, 2.5):
        net.publish(0, {"topic": "t", "value": value})
        net.run(2)
    [first, _] = net.rows("processor_error")
    assert (first["node"], first["reason"]) == (1, "processor_raised: exits raised SystemExit: enough")
    failures = net.stop().failures
    assert {id: (one.times, one.first) for id, one in failures.items()} == {
        "exits": (2, "exits raised SystemExit: enough")
    }


def written(base: Path, *tables: str) -> Path:
    (base / "functions.py").write_text(FUNCTIONS)
    path = base / "walk.toml"
    path.write_text(SCENARIO + "\n".join("[[processors]]\n" + table for table in tables))
    return path


FINE = 'id = "p"\nfunction = "functions.py:fine"\n'


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ([FINE + 'nodes = [1]\nfilter = "topic = "'], "FILE: processors[0].filter: "),
        (
            ['id = "p"\nfunction = "functions.py"\nnodes = [1]'],
            "FILE: processors[0].function: 'functions.py' names no function: write it as file.py:name",
        ),
        (
            [FINE + "nodes = [0, 1]\n", FINE + "nodes = [1, 2]\n"],
            "FILE: processors[1].id: node 1 has another processor 'p'",
        ),
        (
            [FINE + 'nodes = "all"\n', FINE + "nodes = [2]\n"],
            "FILE: processors[1].id: node 2 has another processor 'p'",
        ),
    ],
)
def test_a_processor_that_cannot_work_is_refused_when_the_scenario_is_loaded(
    tmp_path: Path, tables: list[str], told: str
) -> None:
    path = written(tmp_path, *tables)
    with pytest.raises(UserError) as caught:
        load_scenario(path)
    assert str(caught.value).replace(str(path), "FILE").startswith(told)


def test_the_same_processor_at_different_nodes_is_fine(tmp_path: Path) -> None:
    path = written(tmp_path, FINE + "nodes = [1]\ncost_s = 0.1\n", FINE + "nodes = [2]\ncost_s = 0.2\n")
    assert run(load_scenario(path), 1).failures == {}


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ([FINE + "nodes = 3\n", FINE + "nodes = [1]\n"], "walk: processors[1].id: node 1 has two processors 'p'"),
        (
            ['id = "p"\nfunction = "nowhere.py:f"\nnodes = [1]'],
            "walk: processors[0].function: there is no file BASE/nowhere.py",
        ),
    ],
)
def test_what_only_a_run_can_know_is_refused_by_it(tmp_path: Path, tables: list[str], told: str) -> None:
    scenario = load_scenario(written(tmp_path, *tables))
    with pytest.raises(UserError) as caught:
        run(scenario, 1)
    assert str(caught.value).replace(str(tmp_path), "BASE") == told
