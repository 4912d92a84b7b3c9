"""Adaptive routing on live nodes: a node that goes to and fro between two islands carries an event across."""

import asyncio

from carrycast.core.model import EventId, NodeId
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.config import NodeConfig
from carrycast.node.node import LiveNode
from tests.live.conftest import MakeConfig, Run

WEST, EAST, FERRY = (0, 1), (3, 4), 2
PUBLISHER, SUBSCRIBER = WEST[0], EAST[1]
SAMPLE_S = 0.1
PREDICTIONS = 12
"""After so many in its company, the ferry is worth more than sigma to a subscriber."""


def adaptive(config: MakeConfig, node: NodeId) -> NodeConfig:
    return config(
        node,
        "adaptive",
        # Whom a node has been together with decides what it is worth; the ferry never meets both islands at once.
        weights={"colocation": 1.0},
        sigma=0.3,
        tau=1.0,
        sample_s=SAMPLE_S,
        update_min_s=SAMPLE_S,
        update_max_s=SAMPLE_S,
        retry_s=0.2,
    )


def stored(node: LiveNode, event: EventId) -> bool:
    return any(row["kind"] == "store" and row["event"] == str(event) for row in node.trace.table().to_pylist())


def test_an_event_is_carried_from_one_island_to_another(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(adaptive(config, id) for id in range(5)) as network:
            nodes, inbox = list(network.nodes.values()), Inbox()
            network.nodes[SUBSCRIBER].subscribe("topic = 1", inbox)
            for island in (WEST, EAST):
                network.link(*island)
            # In the east the ferry meets the subscriber, and learns that it does.
            network.link(FERRY, SUBSCRIBER)
            await network.wait_until_discovered()
            await asyncio.sleep(PREDICTIONS * SAMPLE_S)
            network.cut(FERRY, SUBSCRIBER)
            network.link(FERRY, WEST[1])
            await network.wait_until_discovered()
            event = network.nodes[PUBLISHER].publish({"topic": 1}, lease_s=60)
            await until(lambda: stored(nodes[FERRY], event))
            await asyncio.sleep(0.5)
            assert inbox.events == [], "nobody in the west has a link to the east"
            network.cut(FERRY, WEST[1])
            await network.wait_until_discovered()
            network.link(FERRY, EAST[0])
            await until(lambda: bool(inbox.events))
            await network.wait_until_discovered()
            assert inbox.events == [event]
            # From the publisher over its neighbor to the ferry, and from there through the east.
            assert inbox.hops == [4]
        assert inbox.events == [event]
        assert not any(node.drops["handler_raised"] for node in nodes)

    run(story())
