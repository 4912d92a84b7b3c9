"""Metrics that a scenario asks for: facts, source messages in whatever form, load."""

import pytest

from driftcast.errors import UserError
from driftcast.model import Event, EventId
from driftcast.protocol import Fact
from driftcast.simulation.run import run
from driftcast.simulation.tally import Asked, Tally
from tests.simulation.worlds import line

FIRST, SECOND, MADE, MADE_AGAIN = EventId(0, 0), EventId(0, 1), EventId(1, 0), EventId(2, 0)


def event(id: EventId, *derived_from: EventId) -> Event:
    return Event(id=id, attributes={"topic": 1}, derived_from=derived_from)


def tally(*asked: Asked) -> Tally:
    found = Tally(list(asked), nodes=4, from_s=0.0, to_s=100.0)
    found.on_event(1.0, event(FIRST))
    found.on_event(2.0, event(SECOND))
    found.on_event(2.5, event(MADE, FIRST, SECOND))
    found.on_event(2.6, event(MADE_AGAIN, MADE))
    return found


def test_what_processors_made_counts_for_all_the_source_messages_behind_it_once() -> None:
    found = tally(Asked(name="got", counts="sources", nodes=[3]))
    found.on_deliver(3.0, 3, FIRST)
    found.on_deliver(4.0, 3, MADE_AGAIN)
    found.on_deliver(4.0, 2, SECOND)
    assert found.metrics() == {"got": 2}


def test_only_what_came_in_time_counts_within_a_time() -> None:
    found = tally(Asked(name="soon", counts="sources", nodes=[3], within_s=1.0))
    found.on_deliver(3.0, 3, MADE)
    assert found.metrics() == {"soon": 1}, "the second came a second after its publication, the first two"


def test_several_nodes_are_averaged() -> None:
    found = tally(Asked(name="got", counts="sources", nodes=[2, 3]))
    found.on_deliver(3.0, 3, MADE)
    found.on_deliver(3.0, 2, FIRST)
    assert found.metrics() == {"got": 1.5}


def test_source_messages_outside_the_measured_window_do_not_count() -> None:
    found = Tally([Asked(name="got", counts="sources", nodes=[3])], nodes=4, from_s=1.5, to_s=100.0)
    found.on_event(1.0, event(FIRST))
    found.on_deliver(2.0, 3, FIRST)
    assert found.metrics() == {"got": 0}


def test_facts_are_counted_by_kind_and_by_the_events_they_are_about() -> None:
    found = tally(
        Asked(name="all", counts="facts", fact="announce"),
        Asked(name="different", counts="facts", fact="announce", distinct=True),
        Asked(name="missed", counts="missed", fact="announce", nodes=[3]),
        Asked(name="none", counts="facts", fact="path_broken"),
    )
    for about in (FIRST, FIRST, SECOND, None):
        found.on_fact(Fact("announce", about))
    found.on_fact(Fact("store", FIRST))
    found.on_deliver(3.0, 3, SECOND)
    assert found.metrics() == {"all": 4, "different": 2, "missed": 1, "none": 0}


def test_a_run_has_the_metrics_that_its_scenario_asks_for_and_the_usual_ones_stay_as_they_were() -> None:
    tables: dict[str, object] = {
        "subscribe": [{"nodes": [2], "filter": "true"}],
        "publish": [{"nodes": [0], "interval_s": 1.0, "to_s": 4.0, "attributes": {"topic": 1}}],
    }
    more = [
        {"name": "got", "counts": "sources", "nodes": [2]},
        {"name": "sent_bytes", "counts": "load"},
    ]
    plain = run(line(**tables), 1)
    asked = run(line(**tables, measure={"more": more}), 1)
    assert asked.metrics["got"] == 5
    data_bytes, control_bytes = plain.metrics["data_bytes"], plain.metrics["control_bytes"]
    assert data_bytes is not None
    assert control_bytes is not None
    assert asked.metrics["sent_bytes"] == pytest.approx((data_bytes + control_bytes) / 3)
    assert {name: asked.metrics[name] for name in plain.metrics} == plain.metrics
    assert asked.fingerprint == plain.fingerprint


def test_reports_count_once_for_each_node_that_heard_them_in_the_measured_window() -> None:
    """Three nodes in a line, each reporting once every 10 s: the middle one to two neighbors, the others to one."""
    more = [{"name": "heard", "counts": "reports"}]
    protocol: dict[str, object] = {"name": "adaptive", "update_min_s": 10.0}
    publish = [{"nodes": [0], "interval_s": 1.0, "to_s": 4.0, "attributes": {"topic": 1}}]
    for from_s, to_s, reports in ((0.0, 60.0, 6 * 4), (20.0, 40.0, 2 * 4)):
        measure = {"from_s": from_s, "to_s": to_s, "more": more}
        found = run(line(protocol=protocol, publish=publish, duration_s=60.0, measure=measure), 1)
        assert found.metrics["heard"] == reports
        assert found.metrics["control_transmissions"] == 6 * 3


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "delivered", "counts": "load"}, "there is a metric 'delivered' already"),
        ({"name": "a", "counts": "facts"}, r"measure.more\[0\].fact: is needed"),
        ({"name": "a", "counts": "sources"}, r"measure.more\[0\].nodes: is needed"),
        ({"name": "a", "counts": "sources", "nodes": [3]}, "a list of nodes from 0 to 2"),
    ],
)
def test_what_cannot_be_counted_is_refused_when_the_scenario_is_loaded(asked: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        line(measure={"more": [asked]})
