"""Opportunistic overlays live: the paper's testbed on loopback, three nodes over AODV [002 §4.3]."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

import carrycast
from carrycast.core.model import Event, NodeId, Processor, SubscriptionId
from carrycast.core.protocol import StackPlan
from carrycast.core.protocol.registry import find_router
from carrycast.core.settings import parse_settings
from carrycast.lab.loopback.network import LoopbackNetwork, until
from carrycast.node.api.durable_subscription import Consumer
from carrycast.node.config import NodeConfig
from carrycast.node.runtime.processing import ProcessorConfig
from carrycast.protocols.overlay.protocol import OpportunisticOverlay
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


class Watched(OpportunisticOverlay):
    """Where a test finds the protocols of its nodes."""

    all: ClassVar[dict[NodeId, OpportunisticOverlay]] = {}

    def on_start(self, now: float) -> None:
        Watched.all[self.node] = self
        super().on_start(now)


def laptop(config: NodeConfig, function: Path, **settings: object) -> NodeConfig:
    kind = find_router("aodv")
    router = parse_settings(AODV, kind.settings_type, "test")
    plan = StackPlan(
        Watched,
        parse_settings({**SETTINGS, **settings}, OpportunisticOverlay.settings_type, "test"),
        kind,
        router,
        BEACONS,
    )
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
            await network.wait_until_discovered()
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


def test_clients_are_told_that_a_processor_began_without_its_state(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    """The home of a consumer is killed: another broker runs its processor, from the beginning."""
    function = tmp_path / "f.py"
    function.write_text(RUNOFF)
    control = tmp_path / "control"

    async def story() -> None:
        made = [config(node, control=control if node == C else None) for node in (A, B, C)]
        quick = [laptop(one, function, patience_s=2.0, seek_s=1.0, resend_s=1.0) for one in made]
        laptops = [replace(one, names={A: "ant", B: "bee"}) for one in quick]
        async with LoopbackNetwork(laptops) as network:
            for a, b in ((A, B), (B, C), (A, C)):
                network.link(a, b)
            await network.wait_until_discovered()
            client = await asyncio.to_thread(carrycast.connect, str(control))
            deliveries = await asyncio.to_thread(client.subscribe, "true", name="depths", processor="runoff")

            async def depth() -> int:
                """The next result; it rains until there is one."""
                while True:
                    network.nodes[C].publish({"rain": 1})
                    delivery = await asyncio.to_thread(deliveries.next_delivery, 0.5)
                    if delivery is not None:
                        return int(str(delivery.event.attributes["depth"]))

            depths = [await depth() for _ in range(30)]
            assert depths == sorted(set(depths))
            assert deliveries.gaps == []
            overlay = Watched.all[C].client
            home = overlay.home
            assert home is not None
            name = {A: "ant", B: "bee"}[home]
            details = (await asyncio.to_thread(client.status)).details
            assert details["home broker"] == name
            assert details["modulators of this node"] == f"{deliveries.subscription} at {name}"
            runs = network.nodes[home].status().details["modulators here"]
            assert runs.startswith(f"runoff for {deliveries.subscription}")
            await network.crash(home)
            await until(lambda: overlay.home not in (None, home), 60.0)
            # What was on its way comes first; then the processor counts from the beginning.
            while not deliveries.gaps:
                await depth()
            assert await depth() < depths[-1]
            assert deliveries.gaps == ["processor_restarted"]
            assert network.nodes[C].status().counts["gaps"] == 1
            await asyncio.to_thread(client.close)

    run(story())


def test_a_reader_that_comes_after_its_node_started_again_is_told_too(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    function = tmp_path / "f.py"
    function.write_text(RUNOFF)
    gaps: list[str] = []
    reader = Consumer(lambda *_: None, on_gap=lambda _, reason: gaps.append(reason))

    async def story() -> None:
        one = laptop(config(C, store=tmp_path / "store"), function)
        async with LoopbackNetwork([one]) as network:
            network.nodes[C].subscribe("true", reader, "depths", processor="runoff")
            network.nodes[C].subscribe("true", reader, "rain")
            await asyncio.sleep(0)
            assert gaps == []
            await network.stop(C)
            await network.start(C)
            network.nodes[C].subscribe("true", reader, "rain")
            network.nodes[C].subscribe("true", reader, "depths", processor="runoff")
            await until(lambda: bool(gaps))
            assert gaps == ["node_restarted"]

    run(story())
