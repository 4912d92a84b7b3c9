"""A client [002 §3.6]: it finds its home broker, publishes there, and delivers the outputs of its modulators."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from carrycast.core.matching import serves
from carrycast.core.model import Event, EventId, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts import SequenceWindow
from carrycast.core.protocol import Gap
from carrycast.core.wire import Message, hops_after
from carrycast.protocols.overlay.context import NodeContext
from carrycast.protocols.overlay.home_broker import choose_home_broker, choose_nearer_broker
from carrycast.protocols.overlay.messages import (
    MAX_ENTRIES,
    Attach,
    ClientAlive,
    HomeConfirmed,
    HomeQuery,
    HomeVersion,
    ModulatorLost,
    NearerBroker,
    NotHome,
    Output,
    OutputAck,
    Publish,
    PublishAck,
    StreamPosition,
    Subscribe,
    Unsubscribe,
)
from carrycast.protocols.overlay.producers import PROBE_INTERVALS
from carrycast.protocols.overlay.rules import FoundBroker
from carrycast.protocols.overlay.streams import StreamEvent, StreamReceiver, StreamSender

SEND_WINDOW = 64
"""Events in flight to the home broker. Further events wait for its acknowledgement."""
ACK_EVERY = 16
"""Outputs after which an acknowledgement is sent at once."""


class ReceivedOutput(NamedTuple):
    """An output of a modulator that has arrived."""

    event: Event
    hops: int
    until: float
    input: StreamPosition
    part: int

    @property
    def key(self) -> tuple[tuple[EventId, ...], int]:
        """The inputs of the output and its index: the same however often and wherever the output is computed."""
        return self.event.derived_from or (self.event.id,), self.part


class ClientSubscription:
    """A subscription of this client, and the outputs received for it."""

    __slots__ = (
        "_delivered",
        "_expiries",
        "broker",
        "delivered_numbers",
        "is_running",
        "positions",
        "receiver",
        "subscription",
        "unacknowledged",
    )

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.receiver: StreamReceiver[ReceivedOutput] = StreamReceiver()
        self.delivered_numbers = SequenceWindow()
        """Without order: the numbers of the outputs that were delivered."""
        self.positions: dict[tuple[NodeId, HomeVersion], StreamPosition] = {}
        """For each producer: the position after the last input whose output was delivered."""
        self.unacknowledged: tuple[int, NodeId] | None = None
        """The number of outputs that are not acknowledged yet, and their sender."""
        self.is_running = False
        """Whether a broker has started the modulator."""
        self.broker: NodeId | None = None
        """The broker that sent the last output."""
        self._delivered: set[object] = set()
        self._expiries: deque[tuple[float, object]] = deque()

    def is_new(self, now: float, output: ReceivedOutput, seen_s: float) -> bool:
        """Remember an output; False if it was delivered before.

        A producer that lost its home broker does not know which of its events arrived, and publishes them again.
        """
        while self._expiries and self._expiries[0][0] <= now:
            self._delivered.discard(self._expiries.popleft()[1])
        key = output.key
        if key in self._delivered:
            return False
        self._delivered.add(key)
        self._expiries.append((now + seen_s, key))
        return True


class OverlayClient:
    """The client on one node."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self.home: NodeId | None = None
        self.version = HomeVersion(context.host.incarnation, 0)
        self._subscriptions: dict[SubscriptionId, ClientSubscription] = {}
        self._sender = StreamSender()
        self._unreachable_since: float | None = None
        """Since when the home broker could not be reached."""
        self._lost_since: float | None = None
        """Since when there is no home broker, though there was one."""
        self._confirmed = False
        """Whether the home broker has confirmed that it is."""
        self._avoided: NodeId | None = None
        """A broker that could not be reached when it was to become the home broker, or refused."""
        self.refused = False
        """Whether the last broker refused to become the home broker, because it has too many clients."""

    @property
    def is_producer(self) -> bool:
        """Whether this client has published."""
        return self._sender.number > 0

    @property
    def is_consumer(self) -> bool:
        """Whether this client has subscriptions."""
        return bool(self._subscriptions)

    @property
    def is_idle(self) -> bool:
        """Whether this client neither publishes nor subscribes, and so needs no home broker."""
        return not self.is_consumer and not self.is_producer

    def report(self, name: Callable[[NodeId], str]) -> dict[str, str]:
        """The home broker and the brokers of the modulators, as far as this client knows, as text for users."""
        found = {"home broker": "none" if self.home is None else name(self.home)}
        if self._subscriptions:
            known = ((one.subscription, one.broker) for one in self._subscriptions.values())
            lines = [f"{what.id} at {'unknown' if broker is None else name(broker)}" for what, broker in known]
            found["modulators of this node"] = "; ".join(lines)
        return found

    # The home broker.

    def on_brokers_found(self, now: float, found: list[FoundBroker], loads: dict[NodeId, float]) -> None:
        """[002 §2.4] Attach to the nearest broker at first; later report a nearer one to the home broker."""
        if not found or self.is_idle:
            return
        if self.home is None:
            if self._lost_since is None or now - self._lost_since >= self._context.settings.seek_s:
                self._attach(now, choose_home_broker(found, self._avoided))
            return
        nearer = choose_nearer_broker(found, self.home)
        if nearer is not None:
            distance, broker = nearer
            report = NearerBroker(self.version, broker, distance, loads.get(broker))
            self._context.send(now, self.home, report)

    def _attach(self, now: float, broker: NodeId) -> None:
        self.home, self._unreachable_since, self._lost_since, self._confirmed = broker, None, None, False
        self.version = HomeVersion(self.version.incarnation, self.version.attach + 1)
        self._context.send(now, broker, Attach(self.version))
        for subscription in self._subscriptions.values():
            self._restart_modulator(now, subscription)
        self._sender.sent = self._sender.first
        self._send_window(now)
        self._context.start_timer("keepalive", self._context.settings.refresh_s)

    def send_keepalive(self, now: float) -> None:
        """Send a keepalive to the home broker."""
        if self.home is not None:
            self._context.send(now, self.home, ClientAlive(self.version))
            self._context.start_timer("keepalive", self._context.settings.refresh_s)

    def on_given_up(self, now: float, peer: NodeId, cause: Failure) -> bool:
        """A message could not be delivered. Returns whether to search for a home broker."""
        if peer != self.home:
            return False
        self._sender.sent = self._sender.first
        self._sender.resend_at = now + self._context.settings.resend_s
        if self._unreachable_since is None:
            self._unreachable_since = now
        # [002 §6] The home broker may come back, and has kept everything. One that has restarted, or never confirmed,
        # has nothing.
        is_over = now - self._unreachable_since >= self._context.settings.patience_s
        if is_over or not self._confirmed or cause is Failure.RESTARTED:
            self._avoided = None if cause is Failure.RESTARTED else peer
            self._lose_home(now)
        return True

    def _lose_home(self, now: float) -> None:
        self.home = None
        # A broker that never was the home broker need not be found again.
        self._lost_since = now if self._confirmed else None

    def query_home(self, now: float) -> None:
        """Ask all brokers which is the home broker, if it was lost: it may just have moved this client elsewhere."""
        if self._lost_since is not None:
            self._context.send_to_brokers(now, HomeQuery(self.version))

    def _on_home_confirmed(self, now: float, origin: NodeId, version: HomeVersion) -> None:
        if version[:2] != self.version[:2] or version < self.version:
            self._context.drop("home_outdated", origin)
            return
        self._confirm()
        self._avoided, self.refused = None, False
        if origin != self.home or version > self.version:
            self.home, self.version, self._unreachable_since, self._lost_since = origin, version, None, None
            self._sender.sent = self._sender.first
            self._send_window(now)

    def _confirm(self) -> None:
        """The home broker has started all modulators that it was asked for: messages to it arrive in order."""
        if not self._confirmed:
            self._confirmed = True
            for subscription in self._subscriptions.values():
                subscription.is_running = True

    def _on_not_home(self, now: float, origin: NodeId, version: HomeVersion) -> bool:
        if origin != self.home or version[:2] != self.version[:2]:
            self._context.drop("home_outdated", origin)
            return False
        if not self._confirmed:
            self._avoided, self.refused = origin, True
        self._lose_home(now)
        return True

    # Publications.

    def publish(self, now: float, event: Event) -> None:
        """Send an event to the home broker, or keep it until there is one."""
        _, removed = self._sender.add(StreamEvent(event, 0, now + event.lease_s))
        if removed is not None:
            self._context.drop("stream_full", event=removed.event.id)
        self._send_window(now)
        self._context.start_timer("maintain", self._context.settings.resend_s)

    def _send_window(self, now: float) -> None:
        sender = self._sender
        if self.home is None:
            return
        until = sender.first + SEND_WINDOW
        for number, buffered in sender:
            if max(sender.sent, sender.first) <= number < until:
                sender.sent = number + 1
                if buffered.until > now:
                    message = Publish(
                        buffered.event,
                        0,
                        buffered.until - now,
                        version=self.version,
                        number=number,
                        first=sender.first,
                    )
                    self._context.send(now, self.home, message)
        sender.resend_at = now + PROBE_INTERVALS * self._context.settings.resend_s

    def _on_publish_ack(self, now: float, origin: NodeId, message: PublishAck) -> None:
        from_home = origin == self.home and message.version[:2] == self.version[:2]
        if from_home and message.number <= self._sender.number and self._sender.acknowledge(message.number):
            self._send_window(now)

    def maintain(self, now: float) -> bool:
        """Remove expired events and retransmit those that were not acknowledged. Returns whether any are left."""
        for event in self._sender.expire(now):
            self._context.drop("lease_over", event=event.event.id)
        if len(self._sender) and now >= self._sender.resend_at:
            self._sender.sent = self._sender.first
            self._send_window(now)
        return bool(len(self._sender))

    # Subscriptions.

    def subscribe(self, now: float, subscription: Subscription) -> None:
        """A local application subscribes, or renews its subscription."""
        known = self._subscriptions.get(subscription.id)
        if known is None:
            known = self._subscriptions[subscription.id] = ClientSubscription(subscription)
        known.subscription = subscription
        known.is_running = known.is_running or self._confirmed
        self._send_subscription(now, known)

    def unsubscribe(self, now: float, id: SubscriptionId) -> None:
        """A local application's subscription has ended."""
        if self._subscriptions.pop(id, None) is not None and self.home is not None:
            self._context.send(now, self.home, Unsubscribe(id))

    def _restart_modulator(self, now: float, known: ClientSubscription) -> None:
        """Another broker has to run the modulator, and begins without its state: the application is notified."""
        if known.is_running and known.subscription.processor is not None:
            self._context.port.note(Gap("gap", reason="processor_restarted", subscription=known.subscription.id))
        known.is_running, known.broker = self._confirmed, None
        self._send_subscription(now, known)

    def _on_modulator_lost(self, now: float, origin: NodeId, id: SubscriptionId) -> None:
        known = self._subscriptions.get(id)
        if origin != self.home:
            self._context.drop("home_outdated", origin)
        elif known is None:
            self._context.drop("not_wanted", origin)
        else:
            self._restart_modulator(now, known)

    def _send_subscription(self, now: float, known: ClientSubscription) -> None:
        if self.home is not None:
            positions = tuple(known.positions.values())[-MAX_ENTRIES:]
            message = Subscribe(self.version, known.subscription, positions, known.receiver.expected)
            self._context.send(now, self.home, message)

    def _on_output(self, now: float, origin: NodeId, message: Output, hops: int) -> None:
        slot = message.slot
        known = self._subscriptions.get(slot.subscription)
        if known is None:
            self._context.drop("not_wanted", origin, message.event.id)
            self._context.send(now, origin, Unsubscribe(slot.subscription))
            return
        if message.version[:2] != self.version[:2]:
            self._context.drop("generation_outdated", origin, message.event.id)
            return
        known.broker = origin
        output = ReceivedOutput(
            message.event, hops_after(message.hops, hops), now + message.remaining_s, message.input, message.part
        )
        if not message.ordered and known.delivered_numbers.add(slot.number):
            self._deliver(now, known, output)
        in_order = known.receiver.accept(slot.number, slot.first, output)
        if in_order is None:
            self._context.drop("stream_repeated", origin, message.event.id)
        for _, next_output in in_order or () if message.ordered else ():
            self._deliver(now, known, next_output)
        count = 1 if known.unacknowledged is None else known.unacknowledged[0] + 1
        known.unacknowledged = (count, origin)
        if count >= ACK_EVERY:
            self._send_ack(known)
        else:
            self._context.start_timer("output_ack", self._context.settings.taken_s)

    def _deliver(self, now: float, known: ClientSubscription, output: ReceivedOutput) -> None:
        stream = (output.input.producer, output.input.generation)
        known.positions.pop(stream, None)
        known.positions[stream] = output.input._replace(number=output.input.number + 1)
        while len(known.positions) > MAX_ENTRIES:
            del known.positions[next(iter(known.positions))]
        if output.until <= now:
            self._context.drop("lease_over", event=output.event.id)
        elif known.subscription.processor is None and not serves(output.event, known.subscription):
            self._context.drop("not_wanted", event=output.event.id)
        elif not known.is_new(now, output, self._context.settings.seen_s):
            self._context.drop("already_delivered", event=output.event.id)
        else:
            self._context.port.deliver(known.subscription.id, output.event, output.hops)

    def send_acks(self) -> None:
        """Acknowledge the outputs that have arrived."""
        for known in self._subscriptions.values():
            if known.unacknowledged is not None:
                self._send_ack(known)

    def _send_ack(self, known: ClientSubscription) -> None:
        assert known.unacknowledged is not None
        sender, known.unacknowledged = known.unacknowledged[1], None
        home = sender if self.home is None else self.home
        self._context.port.route(sender, OutputAck(known.subscription.id, known.receiver.expected, home))

    def on_message(self, now: float, origin: NodeId, message: Message, hops: int) -> bool:
        """A message of a broker. Returns whether to search for a home broker."""
        if origin == self.home:
            self._unreachable_since = None
            if isinstance(message, PublishAck | Output):
                self._confirm()
        match message:
            case Output():
                self._on_output(now, origin, message, hops)
            case PublishAck():
                self._on_publish_ack(now, origin, message)
            case HomeConfirmed():
                self._on_home_confirmed(now, origin, message.version)
            case ModulatorLost():
                self._on_modulator_lost(now, origin, message.subscription)
            case NotHome():
                return self._on_not_home(now, origin, message.version)
        return False
