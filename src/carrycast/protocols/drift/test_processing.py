"""Processors on drift's nodes: results are events, and of equal processors only the primary runs."""

import json
from pathlib import Path

import pytest

from carrycast.core.model import Event, EventId, NodeId, Processor
from carrycast.core.parts.buffer import BufferedEvent
from carrycast.core.parts.processing import MAX_WAITING
from carrycast.core.protocol import Fact, RecordingPort
from carrycast.core.protocol.effects import Note, Process, SetTimer
from carrycast.errors import UserError
from carrycast.protocols.drift.processing import FAILOVER, MAX_REMEMBERED, DriftProcessing
from carrycast.protocols.drift.protocol import Drift
from carrycast.protocols.drift.settings import DriftSettings
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import parse_scenario
from carrycast.sim.testing import Net, isolate_protocol
from carrycast.trace import Kind, Level

FUNCTIONS = """
def fahrenheit(event):
    return {"topic": "t", "unit": "F", "value": event.attributes["value"] * 9 / 5 + 32}


def increment(event):
    return {"topic": "t", "unit": "C", "value": event.attributes["value"] + 1}


def broken(event):
    raise RuntimeError


def joined(events):
    return {"depth": 1 + max(event.attributes["depth"] for event in events)}


def mean(events):
    return {"topic": "mean", "value": sum(event.attributes["value"] for event in events) / len(events)}
"""


def make_net(
    base: Path, name: str, nodes: list[int], inputs: int = 1, size: int = 4, cost_s: float = 0.0, **settings: object
) -> Net:
    """Make a line of nodes, some of which run a processor on temperatures in Celsius."""
    (base / "functions.py").write_text(FUNCTIONS)
    entry = {
        "id": name,
        "function": f"functions.py:{name}",
        "nodes": nodes,
        "filter": "unit = 'C'",
        "inputs": inputs,
        "cost_s": cost_s,
    }
    places = [(100.0 * node, 0.0) for node in range(size)]
    return Net(size, "drift", settings, {"base": str(base), "processors": [entry]}, positions=places)


def publish(net: Net, node: NodeId, value: float, lease_s: float = 60.0) -> None:
    net.publish(node, {"topic": "t", "unit": "C", "value": value}, lease_s=lease_s)
    net.run(1)


def list_values(net: Net, node: NodeId) -> list[object]:
    return [event.attributes["value"] for event in net.list_delivered(node)]


def list_sources(net: Net, node: NodeId) -> list[NodeId]:
    return [event.source for event in net.list_delivered(node)]


def test_results_are_delivered_like_other_events(tmp_path: Path) -> None:
    net = make_net(tmp_path, "fahrenheit", [2])
    net.subscribe(0, "unit = 'F'")
    net.subscribe(3, "unit = 'C'")
    publish(net, 0, 20.0)
    assert list_values(net, 0) == [68.0]
    assert list_values(net, 3) == [20.0]
    # The input travelled two hops, and the result two hops back.
    assert net.rows(Kind.DELIVER, node=0)[0]["hops"] == 4


def test_a_subscription_that_names_a_processor_is_refused(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    tables = {
        "name": "row",
        "nodes": 3,
        "duration_s": 20.0,
        "area_m": (300.0, 100.0),
        "mobility": {"model": "line"},
        "protocol": {"name": "drift"},
        "processors": [{"id": "f", "function": f"{tmp_path}/functions.py:fahrenheit", "nodes": [1], "filter": "true"}],
        "subscribe": [{"nodes": [2], "filter": "unit = 'C'", "processor": "f"}],
    }
    with pytest.raises(UserError, match=r"subscribe\[0\]\.processor: drift runs no processors for subscriptions"):
        parse_scenario(tables, "row")


def test_of_two_equal_processors_the_smaller_node_id_becomes_the_primary(tmp_path: Path) -> None:
    net = make_net(tmp_path, "fahrenheit", [1, 2])
    net.subscribe(3, "unit = 'F'")
    for value in range(5):
        publish(net, 0, float(value))
    net.run(5)
    # The first result was made twice: no primary was known yet.
    assert sorted(list_sources(net, 3)) == [1, 1, 1, 1, 1, 2]
    assert net.list_timers(2).count(FAILOVER) == 0


def test_a_backup_takes_over_when_the_primary_is_gone(tmp_path: Path) -> None:
    net = make_net(tmp_path, "fahrenheit", [1, 2])
    net.subscribe(3, "unit = 'F'")
    publish(net, 0, 1.0)
    net.crash(1)
    net.run(4)
    for value in (2.0, 3.0):
        publish(net, 3, value)
    net.run(3)
    assert [event.source for event in net.list_delivered(3)][-2:] == [2, 2]


def test_each_island_has_its_own_results_and_shares_them_when_they_meet(tmp_path: Path) -> None:
    net = make_net(tmp_path, "fahrenheit", [0, 3])
    net.subscribe(0, "unit = 'F'")
    net.subscribe(3, "unit = 'F'")
    net.run(2)
    net.cut(1, 2)
    publish(net, 0, 0.0)
    publish(net, 3, 100.0)
    assert list_values(net, 0) == [32.0]
    assert list_values(net, 3) == [212.0]
    net.heal(1, 2)
    net.run(10)
    # Each side processes the events of the other; from then on the greater id is the backup.
    assert set(map(str, list_values(net, 0))) == {"32.0", "212.0"}
    assert set(map(str, list_values(net, 3))) == {"32.0", "212.0"}
    publish(net, 1, 10.0)
    net.run(5)
    assert [event.source for event in net.list_delivered(3) if event.attributes["value"] == 50.0] == [0]


def test_a_processor_does_not_process_its_own_results_and_chains_end(tmp_path: Path) -> None:
    net = make_net(tmp_path, "increment", [1, 2], max_stages=3)
    net.subscribe(3, "unit = 'C'")
    publish(net, 0, 0.0)
    net.run(20)
    assert max(list_values(net, 3), key=str) == 3.0
    assert net.count_dropped("too_many_processors")


def test_a_processor_that_fails_is_reported_and_the_event_goes_on(tmp_path: Path) -> None:
    net = make_net(tmp_path, "broken", [1])
    net.subscribe(3, "unit = 'C'")
    publish(net, 0, 1.5)
    assert list_values(net, 3) == [1.5]
    assert net.count_dropped("processor_failed") == 1


def test_an_aggregate_uses_the_newest_of_each_source_and_has_no_primary(tmp_path: Path) -> None:
    net = make_net(tmp_path, "mean", [1, 2], inputs=2)
    net.subscribe(3, "topic = 'mean'")
    publish(net, 0, 1.0)
    publish(net, 0, 2.0)
    assert list_values(net, 3) == []
    publish(net, 3, 4.0)
    assert list_values(net, 3) == [3.0, 3.0]
    assert sorted(list_sources(net, 3)) == [1, 2]


def test_a_result_expires_with_its_input(tmp_path: Path) -> None:
    net = make_net(tmp_path, "fahrenheit", [1], cost_s=3.0)
    net.subscribe(3, "unit = 'F'")
    publish(net, 0, 1.0, lease_s=2.0)
    net.run(5)
    assert list_values(net, 3) == []
    assert net.count_dropped("lease_over") == 1


def test_in_a_stable_network_inputs_and_results_go_down_trees(tmp_path: Path) -> None:
    """A line of eight: the processor is beside the source, the subscriber beside the processor, and the other nodes
    receive neither inputs nor results."""
    net = make_net(tmp_path, "fahrenheit", [1], size=8, path_share=0.5)
    net.subscribe(2, "unit = 'F'")
    net.run(12)
    for value in range(8):
        publish(net, 0, float(value))
    before = net.count_sent("Data")
    net.run(5)
    tree_sends = net.count_sent("TreeData")
    publish(net, 0, 20.0)
    net.run(1)
    assert list_values(net, 2)[-1] == 68.0
    assert net.count_sent("Data") == before
    assert net.count_sent("TreeData") == tree_sends + 2


# One node alone.


def make_bench(node: NodeId = 5, **settings: object) -> tuple[DriftProcessing, RecordingPort]:
    _, port = isolate_protocol("drift", node)
    port.take()
    processing = DriftProcessing(node, port, DriftSettings(**settings), lambda id: id.source < 100)  # type: ignore[arg-type]
    processing.add(Processor("f", "unit = 'C'"))
    return processing, port


def make_reading(number: int, until: float = 60.0) -> BufferedEvent:
    id = EventId(1, number)
    return BufferedEvent(until, id, Event(id, {"unit": "C", "value": number}), 1)


def make_result(source: NodeId, number: int, value: float = 1.0) -> BufferedEvent:
    """Make the result that a node derived from a reading."""
    id = EventId(source, 1000 + number)
    return BufferedEvent(60.0, id, Event(id, {"unit": "F", "value": value}, derived_from=(EventId(1, number),)), 1)


def take_calls(port: RecordingPort) -> list[EventId]:
    return [effect.events[0].id for effect in port.take() if isinstance(effect, Process)]


def test_a_node_with_different_results_is_no_primary() -> None:
    processing, port = make_bench()
    processing.on_event(make_result(5, 1, 1.0), "f")
    processing.on_event(make_result(2, 1, 2.0))
    processing.on_event(make_reading(2))
    assert take_calls(port) == [EventId(1, 2)]


@pytest.mark.parametrize("mine_first", [True, False])
def test_a_primary_is_recognized_in_either_order(mine_first: bool) -> None:
    processing, port = make_bench()
    if mine_first:
        processing.on_event(make_result(5, 1), "f")
        processing.on_event(make_result(2, 1))
    else:
        processing.on_event(make_result(2, 1))
        processing.on_event(make_result(5, 1), "f")
    processing.on_event(make_reading(2))
    assert port.take() == [SetTimer((FAILOVER, EventId(1, 2)), 2.0)]
    processing.on_event(make_result(2, 2))
    processing.on_timer(2.0, EventId(1, 2))
    assert take_calls(port) == []


def test_a_greater_id_is_no_primary() -> None:
    processing, port = make_bench()
    processing.on_event(make_result(5, 1), "f")
    processing.on_event(make_result(9, 1))
    processing.on_event(make_result(5, 1), "f")
    processing.on_event(make_reading(2))
    assert take_calls(port) == [EventId(1, 2)]


def test_waiting_inputs_are_processed_when_the_primary_is_silent() -> None:
    processing, port = make_bench()
    processing.on_event(make_result(5, 1), "f")
    processing.on_event(make_result(2, 1))
    processing.on_event(make_reading(2))
    processing.on_event(make_reading(3))
    processing.on_event(make_reading(4, until=1.5))
    assert take_calls(port) == []
    for number in (2, 3, 4):
        processing.on_timer(2.0, EventId(1, number))
    assert take_calls(port) == [EventId(1, 2)]
    list(processing.finish(2.0, 1, b"", [], ""))
    assert take_calls(port) == [EventId(1, 3)], "the third waits for the second, the lease of the fourth has expired"


def test_stopping_cancels_failover_timers() -> None:
    processing, port = make_bench()
    processing.on_event(make_result(5, 1), "f")
    processing.on_event(make_result(2, 1))
    processing.on_event(make_reading(2))
    port.take()
    processing.stop()
    assert [str(effect) for effect in port.take()] == ["CancelTimer(key=('failover', EventId(source=1, sequence=2)))"]


def test_invented_results_are_bounded() -> None:
    processing, port = make_bench()
    for number in range(2 * MAX_REMEMBERED):
        processing.on_event(make_result(2, number))
    for _ in range(100):
        processing.on_event(make_result(2, 2 * MAX_REMEMBERED - 1))
    sizes = [len(table) for table in (processing._results, processing._stages)]
    assert sizes == [MAX_REMEMBERED, MAX_REMEMBERED]
    assert max(len(alike) for alike in processing._results.values()) <= 16
    assert take_calls(port) == []


def test_a_result_that_arrives_before_its_input_waits_for_it() -> None:
    """Events of node 100 and above are unknown to this node."""
    processing, port = make_bench(max_stages=2)

    def make_derived(source: NodeId, of: EventId) -> BufferedEvent:
        id = EventId(source, 1)
        return BufferedEvent(60.0, id, Event(id, {"unit": "C"}, derived_from=(of,)), 1)

    first = make_derived(100, EventId(1, 1))
    second, third = make_derived(101, first.id), make_derived(102, EventId(101, 1))
    processing.on_event(third)
    processing.on_event(second)
    assert take_calls(port) == [], "its stage is unknown"
    processing.on_event(first)
    assert take_calls(port) == [first.id], "the second and the third have passed max_stages processors"
    processing.on_event(make_derived(103, EventId(999, 1)))
    assert take_calls(port) == []


def test_results_without_inputs_are_bounded_and_dropped_with_a_reason() -> None:
    processing, port = make_bench()
    for number in range(MAX_REMEMBERED + 1):
        id = EventId(2, number)
        processing.on_event(BufferedEvent(60.0, id, Event(id, {"unit": "C"}, derived_from=(EventId(500, number),)), 1))
    assert port.take()[-1] == Note(Fact("drop", EventId(2, 0), reason="inputs_unknown"))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_chains_of_results_end_in_any_order_of_arrival(tmp_path: Path, seed: int) -> None:
    """Links come and go and frames are lost, so results overtake their inputs."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    entry = {"id": "again", "function": "functions.py:joined", "nodes": "all", "inputs": 2, "filter": "true"}
    tables = {
        "duration_s": 60.0,
        "nodes": 6,
        "area_m": [300.0, 300.0],
        "mobility": {"model": "random_waypoint", "speed_min_mps": 5.0, "speed_max_mps": 30.0},
        "radio": {"model": "disk", "range_m": 120.0, "queue": 10, "rate_bps": 2e5, "loss": 0.2},
        "protocol": {"name": "drift", "max_stages": 2},
        "publish": [{"count": 10, "attributes": {"depth": 0}}],
        "processors": [entry],
        "base": str(tmp_path),
    }
    events = run(parse_scenario(tables, "rounds"), seed, Level.FULL).trace.events().to_pylist()
    depths = {json.loads(event["attributes"])["depth"] for event in events}
    assert depths == {0, 1, 2}


def test_calls_beyond_the_queue_are_dropped_with_a_reason() -> None:
    """One call runs and 64 wait; the drop names the event without room."""
    node, port = isolate_protocol("drift")
    assert isinstance(node, Drift)
    node.on_processor(0.0, Processor("slow", "unit = 'C'"))
    for number in range(MAX_WAITING + 3):
        node.on_publish(1.0, Event(EventId(0, number), {"unit": "C", "value": number}, lease_s=60.0))
    effects = port.take()
    assert [one.processor for one in effects if isinstance(one, Process)] == ["slow"]
    drops = [one.fact for one in effects if isinstance(one, Note) and one.fact.kind == "drop"]
    without_room = [EventId(0, MAX_WAITING + 1), EventId(0, MAX_WAITING + 2)]
    assert [(fact.event, fact.reason) for fact in drops] == [(id, "processor_busy") for id in without_room]
    # The event itself is buffered and forwarded nevertheless.
    assert all(id in node._known_events.buffered for id in without_room)
    [running] = [one for one in effects if isinstance(one, Process)]
    node.on_processed(2.0, running.token, b"", (), 0.1, "")
    node.on_publish(3.0, Event(EventId(0, 99), {"unit": "C", "value": 99}, lease_s=60.0))
    assert not [one for one in port.take() if isinstance(one, Note) and one.fact.kind == "drop"], (
        "the finished call has made room"
    )
