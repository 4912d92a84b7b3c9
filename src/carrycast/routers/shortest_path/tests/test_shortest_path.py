"""The router alone with a scripted view, and against an oracle of its own."""

from collections.abc import Iterable

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

from carrycast.core.model import EventId, Failure, NodeId, Position
from carrycast.core.protocol import Capability, Fact, GlobalView, Place
from carrycast.core.protocol.effects import Note, Send
from carrycast.core.wire import Parcel, Traffic
from carrycast.routers.shortest_path.router import Packet
from carrycast.sim.testing import IsolatedHost, isolate_router

PARCEL = Parcel(b"x", Traffic.DATA, EventId(9, 1))


class Drawn(GlobalView):
    """A network as a test draws it; it counts how often all distances are asked for."""

    def __init__(self, *edges: tuple[NodeId, NodeId], nodes: int = 8) -> None:
        self.graph = nx.Graph(edges)
        self.graph.add_nodes_from(range(nodes))
        self.changes = 0
        self.asked = 0

    @property
    def version(self) -> int:
        return self.changes

    def neighbors(self, node: NodeId) -> Iterable[NodeId]:
        return tuple(self.graph.neighbors(node))

    def hops(self) -> NDArray[np.int16]:
        self.asked += 1
        found = np.full((len(self.graph), len(self.graph)), -1, dtype=np.int16)
        for one, lengths in nx.all_pairs_shortest_path_length(self.graph):
            for other, length in lengths.items():
                found[one, other] = length
        return found

    def position(self, node: NodeId) -> Position | None:
        return None


class Seeing(IsolatedHost):
    def __init__(self, view: Drawn, nodes: int = 8) -> None:
        super().__init__()
        self.offers |= {Capability.GLOBAL_VIEW, Capability.DIRECTORY}
        self._view, self._nodes = view, nodes

    @property
    def global_view(self) -> GlobalView:
        return self._view

    def directory(self, role: str) -> tuple[NodeId, ...]:
        return tuple(range(self._nodes))


def test_a_packet_goes_to_a_neighbor_that_is_nearer_to_its_target() -> None:
    view = Drawn((0, 1), (1, 2), (2, 3), (0, 4), (4, 3))
    router, port, _ = isolate_router("shortest_path", 0, Seeing(view))
    router.on_route(0.0, 3, PARCEL)
    assert port.take() == [Send(4, Packet(PARCEL, origin=0, target=3, hops=1), None, 1)]
    router.on_message(1.0, 4, Packet(PARCEL, origin=3, target=2, hops=2), "radio")
    assert port.take() == [Send(1, Packet(PARCEL, origin=3, target=2, hops=3), None, 2)]


def test_a_next_hop_is_computed_again_only_when_links_have_changed() -> None:
    view = Drawn((0, 1), (1, 2))
    router, port, _ = isolate_router("shortest_path", 0, Seeing(view))
    assert [router.hops_to(0.0, node) for node in (0, 1, 2, 3, 99)] == [0, 1, 2, None, None]
    before = view.asked
    for _ in range(5):
        router.on_route(0.0, 2, PARCEL)
    assert view.asked == before + 1
    view.graph.add_edge(0, 2)
    view.changes += 1
    port.take()
    router.on_route(1.0, 2, PARCEL)
    [sent] = port.take()
    assert isinstance(sent, Send)
    assert sent.target == 2
    assert router.hops_to(1.0, 2) == 1


@pytest.mark.parametrize("seed", range(5))
def test_every_hop_is_one_nearer_to_the_target(seed: int) -> None:
    view = Drawn(nodes=30)
    view.graph = nx.gnp_random_graph(30, 0.08, seed=seed)
    truth = dict(nx.all_pairs_shortest_path_length(view.graph))
    for one in range(30):
        router, port, told = isolate_router("shortest_path", one, Seeing(view))
        for target in range(30):
            router.on_route(0.0, target, PARCEL)
            sent = [effect.target for effect in port.take() if isinstance(effect, Send)]
            if target in truth[one] and target != one:
                assert truth[sent[0]][target] == truth[one][target] - 1
            else:
                assert sent == []
        assert len(told.given_up) == 30 - len(truth[one])


def test_a_failed_hop_is_retried_over_the_current_path() -> None:
    view = Drawn((0, 1), (1, 3), (0, 2), (2, 4), (4, 3))
    router, port, told = isolate_router("shortest_path", 0, Seeing(view), retries=1)
    router.on_route(0.0, 3, PARCEL)
    port.take()
    view.graph.remove_edge(0, 1)
    view.changes += 1
    router.on_sent(0.5, 1, Failure.UNREACHABLE)
    [again] = port.take()
    assert isinstance(again, Send)
    assert again.target == 2
    assert isinstance(again.message, Packet)
    assert again.message.parcel.waited_s == 0.5, "what a packet waits at a node makes it older"
    router.on_sent(1.0, 2, Failure.UNREACHABLE)
    assert port.take() == [Note(Fact("drop", EventId(9, 1), reason="unreachable"))]
    assert told.given_up == [(3, b"x")]


def test_packets_that_cannot_be_delivered_are_dropped_with_a_reason() -> None:
    view = Drawn((0, 1), (1, 2))
    router, port, told = isolate_router("shortest_path", 0, Seeing(view), max_hops=2)
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


def test_a_packet_for_this_node_is_delivered_at_once_or_with_its_hops() -> None:
    router, port, told = isolate_router("shortest_path", 0, Seeing(Drawn((0, 1))))
    router.on_route(0.0, 0, PARCEL)
    router.on_message(0.0, 1, Packet(PARCEL, origin=3, target=0, hops=4), "radio")
    assert told.packets == [(0, b"x", 0), (3, b"x", 4)]
    assert port.take() == []
