"""Applications in the simulator: they react, keep what they stored over a crash, and retune their node."""

from pathlib import Path

import msgspec
import pytest

from driftcast.errors import UserError
from driftcast.scenario.scenario import load, scenario_from
from driftcast.services.policy.repository import Repository
from driftcast.simulation.run import Simulation, run
from driftcast.trace import Level

BEACONS = "policy beacons roles sensor then { set discovery.period_s = 5; set color = 'red'; run led 'off' }"


def tables(**more: object) -> dict[str, object]:
    """Four nodes in a line: a tool, a repository, a node with a decision point, and one that is managed by it."""
    return {
        "duration_s": 60.0,
        "nodes": 4,
        "area_m": (400.0, 10.0),
        "mobility": {"model": "given", "positions": [(0.0, 0.0), (100.0, 0.0), (200.0, 0.0), (300.0, 0.0)]},
        "radio": {"model": "disk", "range_m": 120.0},
        "protocol": {"name": "epidemic"},
        "roles": {"sensor": [2, 3]},
        "applications": [
            {"name": "policy_tool", "nodes": [0]},
            {"name": "policy_repository", "nodes": [1]},
            {"name": "policy_decision", "nodes": [2], "settings": {"manager": True}},
            {"name": "policy_enforcement", "nodes": [3], "settings": {"manager": 2, "enroll_s": 10.0}},
        ],
        "command": [
            {
                "application": "policy_tool",
                "verb": "publish",
                "nodes": [0],
                "at_s": 10.0,
                "body": {"text": BEACONS, "anyway": True},
            }
        ],
        **more,
    }


def simulated(until_s: float, **more: object) -> Simulation:
    simulation = Simulation(scenario_from(tables(**more), "test"), 1, Level.FULL)
    simulation.start()
    simulation.advance(until_s)
    return simulation


def replies(simulation: Simulation, node: int) -> list[dict[str, object]]:
    applications = simulation.network.nodes[node].applications
    assert applications is not None
    return [msgspec.json.decode(body) for body in applications.replies.values()]


def test_a_policy_goes_from_the_tool_to_the_store_and_into_the_settings_of_nodes() -> None:
    simulation = simulated(30.0)
    [told] = replies(simulation, 0)
    assert told["published"] == [{"id": "beacons", "version": 1, "stored_by": [1]}]
    for node in (2, 3):
        applications = simulation.network.nodes[node].applications
        assert applications is not None
        assert applications.variables == {"color": "red"}
    before = [_beacons(simulation, node) for node in range(4)]
    simulation.advance(60.0)
    spoken = [_beacons(simulation, node) - count for node, count in enumerate(before)]
    assert spoken[2] <= 8
    assert spoken[3] <= 8
    assert spoken[0] >= 25
    assert simulation.finish().fingerprint


def _beacons(simulation: Simulation, node: int) -> int:
    rows = simulation.trace.table().to_pylist()
    return sum(row["kind"] == "send" and row["message"] == "Beacon" and row["node"] == node for row in rows)


def test_what_a_repository_stored_outlives_its_crash() -> None:
    crash = {"kind": "crash", "nodes": [1], "at_s": 20.0, "down_s": 5.0}
    simulation = simulated(30.0, faults=[crash])
    applications = simulation.network.nodes[1].applications
    assert applications is not None
    repository = applications.tenants.application("policy_repository")
    assert isinstance(repository, Repository)
    assert [policy.id for policy in repository.catalog.standing()] == ["beacons"]
    simulation.advance(60.0)
    simulation.finish()


def test_what_cannot_change_while_it_runs_is_refused_by_name() -> None:
    actions = {
        "a": "set protocol.p = 2",
        "b": "set protocol.jitter_s = 1",
        "c": "set protocol.nothing = 1",
        "d": "set router.x = 1",
        "e": "set discovery.missed = 0.5",
    }
    text = "\n".join(f"policy {name} roles sensor then {{ {action} }}" for name, action in actions.items())
    command = {"application": "policy_tool", "nodes": [0]}
    simulation = simulated(
        50.0,
        protocol={"name": "gossip", "p": 1.0},
        command=[
            {**command, "verb": "publish", "at_s": 10.0, "body": {"text": text, "anyway": True}},
            {**command, "verb": "reports", "at_s": 40.0},
        ],
    )
    [reports] = [one["reports"] for one in replies(simulation, 0) if "reports" in one]
    assert isinstance(reports, list)
    failed = {one["policy"]: one["told"] for one in reports if one["what"] == "failed" and one["node"] == 2}
    assert failed["a"] == "set protocol.p = 2: refused: protocol.p: Expected `float` <= 1.0"
    assert failed["b"].startswith("set protocol.jitter_s = 1: refused: gossip cannot change jitter_s while it runs")
    assert failed["c"].startswith("set protocol.nothing = 1: refused: gossip has no setting nothing; it has")
    assert failed["d"] == "set router.x = 1: refused: this node has no router to tune"
    assert failed["e"].startswith("set discovery.missed = 0.5: refused: discovery.missed")


def test_clocks_that_disagree_make_periods_begin_at_different_times() -> None:
    text = "policy night roles all [hours 00:00:20-00:00:40] then { set on = true }"
    skew = {"kind": "clock_skew", "nodes": [3], "offset_s": 40.0}
    decisions = {"name": "policy_decision", "nodes": [2, 3]}
    told = {"application": "policy_tool", "verb": "publish", "nodes": [0], "body": {"text": text, "anyway": True}}
    more: dict[str, object] = {
        "applications": [{"name": "policy_tool", "nodes": [0]}, decisions],
        "command": [{**told, "at_s": 2.0}],
        "faults": [skew],
    }
    simulation = simulated(5.0, **more)
    clock = simulation.network.nodes[3].clock
    assert clock is not None
    assert abs(clock.offset_s) > 2
    for until_s in range(6, 60):
        simulation.advance(until_s)
        for node, offset_s in ((2, 0.0), (3, clock.offset_s)):
            since_s = (until_s + offset_s - 20) % 86_400
            if min(abs(since_s - 0.5), abs(since_s - 20.5)) > 1:
                assert bool(_variables(simulation, node)) is (since_s < 20), (until_s, node)


def _variables(simulation: Simulation, node: int) -> dict[str, object]:
    applications = simulation.network.nodes[node].applications
    assert applications is not None
    return dict(applications.variables)


def test_runs_with_applications_repeat_and_a_policy_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "beacons.policy").write_text(BEACONS, "utf-8")
    (tmp_path / "scenario.toml").write_text(
        """
        duration_s = 30.0
        nodes = 3
        mobility = { model = "given", positions = [[0, 0], [100, 0], [200, 0]] }
        protocol = { name = "flooding" }
        calendar = { start = 2026-01-01T00:00:00, ahead_s = 3600 }
        roles = { sensor = [2] }

        [[applications]]
        name = "policy_tool"
        nodes = [0]

        [[applications]]
        name = "policy_decision"
        nodes = "sensor"

        [[command]]
        application = "policy_tool"
        verb = "publish"
        nodes = [0]
        at_s = 5
        file = "beacons.policy"
        body = { anyway = true }
        """,
        "utf-8",
    )
    scenario = load(tmp_path / "scenario.toml")
    assert run(scenario, 3).fingerprint == run(scenario, 3, recode=True).fingerprint
    assert run(scenario, 3).fingerprint != run(scenario_from({**tables()}, "other"), 3).fingerprint


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"applications": [{"name": "policy_tol"}]}, "applications[0].name: there is no application 'policy_tol'"),
        ({"applications": [{"name": "policy_tool", "settings": {"patience": 1}}]}, "unknown key 'patience'"),
        ({"applications": [{"name": "policy_tool", "nodes": [9]}], "command": []}, "there is no node 9"),
        ({"applications": []}, "command[0].application: nobody runs 'policy_tool' here"),
        (
            {"applications": [{"name": "policy_repository", "settings": {"least_energy": 0.5}}], "command": []},
            "policy_repository needs energy",
        ),
    ],
)
def test_a_mistake_is_named_when_the_scenario_is_loaded(more: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as found:
        scenario_from(tables(**more), "test")
    assert says in str(found.value)


def test_two_of_the_same_at_one_node_are_refused() -> None:
    twice = [{"name": "policy_tool", "nodes": [0]}, {"name": "policy_tool", "nodes": "all"}]
    with pytest.raises(UserError, match="node 0 runs policy_tool already"):
        Simulation(scenario_from(tables(applications=twice), "test"), 1)
