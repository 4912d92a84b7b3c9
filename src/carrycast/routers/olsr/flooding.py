"""Control messages on their way: the duplicate set and the default forwarding algorithm [RFC 3.4], and packets in which
several messages share a frame [RFC 3.3]."""

from random import Random

from carrycast.core.model import NodeId
from carrycast.core.parts import TwoHopNeighborhood
from carrycast.core.protocol import Interface, Port
from carrycast.routers.olsr.messages import MAX_MESSAGES, ControlPacket, Hello, TopologyControl
from carrycast.routers.olsr.settings import OlsrSettings

MAX_ADDRESSES = 250
"""Node ids in one packet: with five bytes each they fit in a frame of 1,500 bytes."""


class DuplicateTuple:
    """A message that was received [RFC 3.4]: D_iface_list, D_retransmitted, D_time."""

    __slots__ = ("interfaces", "retransmitted", "until")

    def __init__(self, until: float) -> None:
        self.interfaces: set[Interface] = set()
        self.retransmitted = False
        self.until = until


class DuplicateSet:
    """The TCs that were received recently, by originator and message sequence number."""

    def __init__(self, hold_s: float, max_messages: int) -> None:
        self._hold_s = hold_s
        self._max_messages = max_messages
        self._tuples: dict[tuple[NodeId, int], DuplicateTuple] = {}
        """The tuple that expires first comes first."""

    def __contains__(self, message: TopologyControl) -> bool:
        return (message.originator, message.number) in self._tuples

    def is_full(self, now: float) -> bool:
        """Whether no further message can be remembered."""
        tuples = self._tuples
        while tuples:
            oldest = next(iter(tuples))
            if tuples[oldest].until > now:
                break
            del tuples[oldest]
        return len(tuples) >= self._max_messages

    def should_forward(self, now: float, message: TopologyControl, via: Interface, is_selector: bool) -> bool:
        """The default forwarding algorithm [RFC 3.4.1], for a message of a symmetric neighbor."""
        key = (message.originator, message.number)
        known = self._tuples.pop(key, None)
        # [RFC 3.4.1, 2] With an entry in the duplicate set "the message will be further considered for forwarding if
        # and only if D_retransmitted is false, AND the (address of the) interface which received the message is not
        # included among the addresses in D_iface_list".
        is_considered = known is None or (not known.retransmitted and via not in known.interfaces)
        # [RFC 3.4.1, 4] "If the sender interface address is an interface address of a MPR selector of this node and if
        # the time to live of the message is greater than '1', the message MUST be retransmitted".
        forwards = is_considered and is_selector and message.ttl > 1
        # [RFC 3.4.1, 5] The entry in the duplicate set is updated, or a new one is recorded.
        known = known or DuplicateTuple(now)
        known.until = now + self._hold_s
        known.interfaces.add(via)
        known.retransmitted = known.retransmitted or forwards
        self._tuples[key] = known
        return forwards


class ControlQueue:
    """Messages that wait for a common packet, at most MAXJITTER. The timer is "flush"."""

    def __init__(self, settings: OlsrSettings, port: Port, rng: Random) -> None:
        self._settings = settings
        self._port = port
        self._rng = rng
        self._waiting: list[Hello | TopologyControl] = []

    def add(self, message: Hello | TopologyControl) -> None:
        """Let a message wait. Jitter keeps neighbors from forwarding it together [RFC 3.4.1]."""
        if not self._waiting:
            self._port.set_timer("flush", self._settings.jitter_s * self._rng.random())
        self._waiting.append(message)

    def send(self, message: Hello | TopologyControl) -> None:
        """Send a message at once, and with it all that wait."""
        if self._waiting:
            self._port.cancel_timer("flush")
        self._waiting.insert(0, message)
        self.flush()

    def flush(self) -> None:
        """Send all messages that wait, in as few packets as possible."""
        packet: list[Hello | TopologyControl] = []
        addresses = 0
        for message in self._waiting:
            count = _count_addresses(message)
            if packet and (len(packet) == MAX_MESSAGES or addresses + count > MAX_ADDRESSES):
                self._port.broadcast(ControlPacket(tuple(packet)))
                packet, addresses = [], 0
            packet.append(message)
            addresses += count
        if packet:
            self._port.broadcast(ControlPacket(tuple(packet)))
        self._waiting.clear()

    def stop(self) -> None:
        """Forget what waits."""
        if self._waiting:
            self._port.cancel_timer("flush")
            self._waiting.clear()


def _count_addresses(message: Hello | TopologyControl) -> int:
    if isinstance(message, Hello):
        return len(message.mprs) + len(message.symmetric) + len(message.heard) + len(message.lost)
    return len(message.advertised)


# [RFC 6.2]
def make_hello(now: float, settings: OlsrSettings, neighborhood: TwoHopNeighborhood) -> Hello:
    """The HELLO of a node: all neighbors with the states of their links."""
    lists = neighborhood.make_lists(now)
    return Hello(
        settings.neighbor_hold_s,
        settings.willingness,
        tuple(lists.mprs),
        tuple(lists.symmetric),
        tuple(lists.heard),
        tuple(lists.lost),
    )
