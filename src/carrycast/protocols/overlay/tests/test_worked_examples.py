"""The paper's own examples: Figure 3, Figure 4, and the four topologies of its testbed (Figure 14)."""

from pathlib import Path

import pytest

from carrycast.core.model import NodeId
from carrycast.protocols.overlay.broker_tables import BrokerInformation, BrokerTables
from carrycast.protocols.overlay.protocol import OpportunisticOverlay
from carrycast.protocols.overlay.settings import OverlaySettings
from carrycast.sim.testing import Net

IDLE = BrokerInformation(0.0, 0.0, None, 0.0)
END_S = 10_000.0
ROUTED: dict[str, object] = {"router": {"name": "shortest_path"}}
Edges = dict[tuple[NodeId, NodeId], tuple[float, float]]


def get_overlay(net: Net, node: NodeId) -> OpportunisticOverlay:
    protocol = net.protocol(node)
    assert isinstance(protocol, OpportunisticOverlay)
    return protocol


def get_last_hops(net: Net, node: NodeId) -> object:
    return net.rows("deliver", node=node)[-1]["hops"]


# Figure 3: brokers A, B, C, D; nodes 1, 2, 3, 5. Node 2 leaves B and 1, and comes near to C.

A, B, C, D, N1, N2, N3, N5 = range(8)
MOVE_S = 30.0
FIGURE_3: Edges = {
    (A, N1): (0.0, END_S),
    (N1, B): (0.0, END_S),
    (B, N5): (0.0, END_S),
    (N5, C): (0.0, END_S),
    (N2, N3): (0.0, END_S),
    (N3, D): (0.0, END_S),
    (B, N2): (0.0, MOVE_S),
    (N1, N2): (0.0, MOVE_S),
    (C, N2): (MOVE_S, END_S),
}


def list_links(table: BrokerTables) -> set[tuple[NodeId, NodeId]]:
    """Return the overlay links that a broker uses, by its table."""
    found = set()
    for broker in (A, B, C, D):
        for other, paths_from in table.paths_from(broker).items():
            if len(paths_from.path) == 1:
                found.add((min(broker, other), max(broker, other)))
    return found


def test_figure_3_step_by_step() -> None:
    tables = {node: BrokerTables(node, OverlaySettings(), 0) for node in (A, B, C, D)}
    near: dict[NodeId, dict[NodeId, float]] = {A: {B: 2.0}, B: {A: 2.0, C: 2.0, D: 3.0}, C: {B: 2.0}, D: {B: 3.0}}
    for node, table in tables.items():
        table.update_neighbors(0.0, near[node], IDLE)
    items = [item for table in tables.values() for item in table.take_changes(0.0)]
    for table in tables.values():
        table.merge(0.0, items)
        table.take_changes(0.0)
        # "all four brokers have the same view of the global broker network topology A-B, B-C and B-D"
        assert list_links(table) == {(A, B), (B, C), (B, D)}

    # "C adds D as its new neighbor. Then C ... propagates the change to its neighboring brokers B and D."
    assert tables[C].update_neighbors(10.0, {B: 2.0, D: 3.0}, IDLE)
    news = tables[C].take_changes(10.0)
    assert [item.broker for item in news] == [C]
    for node in (B, D):
        assert tables[node].merge(10.0, news) == []
    for node in (B, C, D):
        assert list_links(tables[node]) == {(A, B), (B, C), (B, D), (C, D)}
    assert tables[C].path_to(D) == (D,)
    assert list_links(tables[A]) == {(A, B), (B, C), (B, D)}, "A has not received it"

    # "B removes D from its neighbor list ... sends its changes since previous period to its neighbors A and C."
    assert tables[B].update_neighbors(20.0, {A: 2.0, C: 2.0}, IDLE)
    news = tables[B].take_changes(20.0)
    assert sorted(item.broker for item in news) == [B, C]
    assert tables[A].merge(20.0, news) == []
    assert tables[C].merge(20.0, news) == []
    # "both A and C update their topology knowledge by removing broker link B-D. A also adds the broker link C-D"
    for node in (A, B, C):
        assert list_links(tables[node]) == {(A, B), (B, C), (C, D)}
    # "D's topology knowledge is outdated"
    assert list_links(tables[D]) == {(A, B), (B, C), (B, D), (C, D)}


@pytest.mark.parametrize(("variant", "hops"), [(None, 3), ("static", 7)], ids=["opportunistic", "static"])
def test_figure_3_in_the_network(variant: str | None, hops: int) -> None:
    """From C to D: over C-2-3-D, where a static overlay goes C-5-B-5-C-2-3-D."""
    contacts = [(a, b, *times) for (a, b), times in FIGURE_3.items()]
    net = Net.contacts(
        contacts,
        "overlay",
        {**ROUTED, "roles": {"broker": [A, B, C, D]}},
        variant=variant,
        near="router",
        vicinity="within",
        within_hops=3,
        update_s=5.0,
    )
    net.subscribe(D)
    net.run(25)
    net.publish(C)
    net.run(4)
    assert get_last_hops(net, D) == 5, "C-5-B-2-3-D: the overlay matches the network at first"
    net.run(31)
    net.publish(C)
    net.run(5)
    assert get_last_hops(net, D) == hops


# Figure 4: the consumer's home is C, over node 6, until 6 leaves the consumer and 5.

PRODUCER, FA, FB, FC, CONSUMER, M1, M2, M3, M4, M5, M6 = range(11)
FIGURE_4: Edges = {
    (PRODUCER, FA): (0.0, END_S),
    (FA, M1): (0.0, END_S),
    (M1, FB): (0.0, END_S),
    (FB, M3): (0.0, END_S),
    (M3, M5): (0.0, END_S),
    (M5, CONSUMER): (0.0, END_S),
    (FA, M2): (0.0, END_S),
    (M2, FC): (0.0, END_S),
    (FC, M4): (0.0, END_S),
    (M4, FB): (0.0, END_S),
    (FC, M6): (0.0, END_S),
    (M6, CONSUMER): (0.0, MOVE_S),
    (M5, M6): (0.0, MOVE_S),
}


@pytest.mark.parametrize("near", ["ring", "router"])
@pytest.mark.parametrize(
    ("variant", "home", "hops"), [(None, FB, 6), ("static", FC, 8)], ids=["opportunistic", "static"]
)
def test_figure_4(variant: str | None, home: NodeId, hops: int, near: str) -> None:
    contacts = [(a, b, *times) for (a, b), times in FIGURE_4.items()]
    roles = {"broker": [FA, FB, FC]}
    net = Net.contacts(contacts, "overlay", {**ROUTED, "roles": roles}, variant=variant, near=near, update_s=5.0)
    net.subscribe(CONSUMER)
    net.run(20)
    assert get_overlay(net, CONSUMER).client.home == FC
    net.publish(PRODUCER)
    net.run(5)
    assert get_last_hops(net, CONSUMER) == 5, "producer-A-2-C-6-consumer"
    net.run(35)
    net.publish(PRODUCER)
    net.run(5)
    assert get_overlay(net, CONSUMER).client.home == home
    # producer-A-1-B-3-5-consumer, and without the change producer-A-2-C-4-B-3-5-consumer, "2 hops longer".
    assert get_last_hops(net, CONSUMER) == hops
    events = [event.id for event in net.list_delivered(CONSUMER)]
    assert len(events) == len(set(events)) == 2


# The testbed [002 §4.3]: laptops A, B, C in the four connected topologies, one after the other.

LA, LB, LC = range(3)
PHASE_S = 100.0
# A-B-C, then A-B-C-A, then A-C-B, then B-A-C.
TESTBED = [
    (LA, LB, 0.0, 2 * PHASE_S),
    (LB, LC, 0.0, 3 * PHASE_S),
    (LA, LC, PHASE_S, END_S),
    (LA, LB, 3 * PHASE_S, END_S),
]
RUNOFF = """
def runoff(event, state):
    depth = int(state or b"0") + event.attributes["rain"]
    return {"depth": depth}, str(depth).encode()
"""


@pytest.mark.parametrize("router", ["shortest_path", "aodv"])
@pytest.mark.parametrize(
    ("variant", "hops"), [(None, [2, 1, 1, 1]), ("static", [2, 2, 3, 3])], ids=["opportunistic", "static"]
)
def test_the_four_topologies_of_the_testbed(variant: str | None, hops: list[int], router: str, tmp_path: Path) -> None:
    """Flood data from A through a modulator to C: at first over B, and from A-B-C-A on directly, with its state."""
    (tmp_path / "f.py").write_text(RUNOFF)
    scenario: dict[str, object] = {
        "router": {"name": router},
        "roles": {"broker": [LA, LB]},
        "base": str(tmp_path),
        "processors": [{"id": "runoff", "function": "f.py:runoff", "nodes": "broker"}],
        "discovery": {"mode": "none"},
    }
    net = Net.contacts(TESTBED, "overlay", scenario, variant=variant, update_s=5.0, look_s=None if variant else 2.0)
    id = net.subscribe(LC, processor="runoff")
    net.run(10)
    assert get_overlay(net, LC).client.home == LB
    found = []
    for place in range(4):
        net.run(place * PHASE_S + 20 - net.now)
        for _ in range(70):
            net.publish(LA, {"rain": 1})
            net.run(1)
        found.append(get_last_hops(net, LC))
    net.run(10)
    assert found == hops
    assert get_overlay(net, LC).client.home == (LB if variant else LA)
    # No event is lost, duplicated or swapped, and each raises the depth.
    assert [event.attributes["depth"] for event in net.list_delivered(LC, id)] == list(range(1, 281))
