"""Who is linked with whom: in range, up, and not cut."""

from collections import Counter
from random import Random

from carrycast.sim.radio.medium import Topology


def ring_of(nodes: int) -> Topology:
    topology = Topology(nodes)
    for node in range(nodes):
        topology.set_contact(node, (node + 1) % nodes, up=True)
    return topology


def test_those_in_contact_hear_each_other_in_the_order_in_which_they_met() -> None:
    topology = Topology(4)
    for other in (3, 1, 2):
        topology.set_contact(0, other, up=True)
    assert topology.reach(0).nodes == (3, 1, 2)
    assert topology.reach(1).nodes == (0,)
    topology.set_contact(3, 0, up=False)
    topology.set_contact(3, 0, up=True)
    assert topology.reach(0).nodes == (1, 2, 3)


def test_a_node_that_is_down_hears_nobody_and_nobody_hears_it() -> None:
    topology = ring_of(4)
    topology.set_node(0, up=False)
    assert topology.reach(0).nodes == ()
    assert topology.reach(1).nodes == (2,)
    assert not topology.is_linked(0, 1)
    topology.set_node(0, up=True)
    assert topology.is_linked(1, 0)
    assert set(topology.reach(0).nodes) == {1, 3}


def test_a_cut_parts_two_nodes_whichever_is_named_first() -> None:
    topology = ring_of(4)
    topology.set_cut(1, 0, cut=True)
    assert not topology.is_linked(0, 1)
    assert topology.reach(0).nodes == (3,)
    assert topology.reach(1).nodes == (2,)
    topology.set_cut(0, 1, cut=False)
    assert topology.is_linked(0, 1)


def test_a_link_that_is_cut_twice_needs_both_cuts_to_end() -> None:
    topology = ring_of(4)
    topology.set_cut(0, 1, cut=True)
    topology.set_cut(1, 0, cut=True)
    topology.set_cut(0, 1, cut=False)
    assert not topology.is_linked(0, 1)
    topology.set_cut(0, 1, cut=False)
    assert topology.is_linked(0, 1)


def test_a_cut_outlasts_the_contact() -> None:
    topology = ring_of(4)
    topology.set_cut(0, 1, cut=True)
    topology.set_contact(0, 1, up=False)
    topology.set_contact(0, 1, up=True)
    assert not topology.is_linked(0, 1)


def test_a_reach_is_made_once_until_something_changes() -> None:
    topology = ring_of(4)
    assert topology.reach(0) is topology.reach(0)
    before = topology.reach(0)
    topology.set_contact(2, 3, up=False)
    assert topology.reach(0) is before, "what happens elsewhere does not matter"
    topology.set_node(3, up=False)
    assert topology.reach(0) is not before


def test_a_reach_knows_its_nodes_in_three_forms() -> None:
    reach = ring_of(4).reach(0)
    assert reach.ids == frozenset(reach.nodes)
    assert reach.packed == b"".join(node.to_bytes(8, "little") for node in reach.nodes)
    assert ring_of(4).alone(2).nodes == (2,)


def test_after_any_changes_reach_and_linked_say_the_same() -> None:
    rng, nodes = Random(1), 6
    topology = Topology(nodes)
    contacts: set[frozenset[int]] = set()
    down: set[int] = set()
    cuts: Counter[frozenset[int]] = Counter()
    for _ in range(500):
        a, b = rng.sample(range(nodes), 2)
        on = rng.random() < 0.5
        change = rng.randrange(3)
        if change == 0:
            topology.set_contact(a, b, up=on)
            contacts = contacts | {frozenset((a, b))} if on else contacts - {frozenset((a, b))}
        elif change == 1:
            topology.set_node(a, up=on)
            down = down - {a} if on else down | {a}
        elif on or cuts[frozenset((a, b))]:
            topology.set_cut(a, b, cut=on)
            cuts[frozenset((a, b))] += 1 if on else -1
        for one in range(nodes):
            heard = {
                other
                for other in range(nodes)
                if frozenset((one, other)) in contacts - {*+cuts} and not {one, other} & down and one != other
            }
            assert set(topology.reach(one).nodes) == heard
            assert {other for other in range(nodes) if other != one and topology.is_linked(one, other)} == heard
