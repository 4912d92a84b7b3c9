"""The state that all components of a node share: its identity, settings, transport and timers."""

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Fact, Host, Port, TimerKey
from carrycast.core.wire import Message
from carrycast.protocols.overlay.messages import SequenceNumber
from carrycast.protocols.overlay.settings import OverlaySettings
from carrycast.protocols.overlay.transport import PathLookup, SourceRoutingTransport

BROKER = "broker"
"""The role of brokers."""


class NodeContext:
    """The shared state of one node."""

    def __init__(self, node: NodeId, settings: OverlaySettings, port: Port, host: Host, path_to: PathLookup) -> None:
        self.node = node
        self.settings = settings
        self.port = port
        self.host = host
        self.transport = SourceRoutingTransport(node, port, host, path_to)
        self.brokers = host.directory(BROKER)
        self._other_brokers = tuple(broker for broker in self.brokers if broker != node)
        self._broker_set = frozenset(self.brokers)
        self._timers: dict[TimerKey, None] = {}
        self._relocation = SequenceNumber(host.incarnation, 0)

    def is_broker(self, node: NodeId) -> bool:
        """Whether a node has the role of a broker."""
        return node in self._broker_set

    def send(self, now: float, peer: NodeId, message: Message) -> bool:
        """Send through the channel; False if its queue is full."""
        return self.transport.send(now, peer, message)

    def send_to_brokers(self, now: float, message: Message) -> None:
        """Send to every other broker."""
        for broker in self._other_brokers:
            self.send(now, broker, message)

    def next_relocation_id(self) -> SequenceNumber:
        """An id for a relocation that no other one of this node has had."""
        self._relocation = self._relocation.next()
        return self._relocation

    def start_timer(self, key: TimerKey, delay_s: float) -> None:
        """Start a timer, unless it is running."""
        if key not in self._timers:
            self._timers[key] = None
            self.port.set_timer(key, delay_s)

    def stop_timer(self, key: TimerKey) -> None:
        """Stop a timer, if it is running."""
        if key in self._timers:
            del self._timers[key]
            self.port.cancel_timer(key)

    def on_timer(self, key: TimerKey) -> None:
        """A timer has expired, and may be started again."""
        self._timers.pop(key, None)

    def stop(self) -> None:
        """Stop all timers."""
        for key in list(self._timers):
            self.stop_timer(key)
        self.transport.stop()

    def drop(self, reason: str, peer: NodeId | None = None, event: EventId | None = None) -> None:
        """Record why a message or an event is dropped."""
        self.port.note(Fact("drop", event, peer, reason))
