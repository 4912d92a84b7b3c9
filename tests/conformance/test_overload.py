"""More events than the air can carry: a result like any other. What waits too long is dropped, never delivered late."""

import pytest

from carrycast.core.wire import LEASE_EXPIRED
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import Scenario, parse_scenario
from carrycast.sim.testing import example_tables
from carrycast.trace import Level
from tests.conformance.subjects import SUBJECTS, Subject, label

LEASE_S = 5.0
NODES = 5
TRANSIT_S = 0.002
"""What each hop may add to a lease."""

DISK = [{"model": "disk", "range_m": 120.0, "rate_bps": rate_bps} for rate_bps in (100e3, 60e3, 20e3)]
# All sense each other: what waits does so for its turn. With hidden senders unicasts are given up, and all that waits
# for the same neighbor with them, long before a lease is over.
CSMA = {"model": "csma", "preset": "802.11b", "range_m": 120.0, "cs_range_m": NODES * 100.0, "data_rate_bps": 1e6}
# The same load in large events and in such that fit a packet, which is all that some variants send.
SIZES = {3000: 0.2, 1000: 0.2 / 3}


def overload(
    subject: Subject, radio: dict[str, object], size_bytes: int, interval_s: float, lasting_s: float
) -> Scenario:
    """Five nodes in a line; the first has far more to say than the others can pass on."""
    name = str(subject["name"])
    publish = {
        "nodes": [0],
        "interval_s": interval_s,
        "from_s": 3.0,
        "to_s": 3.0 + lasting_s,
        "payload_bytes": size_bytes,
        "lease_s": LEASE_S,
        "attributes": {"topic": 1},
    }
    tables: dict[str, object] = {
        "name": "overload",
        "duration_s": lasting_s + 10.0,
        "nodes": NODES,
        # No larger than where nodes are: who looks for places in it finds somebody there.
        "area_m": [NODES * 100.0, 10.0],
        "mobility": {"model": "line", "spacing_m": 100.0},
        "discovery": {"mode": "oracle"},
        "radio": radio,
        "protocol": subject,
        "subscribe": [{"filter": "topic = 1"}],
        "publish": [publish],
    }
    return parse_scenario({**example_tables(name), **tables}, "overload")


def latest_s(scenario: Scenario) -> tuple[float, set[str]]:
    """How long after its publication the latest delivery came, and the reasons of all drops; the checkers look on."""
    done = run(scenario, 1, Level.FULL)
    rows = done.trace.table().to_pylist()
    published_s = {row["event"]: row["time_s"] for row in rows if row["kind"] == "publish"}
    ages_s = [
        row["time_s"] - published_s[row["event"]] for row in rows if row["kind"] == "deliver" and row["node"] != 0
    ]
    return max(ages_s, default=0.0), {row["reason"] for row in rows if row["kind"] == "drop"}


@pytest.mark.parametrize("radio", DISK, ids=lambda radio: f"{radio['rate_bps'] / 1e3:g} kb/s")
@pytest.mark.parametrize("subject", SUBJECTS, ids=label)
def test_nothing_is_delivered_after_its_lease_however_slow_the_air(subject: Subject, radio: dict[str, object]) -> None:
    found = [latest_s(overload(subject, radio, size, interval, 40.0)) for size, interval in SIZES.items()]
    assert max(latest for latest, _ in found) > 0, "a protocol that delivers nothing here is not examined at all"
    for latest, reasons in found:
        assert latest <= LEASE_S + NODES * TRANSIT_S
        # What a variant does not even try, such as large events, is no overload; for some, 100 kb/s is nearly enough.
        assert latest == 0 or radio in DISK[:1] or reasons & {LEASE_EXPIRED, "queue_full"}, "or there was no overload"


@pytest.mark.parametrize("subject", SUBJECTS, ids=label)
def test_nothing_is_delivered_after_its_lease_however_contended_the_air(subject: Subject) -> None:
    radio = {**CSMA, "queue": 1000}
    found = [latest_s(overload(subject, radio, size, interval / 16, 8.0)) for size, interval in SIZES.items()]
    assert max(latest for latest, _ in found) > 0, "a protocol that delivers nothing here is not examined at all"
    for latest, _ in found:
        assert latest <= LEASE_S + NODES * TRANSIT_S
    assert any(LEASE_EXPIRED in reasons for _, reasons in found), "or there was no overload"
