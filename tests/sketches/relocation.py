"""002: a processor moves from one home broker to another: ordered, nothing lost, nothing twice.

Channels between two nodes keep their order and lose nothing, as the paper assumes; across channels any order may come.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated

from msgspec import Meta

from driftcast.model import Event, NodeId, Processor, ProcessorId, Subscription, SubscriptionId
from driftcast.model.subscription import MAX_STATE_BYTES
from driftcast.protocol import (
    Capability,
    Fact,
    Host,
    Place,
    Port,
    Protocol,
    RunsProcessors,
    Settings,
    Token,
    UsesRouter,
)
from driftcast.wire import EventMessage, Message

Count = Annotated[int, Meta(ge=0, le=2**32)]
State = Annotated[bytes, Meta(max_length=MAX_STATE_BYTES)]
Producers = Annotated[tuple[NodeId, ...], Meta(max_length=256)]


class Raw(EventMessage, frozen=True, gc=False, kw_only=True, tag=1):
    """An event from a producer's broker to the home broker of a client."""

    client: NodeId
    epoch: Count
    number: Count


class Attach(Message, frozen=True, gc=False, tag=2):
    """A client asks its first home broker to run a processor for it."""

    processor: Annotated[str, Meta(max_length=64)]
    state: State


class Nearest(Message, frozen=True, gc=False, tag=3):
    """[002 §2.4] A client reports a nearer broker to its home broker."""

    broker: NodeId


class Prepare(Message, frozen=True, gc=False, tag=4):
    """Step 1: the old home to the new one."""

    client: NodeId
    epoch: Count
    processor: Annotated[str, Meta(max_length=64)]
    producers: Producers


class Ready(Message, frozen=True, gc=False, tag=5):
    """Step 1: the answer, or why not."""

    client: NodeId
    epoch: Count
    ok: bool


class Switch(Message, frozen=True, gc=False, tag=6):
    """Step 2: the old home to each producer's broker."""

    client: NodeId
    epoch: Count
    home: NodeId


class Marker(Message, frozen=True, gc=False, tag=7):
    """Step 2: the last item of the old path."""

    client: NodeId
    epoch: Count


class Moved(Message, frozen=True, gc=False, tag=8):
    """Step 4: the processor's state, and the number that each producer's stream continues with."""

    client: NodeId
    epoch: Count
    state: State
    following: Annotated[tuple[tuple[NodeId, Count], ...], Meta(max_length=256)]


class Output(EventMessage, frozen=True, gc=False, kw_only=True, tag=9):
    """What a processor made, on its way to the client."""

    epoch: Count


class End(Message, frozen=True, gc=False, tag=10):
    """Step 5: nothing of the old epoch follows; `home` is where to report from now on."""

    epoch: Count
    home: NodeId


class HomeOf:
    """One client at its home broker."""

    def __init__(self, processor: ProcessorId, epoch: int, producers: tuple[NodeId, ...]) -> None:
        self.processor = processor
        self.epoch = epoch
        self.producers = producers
        # What has no state yet waits for it, and then runs.
        self.state: bytes | None = None
        self.following = dict.fromkeys(producers, 0)
        self.queue: list[tuple[Raw, int]] = []
        self.running: tuple[Raw, int] | None = None
        self.target: NodeId | None = None
        self.markers: list[NodeId] = []


class Relocating(Protocol, UsesRouter, RunsProcessors):
    """Client, producer's broker and home broker in one class: a node is whatever it is asked to be."""

    name = "relocating"
    messages = (Raw, Attach, Nearest, Prepare, Ready, Switch, Marker, Moved, Output, End)
    needs = frozenset({Capability.DIRECTORY})

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._homes: dict[NodeId, HomeOf] = {}
        self._jobs: dict[Token, NodeId] = {}
        self._tokens = 0
        self._streams: dict[NodeId, tuple[NodeId, int, int]] = {}
        self._subscription: SubscriptionId | None = None
        self._home = host.directory("broker")[0]
        self._epoch = 0
        self._held: dict[int, list[tuple[Event, int]]] = {}

    # The client.

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        if subscription.processor is None or subscription.id == self._subscription:
            # The same id again renews; the home broker must not begin anew.
            return
        self._subscription = subscription.id
        self.port.route(self._home, Attach(subscription.processor, subscription.state))

    def found_nearer(self, broker: NodeId) -> None:
        """What the ring search of the overlay calls."""
        self.port.route(self._home, Nearest(broker))

    def _on_output(self, epoch: int, event: Event, hops: int) -> None:
        assert self._subscription is not None
        if epoch == self._epoch:
            self.port.deliver(self._subscription, event, hops)
        else:
            self._held.setdefault(epoch, []).append((event, hops))

    def _on_end(self, end: End) -> None:
        self._epoch, self._home = end.epoch + 1, end.home
        for event, hops in self._held.pop(self._epoch, []):
            self._on_output(self._epoch, event, hops)

    # The producer's broker.

    def on_publish(self, now: float, event: Event) -> None:
        for client, (home, epoch, number) in self._streams.items():
            self._streams[client] = (home, epoch, number + 1)
            self.port.route(home, Raw(event, 0, event.lease_s, client=client, epoch=epoch, number=number))

    def _on_switch(self, switch: Switch) -> None:
        old = self._streams.get(switch.client)
        number = 0
        if old is not None:
            number = old[2]
            self.port.route(old[0], Marker(switch.client, old[1]))
        self._streams[switch.client] = (switch.home, switch.epoch, number)

    # The home broker.

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        match message:
            case Raw(client=client):
                self._homes[client].queue.append((message, message.hops + hops))
                self._step(client)
            case Attach():
                home = self._homes[origin] = HomeOf(message.processor, 0, self.host.directory("producer"))
                home.state = message.state
                self._switch(origin, self.node, 0)
            case Nearest():
                self._prepare(origin, message.broker)
            case Prepare(client=client, epoch=epoch):
                able = any(processor.id == message.processor for processor in self.host.processors)
                if able:
                    self._homes[client] = HomeOf(message.processor, epoch, message.producers)
                self.port.route(origin, Ready(client, epoch, able))
            case Ready(client=client):
                if message.ok:
                    self._switch(client, origin, message.epoch)
                else:
                    self._homes[client].target = None
            case Switch():
                self._on_switch(message)
            case Marker(client=client):
                self._homes[client].markers.append(origin)
                self._step(client)
            case Moved(client=client):
                home = self._homes[client]
                home.state, home.following = message.state, dict(message.following)
                self._step(client)
            case Output():
                # The sender cannot know how far the router will carry it.
                self._on_output(message.epoch, message.event, message.hops + hops)
            case End():
                self._on_end(message)

    def _prepare(self, client: NodeId, target: NodeId) -> None:
        home = self._homes.get(client)
        if home is None or home.target is not None or target == self.node or home.state is None:
            self.port.note(Fact("drop", peer=client, reason="relocation_refused"))
            return
        # Set before the answer comes: a second report in the meantime must not start a second move.
        home.target = target
        self.port.route(target, Prepare(client, home.epoch + 1, home.processor, home.producers))

    def _switch(self, client: NodeId, home: NodeId, epoch: int) -> None:
        for producer in self._homes[client].producers:
            self.port.route(producer, Switch(client, epoch, home))

    def _step(self, client: NodeId) -> None:
        """One event at a time, since each call's state is the next one's; then, if all is drained, the move."""
        home = self._homes[client]
        if home.running is not None or home.state is None:
            return
        if home.queue:
            home.running = home.queue.pop(0)
            self._tokens += 1
            self._jobs[self._tokens] = client
            self.port.process(home.processor, home.state, [home.running[0].event], self._tokens)
        elif home.target is not None and len(home.markers) == len(home.producers):
            following = tuple(home.following.items())
            self.port.route(home.target, Moved(client, home.epoch + 1, home.state, following))
            self.port.route(client, End(home.epoch, home.target))
            del self._homes[client]

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        client = self._jobs.pop(token)
        home = self._homes[client]
        assert home.running is not None
        (raw, hops), home.running = home.running, None
        home.following[raw.event.source] = raw.number + 1
        if error:
            # The state of a call that failed is none: the one before it stands.
            self.port.note(Fact("drop", event=raw.event.id, reason="processor_failed"))
        else:
            home.state = state
        for event in events:
            self.port.route(client, Output(event, hops, raw.remaining_s, epoch=home.epoch))
        self._step(client)

    def on_processor(self, now: float, processor: Processor) -> None:
        """`host.processors` tells the same when it is asked."""

    def on_processor_gone(self, now: float, processor: ProcessorId) -> None:
        """Its next call brings an error."""

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        self.port.note(Fact("drop", reason="unreachable"))
