"""Managed flooding: the firmware's formulas worked by hand, its handlers one by one, and stories of small networks."""

from random import Random

import pytest

from carrycast.core.model import Event, EventId, Position, Subscription, SubscriptionId
from carrycast.core.protocol import Capability, Fact, Link, Protocol, RecordingPort
from carrycast.core.protocol.effects import Broadcast, CancelTimer, Deliver, Note, SetTimer
from carrycast.protocols.managed_flooding.protocol import MeshPacket
from carrycast.protocols.managed_flooding.rules import (
    choose_window,
    draw_publish_slots,
    draw_relay_slots,
    estimate_snr_db,
    resend_slots,
)
from carrycast.sim.testing import Net, isolate_protocol
from carrycast.sim.testing.isolation import IsolatedHost

EVENT = Event(EventId(7, 0), {"topic": 1}, lease_s=60.0)
WANTED = Subscription(SubscriptionId(0, 0), "topic = 1")


class StandingHost(IsolatedHost):
    """A host at the origin."""

    def __init__(self, *roles: str) -> None:
        super().__init__()
        self.offers |= {Capability.POSITION}
        self.roles = roles

    def position(self, now: float) -> Position:
        return Position(0.0, 0.0)


# CWsize = (snr + 20) * (8 - 3) / 30 + 3 in whole numbers, as Arduino's map() computes it.
@pytest.mark.parametrize(
    ("snr_db", "window"), [(-20.0, 3), (-15.0, 3), (-14.0, 4), (-5.0, 5), (0.0, 6), (9.9, 7), (10.0, 8), (40.0, 8)]
)
def test_the_contention_window_is_that_of_the_firmware(snr_db: float, window: int) -> None:
    assert choose_window(snr_db) == window


def test_the_waits_are_those_of_the_firmware() -> None:
    rng = Random(1)
    weak = {draw_relay_slots(-20.0, False, rng) for _ in range(2000)}
    assert weak == set(range(16, 24)), "2 CWmax + random(0, 2^3)"
    strong = {draw_relay_slots(10.0, False, rng) for _ in range(20_000)}
    assert strong == set(range(16, 272)), "2 CWmax + random(0, 2^8)"
    assert {draw_relay_slots(10.0, True, rng) for _ in range(2000)} == set(range(16)), "routers: random(0, 2 CW)"
    assert {draw_publish_slots(rng) for _ in range(2000)} == set(range(8)), "random(0, 2^CWmin)"
    # 2^3 + 2 * 8 + 2^((8 + 3) / 2) + 4500 / 28
    assert resend_slots() == 8 + 16 + 32 + 160


def test_a_signal_is_weaker_the_farther_its_sender() -> None:
    assert estimate_snr_db(1000.0, 1000.0) == -20.0
    # -20 + 30 log10(2) at half of the range, -20 + 30 at a tenth.
    assert estimate_snr_db(500.0, 1000.0) == pytest.approx(-10.97, abs=0.01)
    assert estimate_snr_db(100.0, 1000.0) == pytest.approx(10.0)
    assert estimate_snr_db(0.0, 1000.0) == 10.0
    assert estimate_snr_db(0.0, 0.0) == 0.0


def test_a_published_event_waits_some_slots_and_is_broadcast() -> None:
    flooding, port = isolate_protocol("managed_flooding", node=7)
    flooding.on_subscribe(0.0, WANTED)
    flooding.on_link_up(0.0, Link(1, "radio", 0.1))
    flooding.on_publish(1.0, EVENT)
    delivered, timer = port.take()
    assert delivered == Deliver(WANTED.id, EVENT, 0)
    assert isinstance(timer, SetTimer)
    slots = timer.delay_s / (0.0075 * 0.1)
    assert slots == pytest.approx(round(slots))
    assert 0 <= round(slots) < 8
    flooding.on_timer(1.0 + timer.delay_s, timer.key)
    sent, resend = port.take()
    assert sent == Broadcast(MeshPacket(EVENT, 1, 60.0 - timer.delay_s))
    assert isinstance(resend, SetTimer)
    assert resend.delay_s == pytest.approx(2 * 0.1 + 216 * 0.00075)


def publish(flooding: Protocol, port: RecordingPort) -> SetTimer:
    """Publish `EVENT` and send it; the timer of the next attempt."""
    flooding.on_publish(1.0, EVENT)
    [timer] = port.take()
    assert isinstance(timer, SetTimer)
    flooding.on_timer(1.0 + timer.delay_s, timer.key)
    resend = port.take()[-1]
    assert isinstance(resend, SetTimer)
    return resend


def test_a_publisher_sends_three_times_unless_it_hears_a_rebroadcast() -> None:
    flooding, port = isolate_protocol("managed_flooding", node=7)
    now, resend = 2.0, publish(flooding, port)
    for _ in range(2):
        now += resend.delay_s
        flooding.on_timer(now, resend.key)
        sent = [one for one in port.take() if isinstance(one, Broadcast)]
        assert len(sent) == 1
    assert port.take() == [], "three times in all"
    flooding, port = isolate_protocol("managed_flooding", node=7)
    resend = publish(flooding, port)
    flooding.on_message(2.0, 3, MeshPacket(EVENT, 2, 58.0), "radio")
    assert port.take() == [CancelTimer(resend.key)], "an implicit acknowledgement"


def test_a_packet_whose_lease_ends_before_the_next_attempt_is_dropped() -> None:
    flooding, port = isolate_protocol("managed_flooding", node=7)
    resend = publish(flooding, port)
    flooding.on_timer(100.0, resend.key)
    assert port.take() == [Note(Fact("drop", EVENT.id, reason="lease_over"))]


@pytest.mark.parametrize("role", ["", "router"])
def test_a_node_that_hears_a_rebroadcast_cancels_its_own_unless_it_is_a_router(role: str) -> None:
    flooding, port = isolate_protocol("managed_flooding", host=StandingHost(role))
    flooding.on_message(1.0, 3, MeshPacket(EVENT, 1, 50.0, (1000, 0)), "radio")
    [timer] = port.take()
    assert isinstance(timer, SetTimer)
    flooding.on_message(1.0, 4, MeshPacket(EVENT, 2, 50.0, (900, 0)), "radio")
    assert port.take() == ([] if role else [CancelTimer(timer.key)])


def test_the_farthest_receiver_waits_for_the_shortest_time() -> None:
    flooding, port = isolate_protocol("managed_flooding", host=StandingHost())
    flooding.on_link_up(0.0, Link(1, "radio", 1.0))
    waits: dict[int, list[float]] = {}
    for number in range(300):
        distance_m = (1000, 100)[number % 2]
        event = Event(EventId(7, number), {"topic": 1}, lease_s=60.0)
        flooding.on_message(1.0, 3, MeshPacket(event, 1, 50.0, (distance_m, 0)), "radio")
        [timer] = port.take()
        assert isinstance(timer, SetTimer)
        waits.setdefault(distance_m, []).append(timer.delay_s / 0.0075)
    assert max(waits[1000]) < 24.0
    assert max(waits[100]) > 200.0


def test_a_large_event_has_longer_slots() -> None:
    flooding, port = isolate_protocol("managed_flooding")
    flooding.on_link_up(0.0, Link(1, "radio", 1.0))
    large = Event(EventId(7, 0), {}, bytes(60_000), lease_s=60.0)
    flooding.on_message(1.0, 3, MeshPacket(large, 1, 50.0), "radio")
    [timer] = port.take()
    assert isinstance(timer, SetTimer)
    assert timer.delay_s >= 16 * 0.0075 * 120


def test_an_event_at_the_hop_limit_is_delivered_and_not_rebroadcast() -> None:
    flooding, port = isolate_protocol("managed_flooding", max_hops=3)
    flooding.on_subscribe(0.0, WANTED)
    flooding.on_message(1.0, 3, MeshPacket(EVENT, 3, 50.0), "radio")
    assert port.take() == [Deliver(WANTED.id, EVENT, 3), Note(Fact("drop", EVENT.id, reason="too_many_hops"))]


def test_a_stop_leaves_no_timer() -> None:
    flooding, port = isolate_protocol("managed_flooding", node=7)
    resend = publish(flooding, port)
    flooding.on_message(2.0, 3, MeshPacket(Event(EventId(8, 0), {}), 1, 50.0), "radio")
    [relay] = port.take()
    assert isinstance(relay, SetTimer)
    flooding.on_stop(3.0)
    assert set(port.take()) == {CancelTimer(resend.key), CancelTimer(relay.key)}


def test_with_hops_left_every_node_of_a_line_gets_the_event() -> None:
    net = Net.line(4, "managed_flooding")
    for node in range(4):
        net.subscribe(node)
    event = net.publish(0)
    net.run(20)
    assert all(net.list_delivered(node) == [event] for node in range(4))


def test_in_a_full_mesh_few_nodes_rebroadcast() -> None:
    """All hear all: the first rebroadcast makes the others cancel theirs."""
    net = Net.graph([(a, b) for a in range(10) for b in range(a)], "managed_flooding", slot_share=1.0)
    for node in range(10):
        net.subscribe(node)
    event = net.publish(0, lease_s=3600.0)
    net.run(600)
    assert all(net.list_delivered(node) == [event] for node in range(10))
    assert net.count_sent("MeshPacket") <= 3
