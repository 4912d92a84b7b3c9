"""Opportunistic overlays live: the paper's testbed on loopback, three nodes over AODV [002 §4.3]."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from driftcast.dissemination.overlay.protocol import Overlay
from driftcast.live.config import NodeConfig
from driftcast.live.host.processing import ProcessorConfig
from driftcast.loopback.network import LoopbackNetwork, until
from driftcast.model import Event, NodeId, Processor, SubscriptionId
from driftcast.protocol import StackPlan
from driftcast.protocol.registry import router_named
from driftcast.settings import typed
from tests.live.conftest import BEACONS, MakeConfig, Run
from tests.live.keyed import Operator

A, B, C = 1, 2, 3
BROKERS = (A, B)
# Quick, since a test does not wait for twenty seconds.
SETTINGS: dict[str, object] = {"update_s": 0.5, "look_s": 0.3, "taken_s": 0.1, "ring_hop_s": 0.02, "refresh_s": 1.0}
AODV: dict[str, object] = {"reboot_wait": False, "node_traversal_s": 0.02}
RUNOFF = """
def runoff(event, state):
    depth = int(state or b"0") + event.attributes["rain"]
    return ({"depth": depth}, depth.to_bytes(8) * 1000), str(depth).encode()
"""


class Watched(Overlay):
    """Where a test finds the protocols of its nodes."""

    all: ClassVar[dict[NodeId, Overlay]] = {}

    def on_start(self, now: float) -> None:
        Watched.all[self.node] = self
        super().on_start(now)


def laptop(config: NodeConfig, function: Path) -> NodeConfig:
    kind = router_named("aodv")
    router = typed(AODV, kind.settings_type, "test")
    plan = StackPlan(Watched, typed(SETTINGS, Overlay.settings_type, "test"), kind, router, BEACONS)
    roles = ("broker",) if config.node in BROKERS else ()
    processors = (ProcessorConfig(Processor("runoff", ""), function, "runoff", 10.0),) if roles else ()
    return replace(config, plan=plan, roles=roles, directory={"broker": BROKERS}, processors=processors)


@pytest.mark.parametrize("keyed", [False, True], ids=["open", "keyed"])
def test_a_modulator_moves_while_events_flow_and_none_is_lost(
    keyed: bool, config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    function = tmp_path / "f.py"
    function.write_text(RUNOFF)
    depths: list[object] = []
    makers: list[NodeId] = []

    def receive(subscription: SubscriptionId, event: Event, hops: int) -> None:
        depths.append(event.attributes["depth"])
        makers.append(event.id.source)
        assert len(event.payload) == 8000

    async def story() -> None:
        laptops = [laptop(config(node), function) for node in (A, B, C)]
        async with LoopbackNetwork(map(Operator().keyed, laptops) if keyed else laptops) as network:
            network.link(A, B)
            network.link(B, C)
            await network.discovered()
            network.nodes[C].subscribe("true", receive, processor="runoff")
            client = Watched.all[C].client
            await until(lambda: client.home == B, 20.0)
            published = 0

            async def rain(times: int) -> None:
                nonlocal published
                for _ in range(times):
                    network.nodes[A].publish({"rain": 1})
                    published += 1
                    await asyncio.sleep(0.02)

            await asyncio.sleep(1.0)
            await rain(20)
            await until(lambda: len(depths) == published, 20.0)
            # A-B-C-A: from now on C is as near to A, where the rain is measured.
            network.link(A, C)
            for _ in range(100):
                await rain(5)
                if client.home == A:
                    break
            assert client.home == A
            # A-C-B, then B-A-C.
            network.cut(A, B)
            await rain(20)
            network.link(A, B)
            network.cut(B, C)
            await rain(20)
            await until(lambda: len(depths) == published, 30.0)
            assert depths == list(range(1, published + 1))
            assert set(makers) == {A, B}
            dropped = {reason for node in network.nodes.values() for reason in node.drops}
            assert not {reason for reason in dropped if reason.startswith(("event_", "subscription_"))}

    run(story())
