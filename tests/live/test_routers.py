"""The routers live, over links that come and go."""

import contextlib
from dataclasses import replace
from typing import ClassVar

import pytest

from carrycast.core.model import Event, NodeId, Position, Scalar
from carrycast.core.protocol import Interface, Place, StackPlan, UsesRouter
from carrycast.core.protocol.registry import find_router
from carrycast.core.settings import parse_settings
from carrycast.core.wire import Message
from carrycast.errors import WorkError
from carrycast.lab.loopback.network import LoopbackNetwork, until
from carrycast.node.config import NodeConfig
from tests.live.conftest import BEACONS, MakeConfig, Run
from tests.live.talker import Talker, Word

SPACING_M = 100.0
SETTINGS: dict[str, dict[str, object]] = {
    # Live nodes count their starts over restarts of the process, so each looks like one that has started anew.
    "aodv": {"reboot_wait": False, "node_traversal_s": 0.02},
    "gpsr": {"beacon_s": 0.05, "dead_reckoning": True},
    "olsr": {"hello_interval_s": 0.05, "tc_interval_s": 0.1, "detection": "link_layer"},
    "dsdv": {"update_interval_s": 0.1, "min_trigger_s": 0.02, "settling_s": 0.02, "reboot_wait": False},
}


class Walker(Talker, UsesRouter):
    """Routes what an event says to the node, or to the place, that it names."""

    name = "walker"
    all: ClassVar[dict[NodeId, Talker]] = {}

    def on_publish(self, now: float, event: Event) -> None:
        at, target = event.attributes.get("at"), event.attributes.get("target")
        node = None if target is None else int(target)
        word = Word(str(event.attributes["text"]))
        if at is not None:
            self.port.route(Place(Position(float(at), 0.0), 0.0, node), word)
        else:
            assert node is not None
            self.port.route(node, word)

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        assert isinstance(message, Word)
        self.heard.append(f"{message.text} from {origin} after {hops}")

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        assert isinstance(message, Word)
        self.heard.append(f"{message.text} not sent")

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        raise AssertionError("everything goes through the router")


def routed(config: NodeConfig, router: str, x_m: float) -> NodeConfig:
    kind = find_router(router)
    settings = parse_settings(SETTINGS[router], kind.settings_type, "test")
    plan = StackPlan(Walker, Walker.settings_type(), kind, settings, BEACONS)
    return replace(config, plan=plan, position=Position(x_m, 0.0))


def heard(node: NodeId) -> list[str]:
    return Talker.all[node].heard


@pytest.mark.parametrize("router", ["aodv", "gpsr", "olsr", "dsdv"])
def test_packets_find_their_way_while_links_come_and_go(router: str, config: MakeConfig, run: Run) -> None:
    # A line 1 - 2 - 3 - 4, and node 5 as another way from 2 to 4 when node 3 is cut off.
    places = {1: 0.0, 2: 100.0, 3: 200.0, 4: 300.0, 5: 205.0}

    def letter(text: str) -> dict[str, Scalar]:
        said: dict[str, Scalar] = {"target": 4, "text": text}
        return {**said, "at": places[4]} if router == "gpsr" else said

    async def story() -> None:
        async with LoopbackNetwork(routed(config(node), router, x_m) for node, x_m in places.items()) as network:
            for a, b in ((1, 2), (2, 3), (3, 4)):
                network.link(a, b)
            await network.wait_until_discovered()
            await said_until_heard(network, letter("one"))
            assert set(heard(4)) == {"one from 1 after 3"}
            network.cut(3, 4)
            network.link(2, 5)
            network.link(5, 4)
            await network.wait_until_discovered()
            await said_until_heard(network, letter("two"))
            network.cut(2, 5)
            network.link(3, 4)
            await network.wait_until_discovered()
            await said_until_heard(network, letter("three"))
            assert heard(4)[-1] == "three from 1 after 3"

    run(story())


async def said_until_heard(network: LoopbackNetwork, attributes: dict[str, Scalar]) -> None:
    """A router may lose what is under way when a link goes, so who wants to be heard says it again."""
    text = str(attributes["text"])
    for _ in range(20):
        network.nodes[1].publish(attributes)
        with contextlib.suppress(WorkError):
            await until(lambda: any(word.startswith(f"{text} from 1 after ") for word in heard(4)), 0.5)
            return
    raise AssertionError(f"{text} was never heard")


def test_a_target_that_is_not_there_is_said_to_be_unreachable(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(routed(config(node), "gpsr", SPACING_M * node) for node in (1, 2)) as network:
            network.line()
            await network.wait_until_discovered()
            network.nodes[1].publish({"target": 9, "text": "hello"})
            await until(lambda: heard(1) == ["hello not sent"])
            network.nodes[1].publish({"target": 9, "at": -500.0, "text": "far"})
            await until(lambda: heard(1) == ["hello not sent", "far not sent"])

    run(story())


def test_packets_for_a_place_go_to_whoever_has_moved_there(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(routed(config(node), "gpsr", SPACING_M * node) for node in (1, 2, 3)) as network:
            network.line()
            await network.wait_until_discovered()

            async def said_to_the_east(text: str, nearest: NodeId) -> None:
                for _ in range(40):
                    network.nodes[1].publish({"at": 1000.0, "text": text})
                    with contextlib.suppress(WorkError):
                        await until(lambda: any(word.startswith(text) for word in heard(nearest)), 0.25)
                        return
                raise AssertionError(f"{text} was never heard by node {nearest}")

            await said_to_the_east("before", 3)
            network.nodes[3].move(Position(-150.0, 0.0))
            await said_to_the_east("after", 2)
            network.nodes[1].move(Position(900.0, 0.0))
            await said_to_the_east("at home", 1)

    run(story())
