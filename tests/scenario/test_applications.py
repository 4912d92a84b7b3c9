"""The two applications of the topic-holder paper, as files that anybody can run [003 §4]."""

from pathlib import Path

import pytest

from carrycast.core.matching import Filter
from carrycast.core.model import Event
from carrycast.sim.engine.simulation import RunResult, run
from carrycast.sim.scenario.overrides import apply_overrides
from carrycast.sim.scenario.scenario import Scenario, load_scenario
from carrycast.sim.scenario.workload import draw_workload
from carrycast.trace import Level

EXAMPLES = Path(__file__).parents[2] / "examples"


SEED = 1


def events_of(scenario: Scenario) -> dict[str, Event]:
    """The published events, by their names in traces."""
    roles = {role: nodes for role, nodes in scenario.roles.items() if isinstance(nodes, list)}
    played = draw_workload(scenario.subscribe, scenario.publish, roles, scenario.nodes, scenario.duration_s, SEED)
    return {str(publish.event.id): publish.event for publish in played.publishes}


def deliveries(outcome: RunResult) -> dict[str, set[int]]:
    """For each event, the nodes that it was delivered to, without its publisher."""
    found: dict[str, set[int]] = {}
    for row in outcome.trace.table().to_pylist():
        if row["kind"] == "deliver" and not row["event"].startswith(f"{row['node']}:"):
            found.setdefault(row["event"], set()).add(row["node"])
    return found


def test_drivers_hear_of_free_roads_and_of_jams_alone() -> None:
    scenario = load_scenario(EXAMPLES / "traffic-report.toml")
    outcome = run(scenario, SEED, Level.DELIVERIES)
    assert (outcome.metrics["delivery_ratio"] or 0) > 0.9
    events = events_of(scenario)
    reached = deliveries(outcome)
    assert reached
    for event, nodes in reached.items():
        told = events[event].attributes
        for node in nodes:
            if 10 <= node < 20:
                assert told["topic"] != "west-east"
                assert Filter("speed_mps > 20").matches(told)
            elif 20 <= node < 30:
                assert Filter("topic = 'west-east' and heading = 'east' and speed_mps = 0").matches(told)
            else:
                assert node == 30
                assert Filter("speed_mps < 5").matches(told)


def test_who_may_not_hear_of_a_crime_does_not() -> None:
    scenario = load_scenario(EXAMPLES / "police-surveillance.toml")
    outcome, events = run(scenario, SEED, Level.DELIVERIES), events_of(scenario)
    heard: dict[str, set[str]] = {"police": set(), "detectives": set(), "everybody": set()}
    for event, nodes in deliveries(outcome).items():
        policy = events[event].access
        kind = "everybody" if policy is None else "detectives" if "rank" in policy.condition else "police"
        heard[kind] |= {"patrol" if node < 20 else "detective" if node < 30 else "volunteer" for node in nodes}
    assert heard["everybody"] == {"patrol", "volunteer"}, "detectives ask for crimes alone"
    assert heard["police"] == {"patrol", "detective"}
    assert heard["detectives"] == {"detective"}


@pytest.mark.parametrize("name", ["traffic-report", "police-surveillance"])
@pytest.mark.parametrize("variant", ["rendezvous_gpsr_map", "rendezvous_aodv"])
def test_they_run_with_the_other_schemes_too(name: str, variant: str) -> None:
    scenario = load_scenario(EXAMPLES / f"{name}.toml")
    shorter = apply_overrides(scenario, {"duration_s": 15.0, "measure.to_s": 12.0, "protocol.variant": variant}, "test")
    assert run(shorter, SEED).metrics["delivered"]
