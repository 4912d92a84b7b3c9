"""A stack with a router beneath the protocol runs live, and a router that raises harms nothing but its packet."""

import logging
from dataclasses import replace

import pytest

from carrycast.core.model import Event, NodeId
from carrycast.core.protocol import Interface, Place, Router, Settings, StackPlan, UsesRouter
from carrycast.core.wire import Message, Parcel, ParcelMessage
from carrycast.lab.loopback.network import LoopbackNetwork, until
from carrycast.node.config import NodeConfig
from tests.live.conftest import BEACONS, MakeConfig, Run
from tests.live.talker import Talker, Word


class Packet(ParcelMessage, frozen=True, tag=1):
    """A parcel for a neighbor."""


class OneHop(Router):
    """Brings parcels to neighbors, calls every other node unreachable, and raises at the thought of node 13."""

    name = "one_hop"
    messages = (Packet,)

    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        assert isinstance(target, int)
        if target == 13:
            self.up.report_unreachable(target, parcel)
            raise RuntimeError("unlucky")
        if target == 99:
            self.up.report_unreachable(target, parcel)
        else:
            self.port.send(target, Packet(parcel))

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, Packet)
        self.up.deliver_packet(sender, message.parcel, 1)


class Sender(Talker, UsesRouter):
    """Routes what an event says to whom it says."""

    name = "sender"

    def on_publish(self, now: float, event: Event) -> None:
        self.port.route(int(event.attributes["target"]), Word(str(event.attributes["text"])))

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        assert isinstance(message, Word)
        self.heard.append(f"{message.text} from {origin} after {hops}")

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        assert isinstance(message, Word)
        self.heard.append(f"{message.text} not to {target}")


def routed(config: NodeConfig) -> NodeConfig:
    return replace(config, plan=StackPlan(Sender, Settings(), OneHop, Settings(), BEACONS))


def test_parcels_go_through_the_router_and_a_raising_router_tells_nothing(
    config: MakeConfig, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "carrycast.node")

    async def story() -> None:
        async with LoopbackNetwork(routed(config(id)) for id in (1, 2)) as network:
            network.line()
            await network.wait_until_discovered()
            node = network.nodes[1]
            for target in (13, 2, 99, 1):
                node.publish({"target": target, "text": f"word for {target}"})
            await until(lambda: Talker.all[2].heard == ["word for 2 from 1 after 1"])
            assert Talker.all[1].heard == ["word for 99 not to 99", "word for 1 from 1 after 0"]
            rows = node.trace.table().to_pylist()
            assert [(row["layer"], row["reason"]) for row in rows if row["kind"] == "drop"] == [
                ("routing", "handler_raised")
            ]
            assert [row["layer"] for row in rows if row["message"] == "Packet"] == ["routing"]

    run(story())
