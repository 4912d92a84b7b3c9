"""Drawing the workload: the three rhythms of publications, drawn values, roles."""

from collections import Counter
from itertools import pairwise
from random import Random

import msgspec
import pytest

from carrycast.core.model import Scalar
from carrycast.errors import UserError
from carrycast.sim.scenario.draws import Draw, Drawable, Selection, check_selection, select_nodes
from carrycast.sim.scenario.workload import PublishEntry, SubscribeEntry, Workload, draw_workload


def draw_entries(
    subscribes: list[SubscribeEntry] | None = None,
    publishes: list[PublishEntry] | None = None,
    roles: dict[str, list[int]] | None = None,
    seed: int = 1,
    nodes: int = 10,
    duration_s: float = 100.0,
) -> Workload:
    return draw_workload(subscribes or [], publishes or [], roles or {}, nodes, duration_s, seed)


def test_every_s_is_a_period_for_each_node_from_a_phase_of_its_own() -> None:
    made = draw_entries(publishes=[PublishEntry(nodes=[2, 5], every_s=10.0, from_s=20.0, to_s=60.0)]).publishes
    for node in (2, 5):
        times_s = [publish.time_s for publish in made if publish.event.id.source == node]
        assert 20.0 <= times_s[0] < 30.0
        assert len(times_s) == 4
        assert times_s[-1] <= 60.0
        assert all(abs(later - earlier - 10.0) < 1e-9 for earlier, later in pairwise(times_s))
    phases = {publish.event.id.source: publish.time_s for publish in reversed(made)}
    assert phases[2] != phases[5]


def test_count_is_that_many_events_in_all_within_the_window() -> None:
    made = draw_entries(publishes=[PublishEntry(nodes=[1, 2], count=50, from_s=10.0, to_s=20.0)]).publishes
    assert len(made) == 50
    assert all(10.0 <= publish.time_s <= 20.0 for publish in made)
    assert {publish.event.id.source for publish in made} == {1, 2}
    assert [publish.time_s for publish in made] == sorted(publish.time_s for publish in made)


def test_interval_s_is_one_event_after_another() -> None:
    made = draw_entries(publishes=[PublishEntry(interval_s=0.1, from_s=1.0, to_s=2.0)]).publishes
    assert [round(publish.time_s, 6) for publish in made] == [round(1 + step / 10, 6) for step in range(11)]


def test_nothing_is_published_after_the_end_of_the_run() -> None:
    entries = [PublishEntry(every_s=7.0), PublishEntry(count=20), PublishEntry(interval_s=3.0)]
    assert all(publish.time_s <= 50.0 for publish in draw_entries(publishes=entries, duration_s=50.0).publishes)
    assert draw_entries(publishes=[PublishEntry(count=5, from_s=60.0)], duration_s=50.0).publishes == []


def test_the_events_of_a_node_are_numbered_in_the_order_of_time_across_entries() -> None:
    made = draw_entries(publishes=[PublishEntry(nodes=[3], count=10), PublishEntry(nodes=[3], every_s=9.0)]).publishes
    assert [publish.event.id.sequence for publish in made] == list(range(len(made)))


def test_an_entry_more_leaves_the_others_as_they_were() -> None:
    first = PublishEntry(nodes=[0, 1], count=10, attributes={"topic": {"integers": [1, 1000]}}, payload_bytes=4)
    alone = draw_entries(publishes=[first]).publishes
    beside = draw_entries(publishes=[first, PublishEntry(nodes=[2], count=10)]).publishes
    kept = [publish for publish in beside if publish.event.id.source != 2]
    assert kept == alone


def test_events_carry_what_the_entry_says() -> None:
    entry = PublishEntry(
        nodes=[0], count=1, attributes={"kind": "bus"}, payload_bytes=32, lease_s=5.0, access="rank > 1"
    )
    event = draw_entries(publishes=[entry]).publishes[0].event
    assert event.attributes == {"kind": "bus"}
    assert len(event.payload) == 32
    assert event.lease_s == 5.0
    assert event.access is not None
    assert event.access.condition == "rank > 1"


@pytest.mark.parametrize("payload_bytes", [1, 7, 3000])
def test_longer_payloads_leave_all_else_as_it_was(payload_bytes: int) -> None:
    """Runs of a sweep over the size of events are comparable: their events differ only in the payload."""
    drawn: dict[str, Drawable] = {"topic": {"integers": [1, 1000]}, "heat": {"uniform": [0.0, 1.0]}}
    entries = [PublishEntry(count=20, attributes=drawn), PublishEntry(every_s=9.0, attributes=drawn)]
    longer = [msgspec.structs.replace(entry, payload_bytes=payload_bytes) for entry in entries]
    without, with_payload = draw_entries(publishes=entries).publishes, draw_entries(publishes=longer).publishes
    assert [len(publish.event.payload) for publish in with_payload] == [payload_bytes] * len(without)
    emptied = [publish._replace(event=msgspec.structs.replace(publish.event, payload=b"")) for publish in with_payload]
    assert emptied == without


def test_filters_of_one_node_differ_and_values_are_quoted() -> None:
    entry = SubscribeEntry(nodes=[4], filter="name = {n}", draw={"n": {"choice": ["O'Hara", "x"]}}, each=2)
    made = draw_entries([entry]).subscribes
    assert sorted(subscribe.subscription.filter for subscribe in made) == ["name = 'O''Hara'", "name = 'x'"]
    assert [subscribe.subscription.id.sequence for subscribe in made] == [0, 1]


def test_more_filters_than_the_draws_allow_are_as_many_as_there_are() -> None:
    entry = SubscribeEntry(nodes=[4], filter="n = {n}", draw={"n": {"integers": [1, 2]}}, each=5)
    assert len(draw_entries([entry]).subscribes) == 2


def test_roles_name_the_same_nodes_everywhere() -> None:
    made = draw_entries([SubscribeEntry(nodes="cars")], [PublishEntry(nodes="cars", count=30)], {"cars": [1, 4]})
    assert {subscribe.subscription.id.subscriber for subscribe in made.subscribes} == {1, 4}
    assert {publish.event.id.source for publish in made.publishes} == {1, 4}


@pytest.mark.parametrize(
    ("written", "low", "high"), [({"integers": [1, 3]}, 1, 3), ({"uniform": [0.5, 0.75]}, 0.5, 0.75)]
)
def test_drawn_numbers_lie_within_their_bounds(written: Drawable, low: float, high: float) -> None:
    rng = Random(1)
    values = [Draw(written, "here").value(rng) for _ in range(200)]
    assert all(not isinstance(value, str) and low <= value <= high for value in values)
    assert len(set(values)) == (3 if high == 3 else 200)


def test_a_choice_takes_each_value_about_as_often() -> None:
    rng = Random(1)
    draw = Draw({"choice": ["a", True, 3]}, "here")
    counts: Counter[Scalar] = Counter(draw.value(rng) for _ in range(3000))
    assert set(counts) == {"a", True, 3}
    assert all(850 < count < 1150 for count in counts.values())


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"normal": [0, 1]}, "here: a drawn value is a table with exactly one of integers, uniform, choice"),
        ({}, "here: a drawn value is a table with exactly one of integers, uniform, choice"),
        ({"integers": [3, 1]}, "here: integers = [low, high] with low <= high"),
        ({"uniform": [3.0, 1.0]}, "here: uniform = [low, high] with low <= high"),
        ({"choice": []}, "here: Expected `array` of length >= 1 - at `$.choice`"),
    ],
)
def test_a_draw_that_cannot_be_is_refused(written: Drawable, message: str) -> None:
    with pytest.raises(UserError) as caught:
        Draw(written, "here")
    assert str(caught.value) == message


@pytest.mark.parametrize(("selection", "count"), [("all", 20), ("50%", 10), (7, 7), ([3, 3, 1], 2), (0, 0)])
def test_a_selection_chooses_so_many_nodes_in_order(selection: Selection, count: int) -> None:
    chosen = select_nodes(selection, 20, Random(1))
    assert len(chosen) == count
    assert chosen == sorted(set(chosen))


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ([3, 20], "here: there is no node 20; nodes are 0 to 19"),
        (21, "here: a number of nodes from 0 to 20, not 21"),
        ("cars", "here: 'cars' is none of all, buses, nor a share such as '50%'"),
        ("150%", "here: '150%' is none of all, buses, nor a share such as '50%'"),
    ],
)
def test_a_selection_that_cannot_be_made_is_refused(selection: Selection, message: str) -> None:
    with pytest.raises(UserError) as caught:
        check_selection(selection, 20, {"buses": [1]}, "here")
    assert str(caught.value) == message


def test_the_same_seed_plays_the_same_workload() -> None:
    entries = [PublishEntry(count=20, attributes={"x": {"uniform": [0.0, 1.0]}}, payload_bytes=8)]
    assert msgspec.to_builtins(draw_entries(publishes=entries)) == msgspec.to_builtins(draw_entries(publishes=entries))
    assert draw_entries(publishes=entries) != draw_entries(publishes=entries, seed=2)
