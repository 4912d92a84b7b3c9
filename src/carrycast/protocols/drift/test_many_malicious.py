"""A fifth of a moving network lies all the time, and passes nothing on: the honest get of each other what flooding
among them alone would give."""

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
LIARS = frozenset({3, 7, 11, 15})
HONEST = [node for node in range(NODES) if node not in LIARS]
SECONDS = 40
Contact = tuple[NodeId, NodeId, float, float]


def contacts(rng: Random) -> list[Contact]:
    """Two islands that meet now and then; who is in which changes every ten seconds. Honest nodes of an island are one
    network without the liars, so that flooding among them reaches all of it."""
    found: list[Contact] = []
    for begin in range(0, SECONDS + 20, 10):
        nodes = list(range(NODES))
        rng.shuffle(nodes)
        for island in (nodes[:10], nodes[10:]):
            honest = [node for node in island if node not in LIARS]
            pairs = {(min(pair), max(pair)) for pair in pairwise(honest)}
            for _ in range(10):
                a, b = rng.sample(island, 2)
                pairs.add((min(a, b), max(a, b)))
            found += [(a, b, float(begin), begin + 9.5) for a, b in sorted(pairs)]
    return found


def lies(rng: Random, newest: list[EventId], event: Event) -> list[Message]:
    """One of each kind, about what there is and what there is not."""
    everybody = b"".join(short_address(node) for node in range(NODES))
    invented = pack_ids({EventId(rng.randrange(NODES), 1000 + rng.randrange(100)) for _ in range(50)})
    known = pack_ids(newest)
    source, number = rng.choice(HONEST), rng.randrange(1 << 22)
    return [
        Data(event, 2, 60.0, everybody),
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
    """Whom what reached; with liars if their radios may be taken over, else without them."""
    rng = Random(seed)
    found = contacts(rng)
    if patch is None:
        found = [one for one in found if not LIARS & set(one[:2])]
    net = Net.contacts(found, protocol)
    ports = {net.protocol(liar).port for liar in LIARS} if patch else set()
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
            told = Random(second)
            for port in [net.protocol(liar).port for liar in sorted(LIARS)] if patch else []:
                for message in lies(told, newest, event):
                    assert isinstance(port, SimPort)
                    broadcast(port, message)
    net.run(20)
    return {node: {event.id for event in net.delivered(node)} for node in HONEST}


@pytest.mark.parametrize("seed", [1, 2])
def test_liars_take_nothing_that_flooding_among_the_honest_would_give(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flooded = run("flooding", seed)
    found = run("drift", seed, monkeypatch)
    missing = {node: flooded[node] - found[node] for node in HONEST}
    assert not any(missing.values()), missing
    # What is carried from island to island is more than flooding reaches.
    assert sum(map(len, found.values())) > sum(map(len, flooded.values()))
