"""002: the move of a processor, step by step and under random orders."""

from random import Random

import pytest

from driftcast.model import Event, EventId, NodeId, Processor, Subscription, SubscriptionId
from driftcast.protocol import Fact, RecordingPort, Settings
from driftcast.protocol.effects import Deliver, Note, Process, Route
from driftcast.wire import Message

from . import relocation
from .fake_host import FakeHost


class Channels:
    """Nodes joined by channels that keep order and lose nothing; which channel moves next is drawn."""

    CLIENT, OLD, NEW, PRODUCERS = 0, 1, 2, (3, 4)

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        counter = Processor("count", "")
        nodes_by_role = {"broker": (self.OLD, self.NEW), "producer": self.PRODUCERS}
        host = FakeHost(processors=(counter,), nodes_by_role=nodes_by_role)
        self.ports = {node: RecordingPort() for node in range(5)}
        self.nodes = {
            node: relocation.Relocating(node, Settings(), port, host, Random(node)) for node, port in self.ports.items()
        }
        self.channels: dict[tuple[NodeId, NodeId], list[Message]] = {}
        self.jobs: list[tuple[NodeId, Process]] = []
        self.delivered: list[Event] = []
        self.sequence = 0
        self.now = 0.0

    def collect(self) -> None:
        for node, port in self.ports.items():
            for effect in port.take():
                match effect:
                    case Route(target, message):
                        assert isinstance(target, int)
                        self.channels.setdefault((node, target), []).append(message)
                    case Process():
                        self.jobs.append((node, effect))
                    case Deliver():
                        self.delivered.append(effect.event)

    def step(self) -> bool:
        """Let one channel or one processor move; False if all is quiet."""
        self.collect()
        self.now += 1.0
        ready = [pair for pair, waiting in self.channels.items() if waiting]
        if not ready and not self.jobs:
            return False
        choice = self.rng.randrange(len(ready) + len(self.jobs))
        if choice < len(ready):
            source, target = ready[choice]
            self.nodes[target].on_packet(self.now, source, self.channels[ready[choice]].pop(0), 1)
        else:
            node, job = self.jobs.pop(choice - len(ready))
            self.sequence += 1
            count = int.from_bytes(job.state) + 1
            [taken] = job.events
            made = Event(EventId(node, self.sequence), {"count": count}, derived_from=(taken.id,))
            self.nodes[node].on_processed(self.now, job.token, count.to_bytes(4), [made], 0.1, "")
        return True

    def settle(self) -> None:
        while self.step():
            pass


@pytest.mark.parametrize("seed", range(50))
def test_a_processor_moves_without_loss_duplicate_or_disorder(seed: int) -> None:
    rng = Random(seed)
    net = Channels(rng)
    client = net.nodes[net.CLIENT]
    client.on_subscribe(0.0, Subscription(SubscriptionId(net.CLIENT, 1), "", processor="count"))
    net.settle()
    published: dict[NodeId, int] = dict.fromkeys(net.PRODUCERS, 0)
    targets = [net.NEW, net.OLD, net.NEW]
    for _ in range(60):
        for _ in range(rng.randrange(4)):
            net.step()
        producer = rng.choice(net.PRODUCERS)
        published[producer] += 1
        net.nodes[producer].on_publish(net.now, Event(EventId(producer, published[producer]), {}))
        if targets and rng.random() < 0.15:
            client.found_nearer(targets.pop(0))
    net.settle()

    assert {e.id.source for e in net.delivered} == {net.OLD, net.NEW}, "the processor must have moved"
    # The state never restarts and never forks: the counts are 1, 2, 3 ... in the order of delivery.
    assert [e.attributes["count"] for e in net.delivered] == list(range(1, sum(published.values()) + 1))
    for producer, total in published.items():
        taken = [e.derived_from[0].sequence for e in net.delivered if e.derived_from[0].source == producer]
        assert taken == list(range(1, total + 1))


def test_a_second_report_does_not_start_a_second_move() -> None:
    net = Channels(Random(0))
    old, port = net.nodes[net.OLD], net.ports[net.OLD]
    old.on_packet(0.0, net.CLIENT, relocation.Attach("count", b""), 1)
    old.on_packet(1.0, net.CLIENT, relocation.Nearest(net.NEW), 1)
    port.take()
    old.on_packet(1.5, net.CLIENT, relocation.Nearest(net.NEW), 1)
    assert port.take() == [Note(Fact("drop", peer=net.CLIENT, reason="relocation_refused"))]
    old.on_packet(2.0, net.NEW, relocation.Ready(net.CLIENT, 1, False), 1)
    old.on_packet(3.0, net.CLIENT, relocation.Nearest(net.NEW), 1)
    assert port.take() == [Route(net.NEW, relocation.Prepare(net.CLIENT, 1, "count", net.PRODUCERS))]


def test_the_steps_of_a_move_come_in_their_order() -> None:
    net = Channels(Random(0))
    old, port = net.nodes[net.OLD], net.ports[net.OLD]
    old.on_packet(0.0, net.CLIENT, relocation.Attach("count", b""), 1)
    assert port.take() == [Route(p, relocation.Switch(net.CLIENT, 0, net.OLD)) for p in net.PRODUCERS]
    old.on_packet(1.0, net.CLIENT, relocation.Nearest(net.NEW), 1)
    assert port.take() == [Route(net.NEW, relocation.Prepare(net.CLIENT, 1, "count", net.PRODUCERS))]
    old.on_packet(2.0, net.NEW, relocation.Ready(net.CLIENT, 1, True), 1)
    assert port.take() == [Route(p, relocation.Switch(net.CLIENT, 1, net.NEW)) for p in net.PRODUCERS]
    old.on_packet(3.0, 3, relocation.Marker(net.CLIENT, 0), 1)
    assert port.take() == []
    old.on_packet(4.0, 4, relocation.Marker(net.CLIENT, 0), 1)
    assert port.take() == [
        Route(net.NEW, relocation.Moved(net.CLIENT, 1, b"", ((3, 0), (4, 0)))),
        Route(net.CLIENT, relocation.End(0, net.NEW)),
    ]


def test_a_subscription_brings_its_processor_and_state_once() -> None:
    net = Channels(Random(0))
    client, port = net.nodes[net.CLIENT], net.ports[net.CLIENT]
    subscription = Subscription(SubscriptionId(net.CLIENT, 1), "", processor="count", state=b"\7")
    client.on_subscribe(0.0, subscription)
    assert port.take() == [Route(net.OLD, relocation.Attach("count", b"\7"))]
    client.on_subscribe(1.0, subscription)
    assert port.take() == [], "the same id only renews"


def test_a_call_that_fails_leaves_the_state_as_it_was_and_lets_the_next_one_run() -> None:
    net = Channels(Random(0))
    old, port = net.nodes[net.OLD], net.ports[net.OLD]
    old.on_packet(0.0, net.CLIENT, relocation.Attach("count", b"\7"), 1)
    events = [Event(EventId(3, number), {}) for number in (1, 2)]
    port.take()
    for number, event in enumerate(events):
        old.on_packet(1.0, 3, relocation.Raw(event, 0, 9.0, client=net.CLIENT, epoch=0, number=number), 2)
    assert port.take() == [Process("count", b"\7", (events[0],), 1)], "one call at a time"
    old.on_processed(2.0, 1, b"half done", [], 0.1, "it raised")
    assert port.take() == [
        Note(Fact("drop", event=events[0].id, reason="processor_failed")),
        Process("count", b"\7", (events[1],), 2),
    ]
    made = Event(EventId(net.OLD, 1), {}, derived_from=(events[1].id,))
    old.on_processed(3.0, 2, b"\10", [made], 0.1, "")
    assert port.take() == [Route(net.CLIENT, relocation.Output(made, 2, 9.0, epoch=0))]
