"""Samples over time: readings of nodes, distances, and what a protocol offers of itself."""

from collections.abc import Mapping
from typing import ClassVar

import pytest

from carrycast.core.model import Event
from carrycast.core.protocol import Probe, Protocol, Snapshot
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import RunResult, run
from carrycast.trace import Level
from tests.simulation.worlds import line, register


def published(snapshot: Snapshot) -> float | None:
    """How many events the nodes that are up have published; nothing before the first second."""
    protocols = [protocol for protocol in snapshot.protocols.values() if isinstance(protocol, Counting)]
    return None if snapshot.time_s < 1 else float(sum(protocol.published for protocol in protocols))


def unbounded(snapshot: Snapshot) -> float | None:
    return float("inf") if snapshot.roles["ends"] == [0, 2] and snapshot.view.version else 0.0


class Counting(Protocol):
    name = "counting"
    probes: ClassVar[Mapping[str, Probe]] = {"published": published, "unbounded": unbounded}
    published = 0

    def on_publish(self, now: float, event: Event) -> None:
        self.published += 1


PUBLISH = [{"nodes": [0], "interval_s": 1.0, "from_s": 0.5}]
CRASH = [{"kind": "crash", "nodes": [2], "at_s": 4.0, "down_s": 4.0}]


def outcome(*more: Mapping[str, object], **tables: object) -> RunResult:
    asked = [{"name": f"m{place}", "counts": "probe", "every_s": 2.0, **entry} for place, entry in enumerate(more)]
    measure = {"more": asked, **tables.pop("measure", {})}  # type: ignore[dict-item]
    roles = {"ends": [0, 2]}
    return run(line(publish=PUBLISH, roles=roles, measure=measure, duration_s=9.0, **tables), 1)


def test_distances_are_sampled_over_time() -> None:
    done = outcome({"probe": "hops"}, {"probe": "hops", "role": "ends", "of": "max"}, faults=CRASH)
    # 0 - 1 - 2, where 2 is down from 4 to 8.
    line_mean = (4 * 1 + 2 * 2) / 6
    assert done.series["m0"] == [(0.0, line_mean), (2.0, line_mean), (4.0, 1.0), (6.0, 1.0), (8.0, line_mean)]
    assert done.series["m1"] == [(0.0, 2.0), (2.0, 2.0), (4.0, None), (6.0, None), (8.0, 2.0)]
    assert done.metrics["m0"] == pytest.approx((3 * line_mean + 2) / 5)
    assert done.metrics["m1"] == 2.0


def test_readings_are_put_together_across_nodes_and_over_time() -> None:
    done = outcome(
        {"probe": "neighbors"},
        {"probe": "neighbors", "role": "ends", "across": "sum", "of": "min"},
        {"probe": "energy", "across": "min", "of": "min"},
        {"probe": "free_memory_bytes", "of": "max"},
        {"probe": "load", "across": "max"},
        energy={"battery_j": 100.0, "idle_w": 1.0},
        computer={"memory_bytes": 500},
    )
    assert done.metrics["m0"] == pytest.approx(4 / 3)
    assert done.metrics["m1"] == 2.0
    assert done.metrics["m2"] == pytest.approx(0.92, abs=0.001)
    assert done.metrics["m3"] == 500.0
    assert done.metrics["m4"] == 0.0


def test_a_protocol_offers_probes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Counting)
    done = outcome({"probe": "published"}, {"probe": "unbounded"}, protocol={"name": "counting"})
    assert done.series["m0"] == [(0.0, None), (2.0, 2.0), (4.0, 4.0), (6.0, 6.0), (8.0, 8.0)]
    assert done.metrics["m0"] == 5.0
    assert {value for _, value in done.series["m1"]} == {None}, "what is no number is none"
    assert done.metrics["m1"] is None
    assert done.summary()["series"] == done.series


def test_only_samples_of_the_measured_window_make_the_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Counting)
    window = {"from_s": 3.0, "to_s": 6.0}
    done = outcome({"probe": "published"}, protocol={"name": "counting"}, measure=window)
    assert done.metrics["m0"] == 5.0
    assert len(done.series["m0"]) == 5, "all of them are kept"


def test_a_run_with_probes_is_the_same_run_and_keeps_no_trace_for_them() -> None:
    plain, probed = outcome(), outcome({"probe": "hops", "every_s": 0.001})
    assert plain.fingerprint == probed.fingerprint
    assert "series" not in plain.summary()
    assert len(probed.series["m0"]) == 9001
    assert probed.trace.level is Level.METRICS


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (
            {"probe": "paths"},
            r"measure.more\[0\].probe: 'paths' is none of load, energy, .*, hops, published, unbounded",
        ),
        ({"probe": "published", "role": "ends"}, r"role and across are for load, .*; published knows its own nodes"),
        ({"probe": "load", "every_s": 1e-5}, "every_s"),
        ({"probe": "load", "every_s": 0.001, "name": "published"}, "there is a metric 'published' already"),
    ],
)
def test_what_cannot_be_sampled_is_refused(
    monkeypatch: pytest.MonkeyPatch, entry: dict[str, object], told: str
) -> None:
    register(monkeypatch, Counting)
    with pytest.raises(UserError, match=told):
        outcome(entry, protocol={"name": "counting"})


def test_too_many_samples_are_refused() -> None:
    with pytest.raises(UserError, match=r"every_s: that makes more than 100,000 samples; take fewer"):
        line(duration_s=1000.0, measure={"more": [{"name": "a", "counts": "probe", "probe": "load", "every_s": 0.001}]})
