"""Invalid messages and stored records are dropped with a named reason, and valid ones are not lost."""

import msgspec
import pytest

from carrycast.core.model import Velocity
from carrycast.core.model.wall_clock import WallTime
from carrycast.core.protocol import Capability, application_host
from carrycast.errors import UserError
from carrycast.services.policy import decision_point as decisions
from carrycast.services.policy.catalog import PolicyRecord, encode_record, make_successor, record_attributes
from carrycast.services.policy.conflict import find_conflict
from carrycast.services.policy.decision_point import DecisionPoint
from carrycast.services.policy.messages import ENROLL, TO, Enrollment
from carrycast.services.policy.repository import Repository
from carrycast.services.policy.tests.bus import parse_policy

from .bus import Bus, BusNode


def send(node: BusNode, text: str) -> None:
    record = PolicyRecord(parse_policy(text))
    node.publish(record_attributes(record), encode_record(record), 1e9, None)


def test_a_store_that_was_damaged_is_read_as_far_as_it_can_be() -> None:
    bus = Bus()
    store = bus.node()
    store.run("policy_repository")
    bus.pass_s(1)
    send(store, "policy a roles x then { run c }")
    bus.pass_s(1)
    store.crash()
    store.host.store.put(b"policy/b", b"garbage")
    store.host.store.put(b"policy/c", msgspec.msgpack.encode({"record": {"policy": {"id": "c"}}, "event": [1, 1]}))
    store.start()
    bus.pass_s(1)
    repository = store.hosted.application("policy_repository")
    assert isinstance(repository, Repository)
    assert [policy.id for policy in repository.catalog.active_policies()] == ["a"]
    assert store.reasons() == ["stored_policy_unreadable"] * 2


def test_a_decision_point_holds_so_many_policies_and_no_more() -> None:
    bus = Bus()
    node = bus.node("x")
    machine = node.run("policy_decision", most_policies=2)
    bus.pass_s(1)
    for name in "abc":
        send(node, f"policy {name} roles x then {{ run {name} }}")
    bus.pass_s(1)
    assert isinstance(machine, DecisionPoint)
    assert len(machine.catalog) == 2
    assert node.reasons() == ["too_many_policies"]
    # A newer version of one that is held still comes in.
    send(node, "policy a version 2 roles x then { run d }")
    bus.pass_s(1)
    assert ("run", "d") in node.acted


def test_a_full_cluster_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MAX_MANAGED", 1)
    bus = Bus()
    manager, one, two = bus.node(), bus.node(), bus.node()
    manager.run("policy_decision", manager=True)
    bus.pass_s(1)
    for node in (one, two, one):
        node.publish({ENROLL: manager.id}, msgspec.json.encode(Enrollment(("x",))), 10.0, None)
    bus.pass_s(1)
    assert manager.reasons() == ["cluster_full"]


def test_a_report_that_is_none_is_dropped() -> None:
    bus = Bus()
    tool = bus.node()
    tool.run("policy_tool")
    bus.pass_s(1)
    tool.publish({TO: tool.id}, b'{"what": "praised", "policy": "a", "version": 1, "node": 1}', 10.0, None)
    bus.pass_s(1)
    assert tool.reasons() == ["malformed_report"]


def test_what_cannot_be_reset_is_told() -> None:
    bus = Bus()
    node = bus.node("x")
    node.run("policy_decision")
    bus.pass_s(1)
    send(node, "policy a roles x then { set v = 1 }")
    bus.pass_s(1)
    node.broken["v"] = "stuck"
    send(node, "policy a version 2 disabled roles x then { set v = 1 }")
    bus.pass_s(1)
    assert node.acted == [("set", "v", 1), ("reset", "v")]
    assert node.reasons() == ["not_reset: stuck"]


def test_a_flood_of_answers_is_bounded_and_the_request_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    store = bus.node()
    store.run("policy_repository")
    bus.pass_s(1)
    for number in range(50):
        send(store, f"policy p{number} roles x then {{ run c }}")
    bus.pass_s(1)
    monkeypatch.setattr(application_host, "MAX_QUEUE", 10)
    node = bus.node("x")
    machine = node.run("policy_decision", retry_s=30.0)
    bus.pass_s(1)
    assert isinstance(machine, DecisionPoint)
    assert len(machine.catalog) == 10
    assert not machine.retrieved
    assert node.reasons() == ["application_busy"] * 40
    monkeypatch.undo()
    bus.pass_s(60)
    assert len(machine.catalog) == 50


def test_a_policy_that_had_too_many_roles_must_begin_anew() -> None:
    roles = [" , ".join(f"r{many}-{number}" for number in range(100)) for many in range(3)]
    before = [PolicyRecord(parse_policy(f"policy a roles {roles[0]} then {{ run c }}"))]
    before.append(make_successor(parse_policy(f"policy a version 2 roles {roles[1]} then {{ run c }}"), before))
    with pytest.raises(UserError, match="more than 200 roles; withdraw it and begin a new one"):
        make_successor(parse_policy(f"policy a version 3 roles {roles[2]} then {{ run c }}"), before)


def test_commands_that_nobody_understands_are_answered() -> None:
    bus = Bus()
    node = bus.node("x")
    for name in ("policy_tool", "policy_repository", "policy_decision"):
        node.kinds.append((name, {}))
    node.kinds.append(("policy_enforcement", {"manager": 0}))
    node.start()
    bus.pass_s(1)
    for name, _ in node.kinds:
        told = node.command(name, "dance")
        assert told is not None
        assert "know" in str(told["error"])
    assert "name a policy" in str(node.command("policy_tool", "withdraw"))
    assert "unknown field" in str(node.command("policy_tool", "list", colour="red"))
    assert "there is no policy in this" in str(node.command("policy_tool", "check"))


# When a repository is used.


def test_a_repository_rests_while_its_battery_is_low_or_its_node_moves_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """[000 §III] "due to the node's behavior and characteristics such as the mobility pattern, remaining battery"."""
    bus = Bus()
    store = bus.node()
    now = {"energy": 1.0, "speed": 0.0}
    store.host.offers = frozenset({*store.host.offers, Capability.ENERGY, Capability.VELOCITY})
    monkeypatch.setattr(store.host, "energy", lambda at: now["energy"])
    monkeypatch.setattr(store.host, "velocity", lambda at: Velocity(now["speed"], 0.0))
    store.run("policy_repository", least_energy=0.2, most_speed_mps=2.0, look_s=5.0)
    bus.pass_s(1)
    seen = []
    for energy, speed in ((1.0, 0.0), (0.1, 0.0), (0.9, 0.0), (0.9, 20.0), (0.9, 1.0)):
        now.update(energy=energy, speed=speed)
        bus.pass_s(6)
        seen.append(bool(store.advertisements))
    assert seen == [True, False, True, False, True]
    # An order goes before all of that.
    store.command("policy_repository", "deactivate")
    bus.pass_s(20)
    assert not store.advertisements
    store.hosted.stop()
    bus.pass_s(60)
    assert not store.timers


def test_every_application_stops_without_a_timer_left() -> None:
    bus = Bus()
    tool, node, lean = bus.node(), bus.node("x"), bus.node("x")
    tool.run("policy_tool")
    node.run("policy_decision", manager=True)
    lean.run("policy_enforcement", manager=node.id)
    bus.pass_s(1)
    tool.hosted.on_command("policy_tool", 99, "publish", b'{"text": "policy a roles x then { run c }", "anyway": true}')
    bus.pass_s(0.01)
    for one in (tool, node, lean):
        one.hosted.stop()
        assert not one.timers


def test_a_policy_too_long_to_travel_is_refused_by_the_tool_and_by_whoever_is_sent_it() -> None:
    bus = Bus()
    tool, node = bus.node(), bus.node("x")
    tool.run("policy_tool")
    node.run("policy_decision")
    bus.pass_s(1)
    long = "policy a roles x then { " + "; ".join(f"set v{number} = '{'x' * 1000}'" for number in range(60)) + " }"
    told = tool.command("policy_tool", "publish", text=long, anyway=True)
    assert told is not None
    assert "at most 32768 travel; split it" in str(told["error"])
    send(tool, long)
    bus.pass_s(1)
    assert node.reasons() == ["malformed_policy"]


def test_periods_at_the_ends_of_the_calendar_break_nothing() -> None:
    edges = ["from 9999-12-31T23:59:59", "until 0001-01-01T00:00:01", "until 9999-12-31T23:59:59", "from 0001-01-01"]
    texts = [f"[{edge}{local}; hours 23:00-01:00]" for edge in edges for local in ("", "; local")]
    rules = [parse_policy(f"policy p{at} roles x {text} then {{ set v = {at} }}") for at, text in enumerate(texts)]
    for one in rules:
        for two in rules:
            find_conflict(one, two)
        for utc_s in (-1e12, 0.0, 1e12):
            period = one.periods[0]
            assert period.includes(WallTime(utc_s)) in (True, False)
            assert period.next_change_s(WallTime(utc_s, 50_000)) > 0
