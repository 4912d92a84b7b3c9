"""The routing table: numbers never fall, and what is lost is remembered."""

from carrycast.routers.aodv.route_table import MAX_PRECURSORS, RouteEntry, RouteTable

D, B, C = 7, 1, 2


def table(max_entries: int = 10) -> RouteTable:
    return RouteTable(0, 15.0, max_entries)


def test_a_route_is_valid_until_its_lifetime_ends_and_then_one_number_higher() -> None:
    t = table()
    t.update(0.0, D, 5, 3, B, 3.0)
    assert t.hops_to(2.9, D) == 3
    assert t.hops_to(3.0, D) is None
    lost = t.find(3.0, D)
    assert lost is not None
    assert (lost.valid, lost.sequence, lost.hop_count) == (False, 6, 3)
    assert t.find(17.9, D) is lost
    assert t.find(18.0, D) is None


def test_hops_to_changes_nothing() -> None:
    t = table()
    t.update(0.0, D, 5, 3, B, 3.0)
    assert t.hops_to(99.0, D) is None
    assert t.hops_to(1.0, D) == 3
    assert t.hops_to(1.0, 0) == 0, "the node itself"


def test_an_invalid_route_is_replaced_only_with_its_incremented_number() -> None:
    t = table()
    t.update(0.0, D, 5, 3, B, 9.0)
    (lost,) = t.invalidate_next_hop(1.0, B)
    assert (lost.destination, lost.sequence) == (D, 6)
    assert not t.update(1.0, D, 5, 1, C, 9.0), "what C knows may be what this node once sent_messages"
    assert t.update(1.0, D, 6, 4, C, 9.0)
    assert t.hops_to(1.0, D) == 4


def test_a_message_makes_a_route_to_the_previous_hop_and_keeps_its_number() -> None:
    t = table()
    t.update(0.0, B, 5, 3, C, 9.0)
    t.update_previous_hop(1.0, B, 4.0)
    route = t.find_valid(1.0, B)
    assert route is not None
    assert (route.next_hop, route.hop_count, route.sequence, route.expires_at) == (B, 1, 5, 4.0)
    t.update_previous_hop(2.0, B, 3.0)
    assert route.expires_at == 4.0, "a lifetime is never cut"


def test_a_rerr_never_lowers_a_sequence_number() -> None:
    t = table()
    t.update(0.0, D, 5, 3, B, 9.0)
    route = t.find_valid(0.0, D)
    assert route is not None
    t.invalidate(1.0, route, 2)
    assert route.sequence == 6
    t.update(1.0, D, 8, 3, B, 9.0)
    t.invalidate(1.0, route, 20)
    assert route.sequence == 20


def test_an_invalid_entry_is_kept_while_packets_for_it_still_come() -> None:
    t = table()
    t.update(0.0, D, 5, 3, B, 9.0)
    t.invalidate_next_hop(1.0, B)
    for now in range(2, 40, 10):
        t.extend_lifetime(float(now), D, now + 3.0)
    assert t.find(46.9, D) is not None
    assert t.find(47.0, D) is None


def test_a_full_table_deletes_only_expired_entries() -> None:
    t = table(max_entries=2)
    assert t.update(0.0, 1, 1, 1, 1, 3.0)
    assert t.update(0.0, 2, 1, 1, 2, 9.0)
    assert t.update(0.0, 3, 1, 1, 3, 9.0) is None
    assert not t.update_previous_hop(0.5, 4, 9.0)
    assert len(t) == 2
    assert t.update(18.0, 3, 1, 1, 3, 99.0)
    assert [route.destination for route in t] == [2, 3]


def test_precursors_are_bounded_and_removed_with_their_link() -> None:
    t = table()
    t.update(0.0, D, 5, 3, B, 9.0)
    route = t.find_valid(0.0, D)
    assert route is not None
    route.add_precursor(C)
    t.invalidate_next_hop(0.0, C)
    assert not route.precursors
    crowded = RouteEntry(D, B, 1, 1, 9.0)
    for neighbor in range(200):
        crowded.add_precursor(neighbor)
    assert len(crowded.precursors) == MAX_PRECURSORS


def test_the_greatest_sequence_number_stays() -> None:
    t = table()
    t.update(0.0, D, 2**63 - 1, 3, B, 9.0)
    (lost,) = t.invalidate_next_hop(1.0, B)
    assert lost.sequence == 2**63 - 1
