"""Processor flooding: each node passes every message on once, and its processors flood what they make of it.

The yardstick of ASP [001 §5.2]: "the flooding of every message to all brokers". Messages go to each neighbor over the
same reliable links, so that the two schemes are counted alike.
"""

from collections.abc import Sequence
from random import Random
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from carrycast.core.model import Event, Failure, NodeId, Processor, ProcessorId, Subscription, SubscriptionId
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.parts.processing import (
    MaxStages,
    ProcessorCalls,
    ProcessorInputs,
    StreamAttributes,
    parsed_filter,
    stream_of,
)
from carrycast.core.parts.seen import SeenCache
from carrycast.core.protocol import Fact, Host, Interface, Link, Port, Protocol, RunsProcessors, Settings, Token
from carrycast.core.wire import EventMessage, Message, hops_after
from carrycast.protocols.processor_flooding.reliable import ReliableLinks


class ProcessorFloodingSettings(Settings, frozen=True):
    """How messages go to neighbors and how long they are remembered."""

    # [001 §4.1] the same abstraction layer as ASP: reliable delivery to each neighbor.
    send_by: Annotated[
        Literal["unicast", "broadcast"], Meta(description="to each neighbor reliably, or to all at once")
    ] = "unicast"
    # [001 §5.3] compares "the broker's dissemination algorithms and not the NAL implementations": as ASP does.
    retries: Annotated[
        int, Meta(ge=0, le=10, description="how often a message that a link could not deliver is sent again")
    ] = 1
    seen_s: Annotated[float, Meta(gt=0, description="how long an event is remembered; longer than any flood lasts")] = (
        60.0
    )
    stream_attributes: StreamAttributes = ("topic",)
    max_stages: MaxStages = 4


class FloodedMessage(EventMessage, frozen=True, gc=False, tag=1):
    """A message on its way to everybody, and how many processors it has passed through."""

    stages: Annotated[int, Meta(ge=0, le=255)] = 0


class Taken(NamedTuple):
    """A message as a node has it."""

    event: Event
    hops: int
    lease_until: float
    stages: int
    maker: ProcessorId | None
    """The local processor that made it."""


class ProcessorFlooding(Protocol, RunsProcessors):
    """Delivers what the contacts allow at the moment, at the price of everything everywhere."""

    name = "processor_flooding"
    summary = "every node passes each event on once; processors flood their results"
    settings_type = ProcessorFloodingSettings
    messages = (FloodedMessage,)

    def __init__(self, node: NodeId, settings: ProcessorFloodingSettings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._settings = settings
        self._local = LocalSubscriptions(port)
        self._neighbors = ReliableLinks(port, settings.retries)
        self._seen = SeenCache()
        self._processors: dict[ProcessorId, ProcessorInputs[Taken]] = {}
        self._calls: ProcessorCalls[tuple[ProcessorId, tuple[Taken, ...]]] = ProcessorCalls(port)

    def on_publish(self, now: float, event: Event) -> None:
        self._take(now, Taken(event, 0, now + event.lease_s, 0, None), None)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._local.remove(subscription)

    def on_link_up(self, now: float, link: Link) -> None:
        self._neighbors.found(link)

    def on_link_changed(self, now: float, link: Link) -> None:
        self._neighbors.found(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self._neighbors.gone(link, cause)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        self._neighbors.on_sent(now, token, failure)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, FloodedMessage)
        if not message.remaining_s > 0:
            self._drop("lease_over", message.event)
            return
        taken = Taken(message.event, message.hops, now + message.remaining_s, message.stages, None)
        self._take(now, taken, sender)

    def on_processor(self, now: float, processor: Processor) -> None:
        parsed = parsed_filter(self.port, processor)
        if parsed is not None:
            self._processors[processor.id] = ProcessorInputs(processor, parsed)
            self._calls.open(processor.id, processor.id)

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        work = self._calls.finish(token, state, error)
        if work is None:
            self.port.note(Fact("drop", reason="processor_gone"))
            return
        processor, inputs = work
        if error:
            self._drop("processor_failed", inputs[0].event)
            return
        for event in events:
            result = Taken(
                event,
                max(one.hops for one in inputs),
                min(one.lease_until for one in inputs),
                1 + max(one.stages for one in inputs),
                processor,
            )
            self._take(now, result, None)

    def _take(self, now: float, taken: Taken, sender: NodeId | None) -> None:
        event = taken.event
        if not self._seen.add(now, event.id, now + self._settings.seen_s):
            return
        remaining_s = taken.lease_until - now
        if remaining_s <= 0:
            self._drop("lease_over", event)
            return
        self._local.deliver(event, taken.hops)
        message = FloodedMessage(event, hops_after(taken.hops), remaining_s, taken.stages)
        if self._settings.send_by == "broadcast":
            self.port.broadcast(message)
        else:
            for neighbor in self._neighbors:
                if neighbor != sender:
                    self._neighbors.send(now, neighbor, message)
        for local in list(self._processors.values()):
            if local.processor.id != taken.maker and local.fits(event):
                self._process(local, taken)

    def _process(self, local: ProcessorInputs[Taken], taken: Taken) -> None:
        event = taken.event
        if taken.stages >= self._settings.max_stages:
            self._drop("too_many_processors", event)
            return
        inputs, id = local.take(stream_of(event, self._settings.stream_attributes), taken), local.processor.id
        if inputs and not self._calls.submit(id, [one.event for one in inputs], (id, inputs)):
            self._drop("processor_busy", event)

    def _drop(self, reason: str, event: Event) -> None:
        self.port.note(Fact("drop", event=event.id, reason=reason))
