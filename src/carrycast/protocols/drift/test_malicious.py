"""Malicious nodes among honest ones: they cost bytes and time, and no delivery that honest nodes could make alone."""

from collections.abc import Callable

import pytest

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.wire import Message
from carrycast.protocols.drift.messages import Data, Digest, Echo, Explorer, Hash, Offer, PullRequest, TreeEnd
from carrycast.protocols.drift.rules import id_sketch, short_address
from carrycast.protocols.drift.runs import pack_ids
from carrycast.protocols.drift.set_hash import hash_ids
from carrycast.sim.testing import Net

ATTACKER: NodeId = 4
"""The middle of a grid of nine; the others make a ring around it."""
HONEST = [node for node in range(9) if node != ATTACKER]
ALL = b"".join(short_address(node) for node in range(9))
NONE = [EventId(77, number) for number in range(100)]
"""Events that were never published."""


def forge_covered(event: Event) -> list[Message]:
    """The newest event, in a frame that lists all nodes."""
    return [Data(event, 2, 60.0, ALL)]


def forge_hashes(event: Event) -> list[Message]:
    """A hash that always differs, and the hash of the first event alone."""
    strange = event.id.sequence * 0x1234567 & 0xFFFFFFFF
    first = EventId(0, 0)
    return [Hash(7, strange, strange), Hash(7, hash_ids([first], 7), id_sketch(first))]


def forge_digests(event: Event) -> list[Message]:
    """Digests that claim to be missing all events, and to hold events that do not exist."""
    return [Digest(b""), Digest(pack_ids(NONE)), Digest(pack_ids([EventId(0, number) for number in range(40)]))]


def forge_offers(event: Event) -> list[Message]:
    """Offers of events that are about to be published, never followed by data."""
    return [Offer(pack_ids([EventId(0, number) for number in range(40)])), Offer(pack_ids(NONE))]


def forge_requests(event: Event) -> list[Message]:
    """Endless requests, to all nodes."""
    ids = pack_ids([EventId(0, number) for number in range(40)])
    return [PullRequest(ids, of) for of in range(9)]


def forge_tree_messages(event: Event) -> list[Message]:
    """Explorers in the name of the source and in its own, an echo, and the end of all trees."""
    second = event.id.sequence
    return [
        Explorer(0, 10**6 + second, 0, 0, 0),
        Explorer(ATTACKER, second, 0, 0, ATTACKER),
        Echo(0, 1, {}, 1),
        TreeEnd(((0, second), (0, 1), (0, 2))),
    ]


@pytest.mark.parametrize(
    "forge", [forge_covered, forge_hashes, forge_digests, forge_offers, forge_requests, forge_tree_messages]
)
def test_honest_nodes_get_all_events_of_each_other(forge: Callable[[Event], list[Message]]) -> None:
    net = Net.grid(3, 3, "drift")
    for node in HONEST:
        net.subscribe(node, "topic = 1")
    net.run(12)
    published = []
    for _ in range(20):
        published.append(net.publish(0, {"topic": 1}, lease_s=60.0))
        for message in forge(published[-1]):
            # The attacker's radio works like any other; only its messages are forged.
            net.protocol(ATTACKER).port.broadcast(message)
        net.run(1)
    net.run(20)
    for node in HONEST:
        assert sorted(event.id for event in net.list_delivered(node)) == sorted(event.id for event in published)
