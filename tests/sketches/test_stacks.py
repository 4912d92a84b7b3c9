"""A sketch over a sketched router, in the stack that every world uses."""

from random import Random

import pytest

from driftcast.model import NodeId, Position, Subscription, SubscriptionId
from driftcast.protocol import Place, RecordingPort, Router, Settings, Stack, StackPlan
from driftcast.protocol.effects import Broadcast, Deliver, Effect, Send
from driftcast.wire import Layer, Message, Traffic, carried

from . import routers, topic_holders
from .fake_host import FakeHost
from .samples import event


class StackPort(RecordingPort):
    """Hands routes to the stack, as the port of every world does, and records the rest."""

    __slots__ = ("stack",)

    stack: Stack

    def route(self, target: NodeId | Place, message: Message) -> None:
        self.stack.route(target, message)


class Row:
    """Nodes in a row, each hearing the next: 100 m apart, with every message encoded and decoded on its way."""

    def __init__(self, router: type[Router], holders: tuple[NodeId, ...], by_place: bool) -> None:
        # The area is a point, so the place of every topic is where node 0 is.
        settings = topic_holders.HolderSettings(by_place=by_place, width_m=1e-6, height_m=1e-6, capture_m=10.0)
        self.plan = StackPlan(topic_holders.TopicHolders, settings, router, Settings())
        self.ports: list[dict[Layer, StackPort]] = []
        self.stacks: list[Stack] = []
        self.delivered: list[tuple[NodeId, Deliver]] = []
        self.sent: list[Message] = []
        for node in range(3):
            ports = {layer: StackPort() for layer in self.plan.codecs}
            hosts = dict.fromkeys(ports, FakeHost(Position(100.0 * node, 0.0), nodes_by_role={"holder": holders}))
            stack = Stack(self.plan, node, ports.__getitem__, hosts.__getitem__, Random, ("radio",), lambda *_: 0.01)
            for port in ports.values():
                port.stack = stack
            self.ports.append(ports)
            self.stacks.append(stack)

    def settle(self, now: float) -> None:
        """Carry everything to whoever hears it, until all is quiet."""
        while pending := [
            (node, layer, effect)
            for node, ports in enumerate(self.ports)
            for layer, port in ports.items()
            for effect in port.take()
        ]:
            for node, layer, effect in pending:
                self._carry_out(now, node, layer, effect)

    def _carry_out(self, now: float, node: NodeId, layer: Layer, effect: Effect) -> None:
        match effect:
            case Deliver():
                self.delivered.append((node, effect))
            case Send(target=target, message=message, token=token):
                self._transmit(now, node, layer, message, [target])
                if token is not None:
                    self.stacks[node].on_sent(now, layer, token, None)
            case Broadcast(message=message):
                hearers = [other for other in range(len(self.stacks)) if abs(other - node) == 1]
                self._transmit(now, node, layer, message, hearers)

    def _transmit(self, now: float, node: NodeId, layer: Layer, message: Message, hearers: list[NodeId]) -> None:
        self.sent.append(message)
        codec = self.plan.codecs[layer]
        for hearer in hearers:
            self.stacks[hearer].on_message(now, layer, node, codec.decode(codec.encode(message)), "radio")


def subscribe(row: Row, node: NodeId) -> SubscriptionId:
    """A subscription, refreshed at its holder."""
    subscription = Subscription(SubscriptionId(node, 1), "", attributes={"topic": "jam"})
    row.stacks[node].on_subscribe(0.0, subscription)
    for stack in row.stacks:
        if stack.plan.router is routers.GpsrSketch:
            stack.on_timer(0.0, Layer.ROUTING, "beacon")
    row.settle(0.0)
    row.stacks[node].on_timer(0.5, Layer.DISSEMINATION, "refresh")
    row.settle(0.5)
    return subscription.id


@pytest.mark.parametrize(
    ("router", "by_place"), [(routers.AodvSketch, False), (routers.GpsrSketch, True)], ids=["aodv", "gpsr"]
)
def test_an_event_goes_through_its_holder_and_counts_the_hops_of_both_legs(
    router: type[Router], by_place: bool
) -> None:
    row = Row(router, holders=(0,), by_place=by_place)
    mine = subscribe(row, 2)
    row.sent.clear()
    jam = event(1, topic="jam")
    row.stacks[1].on_publish(1.0, jam)
    row.settle(1.0)
    assert row.delivered == [(2, Deliver(mine, jam, 3))]
    assert [carried(m)[1] for m in row.sent if carried(m)[0] is Traffic.DATA] == [jam.id] * 3


def test_what_a_holder_routes_to_itself_takes_no_transmission() -> None:
    row = Row(routers.AodvSketch, holders=(2,), by_place=False)
    mine = subscribe(row, 2)
    row.sent.clear()
    row.stacks[2].on_publish(1.0, event(2, topic="jam"))
    row.settle(1.0)
    assert row.delivered == [(2, Deliver(mine, event(2, topic="jam"), 0))]
    assert row.sent == []
