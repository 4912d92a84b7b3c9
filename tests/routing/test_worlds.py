"""All routers with nodes that move, in the simulator, through the radio that has collisions too."""

import json
from pathlib import Path

import pytest

from carrycast.errors import UserError
from carrycast.sim.engine.simulation import Simulation, run
from carrycast.sim.scenario.scenario import Scenario, parse_scenario
from carrycast.trace import Level
from tests.cli.console import call
from tests.routing.courier import Courier

ROUTERS: dict[str, dict[str, object]] = {
    "aodv": {"name": "aodv"},
    "aodv ns2": {"name": "aodv", "variant": "ns2"},
    "aodv hello": {"name": "aodv", "detection": "hello"},
    "olsr": {"name": "olsr", "detection": "link_layer", "hello_interval_s": 0.5, "tc_interval_s": 1.0},
    "dsdv": {"name": "dsdv", "variant": "sequence", "update_interval_s": 3.0, "settling_s": 0.5},
    "gpsr": {"name": "gpsr"},
    "gpsr predictive": {"name": "gpsr", "variant": "predictive"},
}
RADIOS: dict[str, dict[str, object]] = {
    "disk": {"model": "disk", "range_m": 250.0, "rate_bps": 2e6},
    "csma": {"model": "csma", "preset": "ns2"},
}
NODES = 25


def mobile(router: str, radio: str, **tables: object) -> Scenario:
    """Nodes on the move, one of which writes to another every 80 ms."""
    by_place = router.startswith("gpsr")
    attributes: dict[str, object] = {"to": {"integers": [0, NODES - 1]}}
    if by_place:
        attributes = {"x": {"uniform": [0, 800]}, "y": {"uniform": [0, 800]}, "radius": 125.0}
    return parse_scenario(
        {
            "duration_s": 30.0,
            "nodes": NODES,
            "area_m": [800.0, 800.0],
            "mobility": {"model": "random_waypoint", "speed_min_mps": 5.0, "speed_max_mps": 20.0},
            "radio": RADIOS[radio],
            "discovery": {"mode": "none"},
            "protocol": {"name": "courier"},
            "router": ROUTERS[router],
            "publish": [{"interval_s": 0.08, "from_s": 3.0, "attributes": attributes}],
            **tables,
        },
        "mobile",
    )


def letters(simulation: Simulation) -> set[tuple[int, int]]:
    """Those that have come, by origin and number."""
    found = set()
    for node in simulation.network.nodes:
        assert isinstance(node.protocol, Courier)
        found |= {(letter.origin, letter.number) for letter in node.protocol.arrived}
    return found


@pytest.mark.parametrize("radio", RADIOS)
@pytest.mark.parametrize("router", ROUTERS)
def test_most_letters_arrive_and_a_run_repeats_itself(router: str, radio: str) -> None:
    scenario = mobile(router, radio)
    simulation = Simulation(scenario, 3, recode=True)
    simulation.start()
    simulation.advance(30)
    came = letters(simulation)
    done = simulation.finish()
    published = done.metrics["published"]
    assert isinstance(published, int)
    assert published > 300
    assert len(came) > 0.8 * published
    assert [node.armed_timers() for node in simulation.network.nodes] == [[]] * NODES
    assert run(scenario, 3).fingerprint == done.fingerprint


def test_a_tour_ends_where_it_began_though_everybody_drifts_a_little() -> None:
    """The nearest node is found by touring the face around the place, and it has moved when the packet is back."""
    slow = {"model": "random_waypoint", "speed_min_mps": 0.5, "speed_max_mps": 0.6}
    nearest = {"x": {"uniform": [0, 800]}, "y": {"uniform": [0, 800]}}
    publish = [{"interval_s": 0.08, "from_s": 3.0, "attributes": nearest}]
    simulation = Simulation(mobile("gpsr", "disk", mobility=slow, publish=publish), 3)
    simulation.start()
    simulation.advance(30)
    came = letters(simulation)
    published = simulation.finish().metrics["published"]
    assert isinstance(published, int)
    assert len(came) > 0.95 * published


def test_faults_of_every_kind_break_nothing() -> None:
    faults = [
        {"kind": "loss", "probability": 0.2},
        {"kind": "duplication", "probability": 0.2},
        {"kind": "corruption", "probability": 0.1},
        {"kind": "clock_skew", "offset_s": 5.0, "drift": 0.001},
        {"kind": "crash", "nodes": [1, 2, 3], "at_s": 10.0, "down_s": 5.0},
        {"kind": "gps_error", "error_m": 50.0, "change_s": 1.0},
    ]
    for router in ROUTERS:
        done = run(mobile(router, "disk", faults=faults), 5, Level.FULL)
        assert done.metrics["published"]


def test_small_errors_of_positions_do_no_harm_and_those_of_a_whole_range_do() -> None:
    came = {}
    for error_m in (0.0, 15.0, 250.0):
        faults = [{"kind": "gps_error", "error_m": error_m}] if error_m else []
        came[error_m] = 0
        for seed in (3, 4):
            simulation = Simulation(mobile("gpsr", "disk", faults=faults), seed)
            simulation.start()
            simulation.advance(30)
            came[error_m] += len(letters(simulation))
    assert came[15.0] > 0.95 * came[0.0]
    assert 0.5 * came[0.0] < came[250.0] < 0.95 * came[0.0]


def test_the_beacons_of_a_router_are_bytes_of_its_layer() -> None:
    """Nobody writes to anybody: nothing is on the air but GPSR's beacons, and they are no discovery by the host."""
    more = [
        {"name": "said", "counts": "bytes", "layers": ["routing"], "traffic": ["control"], "per": "run"},
        {"name": "said_per_node_s", "counts": "bytes", "layers": ["routing"]},
    ]
    metrics = run(mobile("gpsr", "csma", publish=[], measure={"more": more}), 3).metrics
    said = metrics["said"]
    assert said == metrics["control_bytes"] == metrics["total_bytes"]
    assert said
    assert metrics["said_per_node_s"] == pytest.approx(said / NODES / 30.0)
    assert metrics["discovery_bytes"] == 0


def test_a_geographic_router_is_refused_where_nobody_knows_where_they_are() -> None:
    with pytest.raises(UserError, match="mobile: router: gpsr needs position; what is offered is "):
        mobile("gpsr", "disk", mobility=None, contacts="plan.parquet")


def test_the_settings_of_the_router_are_in_the_result(tmp_path: Path) -> None:
    path = tmp_path / "routed.toml"
    path.write_text(
        """
        duration_s = 5.0
        nodes = 3
        mobility = { model = "line", spacing_m = 100.0 }
        radio = { model = "disk", range_m = 120.0 }
        protocol = { name = "courier" }
        router = { name = "aodv", variant = "ns2", buffer = 7 }
        publish = [{ nodes = [0], count = 1, attributes = { to = 2 } }]
        subscribe = [{ nodes = [2] }]
        """
    )
    done = call("run", str(path), "--json")
    assert done.err == ""
    router = json.loads(done.out)["settings"]["router"]
    assert (router["name"], router["buffer"], router["ttl_start"]) == ("aodv", 7, 5)
    assert router["net_diameter"] == 30
    plain = call("run", str(path), "--json", "--set", "router.variant=rfc3561")
    assert json.loads(plain.out)["settings"]["router"]["net_diameter"] == 35
