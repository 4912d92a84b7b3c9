"""Modulators at a broker [002 §2.1]: streams arrive in order, pass through the consumer's function, go to the client.

A subscription without a function is a modulator that changes nothing. The broker keeps each output until the client has
acknowledged it, and only then acknowledges its input to the producer's home broker. So no event is removed before its
output has arrived.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import ProcessorCalls
from carrycast.core.protocol import Token
from carrycast.core.wire import hops_after
from carrycast.protocols.overlay.context import NodeContext
from carrycast.protocols.overlay.messages import (
    MAX_ENTRIES,
    DirectoryEntry,
    HomeVersion,
    InputAck,
    ModulatorRecord,
    Output,
    OutputAck,
    ProducedEvent,
    StreamPosition,
    StreamSkip,
    StreamSlot,
)
from carrycast.protocols.overlay.producers import PROBE_INTERVALS
from carrycast.protocols.overlay.resource_monitor import ResourceMonitor
from carrycast.protocols.overlay.streams import StreamEvent, StreamReceiver, StreamSender

MAX_REMEMBERED_INPUTS = 256
"""Inputs of one modulator that are remembered by id, to detect duplicates."""


class RunningModulator:
    """One modulator at its broker: its input streams, its output stream, and the inputs it has processed."""

    __slots__ = (
        "_recent_inputs",
        "frozen",
        "frozen_record",
        "home",
        "processed",
        "producer_homes",
        "receivers",
        "sender",
        "subscription",
        "version",
    )

    def __init__(self, subscription: Subscription, version: HomeVersion, home: NodeId, sender: StreamSender) -> None:
        self.subscription = subscription
        self.version = version
        self.home = home
        self.sender = sender
        self.receivers: dict[tuple[NodeId, HomeVersion], StreamReceiver[StreamEvent]] = {}
        self.processed: dict[tuple[NodeId, HomeVersion], StreamPosition] = {}
        """For each producer and generation: the position after the last event that was processed."""
        self.producer_homes: dict[tuple[NodeId, HomeVersion], NodeId] = {}
        """The home broker of each producer, by generation."""
        self._recent_inputs: dict[EventId, tuple[float, bool]] = {}
        """Recent inputs by id: until when each is remembered, and whether it is processed."""
        self.frozen = False
        """Whether the modulator is being relocated. It then processes nothing."""
        self.frozen_record: ModulatorRecord | None = None

    @property
    def client(self) -> NodeId:
        """The client that subscribes."""
        return self.subscription.subscriber

    def register_input(self, now: float, id: EventId, until: float) -> bool:
        """Remember an input. False if it is a duplicate: a producer that lost its home broker publishes again the
        events that may not have arrived."""
        recent = self._recent_inputs
        while recent and (len(recent) > MAX_REMEMBERED_INPUTS or next(iter(recent.values()))[0] <= now):
            del recent[next(iter(recent))]
        if id in recent:
            return False
        recent[id] = (until, False)
        return True

    def finish_input(self, id: EventId) -> None:
        """Mark an input as processed."""
        if id in self._recent_inputs:
            self._recent_inputs[id] = (self._recent_inputs[id][0], True)

    def list_finished_inputs(self) -> tuple[EventId, ...]:
        """The recent inputs that are processed. The others will be sent again."""
        return tuple(id for id, (_, is_done) in self._recent_inputs.items() if is_done)[-MAX_REMEMBERED_INPUTS:]

    def remember_inputs(self, ids: Iterable[EventId], until: float) -> None:
        """Remember inputs that were processed at another broker."""
        self._recent_inputs = dict.fromkeys(ids, (until, True))

    def input_positions(self) -> Iterator[StreamPosition]:
        """For each producer: the first input that may still be needed, because the client has not acknowledged its
        output."""
        needed: dict[tuple[NodeId, HomeVersion], int] = {}
        for _, buffered in self.sender:
            if buffered.input is not None:
                producer, generation, number = buffered.input
                needed[producer, generation] = min(number, needed.get((producer, generation), number))
        for stream, position in self.processed.items():
            yield position._replace(number=min(position.number, needed.get(stream, position.number)))


MAX_CALLS = 4096
"""Inputs of one modulator that wait for its processor."""

MAX_STREAMS = 1024
"""Producer streams of one modulator."""

GENERATIONS = 2
"""Generations of one producer. The rest of an older one is processed beside the newer one."""

SEND_WINDOW = 64
"""Outputs in flight to a client. Further outputs wait for its acknowledgement."""

ModulatorCall = tuple[RunningModulator, StreamPosition, StreamEvent]


class Modulators:
    """All modulators of one broker."""

    def __init__(self, context: NodeContext, monitor: ResourceMonitor, mark_changed: Callable[[NodeId], None]) -> None:
        self._context = context
        self._monitor = monitor
        self._mark_changed = mark_changed
        self._calls: ProcessorCalls[ModulatorCall] = ProcessorCalls(context.port, MAX_CALLS)
        self._running: dict[SubscriptionId, RunningModulator] = {}
        self._by_client: dict[NodeId, dict[SubscriptionId, RunningModulator]] = {}
        self._unacknowledged: dict[SubscriptionId, None] = {}

    def __contains__(self, id: SubscriptionId) -> bool:
        return id in self._running

    def __iter__(self) -> Iterator[RunningModulator]:
        return iter(list(self._running.values()))

    def get(self, id: SubscriptionId) -> RunningModulator | None:
        """A modulator of this broker, or None."""
        return self._running.get(id)

    def modulators_of(self, client: NodeId) -> list[RunningModulator]:
        """The modulators of one client."""
        return list(self._by_client.get(client, {}).values())

    def directory_entry(self, modulator: RunningModulator) -> DirectoryEntry:
        """The subscription as all brokers know it, without the parts that only its modulator needs."""
        whole = modulator.subscription
        lean = Subscription(whole.id, whole.filter, attributes=whole.attributes)
        return DirectoryEntry(lean, modulator.version, self._context.node, modulator.home)

    def report(self, name: Callable[[NodeId], str]) -> dict[str, str]:
        """The modulators that run here and their clients, as text for users."""
        lines = [
            f"{one.subscription.processor or 'no processor'} for {one.subscription.id} of {name(one.client)}"
            for one in self._running.values()
        ]
        return {"modulators here": "; ".join(sorted(lines)) or "none"}

    # Starting and stopping.

    def open(self, now: float, record: ModulatorRecord, home: NodeId, waited_s: float = 0.0) -> None:
        """Start a modulator from a record."""
        subscription = record.subscription
        self.close(subscription.id)
        sender = StreamSender(record.next_output)
        sender.buffered.extend(
            (event.number, StreamEvent.from_record(now, event, waited_s)) for event in record.buffered
        )
        sender.sent = sender.first
        modulator = self._running[subscription.id] = RunningModulator(subscription, record.version, home, sender)
        self._by_client.setdefault(modulator.client, {})[subscription.id] = modulator
        modulator.remember_inputs(record.recent_inputs, now + self._context.settings.seen_s)
        for position in record.positions[:MAX_STREAMS]:
            stream = (position.producer, position.generation)
            modulator.receivers[stream], modulator.processed[stream] = StreamReceiver(position.number), position
        if subscription.processor is not None:
            self._calls.open(subscription.id, subscription.processor, record.state)
        self._send_window(now, modulator)

    def freeze(self, now: float, modulator: RunningModulator) -> ModulatorRecord:
        """Stop processing and return the whole state. Inputs that wait or are being processed are not part of it: the
        producer's home broker still keeps them."""
        modulator.frozen = True
        record = modulator.frozen_record = self.make_record(now, modulator)
        self._calls.close(modulator.subscription.id)
        return record

    def make_record(self, now: float, modulator: RunningModulator) -> ModulatorRecord:
        """The state of a modulator, to move it or to write it to the store."""
        if modulator.frozen_record is not None:
            return modulator.frozen_record
        return ModulatorRecord(
            subscription=modulator.subscription,
            version=modulator.version,
            state=self._state(modulator),
            positions=tuple(modulator.processed.values()),
            next_output=modulator.sender.number,
            buffered=tuple(event.to_record(now, number) for number, event in modulator.sender),
            recent_inputs=modulator.list_finished_inputs(),
        )

    def close(self, id: SubscriptionId) -> None:
        """Remove a modulator."""
        modulator = self._running.pop(id, None)
        if modulator is not None:
            del self._by_client[modulator.client][id]
            if not self._by_client[modulator.client]:
                del self._by_client[modulator.client]
            self._calls.close(id)
            self._unacknowledged.pop(id, None)

    def _state(self, modulator: RunningModulator) -> bytes:
        id = modulator.subscription.id
        if not self._context.settings.carry_state or id not in self._calls:
            return modulator.subscription.state
        return self._calls.state(id)

    # Events.

    def on_produced_event(self, now: float, origin: NodeId, message: ProducedEvent, hops: int) -> None:
        """An event of a producer, for some of the modulators."""
        buffered = StreamEvent(message.event, hops_after(message.hops, hops), now + message.remaining_s)
        for slot in message.slots:
            receiver = self._input_stream(origin, message.producer, message.generation, slot)
            if receiver is None:
                continue
            in_order = receiver.accept(slot.number, slot.first, buffered)
            if in_order is None:
                self._context.drop("stream_repeated", origin, message.event.id)
                self._mark_for_ack(slot.subscription)
            self._process_all(now, slot.subscription, message.producer, message.generation, in_order or [])

    def on_skip(self, now: float, origin: NodeId, message: StreamSkip) -> None:
        """Some inputs that the modulators wait for will not come."""
        for slot in message.slots:
            receiver = self._input_stream(origin, message.producer, message.generation, slot)
            if receiver is not None:
                self._process_all(
                    now, slot.subscription, message.producer, message.generation, receiver.skip_to(slot.first)
                )

    def _input_stream(
        self, origin: NodeId, producer: NodeId, generation: HomeVersion, slot: StreamSlot
    ) -> StreamReceiver[StreamEvent] | None:
        modulator = self._running.get(slot.subscription)
        if modulator is None or modulator.frozen:
            # The producer's home broker learns where the modulator is now, and sends the event there.
            self._context.drop("modulator_elsewhere", origin)
            return None
        receiver = modulator.receivers.get((producer, generation))
        if receiver is None:
            if len(modulator.receivers) >= MAX_STREAMS:
                self._context.drop("streams_full", origin)
                return None
            older = sorted(stream for stream in modulator.receivers if stream[0] == producer)
            if len(older) >= GENERATIONS:
                if (producer, generation) < older[0]:
                    self._context.drop("generation_outdated", origin)
                    return None
                del modulator.receivers[older[0]]
                modulator.processed.pop(older[0], None)
            receiver = modulator.receivers[producer, generation] = StreamReceiver(slot.first)
        modulator.producer_homes[producer, generation] = origin
        return receiver

    def _process_all(
        self,
        now: float,
        id: SubscriptionId,
        producer: NodeId,
        generation: HomeVersion,
        in_order: list[tuple[int, StreamEvent]],
    ) -> None:
        modulator = self._running[id]
        for number, buffered in in_order:
            input = StreamPosition(producer, generation, number)
            if not modulator.register_input(now, buffered.event.id, now + self._context.settings.seen_s):
                self._context.drop("already_taken", producer, buffered.event.id)
                self._finish_input(now, modulator, input, buffered, [])
            elif modulator.subscription.processor is None:
                self._finish_input(now, modulator, input, buffered, [buffered.event])
            elif not self._calls.submit(id, [buffered.event], (modulator, input, buffered)):
                self._context.drop("processor_busy", producer, buffered.event.id)

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None:
        """The outcome of a processor call. After an error the state before the call stays, and the input counts as
        processed."""
        call = self._calls.finish(token, state, error)
        if call is None:
            self._context.drop("modulator_elsewhere")
            return
        modulator, input, buffered = call
        assert modulator.subscription.processor is not None
        self._monitor.record_run(modulator.subscription.processor, cost_s)
        if error:
            self._context.drop("processor_failed", event=buffered.event.id)
        self._finish_input(now, modulator, input, buffered, [] if error else events)

    def _finish_input(
        self,
        now: float,
        modulator: RunningModulator,
        input: StreamPosition,
        buffered: StreamEvent,
        events: Sequence[Event],
    ) -> None:
        self._mark_changed(modulator.client)
        modulator.finish_input(buffered.event.id)
        modulator.processed[input.producer, input.generation] = input._replace(number=input.number + 1)
        for part, event in enumerate(events):
            _, removed = modulator.sender.add(StreamEvent(event, buffered.hops, buffered.until, input, part))
            if removed is not None:
                self._context.drop("stream_full", modulator.client, removed.event.id)
        if events:
            self._send_window(now, modulator)
        else:
            self._mark_for_ack(modulator.subscription.id)

    def _send_window(self, now: float, modulator: RunningModulator, respect_backoff: bool = True) -> None:
        """Send the outputs that fit the window, unless the client seems to be unreachable."""
        sender = modulator.sender
        if respect_backoff and now < sender.resend_at and sender.sent < sender.first:
            return
        until = sender.first + SEND_WINDOW
        for number, buffered in sender:
            if max(sender.sent, sender.first) <= number < until:
                self._send(now, modulator, number, buffered)
                sender.sent = number + 1
        sender.resend_at = now + PROBE_INTERVALS * self._context.settings.resend_s

    def _send(self, now: float, modulator: RunningModulator, number: int, buffered: StreamEvent) -> None:
        assert buffered.input is not None
        if buffered.until <= now:
            return
        output = Output(
            buffered.event,
            buffered.hops,
            buffered.until - now,
            slot=StreamSlot(modulator.subscription.id, number, modulator.sender.first),
            version=modulator.version,
            input=buffered.input,
            part=buffered.part,
            ordered=self._context.settings.keep_order,
        )
        self._context.send(now, modulator.client, output)

    # Acknowledgements.

    def on_output_ack(self, now: float, origin: NodeId, ack: OutputAck) -> None:
        """A client has received all outputs before a number."""
        modulator = self._running.get(ack.subscription)
        if modulator is None or modulator.client != origin:
            self._context.drop("modulator_elsewhere", origin)
            return
        modulator.home = ack.home
        if ack.number <= modulator.sender.number and modulator.sender.acknowledge(ack.number):
            self._send_window(now, modulator, respect_backoff=False)
        self._mark_for_ack(ack.subscription)

    def _mark_for_ack(self, id: SubscriptionId) -> None:
        self._unacknowledged[id] = None
        self._context.start_timer("acknowledge", self._context.settings.taken_s)

    def send_input_acks(self, now: float) -> None:
        """Acknowledge inputs to the producers' home brokers, as far as clients have received their outputs."""
        by_broker: dict[NodeId, list[tuple[SubscriptionId, StreamPosition]]] = {}
        for id in self._unacknowledged:
            modulator = self._running.get(id)
            if modulator is None:
                continue
            for position in modulator.input_positions():
                broker = modulator.producer_homes.get((position.producer, position.generation))
                if broker is not None:
                    by_broker.setdefault(broker, []).append((id, position))
        self._unacknowledged.clear()
        for broker, entries in by_broker.items():
            for begin in range(0, len(entries), MAX_ENTRIES):
                self._context.port.route(broker, InputAck(tuple(entries[begin : begin + MAX_ENTRIES])))

    def on_client_unreachable(self, now: float, client: NodeId) -> None:
        """A message did not reach a client: keep its outputs, and retransmit them after a while."""
        for modulator in self.modulators_of(client):
            modulator.sender.sent = -1
            modulator.sender.resend_at = now + self._context.settings.resend_s

    def on_client_heard(self, now: float, client: NodeId) -> None:
        """A client that seemed to be unreachable has sent something: send it all outputs that were kept."""
        for modulator in self.modulators_of(client):
            if modulator.sender.sent < modulator.sender.first and not modulator.frozen:
                self._send_window(now, modulator, respect_backoff=False)

    def maintain(self, now: float) -> bool:
        """Remove expired outputs and retransmit those that were not acknowledged. Returns whether any are left."""
        waits = False
        for modulator in self._running.values():
            if not len(modulator.sender) or modulator.frozen:
                continue
            waits = True
            removed = modulator.sender.expire(now)
            for buffered in removed:
                self._context.drop("lease_over", modulator.client, buffered.event.id)
            if removed:
                self._mark_for_ack(modulator.subscription.id)
            if now >= modulator.sender.resend_at:
                modulator.sender.sent = modulator.sender.first
                self._send_window(now, modulator)
        return waits
