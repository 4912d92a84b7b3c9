"""Tool and repositories learn policies that no repository stored, from nodes that were disconnected or failed."""

from typing import Any

import msgspec

from carrycast.core.model import EventId
from carrycast.core.protocol import Capability
from carrycast.services.policy.catalog import PolicyRecord
from carrycast.services.policy.decision_point import DecisionPoint
from carrycast.services.policy.enforcement_point import EnforcementPoint, EnforcementSettings
from carrycast.services.policy.messages import TO, PolicyReport
from carrycast.services.policy.repository import Repository
from carrycast.services.policy.survey import HOLDINGS, KIND, SURVEY, HeldPolicy, PolicySurvey, SurveyAnswer
from carrycast.services.policy.tests.bus import parse_policy

from .bus import Bus, BusNode

SLOW = "policy slow roles sensor then { set period_s = 5 }"


def network() -> tuple[Bus, BusNode, BusNode, BusNode, BusNode]:
    """A tool, a repository and two sensors, with names; nobody asks again by itself for hours."""
    bus = Bus()
    tool, store = bus.node(name="desk"), bus.node(name="archive")
    tool.run("policy_tool", stored_s=1.0)
    store.run("policy_repository")
    bus.pass_s(1)
    sensors = [bus.node("sensor", name=name) for name in ("car-1", "car-2")]
    for sensor in sensors:
        sensor.run("policy_decision", refetch_s=86_400.0)
    bus.pass_s(1)
    return bus, tool, store, sensors[0], sensors[1]


def tell(tool: BusNode, verb: str, **body: object) -> dict[str, Any]:
    told = tool.command("policy_tool", verb, **body)
    assert told is not None
    return told


def stored(store: BusNode) -> dict[str, tuple[int, bool]]:
    repository = store.hosted.application("policy_repository")
    assert isinstance(repository, Repository)
    return {held.record.policy.id: (held.record.policy.version, held.record.withdrawn) for held in repository.catalog}


def in_force(node: BusNode) -> list[str]:
    point = node.hosted.application("policy_decision")
    assert isinstance(point, DecisionPoint)
    told = point.enforcer.report()["in_force"]
    assert isinstance(told, list)
    return told


def states(tool: BusNode, id: str = "", **body: object) -> dict[str, dict[str, str]]:
    """Of each policy, the state at each node by name."""
    policies = tell(tool, "status", id=id, **body)["policies"]
    return {one["id"]: {row["name"]: row["state"] for row in one["nodes"]} for one in policies}


def restarted(node: BusNode) -> None:
    node.crash()
    node.start()


def test_a_policy_published_while_its_repository_is_down_is_learned_managed_and_withdrawn() -> None:
    bus, tool, store, one, two = network()
    store.crash()
    assert tell(tool, "publish", text=SLOW, anyway=True)["published"][0]["stored_by"] == []
    assert in_force(one) == in_force(two) == ["slow version 1"]
    # Nobody but the nodes knows of it any more.
    restarted(tool)
    store.start()
    assert stored(store) == {}
    bus.pass_s(30)
    assert stored(store) == {"slow": (1, False)}
    assert [one["id"] for one in tell(tool, "list")["policies"]] == ["slow"]
    late = bus.node("sensor")
    late.run("policy_decision")
    bus.pass_s(1)
    assert in_force(late) == ["slow version 1"]
    assert tell(tool, "withdraw", id="slow")["published"][0]["version"] == 2
    assert in_force(one) == in_force(two) == in_force(late) == []
    # It was published once, whoever repeated it.
    assert [fact.kind for fact in one.facts].count("policy_enforced") == 1


def test_withdraw_works_for_what_only_nodes_hold() -> None:
    _, tool, store, one, two = network()
    store.crash()
    tell(tool, "publish", text=SLOW, anyway=True)
    restarted(tool)
    assert "not every repository has answered" in tell(tool, "withdraw", id="slow")["error"]
    assert tell(tool, "withdraw", id="slow", anyway=True)["published"][0]["version"] == 2
    assert in_force(one) == in_force(two) == []


def test_the_version_that_nodes_hold_is_not_published_a_second_time() -> None:
    _, tool, store, *_ = network()
    store.crash()
    tell(tool, "publish", text=SLOW, anyway=True)
    restarted(tool)
    told = tell(tool, "publish", text=SLOW.replace("5", "6"), anyway=True)
    assert "there is a version 1 of policy slow already" in told["error"]


def test_what_no_repository_has_is_told_by_list() -> None:
    bus, tool, store, *_ = network()
    store.crash()
    tell(tool, "publish", text=SLOW, anyway=True)
    told = tell(tool, "list")
    assert told["unstored"] == [{"id": "slow", "version": 1, "nodes": [2, 3]}]
    assert told["names"]["2"] == "car-1"
    store.start()
    bus.pass_s(30)
    assert "unstored" not in tell(tool, "list")


def test_a_withdrawn_policy_does_not_come_back_from_a_node_that_was_away() -> None:
    bus, tool, store, one, two = network()
    tell(tool, "publish", text=SLOW)
    two.cut_off = True
    tell(tool, "withdraw", id="slow")
    assert in_force(one) == []
    assert in_force(two) == ["slow version 1"]
    restarted(store)
    restarted(tool)
    two.cut_off = False
    # The next round of the repository finds it, and sends the withdrawal.
    bus.pass_s(300)
    assert in_force(two) == []
    assert stored(store) == {"slow": (2, True)}
    late = bus.node("sensor")
    late.run("policy_decision")
    bus.pass_s(1)
    assert in_force(late) == []


def test_a_withdrawal_that_no_repository_saw_is_learned_too() -> None:
    bus, tool, store, one, _ = network()
    tell(tool, "publish", text=SLOW)
    store.crash()
    tell(tool, "withdraw", id="slow", anyway=True)
    store.start()
    bus.pass_s(0)
    assert stored(store) == {"slow": (1, False)}
    bus.pass_s(30)
    assert stored(store) == {"slow": (2, True)}
    assert in_force(one) == []


def test_a_policy_that_fails_everywhere_is_not_in_force_and_status_says_why() -> None:
    _, tool, store, one, two = network()
    for node in (one, two):
        node.broken["period_s"] = "refused: it is not for policies to change"
    tell(tool, "publish", text=SLOW)
    assert in_force(one) == in_force(two) == []
    assert states(tool, "slow") == {"slow": {"archive": "stored", "car-1": "failed", "car-2": "failed"}}
    [policy] = tell(tool, "status", id="slow")["policies"]
    rows = {row["name"]: row for row in policy["nodes"]}
    assert rows["car-1"]["why"] == "set period_s = 5: refused: it is not for policies to change"
    two.broken.clear()
    tell(tool, "publish", text=SLOW.replace("5", "6"), next=True)
    assert states(tool, "slow")["slow"] == {"archive": "stored", "car-1": "failed", "car-2": "enforced"}
    store.crash()
    assert "archive" not in states(tool, "slow")["slow"]


def test_status_says_of_each_node_what_it_does_with_a_policy_and_why() -> None:
    bus, tool, _, one, two = network()
    bus.node("relay", name="mast").run("policy_decision", refetch_s=86_400.0)
    two.cut_off = True
    tell(tool, "publish", text=SLOW.replace("then", "if { battery < 0.2 } then"))
    two.cut_off = False
    # The one that was away will ask; until then it has no part in this.
    [policy] = tell(tool, "status", id="slow")["policies"]
    rows = {row["name"]: (row["state"], row["why"]) for row in policy["nodes"]}
    assert rows["car-1"] == ("held", "its conditions do not hold")
    assert rows["car-2"] == ("not held", "it has not come to this node yet")
    assert "mast" not in rows
    one.publish({"policy.context": "car-1", "battery": 0.1}, b"", 60.0, None)
    bus.pass_s(1)
    assert states(tool, "slow")["slow"]["car-1"] == "enforced"
    assert states(tool) == states(tool, "slow"), "without a name, of all"
    assert list(states(tool, "slow", node="car-1")["slow"]) == ["car-1"]


def test_a_node_or_policy_that_nobody_has_heard_of_is_refused_with_what_there_is() -> None:
    _, tool, *_ = network()
    tell(tool, "publish", text=SLOW)
    told = tell(tool, "status", id="slow", node="car1")
    assert told["error"] == (
        "a node car1 has not been heard of; did you mean car-1? these answered: archive, car-1, car-2"
    )
    assert "knows a policy slwo" in tell(tool, "status", id="slwo")["error"]


def test_a_cluster_manager_is_named_by_its_name() -> None:
    bus = Bus()
    tool, store = bus.node(name="desk"), bus.node(name="archive")
    tool.run("policy_tool", stored_s=1.0)
    store.run("policy_repository")
    lamp, manager = bus.node("lamp", name="lamp-1"), bus.node(name="boss")
    lamp.run("policy_enforcement", manager="boss", enroll_s=5.0)
    bus.pass_s(1)
    report = lamp.command("policy_enforcement", "list")
    assert report is not None
    assert report["manager"] == "boss, which has not been heard of"
    manager.run("policy_decision", manager=True)
    tell(tool, "publish", text="policy dim roles lamp then { set level = 1 }")
    assert lamp.acted == [("set", "level", 1)]
    assert states(tool, "dim")["dim"]["lamp-1"] == "enforced"
    report = lamp.command("policy_enforcement", "list")
    assert report is not None
    assert (report["manager"], report["in_force"]) == ("boss", ["dim version 1"])
    managing = manager.command("policy_decision", "list")
    assert managing is not None
    assert managing["manages"] == ["lamp-1"]
    # Another manager is not obeyed.
    other = bus.node(name="rival")
    other.run("policy_decision", manager=True)
    bus.pass_s(60)
    assert lamp.acted == [("set", "level", 1)]


def test_a_manager_that_has_nothing_to_say_is_heard_of() -> None:
    bus = Bus()
    lamp, manager = bus.node("lamp", name="lamp-1"), bus.node(name="boss")
    manager.run("policy_decision", manager=True)
    point = lamp.run("policy_enforcement", manager="boss", enroll_s=5.0)
    bus.pass_s(1)
    assert isinstance(point, EnforcementPoint)
    report = lamp.command("policy_enforcement", "list")
    assert report is not None
    assert report["manager"] == "boss"


def test_a_replaced_manager_of_the_same_name_is_obeyed() -> None:
    bus = Bus()
    lamp, first = bus.node("lamp", name="lamp-1"), bus.node(name="boss")
    first.host.incarnation = 100
    first.run("policy_decision", manager=True)
    lamp.run("policy_enforcement", manager="boss", enroll_s=5.0)
    bus.pass_s(10)
    first.crash()
    second = bus.node(name="boss")
    second.run("policy_decision", manager=True)
    bus.pass_s(10)
    tool = bus.node(name="desk")
    tool.run("policy_tool", stored_s=1.0)
    tell(tool, "publish", text="policy dim roles lamp then { set level = 1 }", anyway=True)
    bus.pass_s(10)
    assert lamp.acted == [("set", "level", 1)]


def test_a_manager_that_is_named_needs_nodes_with_names() -> None:
    assert EnforcementSettings(manager="boss").needs() == {Capability.NODE_NAMES}
    assert EnforcementSettings(manager=7).needs() == frozenset()


# Nodes that lie, and floods.


def test_a_repository_takes_no_policy_on_a_nodes_word_alone() -> None:
    """A node that may answer but not publish policies must not get one published by somebody who may."""
    bus, tool, store, one, _ = network()
    evil = PolicyRecord(parse_policy("policy evil roles sensor then { set period_s = 1 }"))
    lie = SurveyAnswer(
        0, one.id, "decision", "car-1", (), (HeldPolicy("evil", 9, "held", "", EventId(7, 7), ("sensor",), evil),)
    )
    for _ in range(3):
        one.publish({TO: store.id, KIND: HOLDINGS}, msgspec.json.encode(lie), 60.0, None)
        bus.pass_s(10)
    assert stored(store) == {}
    assert tell(tool, "list")["policies"] == []


def test_a_node_that_claims_what_it_does_not_publish_keeps_nobody_from_publishing_it() -> None:
    bus, tool, store, one, _ = network()
    liar = bus.node(name="liar")
    store.crash()
    tell(tool, "publish", text=SLOW, anyway=True)
    [held] = one.hosted.application("policy_decision").catalog  # type: ignore[attr-defined]
    store.start()
    claims = (
        HeldPolicy("slow", 1, "held", "", held.event, ("sensor",)),
        HeldPolicy("slow", 1000, "held", "", EventId(liar.id, 1), ("sensor",)),
    )
    lie = SurveyAnswer(0, liar.id, "decision", "liar", (), claims)
    for _ in range(400):
        # Always before the others.
        liar.publish({TO: store.id, KIND: HOLDINGS}, msgspec.json.encode(lie), 60.0, None)
        bus.pass_s(1)
        if stored(store):
            break
    assert stored(store) == {"slow": (1, False)}


def test_nobody_answers_or_reports_in_the_name_of_another_node() -> None:
    bus, tool, store, one, two = network()
    lie = SurveyAnswer(0, two.id, "decision", "desk", (), ())
    for target in (tool, store):
        one.publish({TO: target.id, KIND: HOLDINGS}, msgspec.json.encode(lie), 60.0, None)
    report = PolicyReport("enforced", "slow", 1, two.id)
    one.publish({TO: tool.id, KIND: "enforced"}, msgspec.json.encode(report), 60.0, None)
    bus.pass_s(1)
    assert tool.reasons() == ["malformed_holdings", "malformed_report"]
    assert store.reasons() == ["malformed_holdings"]


def test_a_node_that_claims_the_last_version_is_told_of_and_nothing_unreadable_is_published() -> None:
    _, tool, _, one, _ = network()
    last = parse_policy("policy slow version 2147483648 roles sensor then { set period_s = 1 }")
    point = one.hosted.application("policy_decision")
    assert isinstance(point, DecisionPoint)
    one.publish(
        {"policy.id": "slow", "policy.version": 2**31, "policy.kind": "rule", "policy.role.sensor": True},
        msgspec.json.encode(PolicyRecord(last)),
        60.0,
        None,
    )
    told = tell(tool, "withdraw", id="slow")
    assert told["error"] == "policy slow has version 2147483648, after which there is none"


def test_surveys_are_bounded_and_what_is_none_is_dropped_by_name() -> None:
    bus, tool, _, one, _ = network()
    bus.pass_s(200)
    tool.publish({SURVEY: tool.id}, b"[]", 60.0, None)
    for number in range(40):
        tool.publish({SURVEY: tool.id}, msgspec.json.encode(PolicySurvey(number, 3600.0)), 60.0, None)
    # Whoever asks all nodes to publish everything is asked back nothing.
    bus.pass_s(1)
    assert one.reasons().count("malformed_survey") == 1
    assert one.reasons().count("too_many_surveys") == 24
    bus.pass_s(4000)
    tool.publish({SURVEY: tool.id}, msgspec.json.encode(PolicySurvey(99, 0.0, publish=True)), 60.0, None)
    bus.pass_s(1)
    assert one.reasons().count("malformed_survey") == 2
    tool.publish({TO: tool.id, KIND: HOLDINGS}, b"{}", 60.0, None)
    bus.pass_s(1)
    assert "malformed_holdings" in tool.reasons()


def test_many_policies_are_told_in_several_events_none_too_long() -> None:
    bus, tool, _, _, _ = network()
    text = "\n".join(f"policy p{number} roles sensor then {{ set x{number} = 1 }}" for number in range(400))
    tell(tool, "publish", text=text)
    assert len(states(tool)) == 400
    assert bus.longest_bytes < 40_000
