"""What all components of a node share: its identity, settings, transport and timers."""

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Fact, Host, Port, TimerKey
from carrycast.core.wire import Message
from carrycast.protocols.overlay.messages import Round
from carrycast.protocols.overlay.settings import OverlaySettings
from carrycast.protocols.overlay.transport import Paths, Transport

BROKER = "broker"
"""The role of brokers."""


class Station:
    """One node."""

    def __init__(self, node: NodeId, settings: OverlaySettings, port: Port, host: Host, paths: Paths) -> None:
        self.node = node
        self.settings = settings
        self.port = port
        self.host = host
        self.transport = Transport(node, port, host, paths)
        self.brokers = host.directory(BROKER)
        self._others = tuple(broker for broker in self.brokers if broker != node)
        self._known = frozenset(self.brokers)
        self._armed: dict[TimerKey, None] = {}
        self._moves = Round(host.incarnation, 0)

    def is_broker(self, node: NodeId) -> bool:
        """Whether a node has the role."""
        return node in self._known

    def send(self, now: float, peer: NodeId, message: Message) -> bool:
        """Through the channel."""
        return self.transport.send(now, peer, message)

    def tell_brokers(self, now: float, message: Message) -> None:
        """Every other broker there is."""
        for broker in self._others:
            self.send(now, broker, message)

    def next_move(self) -> Round:
        """A name for a relocation that no other of this node has had."""
        self._moves = self._moves.next()
        return self._moves

    def arm(self, key: TimerKey, delay_s: float) -> None:
        """Set a timer, unless it is set."""
        if key not in self._armed:
            self._armed[key] = None
            self.port.set_timer(key, delay_s)

    def disarm(self, key: TimerKey) -> None:
        """End a timer."""
        if key in self._armed:
            del self._armed[key]
            self.port.cancel_timer(key)

    def rang(self, key: TimerKey) -> None:
        """A timer has run out."""
        self._armed.pop(key, None)

    def stop(self) -> None:
        """End all timers."""
        for key in list(self._armed):
            self.disarm(key)
        self.transport.stop()

    def drop(self, reason: str, peer: NodeId | None = None, event: EventId | None = None) -> None:
        """Say why something goes no further."""
        self.port.note(Fact("drop", event, peer, reason))
