"""The rows of the trace. Every environment builds its rows here, so the same fact gives the same row everywhere.

Each function takes the time on the clock of the trace and the node of the fact. An environment decides which rows it
writes, but not their contents.
"""

from collections.abc import Iterable, Sequence

import msgspec

from carrycast.core.model import Event, EventId, Failure, NodeId, RequestId, SubscriptionId
from carrycast.core.protocol import Fact, Gap, Interface, Link
from carrycast.core.wire import EventMessage, Layer, Message, Traffic, classify
from carrycast.trace.schema import Kind, Row

LINK_LAYER = "link"
"""The layer of rows from below discovery, routing and dissemination."""

_LAYERS = {layer: layer.name.lower() for layer in Layer}
_TRAFFIC = {traffic: traffic.name.lower() for traffic in Traffic}
_TOP = _LAYERS[Layer.DISSEMINATION]
"""The layer of rows about applications or whole nodes."""


def event_size_bytes(event: Event) -> int:
    """The encoded size of an event without a message around it, as in the table `events`."""
    return len(encode_event(event))


def encode_event(event: Event) -> bytes:
    """Encode an event without a message around it."""
    return msgspec.msgpack.encode(event)


def publication_row(time_s: float, node: NodeId, event: EventId, size_bytes: int) -> Row:
    """An application publishes, or a processor has produced an event."""
    return Row(time_s, node, _TOP, Kind.PUBLISH, event=str(event), size_bytes=size_bytes)


def subscription_row(time_s: float, node: NodeId, id: SubscriptionId) -> Row:
    """An application subscribes."""
    return Row(time_s, node, _TOP, Kind.SUBSCRIBE, subscription=str(id))


def unsubscription_row(time_s: float, node: NodeId, id: SubscriptionId) -> Row:
    """A subscription has ended."""
    return Row(time_s, node, _TOP, Kind.UNSUBSCRIBE, subscription=str(id))


def delivery_row(time_s: float, node: NodeId, id: SubscriptionId, event: EventId, hops: int) -> Row:
    """An event is delivered to an application."""
    return Row(time_s, node, _TOP, Kind.DELIVER, event=str(event), subscription=str(id), hops=hops)


def request_row(time_s: float, node: NodeId, id: RequestId) -> Row:
    """An application requests stored events. The id of the request is in the column `subscription`."""
    return Row(time_s, node, _TOP, Kind.REQUEST, subscription=str(id))


def answer_row(time_s: float, node: NodeId, id: RequestId, event: EventId, hops: int) -> Row:
    """A stored event is delivered to the application that requested it."""
    return Row(time_s, node, _TOP, Kind.ANSWER, event=str(event), subscription=str(id), hops=hops)


def close_row(time_s: float, node: NodeId, id: RequestId, complete: bool) -> Row:
    """A request is closed; the value is 1 if its answers were complete, else 0."""
    return Row(time_s, node, _TOP, Kind.CLOSE, subscription=str(id), value=float(complete))


def lifecycle_row(time_s: float, node: NodeId, kind: Kind) -> Row:
    """A node starts, stops or crashes."""
    return Row(time_s, node, _TOP, kind)


def link_row(time_s: float, node: NodeId, link: Link, lost: Failure | None) -> Row:
    """A node detects a link, or the loss of a link with its cause."""
    kind = Kind.LINK_UP if lost is None else Kind.LINK_DOWN
    return Row(time_s, node, _TOP, kind, peer=link.neighbor, interface=link.interface, reason=lost)


def link_change_row(time_s: float, node: NodeId, link: Link) -> Row:
    """The cost of a link has changed."""
    return Row(time_s, node, _TOP, Kind.LINK_CHANGED, peer=link.neighbor, interface=link.interface, value=link.cost_s)


def fact_row(time_s: float, node: NodeId, layer: Layer, fact: Fact) -> Row:
    """A fact that a state machine notes, or its host about it, such as a drop."""
    event = None if fact.event is None else str(fact.event)
    subscription = str(fact.subscription) if isinstance(fact, Gap) else None
    columns = (event, subscription, fact.peer, None, None, None, fact.reason or None, fact.value)
    return Row(time_s, node, _LAYERS[layer], fact.kind, None, None, *columns)


def processor_error(inputs: Sequence[Event], error: str) -> Fact:
    """A call of a processor has failed. `error` is a reason, and after a colon the message of the user's code."""
    return Fact(Kind.PROCESSOR_ERROR, inputs[0].id if inputs else None, reason=error)


def drop_row(
    time_s: float, node: NodeId, layer: Layer, reason: str, peer: NodeId | None = None, message: Message | None = None
) -> Row:
    """An environment drops a message to or from a peer, or something else at a layer."""
    if message is None:
        return Row(time_s, node, _LAYERS[layer], Kind.DROP, peer=peer, reason=reason)
    return Transfer(layer, message).drop_row(time_s, node, reason, peer)


def refusal_row(time_s: float, node: NodeId, reason: str, peer: NodeId | None) -> Row:
    """A datagram is dropped before it is decoded into a message."""
    return Row(time_s, node, LINK_LAYER, Kind.DROP, peer=peer, reason=reason)


class Transfer:
    """A message in transit. The columns that all its rows share are computed once, for any number of receivers."""

    __slots__ = ("_event", "_hops", "_interface", "_layer", "_message", "_size_bytes", "_traffic")

    def __init__(
        self, layer: Layer, message: Message, interface: Interface | None = None, size_bytes: int | None = None
    ) -> None:
        traffic, event = classify(message)
        self._layer = _LAYERS[layer]
        self._message = type(message).__name__
        self._traffic = _TRAFFIC[traffic]
        self._event = None if event is None else str(event)
        self._interface = interface
        self._size_bytes = size_bytes
        self._hops = message.hops if isinstance(message, EventMessage) else None

    def send_row(
        self, time_s: float, node: NodeId, target: NodeId | None, attempt: int = 1, airtime_us: int | None = None
    ) -> Row:
        """A transmission to one node, or a broadcast. Attempts after the first are retries."""
        kind = Kind.SEND if attempt == 1 else Kind.RETRY
        where = (target, self._interface, self._size_bytes, self._hops, None, None, airtime_us)
        return Row(time_s, node, self._layer, kind, self._message, self._traffic, self._event, None, *where)

    def receive_rows(self, time_s: float, nodes: Iterable[NodeId], sender: NodeId) -> list[Row]:
        """A reception at each of some nodes."""
        layer, message, traffic, event = self._layer, self._message, self._traffic, self._event
        via, size_bytes, hops, kind = self._interface, self._size_bytes, self._hops, Kind.RECEIVE
        return [
            Row(time_s, node, layer, kind, message, traffic, event, None, sender, via, size_bytes, hops)
            for node in nodes
        ]

    def drop_row(self, time_s: float, node: NodeId, reason: str, peer: NodeId | None) -> Row:
        """A message that is not received, or not sent."""
        where = (peer, None, None, None, reason)
        return Row(time_s, node, self._layer, Kind.DROP, self._message, self._traffic, self._event, None, *where)
