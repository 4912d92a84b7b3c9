"""A neighbor that is away for a tenth of a second, before anybody misses it, is a new neighbor, in both worlds.

Three nodes in a line; 0 publishes, 2 subscribes. First the relay restarts, then the subscriber, then the relay again
while it holds an event for the subscriber, who is out of reach. Something is published while a node is away, but not
the last time: then nobody sends to the relay, and its beacons alone can tell.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from carrycast.core.model import Event, NodeId, SubscriptionId
from carrycast.errors import WorkError
from carrycast.lab.loopback.network import LoopbackNetwork, until
from carrycast.sim.testing import Net
from carrycast.trace import Kind
from tests.live.conftest import MakeConfig, Run
from tests.live.environments import (
    BEACONS,
    REPORT_S,
    Subject,
    label,
    make_config,
    make_net,
    number,
    subjects,
    wait_until_settled,
)

PUBLISHER, RELAY, SUBSCRIBER = 0, 1, 2
LINE = [(PUBLISHER, RELAY), (RELAY, SUBSCRIBER)]
AWAY_S = 0.1
assert BEACONS.period_s * BEACONS.missed / 2 > AWAY_S

NAMES = ("adaptive", "asp", "epidemic", "flooding", "gossip", "processor_flooding", "semi_probabilistic")
PATIENT: dict[str, dict[str, object]] = {
    "semi_probabilistic": {"retry_s": 0.2, "attempts": 1000},
    # Who subscribes while a stream is announced learns of it with the next announcement: so that is soon.
    "asp": {"validity_s": 0.5},
}
SUBJECTS = [{**subject, **PATIENT.get(label(subject), {})} for subject in subjects() if label(subject) in NAMES]
QUIET_S = {**REPORT_S, "asp": 1.0}
"""An announcement on its way to a relay that starts anew may reach it before that has found its other neighbor. It
leads nowhere then, and what is published while it is valid has no path."""
CARRY = {"adaptive", "epidemic", "semi_probabilistic"}
"""The protocols that keep an event for a node that cannot be reached."""

ALWAYS = {1, 3, 5}
"""Published while everybody was there, and known to be."""
WHILE_AWAY = {2, 4}
HELD = {6}
"""Handed to the relay for the subscriber, before the relay lost its memory."""


def wanted(subject: Subject) -> set[int]:
    return ALWAYS | WHILE_AWAY | HELD if subject["name"] in CARRY else ALWAYS


@pytest.mark.parametrize("subject", SUBJECTS, ids=label)
def test_in_the_simulator(subject: Subject) -> None:
    net = make_net(LINE, subject)
    net.subscribe(SUBSCRIBER, "true")
    for a, b in LINE:
        net.heal(a, b)
    net.run(2)
    net.publish(PUBLISHER, {"n": 1})
    net.run(1)
    for turn, node in enumerate((RELAY, SUBSCRIBER)):
        restart_simulated(net, node, publish=2 + 2 * turn)
        net.publish(PUBLISHER, {"n": 3 + 2 * turn})
        net.run(1)
    net.cut(RELAY, SUBSCRIBER)
    net.run(1)
    net.publish(PUBLISHER, {"n": 6})
    net.run(1)
    restart_simulated(net, RELAY)
    net.heal(RELAY, SUBSCRIBER)
    net.run(3)
    assert {number(event) for event in net.list_delivered(SUBSCRIBER)} >= wanted(subject)


def restart_simulated(net: Net, node: NodeId, publish: int | None = None) -> None:
    """Away and back, perhaps with something published meanwhile; then time to notice."""
    before = len(net.rows(Kind.LINK_DOWN, peer=node))
    net.crash(node)
    if publish is not None:
        net.publish(PUBLISHER, {"n": publish})
    net.run(AWAY_S)
    net.restart(node)
    net.run(2)
    assert len(net.rows(Kind.LINK_DOWN, peer=node)) > before
    assert net.rows(Kind.LINK_DOWN, peer=node)[-1]["reason"] in ("restarted", "unreachable")


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("subject", SUBJECTS, ids=label)
def test_on_loopback(subject: Subject, clean: bool, config: MakeConfig, run: Run, tmp_path: Path) -> None:
    got: set[int] = set()

    def inbox(subscription: SubscriptionId, event: Event, hops: int) -> None:
        got.add(number(event))

    async def arrived(*numbers: int) -> None:
        with suppress(WorkError):
            await until(lambda: got >= set(numbers), 10.0)
        assert got >= set(numbers), got

    async def restart(network: LoopbackNetwork, id: NodeId, publish: int | None = None) -> None:
        neighbors = [a if b == id else b for a, b in LINE if id in (a, b)]
        before = {other: lost(network, other, id) for other in neighbors}
        known = [other for other in neighbors if id in network.nodes[other].neighbors]
        await (network.stop(id) if clean else network.crash(id))
        if publish is not None:
            network.nodes[PUBLISHER].publish({"n": publish})
        await asyncio.sleep(AWAY_S)
        node = await network.start(id)
        if id == SUBSCRIBER:
            node.subscribe("true", inbox, name="application")
        await until(lambda: all(lost(network, other, id) > before[other] for other in known))
        await wait_until_settled(network, QUIET_S.get(str(subject["name"]), 0.0))

    async def story() -> None:
        configs = [
            replace(make_config(config, id, subject), store=tmp_path / str(id)) for id in (PUBLISHER, RELAY, SUBSCRIBER)
        ]
        async with LoopbackNetwork(configs) as network:
            network.nodes[SUBSCRIBER].subscribe("true", inbox, name="application")
            network.line()
            await wait_until_settled(network, QUIET_S.get(str(subject["name"]), 0.0))
            network.nodes[PUBLISHER].publish({"n": 1})
            await arrived(1)
            for turn, id in enumerate((RELAY, SUBSCRIBER)):
                await restart(network, id, publish=2 + 2 * turn)
                network.nodes[PUBLISHER].publish({"n": 3 + 2 * turn})
                await arrived(3 + 2 * turn)
            network.cut(RELAY, SUBSCRIBER)
            await network.wait_until_discovered()
            network.nodes[PUBLISHER].publish({"n": 6})
            await asyncio.sleep(0.3)
            await restart(network, RELAY)
            network.link(RELAY, SUBSCRIBER)
            await network.wait_until_discovered()
            await arrived(*wanted(subject))

    run(story())


def lost(network: LoopbackNetwork, observer: NodeId, neighbor: NodeId) -> int:
    """Return how often a node has lost its link to a neighbor."""
    rows = network.nodes[observer].trace.table().to_pylist()
    return sum(row["kind"] == Kind.LINK_DOWN and row["peer"] == neighbor for row in rows)
