"""Policies over the tree of brokers: published, stored, retrieved by who comes later, enforced; and under faults."""

from random import Random

import msgspec
import pytest

from carrycast.services.policy.decision_point import DecisionPoint
from carrycast.services.policy.repository import Repository
from carrycast.sim.engine.simulation import Simulation
from carrycast.sim.scenario.scenario import parse_scenario
from carrycast.trace import Level

SLOW = "policy slow roles sensor then { set discovery.period_s = 5 }"
TOOL, STORE, OTHER, EARLY, LATE = 0, 3, 4, 5, 6


def tables(commands: list[dict[str, object]], **more: object) -> dict[str, object]:
    """Brokers 1 - 2 in a row, with clients: a tool and a store at 1; another store and two sensors at 2."""
    places = [(0, 0), (100, 0), (200, 0), (100, 100), (200, 100), (300, 0), (280, 60)]
    told = {"application": "policy_tool", "nodes": [TOOL], "verb": "publish"}
    return {
        "duration_s": 120.0,
        "nodes": 7,
        "area_m": (400.0, 200.0),
        "mobility": {"model": "given", "positions": [(float(x), float(y)) for x, y in places]},
        "radio": {"model": "disk", "range_m": 110.0},
        "protocol": {"name": "tree"},
        "roles": {"broker": [1, 2], "sensor": [EARLY, LATE]},
        "applications": [
            {"name": "policy_tool", "nodes": [TOOL]},
            {"name": "policy_repository", "nodes": [STORE]},
            {"name": "policy_decision", "nodes": "sensor"},
        ],
        "command": [{**told, **command} for command in commands],
        **more,
    }


def simulated(until_s: float, commands: list[dict[str, object]], **more: object) -> Simulation:
    simulation = Simulation(parse_scenario(tables(commands, **more), "policy"), 1, Level.FULL)
    simulation.start()
    simulation.advance(until_s)
    return simulation


def replies(simulation: Simulation, node: int = TOOL) -> list[dict[str, object]]:
    applications = simulation.network.nodes[node].applications
    assert applications is not None
    return [msgspec.json.decode(body) for body in applications.replies.values()]


def held(simulation: Simulation, node: int) -> list[str]:
    applications = simulation.network.nodes[node].applications
    assert applications is not None
    for name in ("policy_decision", "policy_repository"):
        if name in applications.hosted:
            machine = applications.hosted.application(name)
            assert isinstance(machine, DecisionPoint | Repository)
            return [f"{policy.id} {policy.version}" for policy in machine.catalog.active_policies()]
    return []


def publish(text: str, at_s: float, **body: object) -> dict[str, object]:
    return {"at_s": at_s, "body": {"text": text, **body}}


def down(node: int, from_s: float, to_s: float) -> dict[str, object]:
    return {"kind": "crash", "nodes": [node], "at_s": from_s, "down_s": to_s - from_s}


def facts(simulation: Simulation, kind: str) -> list[dict[str, object]]:
    return [row for row in simulation.trace.table().to_pylist() if row["kind"] == kind]


def test_a_policy_is_checked_published_stored_and_retrieved_by_who_comes_later() -> None:
    simulation = simulated(50.0, [publish(SLOW, 20.0)], faults=[down(LATE, 5.0, 40.0)])
    [told] = replies(simulation)
    assert told["published"] == [{"id": "slow", "version": 1, "stored_by": [STORE]}]
    assert "warnings" not in told or told["warnings"] == []
    assert held(simulation, EARLY) == held(simulation, LATE) == ["slow 1"]
    # The one that was there got it as a publication, the other as a response.
    assert [row["node"] for row in facts(simulation, "response") if row["node"] in (EARLY, LATE)] == [LATE]
    simulation.advance(120.0)
    simulation.finish()


def test_a_conflict_with_what_others_published_is_found_before() -> None:
    fast = "policy fast roles sensor && outdoor then { set discovery.period_s = 1 }"
    simulation = simulated(60.0, [publish(SLOW, 20.0), publish(fast, 40.0)])
    first, second = replies(simulation)
    assert "published" in first
    assert "published" not in second
    assert "slow (version 1)" in str(second["error"])
    assert "outdoor and sensor" in str(second["error"])
    assert held(simulation, STORE) == ["slow 1"]


def test_a_repository_that_is_restarted_in_the_middle_of_a_store_has_all_it_acknowledged() -> None:
    commands = [
        publish(f"policy p{number} roles sensor then {{ set x{number} = 1 }}", 20.0 + number) for number in range(8)
    ]
    simulation = simulated(80.0, commands, faults=[down(STORE, 24.06, 30.0), down(LATE, 5.0, 60.0)])
    acknowledged = [
        f"{policy['id']} {policy['version']}"
        for told in replies(simulation)
        for policy in told.get("published", [])  # type: ignore[attr-defined]
        if policy["stored_by"]
    ]
    assert 2 <= len(acknowledged) < 8
    assert set(acknowledged) <= set(held(simulation, STORE))
    # And whoever comes later gets them from it.
    assert set(acknowledged) <= set(held(simulation, LATE))


def test_a_replica_that_was_away_catches_up_and_serves_when_the_other_is_gone() -> None:
    applications = [
        {"name": "policy_tool", "nodes": [TOOL]},
        {"name": "policy_repository", "nodes": [STORE, OTHER]},
        {"name": "policy_decision", "nodes": "sensor"},
    ]
    faults = [down(OTHER, 5.0, 40.0), down(STORE, 70.0, 119.0), down(LATE, 5.0, 90.0)]
    simulation = simulated(110.0, [publish(SLOW, 20.0)], applications=applications, faults=faults)
    assert held(simulation, OTHER) == ["slow 1"]
    assert held(simulation, LATE) == ["slow 1"]


def test_disjoint_repositories_answer_a_request_for_both_together() -> None:
    applications = [
        {"name": "policy_tool", "nodes": [TOOL], "settings": {"stored_s": 3.0}},
        {"name": "policy_repository", "nodes": [STORE], "settings": {"roles": ["sensor"]}},
        {"name": "policy_decision", "nodes": [EARLY, LATE], "settings": {"roles": ["relay"]}},
    ]
    other = {"name": "policy_repository", "nodes": [OTHER], "settings": {"roles": ["relay"]}}
    relay = "policy relays roles relay then { set y = 1 }"
    simulation = simulated(
        90.0,
        [publish(SLOW, 20.0), publish(relay, 30.0)],
        applications=[*applications, other],
        faults=[down(LATE, 5.0, 60.0)],
    )
    assert held(simulation, STORE) == ["slow 1"]
    assert held(simulation, OTHER) == ["relays 1"]
    assert held(simulation, LATE) == ["relays 1", "slow 1"]


def test_a_withdrawal_reaches_who_was_away() -> None:
    withdraw = {"at_s": 40.0, "verb": "withdraw", "body": {"id": "slow"}}
    simulation = simulated(80.0, [publish(SLOW, 20.0), withdraw], faults=[down(LATE, 30.0, 60.0)])
    assert held(simulation, EARLY) == held(simulation, LATE) == held(simulation, STORE) == []
    assert "published" in replies(simulation)[1]


@pytest.mark.parametrize("seed", range(4))
def test_under_loss_and_crashes_everybody_ends_with_the_same_policies(seed: int) -> None:
    """Two tools publish and withdraw whatever they like; nodes crash, a tenth of all frames is lost."""
    rng = Random(seed)
    commands: list[dict[str, object]] = []
    for number in range(12):
        name = f"p{rng.randrange(4)}"
        text = f"policy {name} roles sensor then {{ set {name} = {number} }}"
        told: dict[str, object] = {"nodes": [rng.choice([TOOL, 1])], "at_s": 15.0 + 9 * number}
        if number % 4 == 3:
            commands.append({**told, "verb": "withdraw", "body": {"id": name, "anyway": True}})
        else:
            commands.append({**told, "body": {"text": text, "anyway": True, "next": True}})
    crashed = [STORE, OTHER, EARLY, LATE, LATE]
    made = parse_scenario(
        tables(
            commands,
            duration_s=600.0,
            protocol={"name": "tree", "variant": "recovering"},
            applications=[
                {"name": "policy_tool", "nodes": [TOOL, 1]},
                {"name": "policy_repository", "nodes": [STORE, OTHER]},
                {"name": "policy_decision", "nodes": "sensor"},
            ],
            faults=[
                {"kind": "loss", "probability": 0.1},
                *(down(node, 20.0 + 22 * place, 30.0 + 22 * place) for place, node in enumerate(crashed)),
            ],
        ),
        "policy",
    )
    simulation = Simulation(made, seed, Level.FULL)
    simulation.start()
    simulation.advance(600.0)
    everywhere = [held(simulation, node) for node in (STORE, OTHER, EARLY, LATE)]
    assert everywhere[0]
    assert everywhere == everywhere[:1] * 4
    # What a tool was told to be stored has not been lost: it stands, or a later version does.
    newest = {name: int(version) for name, version in (one.split() for one in everywhere[0])}
    for told in [*replies(simulation), *replies(simulation, 1)]:
        for policy in told.get("published", []):  # type: ignore[attr-defined]
            if policy["stored_by"] and policy["id"] in newest:
                assert newest[policy["id"]] >= policy["version"]
    simulation.finish()
