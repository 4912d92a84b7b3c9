"""Metrics of runs small enough to be counted by hand."""

import msgspec
import pytest

from carrycast.core.model import Event, EventId
from carrycast.core.wire import HEADER_BYTES
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.measures import METRIC_MEANINGS
from carrycast.trace.folds.fold import quantile
from tests.simulation.worlds import line

ONE_EVENT = {"nodes": [0], "interval_s": 100.0, "from_s": 1.0, "payload_bytes": 100, "lease_s": 60.0}


def test_one_flooded_event_on_a_line_of_three() -> None:
    done = run(line(subscribe=[{"nodes": [0, 1, 2]}], publish=[ONE_EVENT]), 1)
    metrics = done.metrics
    assert metrics["published"] == 1
    assert metrics["eligible"] == 2, "the source's own subscription does not count"
    assert metrics["delivered"] == 2
    assert metrics["delivery_ratio"] == 1.0
    assert metrics["delay_mean_s"] == pytest.approx(0.0015)
    assert metrics["delay_p50_s"] == pytest.approx(0.0015)
    assert metrics["delay_p95_s"] == pytest.approx(0.00195)
    assert metrics["hops_mean"] == 1.5
    assert metrics["transmissions"] == metrics["forwards"] == 3
    assert metrics["receptions"] == 4, "1 hears 0, 0 and 2 hear 1, 1 hears 2"
    assert metrics["duplicates"] == 2, "0 hears its own event from 1, and 1 hears it again from 2"
    assert metrics["control_bytes"] == metrics["discovery_bytes"] == 0
    assert metrics["buffer_peak"] == 0
    event = Event(EventId(0, 0), {}, bytes(100), 1.0, 60.0)
    frame_bytes = HEADER_BYTES + len(msgspec.msgpack.encode((1, event, 1, 60.0)))
    assert metrics["data_bytes"] == 3 * frame_bytes


def test_what_does_not_exist_is_none_and_never_0() -> None:
    metrics = run(line(), 1).metrics
    nothing = [name for name, value in metrics.items() if value is None]
    assert nothing == ["delivery_ratio", "delay_mean_s", "delay_p50_s", "delay_p95_s", "hops_mean"]
    unheard = run(line(subscribe=[{"nodes": [2]}], publish=[ONE_EVENT], radio={"model": "disk", "range_m": 1.0}), 1)
    assert unheard.metrics["delivery_ratio"] == 0.0
    assert unheard.metrics["delay_mean_s"] is None


def test_only_events_of_the_window_count() -> None:
    publish = [{"nodes": [0], "interval_s": 1.0, "to_s": 9.0}]
    done = run(line(subscribe=[{"nodes": [1]}], publish=publish, measure={"from_s": 2.0, "to_s": 4.0}), 1)
    assert (done.metrics["published"], done.metrics["eligible"], done.metrics["delivered"]) == (3, 3, 3)
    assert done.metrics["forwards"] == 9


def test_a_subscriber_who_comes_later_is_not_eligible() -> None:
    done = run(line(subscribe=[{"nodes": [1, 2], "at_s": 5.0}], publish=[ONE_EVENT]), 1)
    assert done.metrics["eligible"] == 0


def test_two_subscriptions_of_one_node_are_one_pair() -> None:
    subscribe = [{"nodes": [1]}, {"nodes": [1], "filter": "topic is null"}]
    done = run(line(subscribe=subscribe, publish=[ONE_EVENT]), 1)
    assert (done.metrics["eligible"], done.metrics["delivered"]) == (1, 1)


def test_an_epidemic_on_a_line_of_two_talks_about_what_it_sends() -> None:
    done = run(line(nodes=2, protocol={"name": "epidemic"}, subscribe=[{"nodes": [1]}], publish=[ONE_EVENT]), 1)
    metrics = done.metrics
    assert metrics["transmissions"] == 3, "a summary, an ask, a transfer"
    assert metrics["control_transmissions"] == 2
    assert metrics["forwards"] == 1
    assert metrics["delay_mean_s"] == pytest.approx(0.003)
    assert metrics["duplicates"] == 0
    assert metrics["buffer_peak"] == 1
    assert 0 < int(metrics["control_bytes"] or 0) < int(metrics["data_bytes"] or 0)


def test_beacons_are_counted_apart() -> None:
    done = run(line(discovery={"mode": "beacon"}), 1)
    assert int(done.metrics["discovery_bytes"] or 0) > 0
    assert done.metrics["transmissions"] == done.metrics["receptions"] == 0


def test_a_reception_that_a_fault_took_away_is_none_and_one_that_it_doubled_is_two() -> None:
    lost = run(line(publish=[ONE_EVENT], faults=[{"kind": "loss", "probability": 1.0}]), 1)
    assert (lost.metrics["transmissions"], lost.metrics["receptions"]) == (1, 0)
    doubled = run(line(publish=[ONE_EVENT], faults=[{"kind": "duplication", "probability": 1.0}]), 1)
    assert doubled.metrics["transmissions"] == 3
    assert doubled.metrics["receptions"] == 8
    assert doubled.metrics["duplicates"] == 6


def test_every_metric_has_a_meaning() -> None:
    assert list(run(line(), 1).metrics) == list(METRIC_MEANINGS)


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [([], 0.5, None), ([3.0], 0.95, 3.0), ([1.0, 2.0], 0.5, 1.5), ([0.0, 1.0, 2.0, 3.0], 0.95, 2.85)],
)
def test_quantiles_are_interpolated(values: list[float], q: float, expected: float | None) -> None:
    assert quantile(values, q) == (None if expected is None else pytest.approx(expected))
