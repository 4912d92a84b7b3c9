"""`check` refuses whatever `run` would refuse: in one line, with status 2."""

import math
from pathlib import Path

import pytest

from carrycast.cli import main
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import load_scenario
from carrycast.sim.testing.fuzz import FuzzCase

PLAIN: dict[str, object] = {
    "duration_s": 5.0,
    "nodes": 3,
    "mobility": {"model": "random_static"},
    "protocol": {"name": "flooding"},
    "subscribe": [{}],
    "publish": [{"count": 1}],
}
STATION = {"id": "p", "function": "processors.py:copy_attributes", "nodes": "all"}


def publishing(attributes: object) -> dict[str, object]:
    return {"publish": [{"count": 1, "attributes": attributes}]}


def subscribing(**entry: object) -> dict[str, object]:
    return {"subscribe": [entry]}


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "beyond 64 bits": (publishing({"a": 2**63}), "does not fit in 64 bits"),
    "below 64 bits": (publishing({"a": -(2**63) - 1}), "does not fit in 64 bits"),
    "drawn beyond 64 bits": (publishing({"a": {"integers": [1, 2**63]}}), "does not fit in 64 bits"),
    "chosen beyond 64 bits": (publishing({"a": {"choice": [1, 2**70]}}), "does not fit in 64 bits"),
    "infinite": (publishing({"a": math.inf}), "not a finite number"),
    "chosen infinite": (publishing({"a": {"choice": [1, math.inf]}}), "not a finite number"),
    "not a number": (publishing({"a": math.nan}), "nan is no value"),
    "too far apart": (publishing({"a": {"uniform": [-1e308, 1e308]}}), "finite distance"),
    "a list": (publishing({"a": [1, 2]}), "Expected"),
    "a list chosen": (publishing({"a": {"choice": [[1]]}}), "Expected"),
    "a long text": (publishing({"a": "x" * 5000}), "longer than 4096 characters"),
    "a long name": (publishing({"x" * 200: 1}), "1 to 128 characters"),
    "no name": (publishing({"": 1}), "1 to 128 characters"),
    "too many": (publishing({f"a{number}": 1 for number in range(300)}), "at most 256 attributes"),
    "of a subscriber": (subscribing(attributes={"rank": 2**64}), "does not fit in 64 bits"),
    "of a request": ({"request": [{"at_s": 1.0, "attributes": {"rank": math.inf}}]}, "not a finite number"),
    "drawn for a filter": (subscribing(filter="a = {a}", draw={"a": {"choice": [1, math.inf]}}), "not a finite number"),
    "a long choice": (subscribing(filter="a = {a}", draw={"a": {"choice": [1, "x" * 20_000]}}), "longer than 4096"),
    "mixed without others": (
        {"mobility": {"model": "mixed", "positions": [[1, 1]] * 3, "rest": {"model": "random_static"}}},
        "leave nobody to move",
    ),
    "given outside": ({"mobility": {"model": "given", "positions": [[1, 1], [2, 2], [9e9, 1]]}}, "outside the area"),
    "too few positions": ({"mobility": {"model": "given", "positions": [[1, 1]]}}, "1 positions for 3 nodes"),
    "a NUL in contacts": ({"contacts": "a\0b", "mobility": None}, "no NUL character"),
    "a NUL in a movement": ({"mobility": {"model": "csv", "file": "a\0b"}}, "no NUL character"),
    "a NUL in a workload": ({"publish": [{"file": "a\0.csv"}]}, "no NUL character"),
    "a NUL in a function": ({"processors": [{**STATION, "function": "a\0b.py:f"}]}, "no NUL character"),
    "no such function": ({"processors": [{**STATION, "function": "processors.py:none"}]}, "has no function"),
    "no such file of functions": ({"processors": [{**STATION, "function": "none.py:f"}]}, "there is no file"),
    "two of one id": ({"processors": [STATION, {**STATION, "nodes": 3}]}, "has two processors"),
    "too many events": ({"publish": [{"count": 10**9}]}, "a run has at most"),
    "too many clients": (subscribing(births_per_s=1e6), "makes more than"),
    "too many requests": ({"request": [{"rate_per_s": 1e6}]}, "a run has at most"),
    "two clocks": (
        {"faults": [{"kind": "clock_skew", "offset_s": 1.0}, {"kind": "clock_skew", "drift": 0.1}]},
        "has a skewed clock already",
    ),
    "a manager by name": (
        {"applications": [{"name": "policy_enforcement", "settings": {"manager": "boss"}}]},
        "needs names of nodes, which this scenario has not",
    ),
    "one application twice": ({"applications": [{"name": "policy_tool"}] * 2}, "runs policy_tool already"),
    "a flood forgotten": ({"protocol": {"name": "gossip", "seen_s": 0.1, "jitter_s": 0.2}}, "at least twice jitter_s"),
}


@pytest.mark.parametrize(("tables", "reason"), REFUSED.values(), ids=REFUSED)
def test_check_refuses_what_run_refuses_in_one_line(
    tables: dict[str, object], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = {key: value for key, value in {**PLAIN, **tables}.items() if value is not None}
    path = FuzzCase(changed, {}, 1).write(tmp_path)
    assert main(["check", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    assert reason in said
    assert "\0" not in said
    with pytest.raises(UserError):
        run(load_scenario(path), 1)


def test_what_check_takes_for_fine_runs(tmp_path: Path) -> None:
    path = FuzzCase({**PLAIN, "processors": [STATION], **publishing({"a": 2**63 - 1, "b": 1e308})}, {}, 1).write(
        tmp_path
    )
    assert main(["check", str(path)]) == 0
    assert run(load_scenario(path), 1).metrics["published"] == 1


def test_the_name_of_a_scenario_has_no_nul(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("check", "run"):
        assert main([command, "a\0b.toml"]) == 2
        assert "no NUL character" in capsys.readouterr().err
