"""One parcel to several nodes: packets are shared while the routes have the same next hop. Beyond the RFC."""

from carrycast.core.model import Failure
from carrycast.core.protocol.effects import Send
from carrycast.routers.aodv.messages import MAX_OTHERS, Bundle, Packet, RouteError, RouteRequest
from carrycast.routers.aodv.tests.bench import ME, Bench, drops, parcel, sent_messages


def bench(**settings: object) -> Bench:
    """Nodes 11 and 12 are behind 1, node 13 behind 2."""
    made = Bench(0, **settings)
    made.add_route(11, 1, 3)
    made.add_route(12, 1, 2)
    made.add_route(13, 2, 2)
    return made


def sent(bench: Bench) -> list[tuple[int, list[int]]]:
    """To whom, and the targets of each packet."""
    found = []
    for target, message in sent_messages(bench.port.take()):
        if isinstance(message, Packet) and target is not None:
            found.append((target, [message.destination, *(message.others if isinstance(message, Bundle) else ())]))
    return found


def test_routes_over_the_same_next_hop_share_a_packet_and_others_have_their_own() -> None:
    node = bench()
    node.router.on_route_each(0.0, [11, 13, 12], parcel())
    assert sent(node) == [(1, [11, 12]), (2, [13])]


def test_a_destination_without_a_route_waits_for_its_own() -> None:
    node = bench()
    node.router.on_route_each(0.0, [11, 99, 12], parcel())
    messages = sent_messages(node.port.take())
    assert [type(message) for _, message in messages] == [Bundle, RouteRequest]
    node.add_route(99, 2, 1)
    assert node.router.hops_to(0.0, 99) == 1


def test_a_bundle_splits_where_its_routes_part_and_is_delivered_at_its_destinations() -> None:
    node = bench()
    bundle = Bundle(parcel(), origin=5, destination=13, hops=2, others=(11, ME, 12, 11))
    node.router.on_message(0.0, 9, bundle, "radio")
    assert sent(node) == [(1, [11, 12]), (2, [13])], "and a node that is named twice counts once"
    assert [(origin, hops) for origin, _, hops in node.upcalls.packets] == [(5, 2)]


def test_when_a_link_breaks_under_a_bundle_each_destination_is_discovered_again() -> None:
    node = bench()
    node.router.on_route_each(0.0, [11, 12], parcel())
    (only,) = [effect for effect in node.port.take() if isinstance(effect, Send)]
    assert only.token is not None
    node.router.on_sent(0.1, only.token, Failure.UNREACHABLE)
    searched = [
        message.destination for _, message in sent_messages(node.port.take()) if isinstance(message, RouteRequest)
    ]
    assert searched == [11, 12]


def test_packets_of_other_nodes_that_cannot_be_repaired_are_dropped_with_a_rerr() -> None:
    node = bench(local_repair="off")
    node.hear(9, Packet(parcel(), origin=5, destination=11, hops=1))
    node.hear(9, Packet(parcel(), origin=5, destination=12, hops=1))
    node.router.on_message(0.0, 9, Bundle(parcel(), origin=5, destination=11, hops=2, others=(12,)), "radio")
    (only,) = [effect for effect in node.port.take() if isinstance(effect, Send)]
    assert only.token is not None
    node.router.on_sent(0.1, only.token, Failure.UNREACHABLE)
    effects = node.port.take()
    lost = [message.unreachable for _, message in sent_messages(effects) if isinstance(message, RouteError)]
    assert {target for one in lost for target, _ in one} >= {11, 12}
    assert len(drops(effects)) == 2


def test_if_the_link_layer_refuses_a_bundle_each_packet_is_dropped() -> None:
    node = bench()
    node.router.on_route_each(0.0, [11, 12], parcel())
    (only,) = [effect for effect in node.port.take() if isinstance(effect, Send)]
    assert only.token is not None
    node.router.on_sent(0.1, only.token, Failure.QUEUE_FULL)
    assert drops(node.port.take()) == ["queue_full", "queue_full"]
    assert [target for target, _ in node.upcalls.given_up] == [11, 12]


def test_targets_that_do_not_fit_go_in_several_bundles() -> None:
    node = Bench()
    targets = list(range(100, 100 + 2 * (MAX_OTHERS + 1) + 1))
    for target in targets:
        node.add_route(target, 1, 2)
    node.router.on_route_each(0.0, targets, parcel())
    packets = [named for _, named in sent(node)]
    assert [len(named) for named in packets] == [64, 64, 1]
    assert [target for named in packets for target in named] == targets


def test_a_bundle_with_too_many_hops_or_back_at_its_origin_is_dropped() -> None:
    node = bench(max_hops=3)
    far = Bundle(parcel(), origin=5, destination=11, hops=3, others=(12,))
    assert drops(node.hear(9, far)) == ["hops_exhausted"]
    own = Bundle(parcel(), origin=ME, destination=11, hops=1, others=(12,))
    assert drops(node.hear(9, own)) == ["packet_returned"]
