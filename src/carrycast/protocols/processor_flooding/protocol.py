"""Processor flooding: each node forwards every message once, and its processors flood their results.

The baseline of ASP [001 §5.2]: "the flooding of every message to all brokers". Messages go to each neighbor over the
same reliable links, so that the two protocols are measured alike.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from carrycast.core.model import Event, Failure, NodeId, Processor, ProcessorId, Subscription, SubscriptionId
from carrycast.core.parts import (
    LocalSubscriptions,
    MaxStages,
    MessagePolicy,
    PathSelector,
    PeerOutbox,
    PeerPath,
    ProcessorCalls,
    ProcessorInputs,
    SeenCache,
    StreamAttributes,
    parse_filter,
    stream_of,
)
from carrycast.core.protocol import Fact, Host, Interface, Link, Port, Protocol, RunsProcessors, Settings, Token
from carrycast.core.wire import EventMessage, Message, hops_after


class ProcessorFloodingSettings(Settings, frozen=True):
    """The way messages are sent to neighbors, and the time for which they are remembered."""

    # [001 §4.1] the same abstraction layer as ASP: reliable delivery to each neighbor.
    send_by: Annotated[
        Literal["unicast", "broadcast"], Meta(description="to each neighbor reliably, or to all at once")
    ] = "unicast"
    # [001 §5.3] compares "the broker's dissemination algorithms and not the NAL implementations": the default of ASP.
    retries: Annotated[
        int, Meta(ge=0, le=10, description="how often a message that a link could not deliver is sent again")
    ] = 1
    seen_s: Annotated[float, Meta(gt=0, description="how long an event is remembered; longer than any flood lasts")] = (
        60.0
    )
    stream_attributes: StreamAttributes = ("topic",)
    max_stages: MaxStages = 4


class FloodedMessage(EventMessage, frozen=True, gc=False, tag=1):
    """A message to all nodes, and the number of processors that it has passed through."""

    stages: Annotated[int, Meta(ge=0, le=255)] = 0


class StagedMessage(NamedTuple):
    """A message at one node."""

    event: Event
    hops: int
    lease_until: float
    stages: int
    made_by: ProcessorId | None
    """The local processor that produced it, if one did."""


class ReliableLinks(PathSelector):
    """The network abstraction layer of [001 §4.1]: the neighbors, in the order in which they came, and reliable
    delivery to each.

    "Each message from the broker has to be delivered to the neighbor or if it can not be delivered, the neighbor has to
    be removed from the neighbor cache". A message that failed is sent again: over another link if there is one, else
    over the same one, `retries` times. Removing the neighbor is left to discovery, to which hosts report the failure. A
    link that discovery drops because a message failed stays while a retransmission is in progress on it, until that has
    failed too.
    """

    def __init__(self, port: Port, retries: int) -> None:
        self._port = port
        self._retries = retries
        self._links: dict[NodeId, dict[Interface, Link]] = {}
        self._retained: set[tuple[NodeId, Interface]] = set()
        """Links in use that discovery has dropped because a message failed."""
        self._outbox = PeerOutbox(port, self, FloodPolicy(), self._transmit, retries, moves=0)

    def __iter__(self) -> Iterator[NodeId]:
        return iter(list(self._links))

    def on_link_found(self, link: Link) -> None:
        """Discovery has found a link, or its new cost."""
        self._retained.discard((link.neighbor, link.interface))
        self._links.setdefault(link.neighbor, {})[link.interface] = link

    def on_link_lost(self, link: Link, cause: Failure) -> None:
        """Discovery has lost a link."""
        node, interface = link.neighbor, link.interface
        is_known = interface in self._links.get(node, {})
        if is_known and cause is Failure.UNREACHABLE and self._retries and self._outbox.has_in_flight(node, interface):
            self._retained.add((node, interface))
        else:
            self._remove(node, interface)

    def send(self, now: float, node: NodeId, message: Message) -> None:
        """Send to a neighbor over its best link."""
        self._outbox.send(now, node, message)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        """The outcome of a transmission; one that failed may be repeated."""
        self._outbox.on_sent(now, token, failure)

    def _transmit(self, now: float, node: NodeId, message: Message, path: PeerPath, token: Token) -> None:
        self._port.send(node, message, via=path.interface, token=token)

    # The path selection of the outbox.

    def best_path(self, peer: NodeId) -> PeerPath | None:
        return self._best(list(self._links.get(peer, {}).values()))

    def retry_path(self, peer: NodeId, path: PeerPath) -> PeerPath | None:
        links = list(self._links.get(peer, {}).values())
        return self._best([link for link in links if link.interface != path.interface] or links)

    def on_path_failed(self, peer: NodeId, path: PeerPath) -> None:
        assert path.interface is not None
        if (peer, path.interface) in self._retained:
            self._remove(peer, path.interface)

    def _best(self, links: list[Link]) -> PeerPath | None:
        """The cheapest link; one that discovery has dropped only if there is no other."""
        if not links:
            return None
        best = min(links, key=lambda link: ((link.neighbor, link.interface) in self._retained, link.cost_s))
        return PeerPath(best.interface, best.cost_s)

    def _remove(self, node: NodeId, interface: Interface) -> None:
        self._retained.discard((node, interface))
        links = self._links.get(node)
        if links is not None and links.pop(interface, None) is not None and not links:
            del self._links[node]


class FloodPolicy(MessagePolicy):
    """The messages of a flood are independent of each other, and one that a full queue rejects is lost."""

    def may_wait(self, message: Message) -> bool:
        return False


class ProcessorFlooding(Protocol, RunsProcessors):
    """Delivers whatever the current links allow, at the cost of sending everything everywhere."""

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
        self._processors: dict[ProcessorId, ProcessorInputs[StagedMessage]] = {}
        self._calls: ProcessorCalls[tuple[ProcessorId, tuple[StagedMessage, ...]]] = ProcessorCalls(port)

    def on_publish(self, now: float, event: Event) -> None:
        self._accept(now, StagedMessage(event, 0, now + event.lease_s, 0, None), None)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._local.add(subscription)

    def on_unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        self._local.remove(subscription)

    def on_link_up(self, now: float, link: Link) -> None:
        self._neighbors.on_link_found(link)

    def on_link_changed(self, now: float, link: Link) -> None:
        self._neighbors.on_link_found(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self._neighbors.on_link_lost(link, cause)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        self._neighbors.on_sent(now, token, failure)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, FloodedMessage)
        if not message.remaining_s > 0:
            self._drop("lease_over", message.event)
            return
        staged = StagedMessage(message.event, message.hops, now + message.remaining_s, message.stages, None)
        self._accept(now, staged, sender)

    def on_processor(self, now: float, processor: Processor) -> None:
        parsed = parse_filter(self.port, processor)
        if parsed is not None:
            self._processors[processor.id] = ProcessorInputs(processor, parsed)
            self._calls.open(processor.id, processor.id)

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        call = self._calls.finish(token, state, error)
        if call is None:
            self.port.note(Fact("drop", reason="processor_gone"))
            return
        processor, inputs = call
        if error:
            self._drop("processor_failed", inputs[0].event)
            return
        for event in events:
            result = StagedMessage(
                event,
                max(one.hops for one in inputs),
                min(one.lease_until for one in inputs),
                1 + max(one.stages for one in inputs),
                processor,
            )
            self._accept(now, result, None)

    def _accept(self, now: float, staged: StagedMessage, sender: NodeId | None) -> None:
        event = staged.event
        if not self._seen.add(now, event.id, now + self._settings.seen_s):
            return
        remaining_s = staged.lease_until - now
        if remaining_s <= 0:
            self._drop("lease_over", event)
            return
        self._local.deliver(event, staged.hops)
        message = FloodedMessage(event, hops_after(staged.hops), remaining_s, staged.stages)
        if self._settings.send_by == "broadcast":
            self.port.broadcast(message)
        else:
            for neighbor in self._neighbors:
                if neighbor != sender:
                    self._neighbors.send(now, neighbor, message)
        for local in list(self._processors.values()):
            if local.processor.id != staged.made_by and local.fits(event):
                self._process(local, staged)

    def _process(self, local: ProcessorInputs[StagedMessage], staged: StagedMessage) -> None:
        event = staged.event
        if staged.stages >= self._settings.max_stages:
            self._drop("too_many_processors", event)
            return
        inputs, id = local.take(stream_of(event, self._settings.stream_attributes), staged), local.processor.id
        if inputs and not self._calls.submit(id, [one.event for one in inputs], (id, inputs)):
            self._drop("processor_busy", event)

    def _drop(self, reason: str, event: Event) -> None:
        self.port.note(Fact("drop", event=event.id, reason=reason))
