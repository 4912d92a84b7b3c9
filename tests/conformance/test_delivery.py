"""What no protocol may do to an application, and what it owes its host."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from carrycast.core.matching import Filter
from carrycast.sim.engine.simulation import RunResult, Simulation, run
from carrycast.sim.testing import Net
from carrycast.trace import Level
from tests.conformance.memory import containers
from tests.conformance.subjects import FAULTS, MOBILE, SUBJECTS, Subject, label, scenario_of

every_protocol = pytest.mark.parametrize("subject", SUBJECTS, ids=label)
ONE_HOP = {"direct"}
DUPLICATION = [{"kind": "duplication", "probability": 0.5}]


def deliveries(done: RunResult) -> list[tuple[Mapping[str, object], Mapping[str, object], float]]:
    """(event, subscription, time) of every delivery, out of the trace alone."""
    events = {row["event"]: row for row in done.trace.events().to_pylist()}
    subscriptions = {row["subscription"]: row for row in done.trace.subscriptions().to_pylist()}
    rows = [row for row in done.trace.table().to_pylist() if row["kind"] == "deliver"]
    assert rows, "a protocol that delivers nothing here is not examined at all"
    return [(events[row["event"]], subscriptions[row["subscription"]], row["time_s"]) for row in rows]


def net_of(subject: Subject, nodes: int, **tables: object) -> Net:
    return Net.line(nodes, str(subject["name"]), tables, variant=subject.get("variant"))


@every_protocol
def test_it_delivers_only_what_was_published_and_matches_and_is_admitted(subject: Subject) -> None:
    for event, subscription, time_s in deliveries(run(scenario_of(MOBILE, subject), 1, Level.DELIVERIES)):
        assert Filter(str(subscription["filter"])).matches(json.loads(str(event["attributes"])))
        if event["access"] is not None:
            assert Filter(str(event["access"])).matches(json.loads(str(subscription["attributes"])))
        assert float(str(event["time_s"])) <= time_s
        assert float(str(subscription["from_s"])) <= time_s
        assert subscription["to_s"] is None or time_s <= float(str(subscription["to_s"]))


@every_protocol
def test_it_delivers_nothing_twice_even_if_every_other_frame_arrives_twice(subject: Subject) -> None:
    done = run(scenario_of(MOBILE, subject, faults=DUPLICATION), 1, Level.DELIVERIES)
    times = Counter((event["event"], subscription["subscription"]) for event, subscription, _ in deliveries(done))
    assert max(times.values()) == 1


@every_protocol
def test_a_subscriber_without_clearance_gets_nothing_even_from_its_own_node(subject: Subject) -> None:
    net = net_of(subject, 2)
    cleared = net.subscribe(0, attributes={"clearance": 2})
    net.subscribe(0, attributes={"clearance": 1})
    net.subscribe(0)
    net.run(2)
    event = net.publish(0, {"topic": 1}, access="clearance >= 2")
    net.run(10)
    assert net.list_delivered(0) == net.list_delivered(0, cleared) == [event]


@every_protocol
def test_an_event_never_reaches_a_subscriber_that_its_policy_excludes(subject: Subject) -> None:
    """Whoever evaluates it: nobody else's clearance helps, nor that the same node has a subscriber who is cleared."""
    net = net_of(subject, 3)
    # Who carries nothing for others reaches nobody but its neighbors.
    publisher, *others = (1, 0, 2) if label(subject) in ONE_HOP else (0, 1, 2)
    cleared = [net.subscribe(node, "topic = 1", {"clearance": 2}) for node in others]
    for node in others:
        net.subscribe(node, "topic = 1", {"clearance": 1})
        net.subscribe(node, "topic = 1")
        net.subscribe(node, "topic = 1", {"clearance": "2"})
    net.run(5)
    secret = net.publish(publisher, {"topic": 1}, access="clearance >= 2")
    net.publish(publisher, {"topic": 1}, access="clearance >=")
    # Some tell each other of those who are farther away once a minute.
    net.run(90)
    for node, subscription in zip(others, cleared, strict=True):
        assert net.list_delivered(node) == net.list_delivered(node, subscription) == [secret]


@every_protocol
@pytest.mark.parametrize("path", [MOBILE, FAULTS], ids=["mobile", "faults"])
def test_no_timer_is_left_armed_after_a_clean_stop(subject: Subject, path: Path) -> None:
    simulation = Simulation(scenario_of(path, subject), 1)
    simulation.start()
    simulation.advance(33.3)
    up = [node for node in simulation.network.nodes if node.up]
    simulation.finish()
    assert [node.armed_timers() for node in up] == [[]] * len(up)


@every_protocol
def test_after_a_crash_the_protocol_is_another_object_that_shares_nothing_with_the_old(subject: Subject) -> None:
    net = net_of(subject, 3, discovery={"mode": "beacon"})
    net.subscribe(1)
    net.run(5)
    net.publish(0, {"topic": 1})
    net.run(5)
    before = net.protocol(1)
    kept = {id(container) for container in containers(before)}
    assert kept
    net.crash(1)
    assert net.list_timers(1) == []
    net.run(5)
    net.restart(1)
    after = net.protocol(1)
    assert after is not before
    assert not kept & {id(container) for container in containers(after)}


@every_protocol
def test_two_nodes_share_no_memory(subject: Subject) -> None:
    net = net_of(subject, 3)
    for node in range(3):
        net.subscribe(node)
    net.run(5)
    net.publish(0, {"topic": 1})
    net.run(5)
    held = [{id(container) for container in containers(net.protocol(node))} for node in range(3)]
    assert not held[0] & held[1]
    assert not held[1] & held[2]


@every_protocol
def test_subscriptions_stand_through_a_crash(subject: Subject) -> None:
    net = net_of(subject, 2)
    net.subscribe(1, "topic = 1")
    net.run(5)
    net.crash(1)
    net.run(5)
    net.restart(1)
    net.run(30)
    event = net.publish(0, {"topic": 1})
    net.run(30)
    assert net.list_delivered(1) == [event]


@every_protocol
def test_nothing_comes_after_the_end_of_a_subscription(subject: Subject) -> None:
    net = net_of(subject, 2)
    ended = net.subscribe(1)
    net.run(5)
    net.unsubscribe(ended)
    net.publish(0, {"topic": 1})
    net.run(30)
    assert net.list_delivered(1) == []
