"""A scenario through live nodes delivers what it delivers in the simulator, or is refused with the reason."""

import asyncio
from pathlib import Path

import pytest

from carrycast.cli import main
from carrycast.errors import UserError
from carrycast.lab.links import compute_link_changes
from carrycast.lab.loopback.network import ReachAdapter
from carrycast.lab.play import emulate
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.faults import draw_faults
from carrycast.sim.scenario.movement import compute_movement
from carrycast.sim.scenario.overrides import apply_overrides
from carrycast.sim.scenario.roles import draw_roles
from carrycast.sim.scenario.scenario import Scenario, load_scenario
from carrycast.trace import Kind, Level
from tests.lab.still import Still

pytestmark = pytest.mark.live

SAME = ("published", "eligible", "delivered", "hops_mean", "transmissions", "receptions", "duplicates", "data_bytes")

# Nobody publishes near the times at which links change: beacons notice up to 0.3 s later.
LINE = """
name = "line"
duration_s = 4.0
nodes = 4

[[wires]]
tree = 1
delay_s = 0.01

[discovery]
mode = "beacon"
period_s = 0.1

[protocol]
name = "flooding"

[[subscribe]]
nodes = [0, 3]

[[publish]]
nodes = [1]
file = "events.csv"

[[faults]]
kind = "link_cut"
between = [2, 3]
at_s = 1.5
for_s = 1.0
"""
EVENTS = "time_s,n\n1.0,1\n2.0,2\n3.5,3\n"

MOVING = """
name = "moving"
duration_s = 4.0
nodes = 3
area_m = [400.0, 100.0]

[mobility]
model = "given"
positions = [[0.0, 0.0], [100.0, 0.0], [200.0, 0.0]]

[radio]
model = "disk"
range_m = 120.0

[discovery]
mode = "beacon"
period_s = 0.1

[protocol]
name = "processor_flooding"

[[processors]]
id = "double"
function = "double.py:double"
nodes = [1]
cost_s = 0.05

[[subscribe]]
nodes = [2]
filter = "n > 0"
until_s = 3.0

[[publish]]
nodes = [0]
file = "events.csv"

[[faults]]
kind = "cut_off"
nodes = [1]
at_s = 1.5
for_s = 1.0
"""


@pytest.fixture
def line(tmp_path: Path) -> Scenario:
    return written(tmp_path, LINE)


def written(folder: Path, text: str) -> Scenario:
    (folder / "events.csv").write_text(EVENTS)
    (folder / "double.py").write_text("def double(event):\n    return {'n': 2 * event.attributes['n']}\n")
    (folder / "scenario.toml").write_text(text)
    return load_scenario(folder / "scenario.toml")


def simulated_pairs(scenario: Scenario) -> tuple[set[tuple[str, int]], dict[str, object]]:
    outcome = run(scenario, 1, Level.DELIVERIES)
    rows = outcome.trace.table().to_pylist()
    return {(row["event"], row["node"]) for row in rows if row["kind"] == Kind.DELIVER}, dict(outcome.metrics)


def test_both_worlds_deliver_the_same_and_count_it_alike(line: Scenario) -> None:
    pairs, metrics = simulated_pairs(line)
    told: list[str] = []
    seen = emulate(line, 1, told.append)
    # The second event is published while the last node is cut off.
    assert pairs == {("1:0", 0), ("1:0", 3), ("1:1", 0), ("1:2", 0), ("1:2", 3)}
    assert seen.delivered == pairs
    assert {name: seen.metrics[name] for name in SAME} == {name: metrics[name] for name in SAME}
    delay_s = seen.metrics["delay_p50_s"]
    assert delay_s is not None
    assert delay_s >= 0.01, "a wire takes its time"
    assert told[0] == "4 nodes start"


def test_who_moves_and_is_cut_off_and_unsubscribes_is_served_as_in_the_simulator(tmp_path: Path) -> None:
    scenario = written(tmp_path, MOVING)
    pairs, metrics = simulated_pairs(scenario)
    seen = emulate(scenario, 1, lambda _: None)
    assert seen.delivered == pairs
    assert len(pairs) > 0
    assert [seen.metrics[name] for name in SAME[:3]] == [metrics[name] for name in SAME[:3]]


def test_links_change_when_and_as_the_simulator_changes_them(line: Scenario) -> None:
    drawn = {"kind": "link_cuts", "every_s": 1.0, "for_s": 0.4, "at_once": 1}
    scenario = apply_overrides(line, {"faults": [drawn]})
    roles = draw_roles(scenario.roles, 4, 1, "")
    faults = draw_faults(scenario.faults, roles, 4, scenario.duration_s, 1)
    changes = compute_link_changes(scenario, compute_movement(scenario, 1)[0], faults, 1)
    assert [(change.time_s, change.up) for change in changes[:3]] == [(0.0, True)] * 3
    cut = {(change.time_s, change.a, change.b) for change in changes[3:] if not change.up}
    outcome = run(apply_overrides(scenario, {"discovery": {"mode": "oracle"}}), 1, Level.FULL)
    rows = outcome.trace.table().to_pylist()
    down = {(row["time_s"], *sorted((row["node"], row["peer"]))) for row in rows if row["kind"] == Kind.LINK_DOWN}
    assert cut == down
    assert len(cut) == 4


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("discovery", {"mode": "oracle"}, "line: discovery.mode: nobody tells live nodes of their links"),
        ("service", {"time_s": 0.1}, "line: service: a live node takes the time that it takes"),
        ("faults", [{"kind": "crash", "nodes": [0], "at_s": 1.0}], "line: faults.0: crash is not played"),
        ("faults", [{"kind": "loss", "probability": 0.1}], "line: faults.0: loss is not played"),
        ("wires.0.rate_bps", 1e6, "line: wires.0.rate_bps: links between live nodes have a delay and no rate"),
    ],
)
def test_what_live_nodes_cannot_do_is_refused_with_the_reason(
    line: Scenario, key: str, value: object, why: str
) -> None:
    with pytest.raises(UserError, match=why):
        emulate(apply_overrides(line, {key: value}), 1, lambda _: None)


def test_a_stack_that_needs_the_whole_network_is_refused(line: Scenario) -> None:
    table = {"name": "overlay", "near": "router", "router": "shortest_path"}
    scenario = apply_overrides(line, {"protocol": table, "roles": {"broker": [0]}, "discovery": {"mode": "none"}})
    with pytest.raises(UserError, match="line on live nodes: router: shortest_path needs global view"):
        emulate(scenario, 1, lambda _: None)


def test_the_command_says_what_is_wrong_in_one_line(line: Scenario, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(Path(line.base) / "scenario.toml")
    assert main(["emulate", path, "--set", "discovery={mode='oracle'}"]) == 2
    assert capsys.readouterr().err.startswith("carrycast: line: discovery.mode:")


def test_a_datagram_takes_its_delay_and_is_lost_if_its_sender_has_left_by_then() -> None:
    heard: list[bytes] = []

    async def story() -> None:
        inner = Still()
        transport = ReachAdapter(inner, 0.02)
        transport.open(
            lambda datagram, address, to_group, waited_ms: heard.append(datagram), lambda reason, times: None
        )
        transport.reach.add(("there", 1))
        inner.hear(b"one", ("there", 1))
        assert heard == []
        await asyncio.sleep(0.05)
        assert len(heard) == 1
        inner.hear(b"two", ("there", 1))
        transport.reach.clear()
        await asyncio.sleep(0.05)
        assert len(heard) == 1
        assert transport.lost == 1
        transport.reach.add(("there", 1))
        inner.hear(b"three", ("there", 1))
        transport.close()
        await asyncio.sleep(0.05)
        assert len(heard) == 1

    asyncio.run(story())
