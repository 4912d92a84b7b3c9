"""Path lengths by hand, on the network of the paper's Figure 3."""

import pytest

from carrycast.core.protocol import Snapshot
from carrycast.protocols.overlay.global_view import broker_path, client_path, network_path
from carrycast.protocols.overlay.tests.test_worked_examples import FIGURE_3, ROUTED, A, B, C, D
from carrycast.sim.testing import Net


def take_snapshot(net: Net) -> Snapshot:
    nodes = {node.id: node.protocol for node in net.simulation.network.nodes}
    return Snapshot(net.now, nodes, {"broker": [A, B, C, D]}, nodes[A].host.global_view)


@pytest.mark.parametrize("variant", [None, "static", "best"])
def test_path_lengths_are_the_senders_paths_with_current_hops(variant: str | None) -> None:
    contacts = [(a, b, *times) for (a, b), times in FIGURE_3.items()]
    net = Net.contacts(
        contacts,
        "overlay",
        {**ROUTED, "roles": {"broker": [A, B, C, D]}},
        variant=variant,
        near=None if variant == "best" else "router",
        vicinity="within",
        within_hops=3,
        update_s=5.0,
    )
    net.subscribe(D)
    net.publish(C)
    net.run(25)
    # A-B 2, A-C 4, A-D 5 over B, B-C 2, B-D 3, C-D 5 over B; the network has A-D in 4.
    assert broker_path(take_snapshot(net)) == pytest.approx((2 + 4 + 5 + 2 + 3 + 5) / 6)
    assert network_path(take_snapshot(net)) == pytest.approx((2 + 4 + 4 + 2 + 3 + 5) / 6)
    assert client_path(take_snapshot(net)) == 5
    net.run(40)
    # Now B-D has 5 hops. A static overlay still goes over it.
    truth = (2 + 4 + 7 + 2 + 5 + 3) / 6
    assert network_path(take_snapshot(net)) == pytest.approx(truth)
    static = (2 + 4 + 7 + 2 + 5 + 7) / 6
    assert broker_path(take_snapshot(net)) == pytest.approx(static if variant == "static" else truth)
    assert client_path(take_snapshot(net)) == (7 if variant == "static" else 3)


def test_without_known_paths_there_is_no_length() -> None:
    net = Net.graph([(0, 1), (1, 2)], "overlay", {**ROUTED, "roles": {"broker": [0]}})
    assert broker_path(take_snapshot(net)) is None
    assert client_path(take_snapshot(net)) is None
