"""ASP on small networks in the simulator: the paper's temperatures, breaks, and the extensions."""

import math
from pathlib import Path

import pytest

from carrycast.core.model import Event
from carrycast.errors import UserError
from carrycast.protocols.asp.protocol import Asp
from carrycast.sim.testing import Net
from carrycast.trace import Kind

TEMPERATURES = """
def fahrenheit(event):
    return {"topic": "temperature", "unit": "F", "value": event.attributes["value"] * 1.8 + 32}


def kelvin(event):
    return {"topic": "temperature", "unit": "K", "value": event.attributes["value"] + 273.15}


def warmest(events):
    return {"topic": "warmest", "value": max(event.attributes["value"] for event in events)}


def broken(event):
    raise RuntimeError("out of order")


def nonsense(event):
    return 42


def count(event, state):
    number = int(state or b"0") + 1
    return {"topic": "count", "value": number}, str(number).encode()
"""

FILTERS = {"warmest": "topic = 'temperature'", "count": "unit = 'C'"}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "temperatures.py").write_text(TEMPERATURES)
    return tmp_path


def make_processors(
    base: Path, places: dict[str, list[int]], inputs: int = 1, cost_s: float = 0.001
) -> dict[str, object]:
    """Make the tables of a scenario: functions of the file, each at some nodes."""
    entries = [
        {
            "id": name,
            "function": f"temperatures.py:{name}",
            "nodes": nodes,
            "filter": FILTERS.get(name, "unit = 'C'"),
            "inputs": inputs,
            "cost_s": cost_s,
        }
        for name, nodes in places.items()
    ]
    return {"base": str(base), "processors": entries}


def publish(net: Net, node: int, value: float, after_s: float = 1.0) -> Event:
    event = net.publish(node, {"topic": "temperature", "unit": "C", "value": value})
    net.run(after_s)
    return event


def list_values(net: Net, node: int) -> list[float]:
    return [round(float(event.attributes["value"]), 6) for event in net.list_delivered(node)]


def count_drops(net: Net, reason: str) -> int:
    return len(net.rows(Kind.DROP, reason=reason))


def test_celsius_reaches_its_sinks_as_fahrenheit_and_kelvin(base: Path) -> None:
    """[001 §5.1] In a line: Fahrenheit's sink, its station, the source, Kelvin's station, Kelvin's sink."""
    net = Net.line(5, "asp", make_processors(base, {"fahrenheit": [1], "kelvin": [3]}))
    net.subscribe(0, "unit = 'F'")
    net.subscribe(4, "unit = 'K'")
    for value in (10.0, 20.0, 30.0):
        publish(net, 2, value)
    assert list_values(net, 0) == [50.0, 68.0, 86.0]
    assert list_values(net, 4) == [283.15, 293.15, 303.15]
    # One announcement of each unit; after it, two messages on each of two paths of two hops.
    assert len({row["event"] for row in net.rows(Kind.SEND, message="Announcement")}) == 3
    assert net.count_sent("Publication") == 8


def test_of_equal_processors_only_the_best_one_runs(base: Path) -> None:
    net = Net.line(5, "asp", make_processors(base, {"kelvin": [1, 2, 3]}))
    net.subscribe(4, "unit = 'K'")
    for value in (10.0, 20.0, 30.0):
        publish(net, 0, value)
    assert list_values(net, 4) == [283.15, 293.15, 303.15]
    made = [row for row in net.rows(Kind.PUBLISH) if row["node"] in (1, 2, 3)]
    assert len(made) == 3 + 2, "each processed the announcement; one of them the two publications"


def test_an_aggregate_continues_when_a_source_announces_again(base: Path) -> None:
    net = Net.line(3, "asp", make_processors(base, {"warmest": [1]}, inputs=2), validity_s=3.0)
    net.subscribe(2, "topic = 'warmest'")
    for value in range(6):
        publish(net, 0, 10.0 + value, 0.5)
        publish(net, 2, 12.0 + value / 2, 0.5)
    assert list_values(net, 2) == sorted(list_values(net, 2))
    assert len(list_values(net, 2)) >= 6
    assert list_values(net, 2)[-1] == 15.0


def test_calls_of_a_stateful_processor_run_one_at_a_time(base: Path) -> None:
    net = Net.line(3, "asp", make_processors(base, {"count": [1]}, cost_s=0.4))
    net.subscribe(2, "topic = 'count'")
    publish(net, 0, 1.0)
    for value in (2.0, 3.0, 4.0):
        publish(net, 0, value, 0.1)
    net.run(3)
    assert list_values(net, 2) == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["broken", "nonsense"])
def test_a_processor_that_fails_is_skipped_and_its_node_continues(base: Path, name: str) -> None:
    net = Net.line(4, "asp", make_processors(base, {name: [1], "kelvin": [1]}))
    net.subscribe(3, "unit = 'K'")
    net.subscribe(2, "unit = 'C'")
    publish(net, 0, 10.0)
    publish(net, 0, 20.0)
    assert list_values(net, 3) == [283.15, 293.15]
    assert list_values(net, 2) == [10.0, 20.0]
    assert count_drops(net, "processor_failed") == 1, "it is on no path, so it is not called again"


# [001 §4.3, §5.2] Broken links.


def test_a_break_costs_one_message_and_one_announcement() -> None:
    """[001 §5.2] A ring: the short path breaks, and the long one is announced."""
    net = Net.ring(5, "asp", {"discovery": {"mode": "oracle"}}, validity_s=100.0)
    net.subscribe(2, "unit = 'C'")
    publish(net, 0, 1.0)
    publish(net, 0, 2.0)
    assert net.count_sent("Announcement") > 0
    before = net.count_sent("Announcement")
    net.cut(1, 2)
    net.run(1)
    publish(net, 0, 3.0)
    publish(net, 0, 4.0)
    assert list_values(net, 2) == [1.0, 2.0, 3.0, 4.0], "noticed in time, so no message is lost"
    assert net.count_sent("Announcement") > before
    assert len(net.rows("announce")) == 2
    assert len(net.rows("path_broken")) == 1


def test_a_break_that_discovery_has_not_noticed_costs_one_message() -> None:
    net = Net.ring(5, "asp", {"discovery": {"mode": "beacon", "period_s": 1.0, "missed": 3}}, validity_s=100.0)
    net.subscribe(2, "unit = 'C'")
    net.run(3)
    publish(net, 0, 1.0)
    publish(net, 0, 2.0)
    net.cut(1, 2)
    for value in (3.0, 4.0, 5.0):
        publish(net, 0, value)
    assert list_values(net, 2) == [1.0, 2.0, 4.0, 5.0]


def test_retries_improve_delivery_over_lossy_links() -> None:
    """Three hops with beacons, and a radio without retransmissions: failures are reported to discovery first."""
    tables = {
        "radio": {"loss": 0.3, "retries": 0},
        "discovery": {"mode": "beacon", "period_s": 1.0, "missed": 3},
    }
    received = []
    for retries in (0, 1, 3):
        net = Net.line(4, "asp", tables, retries=retries)
        net.subscribe(3, "unit = 'C'")
        net.run(5)
        for value in range(40):
            publish(net, 0, float(value))
        received.append(len(list_values(net, 3)))
    assert received[0] < received[1] < received[2]


def test_a_sink_that_missed_the_announcement_needs_the_cache_or_the_next_one() -> None:
    """[001 §6.2] The shortcoming that the announcement cache removes."""
    got = {}
    for cache in (False, True):
        net = Net.line(3, "asp", validity_s=5.0, announcement_cache=cache)
        net.subscribe(2, "unit = 'C'")
        net.cut(1, 2)
        publish(net, 0, 0.0)
        net.heal(1, 2)
        net.run(0.5)
        for value in range(1, 7):
            publish(net, 0, float(value))
        got[cache] = list_values(net, 2)
    assert got[False] == [5.0, 6.0]
    assert got[True] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_a_late_sink_gets_publications_at_once_only_with_the_announcement_cache() -> None:
    got = {}
    for cache in (False, True):
        net = Net.line(3, "asp", validity_s=5.0, announcement_cache=cache)
        net.run(1)
        publish(net, 0, 0.0)
        net.subscribe(2, "unit = 'C'")
        net.run(0.5)
        for value in range(1, 7):
            publish(net, 0, float(value))
        got[cache] = list_values(net, 2)
    assert got[False] == [5.0, 6.0]
    assert got[True] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "without earlier messages"


def test_repair_finds_another_path_without_a_new_announcement() -> None:
    # Two paths of equal length from 0 to 3, so that the other announcer is always nearer than 3 itself.
    net = Net.graph([(0, 1), (1, 3), (0, 2), (2, 3)], "asp", validity_s=100.0, repair=True)
    net.subscribe(3, "unit = 'C'")
    publish(net, 0, 1.0)
    asp = net.protocol(3)
    assert isinstance(asp, Asp)
    [entry] = asp.broker.table.entries()
    assert entry.path.announcer is not None
    announced = net.count_sent("Announcement")
    net.cut(entry.path.announcer, 3)
    net.run(1)
    publish(net, 0, 2.0)
    assert list_values(net, 3) == [1.0, 2.0]
    assert net.count_sent("Announcement") == announced
    assert len(net.rows("path_repaired")) == 1


def test_a_patient_source_waits_for_a_repair_and_then_announces_again() -> None:
    """A break without another path, noticed at once: the source announces only after its patience."""
    net = Net.line(
        3, "asp", validity_s=100.0, publication_cache=8, announcement_cache=True, repair=True, patience_s=3.0
    )
    net.subscribe(2, "unit = 'C'")
    publish(net, 0, 1.0)
    net.cut(1, 2)
    net.run(0.5)
    publish(net, 0, 2.0)
    publish(net, 0, 3.0)
    assert len(net.rows("announce")) == 1
    net.run(1)
    assert len(net.rows("announce")) == 2
    net.heal(1, 2)
    net.run(1)
    assert sorted(list_values(net, 2)) == [1.0, 2.0, 3.0], "missed messages follow the new announcement, each once"


def test_with_the_publication_cache_an_unnoticed_break_loses_no_message() -> None:
    net = Net.ring(
        5,
        "asp",
        {"discovery": {"mode": "beacon", "period_s": 1.0, "missed": 3}},
        validity_s=100.0,
        publication_cache=8,
    )
    net.subscribe(2, "unit = 'C'")
    net.run(3)
    publish(net, 0, 1.0)
    publish(net, 0, 2.0)
    net.cut(1, 2)
    for value in (3.0, 4.0, 5.0):
        publish(net, 0, value)
    assert sorted(list_values(net, 2)) == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_missed_messages_are_processed_after_a_repair(base: Path) -> None:
    """A break between source and processor: results of missed messages are computed after the repair."""
    tables = {**make_processors(base, {"kelvin": [2]}), "discovery": {"mode": "beacon", "period_s": 1.0, "missed": 3}}
    net = Net.graph([(0, 1), (1, 2), (0, 3), (3, 2), (2, 4)], "asp", tables, validity_s=100.0, variant="repaired")
    net.subscribe(4, "unit = 'K'")
    net.run(3)
    publish(net, 0, 1.0)
    publish(net, 0, 2.0)
    net.cut(1, 2)
    net.cut(2, 3)
    for value in (3.0, 4.0):
        publish(net, 0, value)
    net.heal(1, 2)
    net.run(3)
    for value in (5.0, 6.0):
        publish(net, 0, value)
    assert sorted(list_values(net, 4)) == [274.15, 275.15, 276.15, 277.15, 278.15, 279.15]


@pytest.mark.parametrize("variant", [None, "repaired"])
def test_no_timer_outlives_a_stop(variant: str | None) -> None:
    net = Net.ring(6, "asp", {"radio": {"loss": 0.3, "retries": 0}}, variant=variant)
    net.subscribe(3, "unit = 'C'")
    for value in range(8):
        publish(net, 0, float(value), 0.3)
    net.stop()
    assert [net.list_timers(node) for node in range(6)] == [[]] * 6


# Large messages.


def publish_large(net: Net, node: int, size: int) -> Event:
    event = net.publish(node, {"topic": "photo"}, payload=bytes(range(256)) * (size // 256))
    net.run(5)
    return event


def test_a_large_message_is_described_and_sent_in_fragments_to_subscribers() -> None:
    net = Net.line(4, "asp", fragment_bytes=500, packet_bytes=700, validity_s=100.0)
    net.subscribe(2, "topic = 'photo'")
    first = publish_large(net, 0, 10_240)
    second = publish_large(net, 0, 10_240)
    assert net.list_delivered(2) == [first, second]
    assert net.count_sent("Fragment", node=2) == 0, "no broker beyond the sink has subscribed"
    assert max(int(str(row["size_bytes"])) for row in net.rows(Kind.SEND)) <= 700


def test_without_fragments_a_large_message_is_dropped_with_a_reason() -> None:
    net = Net.line(2, "asp", packet_bytes=700)
    net.subscribe(1, "topic = 'photo'")
    publish_large(net, 0, 10_240)
    assert net.list_delivered(1) == []
    assert count_drops(net, "announcement_too_large") == 1


def test_fragments_are_forwarded_before_the_message_is_complete() -> None:
    """Cut-through: at 1 Mb/s and 20 fragments a second hop adds one fragment's time, not the whole message's."""
    delays_s = {}
    for hops in (1, 3):
        net = Net.line(
            hops + 1, "asp", {"radio": {"rate_bps": 1e6}}, fragment_bytes=500, packet_bytes=700, validity_s=100.0
        )
        net.subscribe(hops, "topic = 'photo'")
        publish_large(net, 0, 10_240)
        event = publish_large(net, 0, 10_240)
        [row] = [row for row in net.rows(Kind.DELIVER) if row["event"] == str(event.id)]
        delays_s[hops] = float(str(row["time_s"])) - event.time_s
    assert delays_s[3] < 1.5 * delays_s[1]


def test_missing_fragments_are_requested_again() -> None:
    # The source's queue has room for five of some twenty fragments; the others are lost.
    net = Net.line(3, "asp", {"radio": {"rate_bps": 1e6, "queue": 5}}, fragment_bytes=500, packet_bytes=700)
    net.subscribe(2, "topic = 'photo'")
    first = publish_large(net, 0, 10_240)
    second = publish_large(net, 0, 10_240)
    assert net.list_delivered(2) == [first, second]
    assert net.count_sent("MissingFragments") > 0


def test_unavailable_fragments_are_given_up_with_a_reason() -> None:
    net = Net.line(2, "asp", {"radio": {"rate_bps": 1e6, "queue": 5}}, fragment_bytes=500)
    net.subscribe(1, "topic = 'photo'")
    net.publish(0, {"topic": "photo"}, payload=bytes(10_240))
    net.run(0.5)
    net.crash(0)
    net.run(30)
    assert net.list_delivered(1) == []
    assert count_drops(net, "fragments_missing") == 1
    assert "fragments" not in str(net.list_timers(1))


# Settings.


@pytest.mark.parametrize(
    ("key", "value"), [("validity_s", 0.0), ("validity_s", -1.0), ("interest", "some"), ("decimals", 99)]
)
def test_a_wrong_setting_is_one_clear_line(key: str, value: object) -> None:
    with pytest.raises(UserError, match=f"protocol.{key}"):
        Net(2, "asp", {key: value}, positions=[(0.0, 0.0), (1.0, 0.0)])


def test_encoding_and_decoding_messages_changes_no_fingerprint(base: Path) -> None:
    """Brokers behave the same whether messages are encoded and decoded or passed as objects."""
    ring = [(100 * (1 + math.cos(place)), 100 * (1 + math.sin(place))) for place in (math.pi / 3 * n for n in range(6))]
    fingerprints = []
    for recode in (False, True):
        net = Net(
            6, "asp", {"variant": "repaired"}, make_processors(base, {"kelvin": [1, 4]}), positions=ring, recode=recode
        )
        net.subscribe(3, "unit = 'K'")
        for value in range(6):
            publish(net, 0, float(value), 0.5)
            if value == 3:
                net.cut(1, 2)
        fingerprints.append(net.stop().fingerprint)
    assert fingerprints[0] == fingerprints[1]
