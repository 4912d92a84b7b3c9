"""003: topic holders and their routers."""

from random import Random

import pytest

from driftcast.model import (
    EventId,
    Failure,
    NodeId,
    Position,
    Subscription,
    SubscriptionId,
)
from driftcast.protocol import Fact, Place, RecordingPort, Router, Settings, Upward
from driftcast.protocol.effects import (
    Broadcast,
    CancelTimer,
    Deliver,
    Note,
    Route,
    Send,
    SetTimer,
)
from driftcast.wire import Parcel, Traffic

from . import routers, topic_holders
from .fake_host import FakeHost
from .rounds import Round
from .samples import event

PARCEL = Parcel(b"x", Traffic.DATA, EventId(0, 1))


class RecordingUpward(Upward):
    """What a router told the layer above."""

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []

    def packet(self, origin: NodeId, parcel: Parcel, hops: int) -> None:
        self.said.append(("packet", origin, parcel, hops))

    def unreachable(self, target: NodeId | Place, parcel: Parcel) -> None:
        self.said.append(("unreachable", target, parcel))


HERE = Position(10.0, 20.0)
HOLDERS = {"holder": tuple(range(60))}


@pytest.mark.parametrize("by_place", [False, True])
def test_a_holder_keeps_subscriptions_and_fans_events_out(by_place: bool) -> None:
    port = RecordingPort()
    settings = topic_holders.HolderSettings(by_place=by_place)
    node = topic_holders.TopicHolders(1, settings, port, FakeHost(HERE, nodes_by_role=HOLDERS), Random(0))
    holder = node.holder("jam")
    if by_place:
        assert isinstance(holder, Place)
        assert (holder.radius_m, holder.node) == (125.0, None)
    else:
        assert holder in HOLDERS["holder"]
    mine = Subscription(SubscriptionId(1, 1), "length > 2", attributes={"topic": "jam"})
    node.on_subscribe(0.0, mine)
    port.take()
    node.on_timer(0.5, "refresh")
    refresh = topic_holders.Refresh("jam", mine, HERE)
    assert port.take() == [Route(holder, refresh), SetTimer("refresh", 1.0)]

    # The same class at the holder.
    node.on_packet(1.0, 7, refresh, 3)
    assert port.take() == [Broadcast(refresh)]
    jam = event(8, topic="jam", length=3)
    node.on_packet(1.5, 8, topic_holders.ToHolder(jam, 0, 99.0, topic="jam"), 4)
    subscriber = Place(HERE, 0.0, 1) if by_place else 1
    assert port.take() == [Route(subscriber, topic_holders.ToSubscriber(jam, 4, 99.0, subscription=mine.id))]
    node.on_packet(1.6, 2, topic_holders.ToSubscriber(jam, 4, 99.0, subscription=mine.id), 2)
    assert port.take() == [Deliver(mine.id, jam, 6)]
    node.on_packet(4.5, 8, topic_holders.ToHolder(jam, 0, 99.0, topic="jam"), 4)
    assert port.take() == [], "a subscription that was not refreshed is forgotten"


def test_a_rendezvous_node_answers_a_publisher_with_its_list() -> None:
    port = RecordingPort()
    node = topic_holders.TopicHolders(1, topic_holders.HolderSettings(), port, FakeHost(), Random(0))
    mine = Subscription(SubscriptionId(4, 1), "", attributes={"topic": "jam"})
    node.on_message(1.0, 2, topic_holders.Refresh("jam", mine, Position(1.0, 2.0)), "radio")
    node.on_packet(2.0, 9, topic_holders.Lookup("jam", Position(0.0, 0.0)), 2)
    assert port.take() == [Route(9, topic_holders.Subscribers("jam", ((mine, Position(1.0, 2.0)),)))]


def test_in_rendezvous_mode_the_publisher_matches() -> None:
    port = RecordingPort()
    settings = topic_holders.HolderSettings(rendezvous=True)
    node = topic_holders.TopicHolders(9, settings, port, FakeHost(nodes_by_role=HOLDERS), Random(0))
    entries = [Subscription(SubscriptionId(n, 1), f"length > {n}", attributes={"topic": "jam"}) for n in (2, 4)]
    node.on_packet(1.0, 1, topic_holders.Subscribers("jam", tuple((entry, HERE) for entry in entries)), 2)
    jam = event(9, topic="jam", length=3)
    node.on_publish(2.0, jam)
    assert port.take() == [Route(2, topic_holders.ToSubscriber(jam, 0, 100.0, subscription=entries[0].id))]


def router_of(kind: type[Router], node: NodeId, host: FakeHost) -> tuple[Router, RecordingPort, RecordingUpward]:
    port, up = RecordingPort(), RecordingUpward()
    return kind(node, Settings(), port, host, Random(0), up), port, up


def test_a_route_is_searched_found_used_and_lost() -> None:
    source, port, up = router_of(routers.AodvSketch, 0, FakeHost())
    middle, middle_port, _ = router_of(routers.AodvSketch, 1, FakeHost())
    target, target_port, target_up = router_of(routers.AodvSketch, 2, FakeHost())
    source.on_route(0.0, 2, PARCEL)
    search, timer = port.take()
    assert search == Broadcast(routers.RouteRequest(0, 1, Round(1, 1), 2, 1, 5))
    assert timer == SetTimer(("searching", 2), routers.RING_S)
    middle.on_message(0.1, 0, routers.RouteRequest(0, 1, Round(1, 1), 2, 1, 5), "radio")
    [onward] = middle_port.take_messages()
    target.on_message(0.2, 1, onward, "radio")
    assert target_port.take() == [Send(1, routers.RouteReply(0, 2, 1, 1))]
    middle.on_message(0.3, 2, routers.RouteReply(0, 2, 1, 1), "radio")
    assert middle_port.take() == [Send(0, routers.RouteReply(0, 2, 1, 2))]
    source.on_message(0.4, 1, routers.RouteReply(0, 2, 1, 2), "radio")
    # The time of the search is on the parcel.
    packet = routers.Packet(PARCEL.aged(0.4), origin=0, target=2, hops=1)
    assert port.take() == [CancelTimer(("searching", 2)), Send(1, packet, token=1)]
    middle.on_message(0.5, 0, packet, "radio")
    [second] = middle_port.take_messages()
    target.on_message(0.6, 1, second, "radio")
    assert target_up.said == [("packet", 0, PARCEL.aged(0.4), 2)]
    source.on_sent(0.7, 1, Failure.UNREACHABLE)
    assert port.take() == [Broadcast(routers.RouteError((2,)))]
    assert up.said == [("unreachable", 2, PARCEL.aged(0.4).aged(0.7 - 0.4))]


def test_a_full_queue_loses_a_packet_but_no_route() -> None:
    source, port, up = router_of(routers.AodvSketch, 0, FakeHost())
    source.on_message(0.0, 1, routers.RouteReply(0, 2, 1, 1), "radio")
    source.on_route(0.1, 2, PARCEL)
    port.take()
    source.on_sent(0.2, 1, Failure.QUEUE_FULL)
    assert port.take() == []
    assert up.said == [("unreachable", 2, PARCEL.aged(0.2 - 0.1))]
    source.on_route(0.3, Place(Position(7.0, 7.0), node=2), PARCEL)
    assert port.take() == [Send(1, routers.Packet(PARCEL, origin=0, target=2, hops=1), token=2)]


def test_a_packet_to_a_place_is_taken_by_the_nearest_node_and_rerouted_after_a_failure() -> None:
    node, port, up = router_of(routers.GpsrSketch, 0, FakeHost(Position(0.0, 0.0)))
    node.on_message(0.0, 1, routers.Here(Position(50.0, 0.0)), "radio")
    node.on_message(0.0, 2, routers.Here(Position(40.0, 0.0)), "radio")
    place = Place(Position(100.0, 0.0))
    node.on_route(1.0, place, PARCEL)
    packet = routers.GeoPacket(PARCEL, origin=0, place=place, hops=1)
    assert port.take() == [Send(1, packet, token=1)]
    node.on_sent(1.1, 1, Failure.UNREACHABLE)
    assert port.take() == [Note(Fact("reroute", event=PARCEL.event, peer=1)), Send(2, packet, token=2)]
    node.on_sent(1.2, 2, Failure.UNREACHABLE)
    assert port.take() == [Note(Fact("reroute", event=PARCEL.event, peer=2))]
    assert up.said == [("packet", 0, PARCEL, 0)]


def geo_packet(place: Place) -> routers.GeoPacket:
    return routers.GeoPacket(PARCEL, origin=9, place=place, hops=3)


def test_a_packet_is_captured_by_the_first_node_within_the_radius() -> None:
    node, port, up = router_of(routers.GpsrSketch, 0, FakeHost(Position(0.0, 0.0)))
    node.on_message(0.0, 1, routers.Here(Position(50.0, 0.0)), "radio")
    node.on_message(1.0, 2, geo_packet(Place(Position(100.0, 0.0), 100.0)), "radio")
    assert (port.take(), up.said) == ([], [("packet", 9, PARCEL, 3)])


def test_a_packet_for_a_node_at_a_place_goes_to_that_node_and_to_no_other() -> None:
    node, port, up = router_of(routers.GpsrSketch, 0, FakeHost(Position(0.0, 0.0)))
    place = Place(Position(0.0, 0.0), 50.0, node=7)
    node.on_message(0.0, 2, geo_packet(place), "radio")
    assert port.take() == [Note(Fact("drop", event=PARCEL.event, reason="local_minimum"))]
    node.on_message(0.0, 7, routers.Here(Position(90.0, 0.0)), "radio")
    node.on_message(1.0, 2, geo_packet(place), "radio")
    assert port.take() == [Send(7, routers.GeoPacket(PARCEL, origin=9, place=place, hops=4), token=1)]
    node.on_message(1.0 + routers.SILENCE_S, 2, geo_packet(place), "radio")
    assert port.take() == [Note(Fact("drop", event=PARCEL.event, reason="local_minimum"))], "it fell silent"
    node.on_route(9.0, place, PARCEL)
    assert up.said == [("unreachable", place, PARCEL)]
