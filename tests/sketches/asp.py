"""001: announcement, subscription, publication, with processors on the path and several interfaces to a node."""

import hashlib
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from random import Random
from typing import Annotated, NamedTuple

from msgspec import Meta

from driftcast.matching import Filter
from driftcast.model import Event, NodeId, Processor, ProcessorId, Subscription, SubscriptionId
from driftcast.protocol import Fact, Host, Interface, Link, Port, Protocol, RunsProcessors, Settings, Token
from driftcast.wire import EventMessage, Message

from .fake_host import neighbors_but
from .rounds import Count, Round

Bits = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]

VALIDITY_S = 10.0
"""The shortest validity of the paper's sweep."""


class Kind(IntEnum):
    """[001 §4.3] The types of a subscription message."""

    SUBSCRIBE = 0
    UNSUBSCRIBE = 1
    PATH_BROKEN = 2


class Announcement(EventMessage, frozen=True, gc=False, kw_only=True, tag=1):
    """[001 §4.2] A stream's sample; the path's metric includes the link that it comes over."""

    stream: Bits
    metric_s: Seconds
    validity_s: Seconds
    sequence: Round


class ShortAnnouncement(Message, frozen=True, gc=False, tag=2):
    """[001 §4.2] A better path to a known announcement."""

    stream: Bits
    metric_s: Seconds
    sequence: Round


class PathMessage(Message, frozen=True, gc=False, tag=3):
    """[001 §4.3] Toward the source, along best announcers."""

    stream: Bits
    subscriber: Bits
    metric_s: Seconds
    kind: Kind


class Publication(EventMessage, frozen=True, gc=False, kw_only=True, tag=4):
    """[001 §4.4] Along active paths."""

    stream: Bits
    counter: Count


class Stream:
    """What a broker knows of one announcement. The announcer is a neighbor, or this node itself."""

    def __init__(self, announcer: NodeId, metric_s: float, sequence: Round, until: float) -> None:
        self.announcer = announcer
        self.metric_s = metric_s
        self.sequence = sequence
        self.until = until
        self.counter = 0
        self.broken = False
        self.made_of: int | None = None
        self.results: dict[ProcessorId, int] = {}
        self.active: dict[int, NodeId] = {}


class Job(NamedTuple):
    """One call of a processor: waiting for the one before it, or for its outcome."""

    stream: int
    event: Event
    hops: int
    remaining_s: float
    counter: int
    announces: bool


def stream_id(event: Event) -> int:
    """[001 §4.2] A hash of the content, so that equal results of different processors are one stream."""
    text = repr(sorted(event.attributes.items())).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8]) >> 1


class Asp(Protocol, RunsProcessors):
    """One broker with its local sources, sinks and processors."""

    name = "asp"
    messages = (Announcement, ShortAnnouncement, PathMessage, Publication)

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self._links: dict[NodeId, dict[Interface, Link]] = {}
        self._streams: dict[int, Stream] = {}
        self._sources: dict[str, int] = {}
        self._local: dict[SubscriptionId, Filter] = {}
        self._processors: dict[ProcessorId, Filter] = {}
        self._state: dict[ProcessorId, bytes] = {}
        # The tokens of calls and of sends are separate spaces.
        self._jobs: dict[ProcessorId, deque[Job]] = {}
        self._running: dict[Token, ProcessorId] = {}
        self._calls = 0
        self._sends: dict[Token, tuple[int, NodeId]] = {}
        self._sent = 0
        self._self_id = rng.getrandbits(63)

    def on_link_up(self, now: float, link: Link) -> None:
        self._links.setdefault(link.neighbor, {})[link.interface] = link

    on_link_changed = on_link_up

    def on_link_down(self, now: float, link: Link) -> None:
        del self._links[link.neighbor][link.interface]
        if not self._links[link.neighbor]:
            del self._links[link.neighbor]
            for stream, known in self._streams.items():
                if link.neighbor in known.active.values():
                    self._path_broken(stream, link.neighbor)

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self._local[subscription.id] = Filter(subscription.filter)

    def on_processor(self, now: float, processor: Processor) -> None:
        self._processors[processor.id] = Filter(processor.filter)
        self._state.setdefault(processor.id, b"")
        self._jobs.setdefault(processor.id, deque())

    def on_processor_gone(self, now: float, processor: ProcessorId) -> None:
        # What still runs brings its outcome, and what waits will bring an error.
        del self._processors[processor]

    # Sources.

    def on_publish(self, now: float, event: Event) -> None:
        # The event says nothing of the application it comes from, so a source is known by its topic.
        source = str(event.attributes.get("topic", ""))
        stream = self._sources.get(source)
        known = None if stream is None else self._streams[stream]
        if stream is None or known is None or known.until <= now or known.broken:
            stream = stream_id(event) if stream is None else stream
            self._sources[source] = stream
            # A source that has crashed begins anew, and its announcements must not look old.
            sequence = Round(self.host.incarnation, 0) if known is None else known.sequence.next()
            self._announce(now, stream, event, 0, event.lease_s, 0.0, sequence, self.node)
        else:
            known.counter += 1
            self._publish(stream, event, 0, event.lease_s, known.counter)

    # Announcements.

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        match message:
            case Announcement(stream=stream):
                known = self._streams.get(stream)
                if known is None or message.sequence > known.sequence:
                    m = message
                    self._announce(now, stream, m.event, m.hops, m.remaining_s, m.metric_s, m.sequence, sender)
                elif message.metric_s < known.metric_s:
                    self._improve(stream, known, sender, message.metric_s)
            case ShortAnnouncement(stream=stream):
                known = self._streams.get(stream)
                if known is not None and message.metric_s < known.metric_s:
                    self._improve(stream, known, sender, message.metric_s)
            case PathMessage():
                self._on_path_message(sender, message)
            case Publication(stream=stream):
                if message.counter > self._streams[stream].counter:
                    self._streams[stream].counter = message.counter
                    self._publish(stream, message.event, message.hops, message.remaining_s, message.counter)

    def _announce(
        self,
        now: float,
        stream: int,
        event: Event,
        hops: int,
        left_s: float,
        metric_s: float,
        sequence: Round,
        by: NodeId,
    ) -> None:
        before = self._streams.get(stream)
        known = self._streams[stream] = Stream(by, metric_s, sequence, now + VALIDITY_S)
        known.made_of = None if before is None else before.made_of
        for neighbor in neighbors_but(self._links, by):
            # The metric counts this very link, so the announcement has to go over it.
            link = self._cheapest(neighbor)
            announcement = Announcement(
                event,
                hops + 1,
                left_s,
                stream=stream,
                metric_s=metric_s + link.cost_s,
                validity_s=VALIDITY_S,
                sequence=sequence,
            )
            self.port.send(neighbor, announcement, via=link.interface)
        self._consume(stream, event, hops, left_s, 0, True)

    def _improve(self, stream: int, known: Stream, sender: NodeId, metric_s: float) -> None:
        old, known.announcer, known.metric_s = known.announcer, sender, metric_s
        for neighbor in neighbors_but(self._links, sender):
            link = self._cheapest(neighbor)
            short = ShortAnnouncement(stream, metric_s + link.cost_s, known.sequence)
            self.port.send(neighbor, short, via=link.interface)
        for subscriber in known.active:
            self._tell(sender, PathMessage(stream, subscriber, metric_s, Kind.SUBSCRIBE))
            self._tell(old, PathMessage(stream, subscriber, metric_s, Kind.UNSUBSCRIBE))

    def _consume(self, stream: int, event: Event, hops: int, left_s: float, counter: int, announces: bool) -> None:
        """Local sinks, then local processors."""
        known = self._streams[stream]
        for subscription, wanted in self._local.items():
            if wanted.matches(event.attributes):
                self.port.deliver(subscription, event, hops)
                if announces and known.announcer != self.node:
                    known.active[self._self_id] = self.node
                    self._tell(known.announcer, PathMessage(stream, self._self_id, known.metric_s, Kind.SUBSCRIBE))
        for processor, wanted in self._processors.items():
            if wanted.matches(event.attributes) and (announces or processor in known.results):
                self._jobs[processor].append(Job(stream, event, hops, left_s, counter, announces))
                if len(self._jobs[processor]) == 1:
                    self._call(processor)

    # Processors.

    def _call(self, processor: ProcessorId) -> None:
        # A call takes the state of the one before, so each processor has one call running and the others wait.
        self._calls += 1
        self._running[self._calls] = processor
        self.port.process(processor, self._state[processor], [self._jobs[processor][0].event], self._calls)

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        processor = self._running.pop(token)
        job = self._jobs[processor].popleft()
        if error:
            self.port.note(Fact("drop", event=job.event.id, reason="processor_failed"))
        else:
            self._state[processor] = state
        # The state is in place, so the next call may run while the results go their way.
        if self._jobs[processor]:
            self._call(processor)
        known = self._streams[job.stream]
        for event in events:
            if job.announces:
                result = known.results[processor] = stream_id(event)
                self._announce(
                    now, result, event, job.hops, job.remaining_s, known.metric_s + cost_s, known.sequence, self.node
                )
                self._streams[result].made_of = job.stream
            else:
                self._publish(known.results[processor], event, job.hops, job.remaining_s, job.counter)

    # Paths.

    def _on_path_message(self, sender: NodeId, message: PathMessage) -> None:
        known = self._streams.get(message.stream)
        if known is None:
            self.port.note(Fact("drop", peer=sender, reason="unknown_stream"))
            return
        if message.kind is Kind.SUBSCRIBE:
            known.active[message.subscriber] = sender
        elif message.kind is Kind.UNSUBSCRIBE and known.active.get(message.subscriber) == sender:
            del known.active[message.subscriber]
        self._upstream(message.stream, message.subscriber, message.kind)

    def _upstream(self, stream: int, subscriber: int, kind: Kind) -> None:
        known = self._streams[stream]
        if known.announcer != self.node:
            self._tell(known.announcer, PathMessage(stream, subscriber, known.metric_s, kind))
        elif known.made_of is not None:
            # [001 §4.3] A result's subscription continues as one for the processor's input.
            source = self._streams[known.made_of]
            if kind is Kind.SUBSCRIBE:
                source.active[subscriber] = self.node
            self._upstream(known.made_of, subscriber, kind)
        elif kind is Kind.PATH_BROKEN:
            known.broken = True

    def _publish(self, stream: int, event: Event, hops: int, left_s: float, counter: int) -> None:
        known = self._streams[stream]
        # [001 §4.4] Once for each neighbor, however many subscribers lie behind it.
        for neighbor in dict.fromkeys(known.active.values()):
            if neighbor != self.node:
                self._sent += 1
                self._sends[self._sent] = (stream, neighbor)
                publication = Publication(event, hops + 1, left_s, stream=stream, counter=counter)
                self.port.send(neighbor, publication, token=self._sent)
        self._consume(stream, event, hops, left_s, counter, False)

    def on_sent(self, now: float, token: Token, failure: str) -> None:
        stream, neighbor = self._sends.pop(token)
        # A full queue loses one event and says nothing of the path.
        if failure == "unreachable":
            self._path_broken(stream, neighbor)

    def _path_broken(self, stream: int, neighbor: NodeId) -> None:
        known = self._streams[stream]
        for subscriber in [s for s, toward in known.active.items() if toward == neighbor]:
            del known.active[subscriber]
            self._upstream(stream, subscriber, Kind.PATH_BROKEN)

    def _tell(self, neighbor: NodeId, message: PathMessage) -> None:
        if neighbor in self._links:
            self.port.send(neighbor, message)

    def _cheapest(self, neighbor: NodeId) -> Link:
        return min(self._links[neighbor].values(), key=lambda link: link.cost_s)
