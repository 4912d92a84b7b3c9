"""Every protocol that a plain node can run does, on a node with one interface and on one with two."""

import asyncio
import time
from dataclasses import replace

import pytest

from carrycast.core.protocol import StackPlan, UsesRouter
from carrycast.core.protocol.registry import find_protocol, protocol_names
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.runtime.host import HostFacts, find_capabilities
from carrycast.node.storage.sequence_numbers import next_incarnation
from tests.live.conftest import BEACONS, LINK, MakeConfig, Run
from tests.patience import PATIENCE_S

OFFERED = find_capabilities(store=False, facts=HostFacts())
PROTOCOLS = [
    name
    for name in protocol_names()
    if not issubclass(find_protocol(name), UsesRouter) and find_protocol(name).needs <= OFFERED
]
QUICK: dict[str, dict[str, float]] = {
    # By default these report who subscribes every ten seconds or so.
    "adaptive": {"sample_s": 0.1, "update_min_s": 0.1},
    "semi_probabilistic": {"update_s": 0.1},
}


@pytest.mark.parametrize("interfaces", [("udp",), ("udp", "ethernet")], ids=["one", "two"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_events_reach_a_subscriber_at_a_neighbor(
    protocol: str, interfaces: tuple[str, ...], config: MakeConfig, run: Run
) -> None:
    async def story() -> None:
        kind = find_protocol(protocol)
        plan = StackPlan(kind, kind.settings_type(**QUICK.get(protocol, {})), beacons=BEACONS)
        links = dict.fromkeys(interfaces, LINK)
        configs = [replace(config(id, protocol, interfaces=links), plan=plan) for id in (1, 2)]
        async with LoopbackNetwork(configs) as network:
            for interface in interfaces:
                network.link(1, 2, interface)
            await network.wait_until_discovered()
            inbox = Inbox()
            network.nodes[2].subscribe("topic = 't'", inbox)
            published = []
            deadline = time.monotonic() + PATIENCE_S
            while not inbox.events and time.monotonic() < deadline:
                published.append(network.nodes[1].publish({"topic": "t"}, lease_s=60))
                await asyncio.sleep(0.05)
            await until(lambda: bool(inbox.events))
            assert set(inbox.events) <= set(published)
            assert len(set(inbox.events)) == len(inbox.events)
            assert inbox.hops[0] == 1

    run(story())


def test_a_start_has_a_number_that_protocols_can_put_before_a_counter() -> None:
    assert 0 < next_incarnation(None) < 2**31
