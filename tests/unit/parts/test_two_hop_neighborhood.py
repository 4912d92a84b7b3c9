"""The table of the nodes within two hops, over HELLOs that the tables themselves make."""

import pytest
from hypothesis import given, settings, strategies as st

from carrycast.core.parts import MAX_LISTED, NeighborHello, TwoHopNeighborhood, Willingness


class Hello(NeighborHello, frozen=True, gc=False, tag=1):
    pass


VALIDITY_S = 6.0


def hello_of(table: TwoHopNeighborhood, now: float, willingness: int = Willingness.DEFAULT) -> Hello:
    lists = table.make_lists(now)
    return Hello(
        VALIDITY_S, willingness, tuple(lists.mprs), tuple(lists.symmetric), tuple(lists.heard), tuple(lists.lost)
    )


class Network:
    """Tables whose HELLOs reach the neighbors in a graph."""

    def __init__(self, edges: list[tuple[int, int]]) -> None:
        self.edges = {frozenset(edge) for edge in edges if len(set(edge)) == 2}
        self.nodes = sorted({node for edge in self.edges for node in edge})
        self.tables = {node: TwoHopNeighborhood(node) for node in self.nodes}

    def hears(self, receiver: int, sender: int) -> bool:
        return frozenset((receiver, sender)) in self.edges

    def round(self, now: float) -> None:
        for sender in self.nodes:
            hello = hello_of(self.tables[sender], now)
            for receiver in self.nodes:
                if self.hears(receiver, sender):
                    self.tables[receiver].on_hello(now, sender, hello)


def test_a_link_is_symmetric_once_both_have_heard_each_other() -> None:
    a, b = TwoHopNeighborhood(1), TwoHopNeighborhood(2)
    b.on_hello(0.0, 1, hello_of(a, 0.0))
    assert 1 not in b
    assert hello_of(b, 0.1).heard == (1,)
    a.on_hello(0.1, 2, hello_of(b, 0.1))
    assert 2 in a
    b.on_hello(0.2, 1, hello_of(a, 0.2))
    assert 1 in b


def test_a_link_that_works_one_way_never_becomes_symmetric() -> None:
    deaf, heard = TwoHopNeighborhood(1), TwoHopNeighborhood(2)
    for second in range(20):
        heard.on_hello(float(second), 1, hello_of(deaf, float(second)))
    assert 1 not in heard


def test_a_silent_neighbor_is_lost_after_the_validity_time_and_with_it_what_it_reached() -> None:
    network = Network([(0, 1), (1, 2)])
    for second in range(4):
        network.round(float(second))
    table = network.tables[0]
    assert table.mprs(3.0) == {1}
    assert network.tables[1].selectors(3.0) == [0, 2]
    assert table.mprs(3.0 + VALIDITY_S) == frozenset()
    assert table.make_lists(3.0 + VALIDITY_S).lost == [1]
    assert network.tables[1].selectors(3.0 + VALIDITY_S) == []
    table.expire(3.0 + 3 * VALIDITY_S)
    assert table.make_lists(3.0 + 3 * VALIDITY_S).lost == []


def test_a_neighbor_that_reports_a_lost_link_is_believed() -> None:
    network = Network([(0, 1)])
    for second in range(3):
        network.round(float(second))
    assert network.tables[1].lose(3.0, 0)
    assert not network.tables[1].lose(3.0, 0)
    network.tables[0].on_hello(3.1, 1, hello_of(network.tables[1], 3.1))
    assert 1 not in network.tables[0]


def test_a_neighbor_may_withdraw_its_choice() -> None:
    network = Network([(0, 1), (1, 2)])
    for second in range(4):
        network.round(float(second))
    assert network.tables[1].is_selector(4.0, 0)
    network.tables[1].on_hello(4.0, 0, Hello(VALIDITY_S, 3, (), (1,), ()))
    assert not network.tables[1].is_selector(4.0, 0)


def test_a_full_table_refuses_and_forged_lists_stay_bounded() -> None:
    table = TwoHopNeighborhood(0, max_neighbors=1)
    assert table.on_hello(0.0, 1, Hello(VALIDITY_S, 3, (), (0,), ()))
    assert not table.on_hello(0.0, 2, Hello(VALIDITY_S, 3, (), (0,), ()))
    for start in range(10):
        first = 10 + start * MAX_LISTED
        table.on_hello(1.0, 1, Hello(VALIDITY_S, 3, (), tuple(range(first, first + MAX_LISTED)), (0,)))
    assert len(table.reached_by(1)) <= 2 * MAX_LISTED


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=20))
def test_on_a_static_graph_every_table_becomes_the_graph(edges: list[tuple[int, int]]) -> None:
    network = Network(edges)
    for second in range(4):
        network.round(float(second))
    for node, table in network.tables.items():
        near = {other for other in network.nodes if network.hears(node, other)}
        assert set(table.symmetric_neighbors(3.0)) == near
        for other in near:
            assert set(table.reached_by(other)) == {
                third for third in network.nodes if network.hears(other, third) and third != node
            }
        # Every MPR knows that it was selected.
        for mpr in table.mprs(3.0):
            network.tables[mpr].on_hello(3.5, node, hello_of(table, 3.5))
            assert network.tables[mpr].is_selector(3.5, node)


@pytest.mark.parametrize("willingness", [Willingness.NEVER, Willingness.ALWAYS])
def test_a_changed_willingness_selects_again(willingness: int) -> None:
    network = Network([(0, 1), (0, 2), (1, 3), (2, 3)])
    for second in range(4):
        network.round(float(second))
    table = network.tables[0]
    assert table.mprs(3.0) == {1}
    table.on_hello(3.5, 1, hello_of(network.tables[1], 3.5, willingness))
    assert table.mprs(3.5) == ({2} if willingness == Willingness.NEVER else {1})
