"""Links, found by beacons or told by an oracle."""

import pytest

from carrycast.sim.testing import Net

BEACONS = {"discovery": {"mode": "beacon", "period_s": 1.0, "missed": 3.0, "jitter": 0.0}}


def test_an_oracle_tells_both_ends_at_once() -> None:
    net = Net.contacts([(0, 1, 5.0, 9.0)])
    net.run(20)
    for node, peer in ((0, 1), (1, 0)):
        assert [row["time_s"] for row in net.rows("link_up", node=node, peer=peer)] == [5.0]
        assert [row["time_s"] for row in net.rows("link_down", node=node, peer=peer)] == [9.0]


def test_with_beacons_a_link_is_found_at_the_first_one_heard() -> None:
    net = Net.contacts([(0, 1, 5.0, 20.0)], scenario=BEACONS)
    net.run(10)
    for node in (0, 1):
        (found,) = net.rows("link_up", node=node)
        assert 5.0 < float(str(found["time_s"])) <= 6.002


def test_with_beacons_a_link_is_lost_after_the_missed_periods_and_no_sooner() -> None:
    net = Net.contacts([(0, 1, 0.0, 10.5)], scenario=BEACONS)
    net.run(30)
    for node in (0, 1):
        last = max(float(str(row["time_s"])) for row in net.rows("receive", node=node, message="Beacon"))
        (lost,) = net.rows("link_down", node=node)
        assert float(str(lost["time_s"])) == pytest.approx(last + 3.0, abs=1e-5)


def test_a_pause_shorter_than_the_missed_periods_goes_unnoticed() -> None:
    net = Net.contacts([(0, 1, 0.0, 10.0), (0, 1, 11.0, 20.0)], scenario=BEACONS)
    net.run(19)
    assert net.rows("link_down") == []


@pytest.mark.parametrize("radio", [{"model": "disk"}, {"model": "disk", "rate_bps": 1e6}, {"model": "csma"}])
def test_a_neighbor_that_a_unicast_does_not_reach_is_lost_at_once_and_found_again(radio: dict[str, object]) -> None:
    scenario = {**BEACONS, "radio": {"range_m": 250.0, **radio}}
    net = Net.line(2, "semi_probabilistic", scenario=scenario, phi=0, tau=1.0)
    net.run(5)
    net.cut(0, 1)
    net.publish(0)
    net.run(1)
    (lost,) = net.rows("link_down", node=0)
    assert 5.0 < float(str(lost["time_s"])) < 5.2, "not after three silent periods"
    assert net.rows("link_down", node=1) == []
    net.heal(0, 1)
    net.run(2)
    assert len(net.rows("link_up", node=0)) == 2


def test_beacons_are_traffic_of_their_own() -> None:
    net = Net.line(2, scenario=BEACONS)
    net.publish(0)
    net.run(10)
    assert {row["class"] for row in net.rows("send", message="Beacon")} == {"discovery"}
    assert {row["layer"] for row in net.rows("send", message="Beacon")} == {"discovery"}
    assert net.count_sent("Beacon") in (19, 20, 21)
    metrics = net.stop().metrics
    sizes = [int(str(row["size_bytes"])) for row in net.rows("send", message="Beacon")]
    assert metrics["discovery_bytes"] == sum(sizes)
    assert metrics["transmissions"] == net.count_sent("FloodedEvent") == 2


def test_beacons_of_nodes_that_start_together_spread_out() -> None:
    net = Net.line(20, scenario={"discovery": {"mode": "beacon"}})
    net.run(1)
    assert len({row["time_s"] for row in net.rows("send", message="Beacon")}) > 15


def test_a_neighbor_that_crashes_falls_silent_and_is_found_again() -> None:
    net = Net.line(2, scenario=BEACONS)
    net.run(5)
    net.crash(1)
    net.run(10)
    assert len(net.rows("link_down", node=0)) == 1
    net.restart(1)
    net.run(5)
    assert len(net.rows("link_up", node=0)) == 2


def test_without_discovery_nobody_is_told_of_links() -> None:
    net = Net.line(3, scenario={"discovery": {"mode": "none"}})
    net.subscribe(2)
    event = net.publish(0)
    net.run(1)
    assert net.rows("link_up") == []
    assert net.list_delivered(2) == [event], "flooding needs to know of no link"
