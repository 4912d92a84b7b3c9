"""Named faults, one by one: what is drawn, and what it does to a run."""

from itertools import pairwise
from math import dist, hypot, inf
from statistics import mean

import pytest

from carrycast.core.model import Event, EventId, Failure, NodeId, Position, Velocity
from carrycast.core.protocol import Interface, Link, Protocol, Token
from carrycast.core.wire import EventMessage, Message
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import RunResult, Simulation, run
from carrycast.sim.scenario.faults import (
    ClockSkew,
    Crash,
    CutOff,
    Fault,
    GpsError,
    LinkCut,
    Loss,
    PositionError,
    draw_faults,
)
from carrycast.sim.scenario.scenario import parse_scenario
from carrycast.sim.testing import Net
from tests.simulation.worlds import line, register


def test_a_crash_at_a_time_is_an_outage_of_every_chosen_node() -> None:
    plan = draw_faults([Crash(nodes=[1, 3], at_s=5.0, down_s=2.0)], {}, 5, 100.0, 1)
    assert plan.outages == [(1, 5.0, 7.0), (3, 5.0, 7.0)]


def test_crashes_every_so_often_do_not_overlap_and_come_about_as_often() -> None:
    plan = draw_faults([Crash(nodes="all", every_s=10.0, down_s=5.0)], {}, 20, 10_000.0, 1)
    assert 0.9 < len(plan.outages) / (20 * 10_000.0 / 15.0) < 1.1
    for node in range(20):
        mine = [outage for outage in plan.outages if outage.node == node]
        assert all(later.at_s >= earlier.until_s for earlier, later in pairwise(mine))


def test_of_two_crashes_at_once_the_earlier_stands() -> None:
    faults: list[Fault] = [Crash(nodes=[1], at_s=5.0, down_s=10.0), Crash(nodes=[1], at_s=7.0, down_s=1.0)]
    assert draw_faults(faults, {}, 5, 100.0, 1).outages == [(1, 5.0, 15.0)]


@pytest.mark.parametrize("kind", [Crash, CutOff])
def test_a_node_is_down_or_cut_off_while_any_of_several_overlapping_faults_says_so(kind: type[Crash | CutOff]) -> None:
    def fault(node: int, at_s: float, length_s: float) -> Fault:
        length = {"down_s": length_s} if kind is Crash else {"for_s": length_s}
        return kind(nodes=[node], at_s=at_s, **length)

    faults = [fault(1, 5, 10), fault(1, 7, 20), fault(2, 6, 1), fault(1, 27, 3), fault(1, 30.5, 1)]
    plan = draw_faults(faults, {}, 5, 100.0, 1)
    outages = plan.outages if kind is Crash else plan.absences
    # A fault that begins as another one ends is one of its own.
    assert outages == [(1, 5.0, 27.0), (2, 6.0, 7.0), (1, 27.0, 30.0), (1, 30.5, 31.5)]


def test_two_skewed_clocks_of_one_node_are_refused() -> None:
    with pytest.raises(UserError, match=r"faults\[1\]: node 0 has a skewed clock already"):
        draw_faults([ClockSkew(offset_s=1.0), ClockSkew(drift=0.1)], {}, 3, 100.0, 1)


def _cut_run(*faults: dict[str, object]) -> RunResult:
    """Two nodes side by side; one publishes throughout, and every event lives for a moment."""
    table = {
        "duration_s": 100.0,
        "nodes": 2,
        "mobility": {"model": "given", "positions": [[0, 0], [10, 0]]},
        "discovery": {"mode": "oracle"},
        "protocol": {"name": "flooding"},
        "subscribe": [{"nodes": [1]}],
        "publish": [{"nodes": [0], "interval_s": 1.0, "to_s": 89.0, "from_s": 1.5, "lease_s": 0.5}],
        "faults": list(faults),
    }
    return run(parse_scenario(table, "cuts"), 1)


@pytest.mark.parametrize("second", [(5.0, 5.0), (1.0, 89.0), (0.5, 2.0), (80.0, 100.0), (1.0, 1.0)])
def test_a_link_that_is_cut_twice_is_whole_again_when_both_cuts_have_ended(second: tuple[float, float]) -> None:
    first = {"kind": "link_cut", "between": [0, 1], "at_s": 1.0, "for_s": 89.0}
    assert _cut_run(first).metrics["delivered"] == 0
    other = {"kind": "link_cut", "between": [1, 0], "at_s": second[0], "for_s": second[1]}
    for faults in ((first, other), (other, first), (first, other, other)):
        assert _cut_run(*faults).metrics["delivered"] == 0


@pytest.mark.parametrize("for_s", [0.5, 5.0, 30.0])
def test_drawn_cuts_and_given_cuts_of_one_link_do_not_end_each_other(for_s: float) -> None:
    given = {"kind": "link_cut", "between": [0, 1], "at_s": 30.2, "for_s": 40.0}
    drawn = {"kind": "link_cuts", "every_s": 3.0, "for_s": for_s, "at_once": 2, "exponential": True}
    alone = _cut_run(drawn).metrics
    both = _cut_run(drawn, given, drawn).metrics
    # In 40 of the 89 seconds nothing gets through.
    assert (both["delivered"] or 0) <= 88 - 40
    assert (both["delivered"] or 0) < (alone["delivered"] or 0)


def test_two_losses_strike_independently() -> None:
    plan = draw_faults([Loss(probability=0.5), Loss(probability=0.5)], {}, 5, 100.0, 1)
    assert plan.loss == pytest.approx(0.75)
    assert plan.disturbs_frames


def test_clocks_are_off_by_no_more_than_is_said() -> None:
    plan = draw_faults([ClockSkew(offset_s=10.0, drift=0.01)], {}, 50, 100.0, 1)
    assert len(plan.clocks) == 50
    assert all(abs(clock.offset_s) <= 10 and abs(clock.drift) <= 0.01 for clock in plan.clocks.values())
    assert 0 < plan.worst_drift <= 0.01


def test_errors_of_positions_are_no_larger_than_is_said_and_wander_without_a_jump() -> None:
    plan = draw_faults([GpsError(error_m=30.0, change_s=10.0)], {}, 40, 100.0, 1)
    assert len(plan.positions) == 40
    drawn = []
    for [wandering] in plan.positions.values():
        errors = [wandering.at(tick / 10) for tick in range(1000)]
        assert all(hypot(*error) <= 30.0 for error in errors)
        # From one end of the disk to the other within a change, at most.
        assert all(dist(one, other) <= 60.0 * 0.1 / 10.0 + 1e-9 for one, other in pairwise(errors))
        drawn += [wandering.at(step * 10.0) for step in range(100)]
    # Everywhere in the disk alike: two thirds of the radius on average, and a quarter of the points within half of it.
    assert mean(hypot(*error) for error in drawn) == pytest.approx(20.0, rel=0.05)
    assert sum(hypot(*error) <= 15.0 for error in drawn) / len(drawn) == pytest.approx(0.25, abs=0.03)


def test_an_error_follows_from_the_time_alone_however_often_one_asks() -> None:
    def wandering() -> PositionError:
        return draw_faults([GpsError(error_m=30.0, change_s=2.0)], {}, 3, 100.0, 7).positions[1][0]

    often, once, backwards = wandering(), wandering(), wandering()
    steps = [often.at(tick / 4) for tick in range(100)]
    assert once.at(24.75) == steps[99]
    assert [backwards.at(tick / 4) for tick in reversed(range(100))] == steps[::-1]
    # Half way from one draw to the next.
    assert steps[4] == pytest.approx([(one + other) / 2 for one, other in zip(steps[0], steps[8], strict=True)])
    others = draw_faults([GpsError(error_m=30.0, change_s=2.0)], {}, 3, 100.0, 7).positions
    assert len({others[node][0].at(3.0) for node in range(3)}) == 3


def test_an_error_may_stay_as_it_is() -> None:
    plan = draw_faults([GpsError(nodes=[1], error_m=5.0, change_s=inf)], {}, 3, 100.0, 1)
    assert list(plan.positions) == [1]
    assert plan.positions[1][0].at(0.0) == plan.positions[1][0].at(1e6) != (0.0, 0.0)


def test_a_node_is_told_of_a_wrong_place_and_heard_at_the_right_one() -> None:
    wrong = [
        {"kind": "gps_error", "nodes": [1], "error_m": 1000.0},
        {"kind": "gps_error", "nodes": [1], "error_m": 1.0},
    ]
    net = Net.line(3, scenario={"faults": wrong})
    net.subscribe(2)
    net.run(90)
    net.publish(0)
    net.run(1)
    assert net.list_delivered(2), "over node 1, whose true place is between the two"
    host = net.protocol(1).host
    plan = draw_faults([GpsError(nodes=[1], error_m=1000.0), GpsError(nodes=[1], error_m=1.0)], {}, 3, 1e6, 1)
    one, other = (wandering.at(91.0) for wandering in plan.positions[1])
    assert host.position(91.0) == Position(100.0 + one[0] + other[0], one[1] + other[1])
    assert host.velocity(91.0) == Velocity(0.0, 0.0)
    assert host.global_view.position(1) == Position(100.0, 0.0)
    assert net.protocol(0).host.position(91.0) == Position(0.0, 0.0)


def test_a_fault_more_leaves_the_others_as_they_were() -> None:
    first = Crash(nodes="50%", every_s=10.0)
    alone = draw_faults([first], {}, 10, 100.0, 1)
    beside = draw_faults([first, LinkCut(between=(0, 1), at_s=1.0, for_s=1.0), Loss(probability=0.1)], {}, 10, 100.0, 1)
    assert beside.outages == alone.outages


def test_a_cut_link_carries_nothing_until_it_heals() -> None:
    faults = [{"kind": "link_cut", "between": [1, 0], "at_s": 2.0, "for_s": 3.0}]
    net = Net.line(2, scenario={"faults": faults})
    net.subscribe(1)
    net.run(3)
    net.publish(0)
    net.run(3)
    assert net.list_delivered(1) == []
    heard = net.publish(0)
    net.run(1)
    assert net.list_delivered(1) == [heard]
    assert [row["time_s"] for row in net.rows("link_down", node=0)] == [2.0]
    assert [row["time_s"] for row in net.rows("link_up", node=0)] == [0.0, 5.0]


def test_a_node_that_is_down_hears_nothing_and_publishes_nothing() -> None:
    net = Net.line(3)
    net.subscribe(2)
    net.run(1)
    net.crash(1)
    net.publish(0)
    net.run(1)
    assert net.list_delivered(2) == []
    with pytest.raises(ValueError, match="node 1 is down"):
        net.publish(1)
    net.restart(1)
    heard = net.publish(0)
    net.run(1)
    assert net.list_delivered(2) == [heard]


def test_the_workload_of_a_node_that_is_down_does_not_happen() -> None:
    simulation = Simulation(
        line(
            publish=[{"nodes": [0], "interval_s": 1.0}],
            faults=[{"kind": "crash", "nodes": [0], "at_s": 2.5, "down_s": 3.0}],
        ),
        1,
    )
    simulation.start()
    simulation.advance(10.0)
    assert simulation.finish().metrics["published"] == 11 - 3


class Counted(EventMessage, frozen=True, gc=False, tag=1):
    """An event for one neighbor."""


class Clerk(Protocol):
    """Sends what is published to its neighbor and writes down every outcome that it is told."""

    name = "clerk"
    messages = (Counted,)
    neighbor: NodeId = 1

    def on_start(self, now: float) -> None:
        self.outcomes: list[tuple[Token, Failure | None]] = []
        self.heard: list[EventId] = []
        self.told: list[object] = []
        """Outcomes and links that are gone, in order."""
        self.clock = now

    def on_link_up(self, now: float, link: Link) -> None:
        self.neighbor = link.neighbor

    def on_publish(self, now: float, event: Event) -> None:
        self.port.send(self.neighbor, Counted(event, 1, event.lease_s), token=event.id.sequence)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, Counted)
        self.heard.append(message.event.id)
        self.clock = now

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        self.outcomes.append((token, failure))
        self.told.append(token)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self.told.append(cause)


def clerks(monkeypatch: pytest.MonkeyPatch, **tables: object) -> tuple[Net, list[Clerk]]:
    register(monkeypatch, Clerk)
    net = Net.line(2, "clerk", tables)
    found = [net.protocol(node) for node in range(2)]
    assert isinstance(found[0], Clerk)
    assert isinstance(found[1], Clerk)
    return net, [found[0], found[1]]


def test_an_outcome_that_comes_after_a_crash_is_not_told_to_the_new_object(monkeypatch: pytest.MonkeyPatch) -> None:
    net, _ = clerks(monkeypatch, radio={"delay_s": 5.0})
    net.publish(0)
    net.crash(0)
    net.run(1)
    net.restart(0)
    net.run(10)
    reborn = net.protocol(0)
    assert isinstance(reborn, Clerk)
    assert reborn.outcomes == []


def test_each_token_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    net, (sender, receiver) = clerks(
        monkeypatch, radio={"rate_bps": 1e4, "queue": 2, "loss": 0.5, "retries": 1, "delay_s": 0.01}
    )
    for _ in range(200):
        net.publish(0, payload=bytes(50))
        net.publish(0)
        net.run(0.1)
    net.run(60)
    tokens = [token for token, _ in sender.outcomes]
    assert sorted(tokens) == list(range(400))
    failures = {failure for _, failure in sender.outcomes}
    assert failures == {None, Failure.UNREACHABLE, Failure.QUEUE_FULL}
    assert len(receiver.heard) == sum(failure is None for _, failure in sender.outcomes)


def test_a_neighbor_that_is_gone_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    net, (sender, _) = clerks(monkeypatch)
    net.cut(0, 1)
    net.publish(0)
    net.run(1)
    assert sender.outcomes == [(0, "unreachable")]
    assert net.count_dropped("out_of_reach") == 1


@pytest.mark.parametrize(
    ("radio", "told"),
    [
        ({"model": "csma", "retry_limit": 2}, [0, 1, 2, 3, "unreachable"]),
        # The failure is known a millisecond after the transmission, and then the next one is on the air.
        ({"rate_bps": 1e5}, [0, 2, 3, "unreachable", 1]),
    ],
)
def test_all_that_waits_for_a_neighbor_fails_with_the_first_and_then_the_link(
    radio: dict[str, object], told: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    net, (sender, _) = clerks(monkeypatch, radio=radio, discovery={"mode": "beacon"})
    net.run(5)
    net.crash(1)
    for _ in range(4):
        net.publish(0, payload=bytes(100))
    net.run(0.5)
    assert sender.told == told, "the link is down once, when all that failed with it has been told"
    assert {failure for _, failure in sender.outcomes} == {"unreachable"}
    on_air = len([row for row in net.rows("send") if int(str(row["size_bytes"])) > 100])
    assert on_air + net.count_dropped("unreachable") == 4


def test_a_skewed_clock_is_all_that_a_node_knows_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    net, (_, receiver) = clerks(monkeypatch, faults=[{"kind": "clock_skew", "nodes": [1], "offset_s": 100.0}])
    net.publish(0)
    net.run(1)
    assert receiver.clock != pytest.approx(0.001, abs=0.5)
    assert [row["time_s"] for row in net.rows("receive")] == [pytest.approx(0.001)]


def test_corrupt_frames_are_met_by_the_decoder_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    net, (_, receiver) = clerks(monkeypatch, faults=[{"kind": "corruption", "probability": 1.0}])
    for _ in range(50):
        net.publish(0, {"topic": 1}, b"payload")
    net.run(1)
    assert receiver.heard == []
    assert net.count_dropped("fault_corruption") == 50
