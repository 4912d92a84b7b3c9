"""Tool, repository, decision point and enforcement point work together."""

import msgspec
import pytest

from carrycast.core.model import Event, EventId
from carrycast.services.policy.catalog import (
    MalformedError,
    PolicyRecord,
    encode_record,
    read_policy,
    read_record,
    record_attributes,
)
from carrycast.services.policy.decision_point import DecisionPoint
from carrycast.services.policy.management_tool import ManagementTool
from carrycast.services.policy.messages import ENFORCE, ENROLL, EnforcementOrders, Enrollment
from carrycast.services.policy.repository import Repository
from carrycast.services.policy.tests.bus import parse_policy

from .bus import Bus, BusNode

SLOW = "policy slow roles sensor then { set period_s = 5; run led 'off' }"
FAST = "policy fast roles sensor if { battery > 0.5 } then { set period_s = 1 }"


def network(*roles: str) -> tuple[Bus, BusNode, BusNode, BusNode]:
    """A tool, a repository, and a node with a decision point."""
    bus = Bus()
    tool, store, node = bus.node(), bus.node(), bus.node(*roles)
    tool.run("policy_tool", stored_s=1.0)
    store.run("policy_repository")
    bus.pass_s(1)
    node.run("policy_decision")
    bus.pass_s(1)
    return bus, tool, store, node


def publish(tool: BusNode, text: str, **more: object) -> dict[str, object]:
    told = tool.command("policy_tool", "publish", text=text, **more)
    assert told is not None
    return told


def test_a_published_policy_is_stored_enforced_and_reported() -> None:
    _, tool, _, node = network("sensor")
    told = publish(tool, SLOW)
    assert told["published"] == [{"id": "slow", "version": 1, "stored_by": [1]}]
    assert node.acted == [("set", "period_s", 5), ("run", "led", "off")]
    machine = tool.hosted.application("policy_tool")
    assert isinstance(machine, ManagementTool)
    assert [(report.what, report.node) for report in machine.reports] == [("stored", 1), ("enforced", 2)]


def test_who_comes_later_retrieves_what_was_published_before() -> None:
    bus, tool, _, _ = network("sensor")
    publish(tool, SLOW)
    late = bus.node("sensor", "relay")
    machine = late.run("policy_decision")
    bus.pass_s(1)
    assert isinstance(machine, DecisionPoint)
    assert machine.retrieved
    assert late.acted == [("set", "period_s", 5), ("run", "led", "off")]


def test_a_policy_for_others_leaves_a_node_alone() -> None:
    _, tool, _, node = network("relay")
    publish(tool, SLOW)
    publish(tool, "policy both roles relay && sensor then { set x = 1 }")
    assert node.acted == []


def test_a_new_version_replaces_the_old_also_where_its_roles_no_longer_are() -> None:
    _, tool, store, node = network("sensor")
    publish(tool, SLOW)
    assert "there is a version 1 of policy slow already; give this one 2 or more" in str(publish(tool, SLOW)["error"])
    publish(tool, "policy slow roles relay then { set period_s = 7 }", next=True)
    assert node.acted[2:] == [("reset", "period_s")]
    repository = store.hosted.application("policy_repository")
    assert isinstance(repository, Repository)
    assert [policy.version for policy in repository.catalog.active_policies()] == [2]
    # A third version must still reach who held the first, but missed the second.
    publish(tool, "policy slow version 3 roles gateway then { set period_s = 7 }")
    held = repository.catalog.get("slow")
    assert held is not None
    assert held.record.roles == ("gateway", "relay", "sensor")


def test_a_withdrawn_policy_ends_and_what_it_set_goes_back() -> None:
    _, tool, _, node = network("sensor")
    publish(tool, SLOW)
    told = tool.command("policy_tool", "withdraw", id="slow")
    assert told is not None
    assert told["published"] == [{"id": "slow", "version": 2, "stored_by": [1]}]
    assert node.acted[2:] == [("reset", "period_s")]
    assert tool.command("policy_tool", "list") == {"complete": True, "policies": []}
    history = tool.command("policy_tool", "history", id="slow")
    assert history is not None
    versions = [(one["version"], one["withdrawn"]) for one in history["policies"]]  # type: ignore[attr-defined]
    assert versions == [(1, False), (2, True)]
    again = tool.command("policy_tool", "withdraw", id="slow")
    assert again == {"error": "policy slow is withdrawn already, with its version 2"}
    unknown = tool.command("policy_tool", "withdraw", id="slwo")
    assert unknown == {"error": "no node and no repository that answered knows a policy slwo"}


def test_a_policy_that_clashes_is_refused_and_one_with_a_higher_priority_is_not() -> None:
    _, tool, _, node = network("sensor")
    publish(tool, SLOW)
    told = publish(tool, FAST)
    assert "set period_s = 1 against set period_s = 5" in str(told["error"])
    assert "published" not in told
    told = publish(tool, FAST.replace("fast", "fast priority 2"))
    assert "fast (version 1) wins by its priority of 2" in str(told["resolved"])
    assert told["published"]
    # Nothing is known of a battery, so the condition does not hold.
    assert node.acted == [("set", "period_s", 5), ("run", "led", "off")]


def test_two_of_one_file_are_compared_with_each_other() -> None:
    _, tool, _, _ = network("sensor")
    assert "clashes" in publish(tool, SLOW + "\n" + FAST)


def test_conditions_are_looked_at_again_when_the_node_is_told_something() -> None:
    bus, tool, _, node = network("sensor")
    publish(tool, SLOW)
    publish(tool, FAST.replace("fast", "fast priority 2"))
    tool.publish({"policy.context": node.id, "battery": 0.9}, b"", 10.0, None)
    bus.pass_s(1)
    assert node.acted[2:] == [("set", "period_s", 1)]
    tool.publish({"policy.context": node.id, "battery": 0.1}, b"", 10.0, None)
    bus.pass_s(1)
    assert node.acted[3:] == [("set", "period_s", 5)], "the lamp is off and stays so"


def test_periods_begin_and_end_by_the_clock_of_the_node() -> None:
    bus, tool, _, node = network("sensor")
    early = bus.node("sensor", ahead_s=3600.0)
    early.run("policy_decision")
    publish(tool, "policy hour roles sensor [hours 01:00-01:30] then { set x = 1 }")
    assert early.acted == [("set", "x", 1)]
    assert node.acted == []
    bus.pass_s(1800)
    assert early.acted == [("set", "x", 1), ("reset", "x")]
    bus.pass_s(1800)
    assert node.acted == [("set", "x", 1)]
    # Who is an hour off is named.
    machine = tool.hosted.application("policy_tool")
    assert isinstance(machine, ManagementTool)
    assert list(machine.skew_s) == [early.id]
    assert any(fact.kind == "clock_differs" and fact.peer == early.id for fact in tool.facts)


def test_actions_stop_as_the_policy_says() -> None:
    for until, done in (("", "abc"), (" until success", "ab"), (" until failure", "a")):
        _, tool, _, node = network("sensor")
        node.broken["a"] = "no such thing"
        publish(tool, f"policy p roles sensor then{until} {{ run a; run b; run c }}")
        assert "".join(str(act[1]) for act in node.acted) == done
        machine = tool.hosted.application("policy_tool")
        assert isinstance(machine, ManagementTool)
        assert machine.reports[-1].what == ("enforced" if "success" in until else "failed")
        assert ("run a: no such thing" in machine.reports[-1].told) is True


def test_a_policy_for_debugging_does_nothing_and_says_so() -> None:
    _, tool, _, node = network("sensor")
    publish(tool, SLOW.replace("slow", "slow debug"))
    assert node.acted == []
    machine = tool.hosted.application("policy_tool")
    assert isinstance(machine, ManagementTool)
    assert (machine.reports[-1].what, machine.reports[-1].told) == ("would enforce", "set period_s = 5; run led 'off'")


def test_a_cluster_manager_decides_for_those_who_cannot() -> None:
    bus = Bus()
    tool, store, manager, lean = bus.node(), bus.node(), bus.node("gateway"), bus.node("sensor")
    tool.run("policy_tool")
    store.run("policy_repository")
    decision = manager.run("policy_decision", manager=True)
    lean.run("policy_enforcement", manager=manager.id, attributes={"battery": 0.9})
    bus.pass_s(1)
    # [000 §III] one aggregated subscription
    assert sum("policy.role.sensor" in one.filter for one in manager.subscriptions.values()) == 1
    publish(tool, FAST)
    assert lean.acted == [("set", "period_s", 1)]
    assert manager.acted == []
    assert isinstance(decision, DecisionPoint)
    # It restarts, has nothing, and is told again.
    lean.crash()
    lean.start()
    bus.pass_s(60)
    assert lean.acted == [("set", "period_s", 1)] * 2
    # It goes, and the manager asks for its roles no longer.
    lean.crash()
    bus.pass_s(200)
    assert not any("policy.role.sensor" in one.filter for one in manager.subscriptions.values())


def test_a_repository_that_crashes_in_the_middle_has_all_that_it_said_to_have_stored() -> None:
    bus, tool, store, _ = network("sensor")
    publish(tool, SLOW)
    store.crash()
    told = publish(tool, "policy other roles sensor then { run x }")
    assert "not every repository has answered" in str(told["error"])
    told = publish(tool, "policy other roles sensor then { run x }", anyway=True)
    assert told["published"] == [{"id": "other", "version": 1, "stored_by": []}]
    store.start()
    repository = store.hosted.application("policy_repository")
    assert isinstance(repository, Repository)
    bus.pass_s(0)
    assert [policy.id for policy in repository.catalog.active_policies()] == ["slow"]
    # What was published meanwhile it learns of the node that holds it.
    bus.pass_s(10)
    assert [policy.id for policy in repository.catalog.active_policies()] == ["other", "slow"]
    late = bus.node("sensor")
    late.run("policy_decision")
    bus.pass_s(1)
    assert ("set", "period_s", 5) in late.acted


def test_a_policy_that_nobody_stored_is_published_again() -> None:
    bus, tool, store, node = network("sensor")

    def rejoin() -> None:
        store.cut_off = node.cut_off = False

    store.cut_off = node.cut_off = True
    bus.at(3.5, rejoin)
    told = publish(tool, SLOW, anyway=True)
    assert told["published"] == [{"id": "slow", "version": 1, "stored_by": []}]
    store.cut_off = node.cut_off = True
    bus.at(1.5, rejoin)
    told = publish(tool, "policy other roles sensor then { run x }", anyway=True)
    assert told["published"] == [{"id": "other", "version": 1, "stored_by": [1]}]
    assert node.acted == [("run", "x")]
    history = tool.command("policy_tool", "history", id="other")
    assert history is not None
    assert len(history["policies"]) == 1  # type: ignore[arg-type]


def test_a_replica_that_comes_later_fetches_what_others_have() -> None:
    bus, tool, store, _ = network("sensor")
    publish(tool, SLOW)
    second = bus.node()
    second.run("policy_repository")
    bus.pass_s(1)
    store.crash()
    late = bus.node("sensor")
    late.run("policy_decision")
    bus.pass_s(1)
    assert ("set", "period_s", 5) in late.acted


def test_repositories_by_roles_store_their_own_and_what_is_for_everybody() -> None:
    bus = Bus()
    tool, one, two = bus.node(), bus.node(), bus.node()
    tool.run("policy_tool", repositories=2, stored_s=1.0)
    one.run("policy_repository", roles=["sensor"])
    two.run("policy_repository", roles=["relay"])
    bus.pass_s(1)
    for name, roles in (("a", "sensor"), ("b", "relay"), ("c", "all"), ("d", "relay && sensor")):
        publish(tool, f"policy {name} roles {roles} then {{ set {name} = 1 }}")
    held = []
    for node in (one, two):
        repository = node.hosted.application("policy_repository")
        assert isinstance(repository, Repository)
        held.append("".join(policy.id for policy in repository.catalog.active_policies()))
    assert held == ["acd", "bcd"]


def test_clashes_that_two_tools_published_at_once_are_found_by_the_repository() -> None:
    bus, tool, store, _ = network("sensor")
    other = bus.node()
    other.run("policy_tool")
    bus.pass_s(1)
    for node, text in ((tool, SLOW), (other, FAST)):
        # Neither has the other's to compare with.
        record = PolicyRecord(parse_policy(text))
        node.publish(record_attributes(record), encode_record(record), 1e9, None)
    bus.pass_s(1)
    for node in (tool, other):
        machine = node.hosted.application("policy_tool")
        assert isinstance(machine, ManagementTool)
        [report] = [report for report in machine.reports if report.what == "clash"]
        assert "fast (version 1) and slow (version 1) both apply to a node that is sensor" in report.told
    assert [fact.reason for fact in store.facts if fact.kind == "policy_clash"] == ["fast and slow"]


def test_of_two_tools_that_chose_the_same_version_one_wins_everywhere() -> None:
    bus, tool, _, node = network("sensor")
    other = bus.node("sensor")
    other.run("policy_decision")
    for place, value in ((tool, 1), (other, 2)):
        record = PolicyRecord(parse_policy(f"policy p roles sensor then {{ set x = {value} }}"))
        place.publish(record_attributes(record), encode_record(record), 1e9, None)
    bus.pass_s(1)
    assert node.acted[-1] == other.acted[-1] == ("set", "x", 2)


def test_a_repository_may_be_there_and_not_be_used() -> None:
    bus, tool, store, _ = network("sensor")
    told = store.command("policy_repository", "deactivate")
    assert told == {"active": False, "policies": []}
    assert not store.advertisements
    publish(tool, SLOW, anyway=True)
    store.crash()
    store.start()
    bus.pass_s(1)
    assert not store.advertisements, "an order outlives a crash"
    assert store.command("policy_repository", "activate") == {"active": True, "policies": []}
    assert store.advertisements


def test_decision_points_keep_asking_while_no_repository_answers() -> None:
    bus = Bus()
    tool, store, node = bus.node(), bus.node(), bus.node("sensor")
    tool.run("policy_tool")
    store.run("policy_repository")
    bus.pass_s(1)
    publish(tool, SLOW)
    store.crash()
    machine = node.run("policy_decision")
    bus.pass_s(60)
    assert isinstance(machine, DecisionPoint)
    assert (machine.retrieved, node.acted) == (False, [])
    store.start()
    bus.pass_s(120)
    assert (machine.retrieved, len(node.acted)) == (True, 2)


@pytest.mark.parametrize(
    ("attributes", "payload"),
    [
        ({"policy.id": "p", "policy.role.sensor": True}, b"no json"),
        ({"policy.id": "p", "policy.role.sensor": True}, b"[" * 10_000),
        ({"policy.id": "p", "policy.role.sensor": True}, encode_record(PolicyRecord(parse_policy(SLOW)))),
        (
            {"policy.id": "slow", "policy.role.sensor": True},
            encode_record(PolicyRecord(parse_policy(SLOW))).replace(b'"sensor"', b'"x y"'),
        ),
    ],
)
def test_what_only_says_to_be_a_policy_is_dropped_by_name(attributes: dict[str, object], payload: bytes) -> None:
    bus, tool, store, node = network("sensor")
    tool.publish(attributes, payload, 1e9, None)  # type: ignore[arg-type]
    bus.pass_s(1)
    assert "malformed_policy" in store.reasons()
    assert "malformed_policy" in node.reasons()
    assert node.acted == []
    told = tool.command("policy_tool", "list")
    assert told == {"complete": True, "policies": []}


def test_a_full_repository_says_so_and_not_that_it_has_stored() -> None:
    bus = Bus()
    tool, store = bus.node(), bus.node()
    tool.run("policy_tool", stored_s=1.0)
    store.run("policy_repository", most_policies=1)
    bus.pass_s(1)
    publish(tool, SLOW)
    told = publish(tool, "policy other roles x then { run x }")
    assert told["published"] == [{"id": "other", "version": 1, "stored_by": []}]
    assert set(store.reasons()) == {"repository_full"}


def test_forged_and_old_orders_and_bad_enrollments_are_dropped_by_name() -> None:
    bus = Bus()
    manager, lean, stranger = bus.node(), bus.node("sensor"), bus.node()
    manager.run("policy_decision", manager=True)
    lean.run("policy_enforcement", manager=manager.id)
    bus.pass_s(1)
    orders = msgspec.json.encode(EnforcementOrders((), -5))
    stranger.publish({ENFORCE: lean.id}, orders, 10.0, None)
    manager.publish({ENFORCE: lean.id}, orders, 10.0, None)
    manager.publish({ENFORCE: lean.id}, b"?", 10.0, None)
    stranger.publish({ENROLL: manager.id}, b"?", 10.0, None)
    bus.pass_s(1)
    assert lean.reasons() == ["not_my_manager", "old_orders", "malformed_orders"]
    assert manager.reasons() == ["malformed_enrollment"]


def test_roles_too_many_to_ask_for_are_a_named_drop() -> None:
    bus = Bus()
    manager, stranger = bus.node(), bus.node()
    manager.run("policy_decision", manager=True)
    bus.pass_s(1)
    for number in range(30):
        peer = bus.node()
        peer.run("policy_enforcement", manager=manager.id, roles=[f"r{number}-{each}" for each in range(90)])
    bus.pass_s(1)
    assert "too_many_roles" in manager.reasons()
    assert len(manager.subscriptions) <= 70
    assert stranger.facts == []


def test_a_record_must_say_what_its_attributes_say() -> None:
    record = PolicyRecord(parse_policy(SLOW), ("relay",))
    event = Event(EventId(1, 1), record_attributes(record), encode_record(record))
    assert read_record(event) == record
    assert read_policy(event).rank == (1, EventId(1, 1))
    forged = Event(EventId(1, 1), {**record_attributes(record), "policy.version": 9}, encode_record(record))
    with pytest.raises(MalformedError):
        read_record(forged)


def test_an_enrollment_travels_as_json() -> None:
    told = Enrollment(("sensor",), {"battery": 0.5}, "abc", 3)
    assert msgspec.json.decode(msgspec.json.encode(told), type=Enrollment) == told
