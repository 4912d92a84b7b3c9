"""The router alone with a scripted view, and against an oracle of its own."""

from collections.abc import Iterable

import networkx as nx
import pytest

from driftcast.model import EventId, Failure, NodeId, Position
from driftcast.protocol import Capability, Fact, GlobalView, Place
from driftcast.protocol.effects import Note, Send
from driftcast.routing.shortest_path.messages import Packet
from driftcast.routing.shortest_path.paths import Distances
from driftcast.routing.shortest_path.router import ShortestPath
from driftcast.testing import LoneHost, alone_router
from driftcast.wire import Parcel, Traffic

PARCEL = Parcel(b"x", Traffic.DATA, EventId(9, 1))


class Drawn(GlobalView):
    """A network as a test draws it; it counts how often it is looked at."""

    def __init__(self, *edges: tuple[NodeId, NodeId]) -> None:
        self.graph = nx.Graph(edges)

    def neighbors(self, node: NodeId) -> Iterable[NodeId]:
        return tuple(self.graph.neighbors(node)) if node in self.graph else ()

    def position(self, node: NodeId) -> Position | None:
        return None


class Seeing(LoneHost):
    def __init__(self, view: Drawn, nodes: int = 8) -> None:
        super().__init__()
        self.offers |= {Capability.GLOBAL_VIEW, Capability.DIRECTORY}
        self._view, self._nodes = view, nodes

    @property
    def global_view(self) -> GlobalView:
        return self._view

    def directory(self, role: str) -> tuple[NodeId, ...]:
        return tuple(range(self._nodes))


def test_a_packet_goes_to_the_neighbor_that_is_nearest_to_its_target() -> None:
    view = Drawn((0, 1), (1, 2), (2, 3), (0, 4), (4, 3))
    router, port, _ = alone_router("shortest_path", 0, Seeing(view))
    router.on_route(0.0, 3, PARCEL)
    assert port.take() == [Send(4, Packet(PARCEL, origin=0, target=3, hops=1), None, 1)]
    router.on_message(1.0, 4, Packet(PARCEL, origin=3, target=2, hops=2), "radio")
    assert port.take() == [Send(1, Packet(PARCEL, origin=3, target=2, hops=3), None, 2)]


def test_distances_follow_the_links_and_are_computed_only_when_these_change() -> None:
    view = Drawn((0, 1), (1, 2))
    router, _, _ = alone_router("shortest_path", 0, Seeing(view))
    assert isinstance(router, ShortestPath)
    assert [router.hops_to(0.0, node) for node in (0, 1, 2, 3)] == [0, 1, 2, None]
    kept = router.distances.paths(0)
    assert router.hops_to(1.0, 2) == 2
    assert router.distances.paths(0) is kept, "nothing has changed"
    view.graph.add_edge(0, 2)
    assert router.hops_to(2.0, 2) == 1
    assert router.distances.changes == 2


@pytest.mark.parametrize("seed", range(5))
def test_distances_are_those_of_another_library(seed: int) -> None:
    view = Drawn()
    view.graph = nx.gnp_random_graph(30, 0.08, seed=seed)
    distances = Distances(view, tuple(range(30)))
    distances.look()
    truth = dict(nx.all_pairs_shortest_path_length(view.graph))
    for one in range(30):
        assert {node: hop.distance for node, hop in distances.paths(one).items()} == truth[one]
        for node, hop in distances.paths(one).items():
            if node != one:
                assert truth[hop.first][node] == truth[one][node] - 1
    assert distances.nearest(0, [0, *range(5, 30)]) == sorted(
        (truth[0][node], node) for node in range(5, 30) if node in truth[0]
    )


def test_a_hop_that_fails_is_tried_over_the_path_as_it_is_then() -> None:
    view = Drawn((0, 1), (1, 3), (0, 2), (2, 4), (4, 3))
    router, port, told = alone_router("shortest_path", 0, Seeing(view), retries=1)
    router.on_route(0.0, 3, PARCEL)
    port.take()
    view.graph.remove_edge(0, 1)
    router.on_sent(0.5, 1, Failure.UNREACHABLE)
    [again] = port.take()
    assert isinstance(again, Send)
    assert again.target == 2
    assert isinstance(again.message, Packet)
    assert again.message.parcel.waited_s == 0.5, "what a packet waits at a node makes it older"
    router.on_sent(1.0, 2, Failure.UNREACHABLE)
    assert port.take() == [Note(Fact("drop", EventId(9, 1), reason="unreachable"))]
    assert told.given_up == [(3, b"x")]


def test_what_cannot_be_brought_is_dropped_by_name() -> None:
    view = Drawn((0, 1), (1, 2))
    router, port, told = alone_router("shortest_path", 0, Seeing(view), max_hops=2)
    router.on_route(0.0, 5, PARCEL)
    assert port.take() == [Note(Fact("drop", EventId(9, 1), reason="no_route"))]
    router.on_route(0.0, Place(Position(0.0, 0.0)), PARCEL)
    assert port.take() == [Note(Fact("drop", EventId(9, 1), reason="place_without_node"))]
    assert [target for target, _ in told.given_up] == [5, Place(Position(0.0, 0.0))]
    router.on_message(0.0, 1, Packet(PARCEL, origin=3, target=2, hops=2), "radio")
    assert port.take() == [Note(Fact("drop", EventId(9, 1), 1, "hops_exhausted"))]
    router.on_message(0.0, 1, Packet(PARCEL, origin=0, target=2, hops=1), "radio")
    assert port.take() == [Note(Fact("drop", EventId(9, 1), 1, "packet_returned"))]
    router.on_route(0.0, 1, PARCEL)
    port.take()
    router.on_sent(0.0, 1, Failure.QUEUE_FULL)
    assert port.take() == [Note(Fact("drop", EventId(9, 1), reason="queue_full"))]
    assert len(told.given_up) == 3


def test_a_packet_for_this_node_is_handed_up_at_once_or_with_its_hops() -> None:
    router, port, told = alone_router("shortest_path", 0, Seeing(Drawn((0, 1))))
    router.on_route(0.0, 0, PARCEL)
    router.on_message(0.0, 1, Packet(PARCEL, origin=3, target=0, hops=4), "radio")
    assert told.packets == [(0, b"x", 0), (3, b"x", 4)]
    assert port.take() == []
