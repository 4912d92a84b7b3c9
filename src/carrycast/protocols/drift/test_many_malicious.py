"""A fifth of a moving network sends forged messages all the time and forwards nothing. Honest nodes get from each other
all events that flooding among them alone would deliver."""

from itertools import pairwise
from random import Random

import pytest

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.wire import Message
from carrycast.protocols.drift.messages import Audit, Data, Digest, Echo, Explorer, Hash, Offer, PullRequest, TreeEnd
from carrycast.protocols.drift.rules import short_address
from carrycast.protocols.drift.runs import pack_ids
from carrycast.sim.engine.node import SimPort
from carrycast.sim.testing import Net

NODES = 20
MALICIOUS = frozenset({3, 7, 11, 15})
HONEST = [node for node in range(NODES) if node not in MALICIOUS]
SECONDS = 40
Contact = tuple[NodeId, NodeId, float, float]


def contacts(rng: Random) -> list[Contact]:
    """Return the contacts of two islands whose nodes change every ten seconds. The honest nodes of an island are
    connected without the malicious ones, so flooding among them reaches all of them."""
    found: list[Contact] = []
    for begin in range(0, SECONDS + 20, 10):
        nodes = list(range(NODES))
        rng.shuffle(nodes)
        for island in (nodes[:10], nodes[10:]):
            honest = [node for node in island if node not in MALICIOUS]
            pairs = {(min(pair), max(pair)) for pair in pairwise(honest)}
            for _ in range(10):
                a, b = rng.sample(island, 2)
                pairs.add((min(a, b), max(a, b)))
            found += [(a, b, float(begin), begin + 9.5) for a, b in sorted(pairs)]
    return found


def forge_messages(rng: Random, newest: list[EventId], event: Event) -> list[Message]:
    """Return one message of each kind, about events that exist and about others."""
    all_addresses = b"".join(short_address(node) for node in range(NODES))
    invented = pack_ids({EventId(rng.randrange(NODES), 1000 + rng.randrange(100)) for _ in range(50)})
    known = pack_ids(newest)
    source, number = rng.choice(HONEST), rng.randrange(1 << 22)
    return [
        Data(event, 2, 60.0, all_addresses),
        Hash(rng.getrandbits(16), rng.getrandbits(32), rng.getrandbits(32)),
        Digest(b""),
        Digest(invented),
        Offer(invented),
        Offer(known),
        PullRequest(known, rng.randrange(NODES)),
        Explorer(source, number, 0, 0, source),
        Echo(source, number, {}, 1),
        Audit(source, number, 0, 99, 7, {}),
        TreeEnd(((source, number),)),
    ]


def run(protocol: str, seed: int, patch: pytest.MonkeyPatch | None = None) -> dict[NodeId, set[EventId]]:
    """Return the events that each honest node got; with malicious nodes if `patch` is given, else without them."""
    rng = Random(seed)
    found = contacts(rng)
    if patch is None:
        found = [one for one in found if not MALICIOUS & set(one[:2])]
    net = Net.contacts(found, protocol)
    ports = {net.protocol(node).port for node in MALICIOUS} if patch else set()
    broadcast, send = SimPort.broadcast, SimPort.send
    if patch:
        patch.setattr(SimPort, "broadcast", lambda port, *what, **how: port in ports or broadcast(port, *what, **how))
        patch.setattr(SimPort, "send", lambda port, *what, **how: port in ports or send(port, *what, **how))
    for node in HONEST:
        net.subscribe(node, "topic = 1")
    newest: list[EventId] = []
    for second in range(SECONDS):
        net.run(1)
        if second % 2 == 0:
            event = net.publish(rng.choice(HONEST), {"topic": 1}, lease_s=18.0)
            newest = [*newest[-20:], event.id]
            forge_rng = Random(second)
            for port in [net.protocol(node).port for node in sorted(MALICIOUS)] if patch else []:
                for message in forge_messages(forge_rng, newest, event):
                    assert isinstance(port, SimPort)
                    broadcast(port, message)
    net.run(20)
    return {node: {event.id for event in net.list_delivered(node)} for node in HONEST}


@pytest.mark.parametrize("seed", [1, 2])
def test_malicious_nodes_cost_no_delivery_that_flooding_among_honest_nodes_makes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flooded = run("flooding", seed)
    found = run("drift", seed, monkeypatch)
    missing = {node: flooded[node] - found[node] for node in HONEST}
    assert not any(missing.values()), missing
    # Drift carries events from island to island, which flooding does not.
    assert sum(map(len, found.values())) > sum(map(len, flooded.values()))
