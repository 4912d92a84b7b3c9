"""One parcel to several places: packets are shared while the ways are one. Beyond the paper."""

from carrycast.core.model import Failure, Position
from carrycast.core.protocol import Place
from carrycast.core.protocol.effects import Send
from carrycast.routers.gpsr.messages import MAX_OTHERS, GeoBundle, GeoPacket
from carrycast.routers.gpsr.tests.bench import ME, Bench, drops, parcel


def at(x_m: float, y_m: float, node: int) -> Place:
    return Place(Position(x_m, y_m), 0.0, node)


EAST = [at(500, 0, 11), at(600, 10, 12)]
NORTH = at(0, 500, 13)


def bench(*, max_hops: int = 64) -> Bench:
    """Neighbor 1 to the east, 2 to the north."""
    made = Bench(max_hops=max_hops)
    made.neighbor(1, 100, 0)
    made.neighbor(2, 0, 100)
    return made


def sent(bench: Bench) -> dict[int, list[list[Place]]]:
    """To each neighbor, the places of each packet."""
    found: dict[int, list[list[Place]]] = {}
    for effect in bench.port.take():
        if isinstance(effect, Send):
            assert isinstance(effect.message, GeoPacket)
            others = effect.message.others if isinstance(effect.message, GeoBundle) else ()
            found.setdefault(effect.target, []).append([effect.message.place, *others])
    return found


def test_places_over_the_same_neighbor_share_a_packet_and_others_have_their_own() -> None:
    node = bench()
    node.router.on_route_each(0.0, [EAST[0], NORTH, EAST[1]], parcel())
    assert sent(node) == {1: [EAST], 2: [[NORTH]]}


def test_a_bundle_splits_where_its_paths_part_and_is_delivered_at_its_places() -> None:
    node = bench()
    mine = at(3, 3, ME)
    bundle = GeoBundle(parcel(), origin=5, number=1, place=mine, hops=2, others=(EAST[0], NORTH, EAST[1], EAST[0]))
    node.router.on_message(0.0, 9, bundle, "radio")
    assert sent(node) == {1: [EAST], 2: [[NORTH]]}, "and a place that is named twice counts once"
    assert [(origin, hops) for origin, _, hops in node.upcalls.packets] == [(5, 2)]


def test_the_packets_of_a_bundle_share_a_number_and_differ_by_their_places() -> None:
    node = bench()
    for place in (*EAST, EAST[0]):
        packet = GeoPacket(parcel(), origin=5, number=1, place=place, hops=2)
        node.router.on_message(0.0, 9, packet, "radio")
    effects = node.port.take()
    passed = [effect.message for effect in effects if isinstance(effect, Send)]
    assert [packet.place for packet in passed if isinstance(packet, GeoPacket)] == EAST
    assert drops(effects) == ["repeated"]


def test_a_place_that_needs_perimeter_mode_gets_its_own_packet() -> None:
    node = bench()
    west = at(-500, 0, 14)
    node.router.on_route_each(0.0, [west, *EAST], parcel())
    packets = [effect.message for effect in node.port.take() if isinstance(effect, Send)]
    assert [type(packet) for packet in packets] == [GeoBundle, GeoPacket]
    assert isinstance(packets[1], GeoPacket)
    assert packets[1].place == west
    assert packets[1].perimeter is not None


def test_if_the_neighbor_is_unreachable_the_bundle_is_forwarded_again() -> None:
    node = bench()
    node.neighbor(3, 90, 20)
    node.router.on_route_each(0.0, EAST, parcel())
    (first,) = [effect for effect in node.port.take() if isinstance(effect, Send)]
    assert (first.target, first.token is not None) == (1, True)
    assert first.token is not None
    node.router.on_sent(0.1, first.token, Failure.UNREACHABLE)
    assert sent(node) == {3: [EAST]}


def test_if_the_link_layer_refuses_a_bundle_each_packet_is_dropped() -> None:
    node = bench()
    node.router.on_route_each(0.0, EAST, parcel())
    (only,) = [effect for effect in node.port.take() if isinstance(effect, Send)]
    assert only.token is not None
    node.router.on_sent(0.1, only.token, Failure.QUEUE_FULL)
    assert drops(node.port.take()) == ["queue_full", "queue_full"]
    assert [target for target, _ in node.upcalls.given_up] == EAST


def test_places_that_do_not_fit_go_in_several_bundles() -> None:
    node = bench()
    places = [at(500 + number, 0, 100 + number) for number in range(2 * (MAX_OTHERS + 1) + 1)]
    node.router.on_route_each(0.0, places, parcel())
    packets = sent(node)[1]
    assert [len(packet) for packet in packets] == [64, 64, 1]
    assert [place for packet in packets for place in packet] == places


def test_a_bundle_with_too_many_hops_is_dropped() -> None:
    node = bench(max_hops=3)
    bundle = GeoBundle(parcel(), origin=5, number=1, place=EAST[0], hops=3, others=(EAST[1],))
    node.router.on_message(0.0, 9, bundle, "radio")
    assert drops(node.port.take()) == ["hops_exhausted"] * 2


def test_a_bundle_is_delivered_at_a_place_that_its_last_hop_reaches() -> None:
    node = bench(max_hops=3)
    here = Place(Position(0, 0), 10.0)
    bundle = GeoBundle(parcel(), origin=5, number=1, place=here, hops=3, others=(EAST[1],))
    node.router.on_message(0.0, 9, bundle, "radio")
    assert len(node.upcalls.packets) == 1
    assert drops(node.port.take()) == ["hops_exhausted"]


def test_a_node_without_a_position_drops_each_packet_of_a_bundle() -> None:
    node = bench()
    node.host.here = Position(float("nan"), 0.0)
    node.router.on_route_each(1.0, EAST, parcel())
    assert drops(node.port.take()) == ["no_position", "no_position"]
