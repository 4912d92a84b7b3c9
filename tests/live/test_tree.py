"""A tree of live brokers over links that form a cycle: it delivers once, and repairs itself when a link is lost."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.config import NodeConfig
from tests.live.conftest import MakeConfig, Run
from tests.patience import PATIENCE_S

BROKERS = (1, 2, 3)
CLIENT = 4


async def served(network: LoopbackNetwork, publisher: int, inbox: Inbox) -> None:
    """Publish until something has come."""
    inbox.events.clear()
    deadline = time.monotonic() + PATIENCE_S
    while not inbox.events and time.monotonic() < deadline:
        network.nodes[publisher].publish({"topic": "t"}, lease_s=60)
        await asyncio.sleep(0.05)
    await until(lambda: bool(inbox.events))


def test_live_brokers_build_a_tree_serve_a_client_and_repair_it(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    def made(node: int) -> NodeConfig:
        plain = config(node, "tree", store=tmp_path / f"{node}", group_s=0.2, refresh_s=0.5, defer_s=0.5)
        roles = ("broker",) if node in BROKERS else ()
        return replace(plain, roles=roles, directory={"broker": BROKERS})

    async def story() -> None:
        async with LoopbackNetwork([made(node) for node in (*BROKERS, CLIENT)]) as network:
            for a, b in ((1, 2), (2, 3), (1, 3), (3, CLIENT)):
                network.link(a, b)
            await network.wait_until_discovered()
            inbox = Inbox()
            network.nodes[CLIENT].subscribe("topic = 't'", inbox)
            await served(network, 1, inbox)
            before = list(inbox.events)
            assert len(set(before)) == len(before), "a circle of links delivers nothing twice"
            # 1 is the leader; the link over which 3 heard it goes, and 2 is still there.
            network.cut(1, 3)
            await asyncio.sleep(0.5)
            await served(network, 1, inbox)
            assert len(set(inbox.events)) == len(inbox.events)

    run(story())
