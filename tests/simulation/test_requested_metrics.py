"""Metrics that a scenario asks for: facts, source messages in whatever form, load."""

import pytest

from carrycast.core.model import Event, EventId
from carrycast.core.protocol import Fact
from carrycast.errors import UserError
from carrycast.sim.engine.observers.requested import RequestedMetrics
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.measures import RequestedMetric
from carrycast.trace import Level
from tests.simulation.worlds import line

FIRST, SECOND, MADE, MADE_AGAIN = EventId(0, 0), EventId(0, 1), EventId(1, 0), EventId(2, 0)


def event(id: EventId, *derived_from: EventId) -> Event:
    return Event(id=id, attributes={"topic": 1}, derived_from=derived_from)


def requested(*asked: RequestedMetric) -> RequestedMetrics:
    found = RequestedMetrics(list(asked), nodes=4, from_s=0.0, to_s=100.0)
    found.on_event(1.0, event(FIRST))
    found.on_event(2.0, event(SECOND))
    found.on_event(2.5, event(MADE, FIRST, SECOND))
    found.on_event(2.6, event(MADE_AGAIN, MADE))
    return found


def test_what_processors_made_counts_for_all_the_source_messages_behind_it_once() -> None:
    found = requested(RequestedMetric(name="got", counts="sources", nodes=[3]))
    found.on_deliver(3.0, 3, FIRST)
    found.on_deliver(4.0, 3, MADE_AGAIN)
    found.on_deliver(4.0, 2, SECOND)
    assert found.result() == {"got": 2}


def test_only_what_came_in_time_counts_within_a_time() -> None:
    found = requested(RequestedMetric(name="soon", counts="sources", nodes=[3], within_s=1.0))
    found.on_deliver(3.0, 3, MADE)
    assert found.result() == {"soon": 1}, "the second came a second after its publication, the first two"


def test_several_nodes_are_averaged() -> None:
    found = requested(RequestedMetric(name="got", counts="sources", nodes=[2, 3]))
    found.on_deliver(3.0, 3, MADE)
    found.on_deliver(3.0, 2, FIRST)
    assert found.result() == {"got": 1.5}


def test_a_message_has_reached_somebody_once_it_came_to_any_node_but_its_own() -> None:
    found = requested(RequestedMetric(name="reached", counts="reached"))
    found.on_deliver(3.0, 0, FIRST)
    assert found.result() == {"reached": 0}, "node 0 has published it"
    found.on_deliver(3.0, 3, FIRST)
    found.on_deliver(3.0, 2, FIRST)
    assert found.result() == {"reached": 1}
    found.on_deliver(4.0, 2, MADE_AGAIN)
    assert found.result() == {"reached": 2}, "what processors made of both"


def test_source_messages_outside_the_measured_window_do_not_count() -> None:
    asked = [
        RequestedMetric(name="got", counts="sources", nodes=[3]),
        RequestedMetric(name="reached", counts="reached"),
    ]
    found = RequestedMetrics(asked, nodes=4, from_s=1.5, to_s=100.0)
    found.on_event(1.0, event(FIRST))
    found.on_deliver(2.0, 3, FIRST)
    assert found.result() == {"got": 0, "reached": 0}


def test_facts_are_counted_by_kind_and_by_the_events_they_are_about() -> None:
    found = requested(
        RequestedMetric(name="all", counts="facts", fact="announce"),
        RequestedMetric(name="different", counts="facts", fact="announce", distinct=True),
        RequestedMetric(name="missed", counts="missed", fact="announce", nodes=[3]),
        RequestedMetric(name="none", counts="facts", fact="path_broken"),
    )
    for about in (FIRST, FIRST, SECOND, None):
        found.on_note(1.0, 0, Fact("announce", about))
    found.on_note(1.0, 0, Fact("store", FIRST))
    found.on_deliver(3.0, 3, SECOND)
    assert found.result() == {"all": 4, "different": 2, "missed": 1, "none": 0}


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


def test_forwards_are_messages_with_a_counted_event_in_the_measured_window() -> None:
    """Two nodes flood an event every 2 s, so each event is sent twice."""
    publish = [{"nodes": [0], "interval_s": 2.0, "to_s": 10.0, "attributes": {"topic": 1}}]
    tables: dict[str, object] = {
        "nodes": 2,
        "protocol": {"name": "flooding"},
        "publish": publish,
        "subscribe": [{"nodes": [1], "filter": "true"}],
        "duration_s": 20.0,
    }
    for from_s, to_s, forwards in ((0.0, 20.0, 12), (3.0, 7.0, 4)):
        more = [{"name": "sent", "counts": "forwards"}]
        found = run(line(**tables, measure={"from_s": from_s, "to_s": to_s, "more": more}), 1)
        assert found.metrics["sent"] == found.metrics["forwards"] == forwards, "two nodes send each event once"


def test_events_published_outside_the_window_have_no_forwards_in_it() -> None:
    publish = [{"nodes": [0], "interval_s": 2.0, "to_s": 10.0, "attributes": {"topic": 1}}]
    more = [{"name": "sent", "counts": "forwards"}]
    # The radio takes a second: the event of 4 s is sent again at 5 s, and the window ends between the two.
    tables: dict[str, object] = {
        "protocol": {"name": "flooding"},
        "radio": {"model": "disk", "range_m": 120.0, "delay_s": 1.0},
    }
    found = run(line(nodes=2, publish=publish, measure={"from_s": 3.0, "to_s": 4.5, "more": more}, **tables), 1)
    assert found.metrics["forwards"] == 2
    assert found.metrics["sent"] == 1


def asked_bytes(**more: dict[str, object]) -> list[dict[str, object]]:
    return [{"name": name, "counts": "bytes", **keys} for name, keys in more.items()]


def test_bytes_are_counted_by_layer_and_class_per_node_and_second() -> None:
    """Four nodes in a line with host beacons, on a lossy radio; two of them exchange events."""
    more = asked_bytes(
        all={"per": "run", "repetitions": True},
        data={"per": "run", "repetitions": True, "traffic": ["data"]},
        beacons={"per": "run", "repetitions": True, "layers": ["discovery"]},
        rest={"per": "run", "repetitions": True, "traffic": ["data", "control"]},
        once={"per": "run"},
        node={"per": "node"},
        rate={},
        routing={"layers": ["routing"]},
        both={"layers": ["routing", "dissemination"], "per": "run", "repetitions": True},
        greetings={"messages": ["Beacon"], "per": "run"},
        unheard_of={"messages": ["Nobody"], "per": "run"},
    )
    scenario = line(
        protocol={"name": "epidemic"},
        nodes=4,
        radio={"model": "disk", "range_m": 120.0, "loss": 0.3},
        discovery={"mode": "beacon"},
        subscribe=[{"nodes": [3], "filter": "true"}],
        publish=[{"nodes": [0], "interval_s": 1.0, "to_s": 4.0}],
        measure={"more": more},
    )
    found = run(scenario, 1, Level.FULL)
    metrics = {name: float(value or 0) for name, value in found.metrics.items()}
    assert metrics["all"] == metrics["total_bytes"] > metrics["once"] > 0
    total = metrics["data_bytes"] + metrics["control_bytes"] + metrics["discovery_bytes"]
    assert metrics["total_bytes"] == total
    assert (metrics["data"], metrics["beacons"]) == (metrics["data_bytes"], metrics["discovery_bytes"])
    assert metrics["rest"] == metrics["both"] == metrics["data_bytes"] + metrics["control_bytes"] > 0
    first = [row for row in found.trace.table().to_pylist() if row["kind"] == "send"]
    assert metrics["once"] == sum(row["size_bytes"] for row in first)
    assert metrics["node"] == metrics["once"] / 4
    assert metrics["rate"] == pytest.approx(metrics["once"] / 4 / 10.0)
    assert metrics["routing"] == 0
    assert metrics["greetings"] == sum(row["size_bytes"] for row in first if row["message"] == "Beacon") > 0
    assert metrics["unheard_of"] == 0


def test_bytes_belong_to_the_window_in_which_they_were_handed_over() -> None:
    beacons = asked_bytes(rate={"layers": ["discovery"], "per": "run"}, per_s={})
    for from_s, to_s, rounds in ((0.0, 10.0, 10), (5.0, 10.0, 5)):
        discovery = {"mode": "beacon", "period_s": 1.0, "jitter": 0.0}
        found = run(line(discovery=discovery, measure={"from_s": from_s, "to_s": to_s, "more": beacons}), 1)
        sizes = found.metrics["rate"]
        assert sizes is not None
        one = run(line(discovery=discovery), 1).metrics["discovery_bytes"]
        assert one is not None
        assert sizes == pytest.approx(one * rounds / 10, rel=0.15)
        assert found.metrics["per_s"] == pytest.approx(sizes / 3 / (to_s - from_s))
    nothing = run(line(measure={"from_s": 5.0, "to_s": 5.0, "more": beacons}), 1)
    assert (nothing.metrics["per_s"], nothing.metrics["rate"]) == (None, 0)


@pytest.mark.parametrize(
    ("entry", "meaning"),
    [
        (RequestedMetric(name="a", counts="bytes"), "bytes in the measured window per node and second"),
        (
            RequestedMetric(name="a", counts="bytes", layers=["routing"], traffic=["data", "control"], per="node"),
            "data and control bytes of routing in the measured window per node",
        ),
        (
            RequestedMetric(name="a", counts="bytes", traffic=["control"], messages=["GeoBeacon", "Hello"]),
            "control bytes in GeoBeacon and Hello in the measured window per node and second",
        ),
        (
            RequestedMetric(name="a", counts="bytes", per="run", repetitions=True),
            "bytes in the measured window, repetitions by the radio among them",
        ),
    ],
)
def test_what_bytes_mean_is_said(entry: RequestedMetric, meaning: str) -> None:
    assert entry.meaning() == meaning


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "delivered", "counts": "load"}, "there is a metric 'delivered' already"),
        ({"name": "a", "counts": "facts"}, r"measure.more\[0\].fact: is needed"),
        ({"name": "a", "counts": "sources"}, r"measure.more\[0\].nodes: is needed"),
        ({"name": "a", "counts": "sources", "nodes": [3]}, "a list of nodes from 0 to 2"),
        ({"name": "a", "counts": "load", "layers": ["routing"]}, ".layers: is for counts = 'bytes'; leave it out"),
        ({"name": "a", "counts": "load", "messages": ["GeoBeacon"]}, ".messages: is for counts = 'bytes' or 'routed'"),
        ({"name": "a", "counts": "reports", "per": "run"}, ".per: is for counts = 'bytes' or 'routed'; leave it out"),
        ({"name": "a", "counts": "facts", "fact": "x", "role": "r"}, ".role: is for counts = 'routed' or 'values' or"),
        ({"name": "a", "counts": "routed", "every_s": 2.0}, ".every_s: is for counts = 'probe'; leave it out"),
        ({"name": "a", "counts": "values"}, ".fact: is needed"),
        ({"name": "a", "counts": "values", "fact": "x", "role": "brokers"}, ".role: 'brokers' is none of no roles"),
        ({"name": "a", "counts": "probe"}, ".probe: is needed: load, energy,"),
        ({"name": "a", "counts": "probe", "probe": "lode"}, ".probe: 'lode' is none of load, energy,"),
        ({"name": "a", "counts": "probe", "probe": "energy"}, r".probe: without \[energy\] there is no energy to read"),
        (
            {"name": "a", "counts": "probe", "probe": "free_memory_bytes"},
            ".probe: without computer.memory_bytes there is no free_memory_bytes to read",
        ),
        ({"name": "series", "counts": "load"}, "there is a metric 'series' already"),
        ({"name": "a", "counts": "bytes", "layers": ["radio"]}, r"layers\[0\]: 'radio' is none of"),
        ({"name": "a", "counts": "bytes", "traffic": "data"}, "traffic: Expected `array`"),
        ({"name": "total_bytes", "counts": "bytes"}, "there is a metric 'total_bytes' already"),
    ],
)
def test_what_cannot_be_counted_is_refused_when_the_scenario_is_loaded(asked: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        line(measure={"more": [asked]})
