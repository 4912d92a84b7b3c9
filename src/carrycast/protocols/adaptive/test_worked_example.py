"""The running example of the paper: Figures 1 and 2, rebuilt from the text of Sections 2.2.3 and 2.3.3.

The text gives: which hosts are linked, as far as it names links and cycles; that I, D and G subscribe; F of A's link
to E is 0.6, which is the utility of C, since E stores nothing at sigma = 0.6; F of K's links to J and M are 1 and 0.6;
A uses its links to B, P and K with tau = 0.75; B, P and J store, A and E do not. The utilities marked as invented agree
with that.
"""

import pytest

from carrycast.core.matching import Filter
from carrycast.core.model import Event, EventId, Failure, NodeId
from carrycast.core.parts.interests import EVERYTHING
from carrycast.core.protocol import Fact, Link, RecordingPort
from carrycast.core.protocol.effects import Note, Send
from carrycast.protocols.adaptive.messages import ForwardedEvent, UtilityReport
from carrycast.protocols.adaptive.protocol import Adaptive
from carrycast.protocols.adaptive.rules import link_utilities
from carrycast.sim.testing import Net, isolate_protocol

# The paper's letters; I and O are doubled, so that they cannot be mistaken for digits.
A, B, C, D, E, G, II, J, K, M, OO, P = range(12)
INTEREST = Filter("topic = 1").text
EVENT = Event(EventId(A, 0), {"topic": 1}, lease_s=600.0)
SUBSCRIBERS = (D, G, II)
UTILITIES: dict[NodeId, float] = {
    C: 0.6,
    A: 0.3,  # invented, below sigma
    B: 0.7,  # invented, from sigma on
    E: 0.4,  # invented, below sigma
    J: 0.7,  # invented, from sigma on
    K: 0.5,  # invented, not above J's
    M: 0.5,  # invented, not above O's
    OO: 0.6,  # with M's the 0.6 of K's link to M
    P: 0.8,  # invented, above the 0.6 of A's link to E
}


def report(host: NodeId, hops: int) -> UtilityReport:
    """A host's utilities as Section 2.2 has them, before neighborhood utilities are introduced."""
    subscribed = (INTEREST,) if host in SUBSCRIBERS else ()
    utilities = {EVERYTHING: 0.0, INTEREST: UTILITIES[host]} if host in UTILITIES else {EVERYTHING: 0.0}
    return UtilityReport(host, 1, hops, 30.0, subscribed, utilities, {})


def host(node: NodeId, around: dict[NodeId, list[NodeId]]) -> tuple[Adaptive, RecordingPort]:
    """A host with the neighbors it has in the figure, each with those behind it; all of them have reported."""
    protocol, port = isolate_protocol("adaptive", node=node, tau=0.75, sigma=0.6, phi=2, neighborhood=0)
    assert isinstance(protocol, Adaptive)
    for neighbor, behind in around.items():
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        protocol.on_message(1.0, neighbor, report(neighbor, 1), "radio")
        for far in behind:
            protocol.on_message(1.0, neighbor, report(far, 2), "radio")
    if node in UTILITIES:
        protocol._predictions.utilities = {EVERYTHING: 0.0, INTEREST: UTILITIES[node]}
    port.take()
    return protocol, port


def host_a() -> tuple[Adaptive, RecordingPort]:
    return host(A, {B: [II], P: [], K: [J, M], E: [C]})


def list_links_used(port: RecordingPort) -> list[NodeId]:
    return [effect.target for effect in port.take() if isinstance(effect, Send)]


def test_the_link_from_a_to_e_has_the_utility_of_c() -> None:
    protocol, _ = host_a()
    assert link_utilities(protocol._tables, [E], [INTEREST]) == [0.6]


def test_a_uses_the_link_to_the_known_subscriber_and_the_two_with_the_largest_utilities() -> None:
    protocol, port = host_a()
    protocol.on_publish(2.0, EVENT)
    assert list_links_used(port) == [B, P, K]


def test_k_knows_d_over_the_link_that_its_utility_came_over_first() -> None:
    protocol, _ = host(K, {A: [B, P, E], J: [D, II], M: [OO, D]})
    assert protocol._horizon.nearest([INTEREST]) == {J: 2}
    assert link_utilities(protocol._tables, [M], [INTEREST]) == [0.6]


@pytest.mark.parametrize(
    ("node", "around", "stores"),
    [
        (A, {B: [II], P: [], K: [], E: []}, False),
        (B, {A: [], II: []}, True),
        (P, {A: []}, True),
        (E, {A: [], C: []}, False),
        (J, {II: [], D: [], K: []}, True),
        (II, {B: [], J: []}, False),
    ],
)
def test_good_carriers_store_and_neither_others_nor_subscribers_do(
    node: NodeId, around: dict[NodeId, list[NodeId]], stores: bool
) -> None:
    protocol, port = host(node, around)
    if node in SUBSCRIBERS:
        protocol._own = {INTEREST: None}
    if node == A:
        protocol.on_publish(2.0, EVENT)
    else:
        protocol.on_message(2.0, next(iter(around)), ForwardedEvent(EVENT, 1, 599.0), "radio")
    assert (Note(Fact("store", EVENT.id)) in port.take()) == stores


def test_p_moves_to_the_other_partition_and_forwards_the_message_to_g() -> None:
    protocol, port = host(P, {A: []})
    protocol.on_message(2.0, A, ForwardedEvent(EVENT, 1, 599.0), "radio")
    protocol.on_link_down(30.0, Link(A, "radio", 0.001), Failure.SILENT)
    protocol.on_link_up(50.0, Link(G, "radio", 0.001))
    protocol.on_message(51.0, G, report(G, 1), "radio")
    port.take()
    protocol.on_timer(62.0, "retry")
    assert [effect for effect in port.take() if isinstance(effect, Send)] == [Send(G, ForwardedEvent(EVENT, 2, 539.0))]


def test_the_same_story_with_utilities_that_the_nodes_predict_themselves() -> None:
    # P (node 1) has lately been with G (2), goes to A (0), and comes back. All times are invented.
    contacts = [(1, 2, 0.0, 60.0), (0, 1, 65.0, 110.0), (1, 2, 130.0, 300.0)]
    net = Net.contacts(contacts, "adaptive", weights={"colocation": 1.0}, sigma=0.3)
    net.subscribe(2, "topic = 1")
    net.run(80)
    event = net.publish(0, {"topic": 1}, lease_s=600.0)
    net.run(100)
    assert net.list_delivered(2) == [event]
