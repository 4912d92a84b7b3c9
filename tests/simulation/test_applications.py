"""Applications in the simulator: they react, keep what they stored over a crash, and retune their node."""

import math
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from carrycast.core.model import Event
from carrycast.core.protocol.application import Application, Key
from carrycast.core.streams import stream
from carrycast.errors import UserError
from carrycast.services.policy.repository import Repository
from carrycast.sim.engine.simulation import Simulation, run
from carrycast.sim.scenario.scenario import load_scenario, parse_scenario
from carrycast.trace import Level

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
    simulation = Simulation(parse_scenario(tables(**more), "test"), 1, Level.FULL)
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
    repository = applications.hosted.application("policy_repository")
    assert isinstance(repository, Repository)
    assert [policy.id for policy in repository.catalog.active_policies()] == ["beacons"]
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
    scenario = load_scenario(tmp_path / "scenario.toml")
    assert run(scenario, 3).fingerprint == run(scenario, 3, recode=True).fingerprint
    assert run(scenario, 3).fingerprint != run(parse_scenario({**tables()}, "other"), 3).fingerprint


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
        parse_scenario(tables(**more), "test")
    assert says in str(found.value)


def test_two_of_the_same_at_one_node_are_refused() -> None:
    twice = [{"name": "policy_tool", "nodes": [0]}, {"name": "policy_tool", "nodes": "all"}]
    with pytest.raises(UserError, match="node 0 runs policy_tool already"):
        Simulation(parse_scenario(tables(applications=twice), "test"), 1)


class Alarm(Application):
    """Sets timers when it starts, and notes by its node's clock when each runs out."""

    name = "alarm"
    DELAYS_S: ClassVar[dict[Key, float]] = {"soon": 10.0, "past": -5.0, "never": math.inf, "again": 3.0, "off": 4.0}

    def on_start(self, now: float) -> None:
        self.rang: dict[Key, list[float]] = {}
        for key, delay_s in self.DELAYS_S.items():
            self.port.set_timer(key, delay_s)
        # A timer that is set again runs out once; one that is set to never, or cancelled, not at all.
        self.port.set_timer("again", 6.0)
        self.port.set_timer("forgotten", 2.0)
        self.port.set_timer("forgotten", math.inf)
        self.port.cancel_timer("off")

    def on_timer(self, now: float, key: Key) -> None:
        self.rang.setdefault(key, []).append(now)


@pytest.mark.parametrize("drift", [0.0, 0.4])
def test_timers_run_by_the_clock_of_their_node(monkeypatch: pytest.MonkeyPatch, drift: float) -> None:
    monkeypatch.setattr("carrycast.sim.scenario.applications.find_application", {"alarm": Alarm}.__getitem__)
    skew = {"kind": "clock_skew", "nodes": [2], "drift": drift}
    alarm: dict[str, object] = {"applications": [{"name": "alarm", "nodes": [2]}], "command": [], "faults": [skew]}
    simulation = simulated(0.0, **alarm)
    node = simulation.network.nodes[2]
    assert node.clock is not None
    assert (abs(node.clock.drift) > 0.01) is (drift > 0)
    applications = node.applications
    assert applications is not None
    started = applications.hosted.application("alarm")
    assert isinstance(started, Alarm)
    simulation.advance(59.0)
    # By its own clock each takes as long as it was set to; by the world's, so much less as the clock is fast.
    assert sorted(started.rang) == ["again", "past", "soon"]
    for key, after_s in (("past", 0.0), ("again", 6.0), ("soon", 10.0)):
        (now,) = started.rang[key]
        assert now == pytest.approx(after_s, abs=1e-4), key
    late = Alarm.DELAYS_S["soon"] / (1 + node.clock.drift)
    again = simulated(late - 0.001, **alarm).network.nodes[2].applications
    assert again is not None
    still = again.hosted.application("alarm")
    assert isinstance(still, Alarm)
    assert "soon" not in still.rang


def test_a_node_that_crashed_hears_of_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.sim.scenario.applications.find_application", {"alarm": Alarm}.__getitem__)
    crash = {"kind": "crash", "nodes": [2], "at_s": 5.0, "down_s": 20.0}
    more: dict[str, object] = {"applications": [{"name": "alarm", "nodes": [2]}], "command": [], "faults": [crash]}
    simulation = simulated(1.0, **more)
    applications = simulation.network.nodes[2].applications
    assert applications is not None
    before = applications.hosted.application("alarm")
    assert isinstance(before, Alarm)
    simulation.advance(40.0)
    assert sorted(before.rang) == ["past"]
    applications = simulation.network.nodes[2].applications
    assert applications is not None
    after = applications.hosted.application("alarm")
    assert isinstance(after, Alarm)
    assert after is not before
    assert {key: times for key, times in after.rang.items() if key != "past"} == {
        "again": [pytest.approx(31.0)],
        "soon": [pytest.approx(35.0)],
    }


class Diary(Application):
    """Wants everything, keeps everything, and does as it is told."""

    name = "diary"

    def on_start(self, now: float) -> None:
        self.heard: list[str] = []
        self.stopped = False
        self.drawn = self.rng.random()
        self.port.subscribe("all", "true")
        self.port.advertise("kept", "true", stored=True)

    def on_stop(self, now: float) -> None:
        self.stopped = True

    def on_event(self, now: float, key: Key, event: Event, hops: int) -> None:
        self.heard.append(str(event.attributes["text"]))

    def on_command(self, now: float, command: int, verb: str, body: bytes) -> None:
        if verb == "publish":
            self.port.publish({"text": body.decode()}, b"", 60.0, "rank = 'major'")
        elif verb == "end":
            self.port.unsubscribe("all")
            self.port.unadvertise("kept")
        self.port.reply(command, b'{"verb":"%s"}' % verb.encode())


@pytest.fixture
def diaries(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Nodes 1 and 2 keep diaries; node 2 crashes for a while."""
    monkeypatch.setattr("carrycast.sim.scenario.applications.find_application", {"diary": Diary}.__getitem__)
    crash = {"kind": "crash", "nodes": [2], "at_s": 20.0, "down_s": 10.0}
    return {"applications": [{"name": "diary", "nodes": [1, 2]}], "command": [], "faults": [crash]}


def diary(simulation: Simulation, node: int) -> Diary:
    applications = simulation.network.nodes[node].applications
    assert applications is not None
    found = applications.hosted.application("diary")
    assert isinstance(found, Diary)
    return found


def test_what_an_application_wanted_ends_with_its_node(diaries: dict[str, object]) -> None:
    simulation = simulated(19.0, **diaries)
    node = simulation.network.nodes[2]
    first = diary(simulation, 2)
    before = set(node.subscriptions)
    assert len(before) == len(node.advertisements) == 1
    simulation.advance(25.0)
    assert not node.subscriptions
    assert not node.advertisements
    simulation.advance(40.0)
    second = diary(simulation, 2)
    # A new object with subscriptions of its own, whose numbers nobody else has.
    assert second is not first
    assert len(node.subscriptions) == len(node.advertisements) == 1
    assert before.isdisjoint(node.subscriptions)
    assert all(id.sequence > 1 << 40 for id in {*before, *node.subscriptions})
    assert not first.stopped
    simulation.advance(60.0)
    simulation.finish()
    assert second.stopped
    assert not first.stopped


def test_an_application_ends_what_it_wanted_itself(diaries: dict[str, object]) -> None:
    simulation = simulated(5.0, **diaries)
    node = simulation.network.nodes[1]
    node.command("diary", "end", b"")
    simulation.advance(6.0)
    assert not node.subscriptions
    assert not node.advertisements


def test_commands_have_numbers_and_replies_are_kept_by_them(diaries: dict[str, object]) -> None:
    simulation = simulated(5.0, **diaries)
    node = simulation.network.nodes[1]
    numbers = [node.command("diary", verb, b"") for verb in ("first", "second")]
    nobody = node.command("nobody", "third", b"")
    simulation.advance(6.0)
    assert node.applications is not None
    assert None not in numbers
    assert len({*numbers, nobody}) == 3
    replies = node.applications.replies
    assert [replies[number] for number in numbers if number is not None] == [b'{"verb":"first"}', b'{"verb":"second"}']
    assert nobody not in replies


def test_what_an_application_publishes_has_its_access_policy(diaries: dict[str, object]) -> None:
    simulation = simulated(5.0, **diaries)
    simulation.network.nodes[1].command("diary", "publish", b"secret")
    simulation.advance(10.0)
    (row,) = simulation.trace.events().to_pylist()
    assert "major" in row["access"]
    assert diary(simulation, 2).heard == []


def test_an_application_draws_from_a_stream_of_its_own_after_each_start(diaries: dict[str, object]) -> None:
    simulation = simulated(5.0, **diaries)
    drawn = [diary(simulation, node).drawn for node in (1, 2)]
    assert drawn == [stream(1, "application diary", node).random() for node in (1, 2)]
    simulation.advance(40.0)
    assert diary(simulation, 2).drawn == stream(1, "application diary boot 1", 2).random()
    assert diary(simulation, 1).drawn == drawn[0]
