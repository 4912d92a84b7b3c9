"""Modulators at a broker [002 §2.1]: streams arrive in order, pass through the consumer's function, go to the client.

A subscription without a function is a modulator that changes nothing. The broker keeps each output until the client has
acknowledged it, and only then acknowledges its input to the producer's home broker. So no event is removed before its
output has arrived.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.parts.processing import ProcessorCalls
from carrycast.core.protocol import Token
from carrycast.core.wire import hops_after
from carrycast.protocols.overlay.context import Station
from carrycast.protocols.overlay.messages import (
    MAX_ENTRIES,
    Following,
    Got,
    Interest,
    Modulator,
    Output,
    Place,
    Raw,
    Skip,
    Taken,
    Version,
)
from carrycast.protocols.overlay.producers import PROBE
from carrycast.protocols.overlay.resource_monitor import ResourceMonitor
from carrycast.protocols.overlay.streams import Inflow, Outflow, Waiting

MAX_MET = 256
"""Inputs remembered by id."""


class Running:
    """One modulator."""

    __slots__ = (
        "_met",
        "done",
        "frozen",
        "frozen_record",
        "home",
        "inflows",
        "out",
        "sources",
        "subscription",
        "version",
    )

    def __init__(self, subscription: Subscription, version: Version, home: NodeId, out: Outflow) -> None:
        self.subscription = subscription
        self.version = version
        self.home = home
        self.out = out
        self.inflows: dict[tuple[NodeId, Version], Inflow[Waiting]] = {}
        self.done: dict[tuple[NodeId, Version], Following] = {}
        """Of each producer's generations: what follows on its last event that was processed."""
        self.sources: dict[tuple[NodeId, Version], NodeId] = {}
        """The home of each producer's generations."""
        self._met: dict[EventId, tuple[float, bool]] = {}
        """Inputs of late, until when they are remembered, and whether they are done."""
        self.frozen = False
        """On its way elsewhere: nothing is processed."""
        self.frozen_record: Modulator | None = None

    @property
    def client(self) -> NodeId:
        """Whose it is."""
        return self.subscription.subscriber

    def meets(self, now: float, id: EventId, until: float) -> bool:
        """Take an input; False if it was taken of late: a producer that has lost its home says again what may have come
        over that."""
        met = self._met
        while met and (len(met) > MAX_MET or next(iter(met.values()))[0] <= now):
            del met[next(iter(met))]
        if id in met:
            return False
        met[id] = (until, False)
        return True

    def finish(self, id: EventId) -> None:
        """An input is done."""
        if id in self._met:
            self._met[id] = (self._met[id][0], True)

    def finished(self) -> tuple[EventId, ...]:
        """The inputs of late that are done: what has come and is not will come again."""
        return tuple(id for id, (_, done) in self._met.items() if done)[-MAX_MET:]

    def remember(self, ids: Iterable[EventId], until: float) -> None:
        """Inputs that were done elsewhere."""
        self._met = dict.fromkeys(ids, (until, True))

    def taken(self) -> Iterator[Following]:
        """Of each producer the first input that may still be needed: one whose output the client has not got."""
        needed: dict[tuple[NodeId, Version], int] = {}
        for _, waiting in self.out:
            if waiting.input is not None:
                producer, generation, number = waiting.input
                needed[producer, generation] = min(number, needed.get((producer, generation), number))
        for stream, done in self.done.items():
            yield done._replace(number=min(done.number, needed.get(stream, done.number)))


MAX_CALLS = 4096
"""Inputs of one modulator that wait for its processor."""

MAX_STREAMS = 1024
"""Producers that one modulator hears."""

GENERATIONS = 2
"""Of one producer: what an older one has left goes on beside the newer one."""

WINDOW = 64
"""Outputs on their way to a client: the next ones wait until it has got some."""

Work = tuple["Running", Following, Waiting]


class Modulators:
    """All that run at one broker."""

    def __init__(self, station: Station, monitor: ResourceMonitor, touch: Callable[[NodeId], None]) -> None:
        self._station = station
        self._monitor = monitor
        self._touch = touch
        self._calls: ProcessorCalls[Work] = ProcessorCalls(station.port, MAX_CALLS)
        self._running: dict[SubscriptionId, Running] = {}
        self._of: dict[NodeId, dict[SubscriptionId, Running]] = {}
        self._dirty: dict[SubscriptionId, None] = {}

    def __contains__(self, id: SubscriptionId) -> bool:
        return id in self._running

    def __iter__(self) -> Iterator[Running]:
        return iter(list(self._running.values()))

    def get(self, id: SubscriptionId) -> Running | None:
        """A modulator of this broker, or None."""
        return self._running.get(id)

    def of(self, client: NodeId) -> list[Running]:
        """Those of one client."""
        return list(self._of.get(client, {}).values())

    def interests(self) -> list[Interest]:
        """What all brokers should know of those that run here."""
        return [self.interest(one) for one in self._running.values() if not one.frozen]

    def interest(self, one: Running) -> Interest:
        """The subscription as it travels, without what only its modulator needs."""
        lean = Subscription(one.subscription.id, one.subscription.filter, attributes=one.subscription.attributes)
        return Interest(lean, one.version, self._station.node, one.home)

    def report(self, name: Callable[[NodeId], str]) -> dict[str, str]:
        """Whose modulators run here, for people."""
        runs = [
            f"{one.subscription.processor or 'no processor'} for {one.subscription.id} of {name(one.client)}"
            for one in self._running.values()
        ]
        return {"modulators here": "; ".join(sorted(runs)) or "none"}

    # Coming and going.

    def open(self, now: float, record: Modulator, home: NodeId, waited_s: float = 0.0) -> None:
        """Run a modulator from where a record has it."""
        subscription = record.subscription
        self.close(subscription.id)
        out = Outflow(self._station.settings.max_kept, record.output)
        out.kept.extend((kept.number, Waiting.of(now, kept, waited_s)) for kept in record.kept)
        out.sent = out.first
        one = self._running[subscription.id] = Running(subscription, record.version, home, out)
        self._of.setdefault(one.client, {})[subscription.id] = one
        one.remember(record.met, now + self._station.settings.seen_s)
        for following in record.following[:MAX_STREAMS]:
            stream = (following.producer, following.generation)
            one.inflows[stream], one.done[stream] = Inflow(following.number), following
        if subscription.processor is not None:
            self._calls.open(subscription.id, subscription.processor, record.state)
        self._push(now, one)

    def freeze(self, now: float, one: Running) -> Modulator:
        """Process no more, and say all there is. What waits or runs is not done: its producer's home has it still."""
        one.frozen = True
        record = self.record(now, one)
        one.frozen_record = record
        self._calls.close(one.subscription.id)
        return record

    def record(self, now: float, one: Running) -> Modulator:
        """A modulator as it moves."""
        if one.frozen_record is not None:
            return one.frozen_record
        kept = tuple(waiting.kept(now, number) for number, waiting in one.out)
        following = tuple(one.done.values())
        return Modulator(
            one.subscription, one.version, self._state(one), following, one.out.number, kept, one.finished()
        )

    def close(self, id: SubscriptionId) -> None:
        """Forget a modulator."""
        one = self._running.pop(id, None)
        if one is not None:
            del self._of[one.client][id]
            if not self._of[one.client]:
                del self._of[one.client]
            self._calls.close(id)
            self._dirty.pop(id, None)

    def _state(self, one: Running) -> bytes:
        id = one.subscription.id
        if not self._station.settings.carry_state or id not in self._calls:
            return one.subscription.state
        return self._calls.state(id)

    # Events.

    def on_raw(self, now: float, origin: NodeId, raw: Raw, hops: int) -> None:
        """An event for some of the modulators."""
        waiting = Waiting(raw.event, hops_after(raw.hops, hops), now + raw.remaining_s)
        for place in raw.places:
            flow = self._flow(origin, raw.producer, raw.generation, place)
            if flow is None:
                continue
            came = flow.take(place.number, place.first, waiting)
            if came is None:
                self._station.drop("stream_repeated", origin, raw.event.id)
                self._mark(place.subscription)
            self._process_all(now, place.subscription, raw.producer, raw.generation, came or [])

    def on_skip(self, now: float, origin: NodeId, skip: Skip) -> None:
        """Some of what was waited for will not come."""
        for place in skip.places:
            flow = self._flow(origin, skip.producer, skip.generation, place)
            if flow is not None:
                self._process_all(now, place.subscription, skip.producer, skip.generation, flow.skip(place.first))

    def _flow(self, origin: NodeId, producer: NodeId, generation: Version, place: Place) -> Inflow[Waiting] | None:
        one = self._running.get(place.subscription)
        if one is None or one.frozen:
            # Where it is now its producer's home will learn, and send it there.
            self._station.drop("modulator_elsewhere", origin)
            return None
        flow = one.inflows.get((producer, generation))
        if flow is None:
            if len(one.inflows) >= MAX_STREAMS:
                self._station.drop("streams_full", origin)
                return None
            older = sorted(stream for stream in one.inflows if stream[0] == producer)
            if len(older) >= GENERATIONS:
                if (producer, generation) < older[0]:
                    self._station.drop("generation_outdated", origin)
                    return None
                del one.inflows[older[0]]
                one.done.pop(older[0], None)
            flow = one.inflows[producer, generation] = Inflow(place.first)
        one.sources[producer, generation] = origin
        return flow

    def _process_all(
        self,
        now: float,
        id: SubscriptionId,
        producer: NodeId,
        generation: Version,
        came: list[tuple[int, Waiting]],
    ) -> None:
        one = self._running[id]
        for number, waiting in came:
            input = Following(producer, generation, number)
            if not one.meets(now, waiting.event.id, now + self._station.settings.seen_s):
                self._station.drop("already_taken", producer, waiting.event.id)
                self._finish(now, one, input, waiting, [])
            elif one.subscription.processor is None:
                self._finish(now, one, input, waiting, [waiting.event])
            elif not self._calls.submit(id, [waiting.event], (one, input, waiting)):
                self._station.drop("processor_busy", producer, waiting.event.id)

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        """A function has run. After an error the state before the call stands, and its input is done with."""
        work = self._calls.finish(token, state, error)
        if work is None:
            self._station.drop("modulator_elsewhere")
            return
        one, input, waiting = work
        assert one.subscription.processor is not None
        self._monitor.ran(one.subscription.processor, cost_s)
        if error:
            self._station.drop("processor_failed", event=waiting.event.id)
        self._finish(now, one, input, waiting, [] if error else events)

    def _finish(self, now: float, one: Running, input: Following, waiting: Waiting, events: Sequence[Event]) -> None:
        self._touch(one.client)
        one.finish(waiting.event.id)
        one.done[input.producer, input.generation] = input._replace(number=input.number + 1)
        for part, event in enumerate(events):
            _, gone = one.out.add(Waiting(event, waiting.hops, waiting.until, input, part))
            if gone is not None:
                self._station.drop("stream_full", one.client, gone.event.id)
        if events:
            self._push(now, one)
        else:
            self._mark(one.subscription.id)

    def _push(self, now: float, one: Running, held: bool = True) -> None:
        """Send what has its turn, unless the client seems to be away."""
        out = one.out
        if held and now < out.resend_at and out.sent < out.first:
            return
        until = out.first + WINDOW
        for number, made in out:
            if max(out.sent, out.first) <= number < until:
                self._send(now, one, number, made)
                out.sent = number + 1
        out.resend_at = now + PROBE * self._station.settings.resend_s

    def _send(self, now: float, one: Running, number: int, made: Waiting) -> None:
        assert made.input is not None
        if made.until <= now:
            return
        output = Output(
            made.event,
            made.hops,
            made.until - now,
            place=Place(one.subscription.id, number, one.out.first),
            version=one.version,
            input=made.input,
            part=made.part,
            ordered=self._station.settings.keep_order,
        )
        self._station.send(now, one.client, output)

    # What clients have.

    def on_got(self, now: float, origin: NodeId, got: Got) -> None:
        """A client has all before a number."""
        one = self._running.get(got.subscription)
        if one is None or one.client != origin:
            self._station.drop("modulator_elsewhere", origin)
            return
        one.home = got.home
        if got.number <= one.out.number and one.out.taken(got.number):
            self._push(now, one, held=False)
        self._mark(got.subscription)

    def _mark(self, id: SubscriptionId) -> None:
        self._dirty[id] = None
        self._station.arm("taken", self._station.settings.taken_s)

    def tell_taken(self, now: float) -> None:
        """Tell producers' homes what clients have."""
        told: dict[NodeId, list[tuple[SubscriptionId, Following]]] = {}
        for id in self._dirty:
            one = self._running.get(id)
            for following in one.taken() if one is not None else ():
                source = one.sources.get((following.producer, following.generation)) if one is not None else None
                if source is not None:
                    told.setdefault(source, []).append((id, following))
        self._dirty.clear()
        for broker, entries in told.items():
            for begin in range(0, len(entries), MAX_ENTRIES):
                self._station.port.route(broker, Taken(tuple(entries[begin : begin + MAX_ENTRIES])))

    def stall(self, now: float, client: NodeId) -> None:
        """Something did not arrive: what the client has not got is kept, and tried again after a while."""
        for one in self.of(client):
            one.out.sent = -1
            one.out.resend_at = now + self._station.settings.resend_s

    def welcome(self, now: float, client: NodeId) -> None:
        """A client that seemed to be away has been heard of: all that was kept for it."""
        for one in self.of(client):
            if one.out.sent < one.out.first and not one.frozen:
                self._push(now, one, held=False)

    def tend(self, now: float) -> bool:
        """Let go what is over and send again what got nowhere; whether anything waits."""
        waits = False
        for one in self._running.values():
            if not len(one.out) or one.frozen:
                continue
            waits = True
            gone = one.out.expire(now)
            for waiting in gone:
                self._station.drop("lease_over", one.client, waiting.event.id)
            if gone:
                self._mark(one.subscription.id)
            if now >= one.out.resend_at:
                one.out.sent = one.out.first
                self._push(now, one)
        return waits
