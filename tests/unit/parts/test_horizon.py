"""The horizon knows each node over one link, and forgets nodes when their reports expire."""

from carrycast.core.parts.horizon import COPY_LIFE_S, Horizon, next_sequence


def horizon() -> Horizon[tuple[str, ...]]:
    return Horizon(0, lambda report: report)


def accept(
    known: Horizon[tuple[str, ...]], node: int, via: int, hops: int, sequence: int = 1, until: float = 30.0
) -> bool:
    """As a protocol does: look, then take in. The report is one filter, named by the node."""
    new = known.is_new(node, sequence)
    if new:
        known.accept(node, via, hops, sequence, until, (f"id = {node}",))
    return new


def test_of_two_copies_the_first_counts() -> None:
    known = horizon()
    assert accept(known, node=7, via=1, hops=2)
    assert not accept(known, node=7, via=2, hops=2)
    assert set(known.links) == {1}


def test_a_newer_report_over_another_link_moves_the_node_there() -> None:
    known = horizon()
    accept(known, node=7, via=1, hops=2)
    assert accept(known, node=7, via=2, hops=3, sequence=2)
    assert set(known.links) == {2}
    assert known.nearest(["id = 7"]) == {2: 3}


def test_an_older_report_is_a_copy() -> None:
    known = horizon()
    accept(known, node=7, via=1, hops=2, sequence=5)
    assert not accept(known, node=7, via=1, hops=2, sequence=4)


def test_a_node_knows_nothing_of_itself() -> None:
    assert not accept(horizon(), node=0, via=1, hops=2)


def test_each_link_leads_to_its_nearest_subscriber() -> None:
    known = horizon()
    for node, via, hops in ((5, 1, 3), (6, 1, 2), (7, 2, 1)):
        known.accept(node, via, hops, 1, 30.0, ("a = 1",))
    known.accept(8, 3, 1, 1, 30.0, ("a = 2",))
    assert known.nearest(["a = 1", "a = 9"]) == {1: 2, 2: 1}
    assert known.nearest([]) == {}


def test_changed_wishes_replace_the_old_ones() -> None:
    known = horizon()
    known.accept(7, 1, 1, 1, 30.0, ("a = 1",))
    known.accept(7, 1, 1, 2, 30.0, ("a = 2",))
    assert known.nearest(["a = 1"]) == {}
    assert known.nearest(["a = 2"]) == {1: 1}


def test_with_a_link_goes_all_that_is_known_over_it() -> None:
    known = horizon()
    for node, via in ((1, 1), (5, 1), (2, 2)):
        accept(known, node, via, hops=1)
    known.lose(1)
    assert [node for node, _ in known] == [2]
    assert known.nearest(["id = 5"]) == {}
    known.lose(3)
    assert len(known) == 1


def test_a_late_copy_of_what_was_lost_with_a_link_is_still_a_copy() -> None:
    known = horizon()
    accept(known, node=5, via=1, hops=2, sequence=4)
    known.lose(1)
    assert not accept(known, node=5, via=2, hops=2, sequence=4)
    assert accept(known, node=5, via=2, hops=2, sequence=5)


def test_a_report_is_forgotten_when_it_is_no_longer_good() -> None:
    known = horizon()
    accept(known, node=5, via=1, hops=1, until=30.0)
    accept(known, node=6, via=2, hops=1, until=31.0)
    known.expire(30.0)
    assert [node for node, _ in known] == [6]
    assert not accept(known, node=5, via=1, hops=1)
    known.expire(30.0 + COPY_LIFE_S)
    assert accept(known, node=5, via=1, hops=1)


def test_sequence_numbers_grow_over_a_restart() -> None:
    assert next_sequence(0, 1) < next_sequence(0, 2) < next_sequence(1, 1)
