"""The Retained Messages of MQTT: for each topic, the last Retained Message that this node has received.

The gateway subscribes to every Retained Message in the network, with history if the protocol answers requests. Of two
Retained Messages of one topic the later one wins, by the clocks of their publishers, so that all nodes agree. The
messages of this node are ordered by their publication. A Retained Message without a payload deletes that of its topic.
The deletion is remembered for a while (a tombstone), so that an older Retained Message that arrives late does not
restore it.
"""

from collections.abc import Callable, Iterable

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.model import FOREVER_S, Event, SubscriptionId
from carrycast.core.protocol import AnswersRequests
from carrycast.errors import UserError
from carrycast.node.gateways import GatewayContext
from carrycast.node.gateways.mqtt.events import RETAIN
from carrycast.node.gateways.mqtt.topic_filters import TOPIC, ParsedTopicFilter
from carrycast.node.recorder import LOG

_KEY = b"r"
TOMBSTONE_S = 86_400.0
"""How long a deletion is remembered."""
PATIENCE_S = 10.0
"""How long other nodes may take to return Retained Messages."""
MAX_REQUESTS = 64
"""The most open requests. A client that subscribes meanwhile gets only the Retained Messages that are known here."""
ALL_RETAINED = RETAIN
"""The filter of all Retained Messages: the attribute is a boolean."""

_encode = msgspec.msgpack.Encoder().encode


class _RetainedMessage(msgspec.Struct, array_like=True):
    event: Event
    until_s: float
    """By the node's clock."""


_decode = msgspec.msgpack.Decoder(_RetainedMessage).decode


class RetainedMessages:
    """The Retained Messages of one gateway, in the node's store."""

    def __init__(self, node_context: GatewayContext, max_messages: int) -> None:
        self._node_context = node_context
        self._max_messages = max_messages
        self._messages: dict[str, _RetainedMessage] = {}
        self._tombstones: dict[str, None] = {}
        self._open_requests = 0
        """Open requests to the network."""

    def start(self) -> None:
        """Read the Retained Messages from the store, and subscribe."""
        for key, value in self._node_context.store.items(_KEY):
            try:
                kept = _decode(value)
                self._remember(str(kept.event.attributes[TOPIC]), kept)
            except (msgspec.MsgspecError, ValueError, KeyError) as error:
                LOG.error("a retained message in the store cannot be read and is deleted: %s", error)
                self._node_context.store.delete(key)
        if not self._max_messages:
            return
        node, protocol = self._node_context.node, self._node_context.protocol
        history = isinstance(protocol, AnswersRequests)
        try:
            node.subscribe(ALL_RETAINED, self._on_event, None, FOREVER_S, None, None, b"", history)
        except UserError as error:
            # The node's certificate may not allow all topics.
            LOG.warning("the retained messages of other nodes are not kept here: %s", error)

    def _on_event(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        self.store(event)

    def store(self, event: Event, is_own: bool = False) -> bool:
        """Store a Retained Message, unless a later one is stored. `is_own`: it was just published at this node."""
        topic = event.attributes.get(TOPIC)
        if not self._max_messages or not isinstance(topic, str):
            return False
        before = self._messages.get(topic)
        if before is not None and not _is_later(
            event, before.event, is_own and before.event.source == self._node_context.id
        ):
            return False
        lease_s = min(event.lease_s, FOREVER_S if event.payload else TOMBSTONE_S)
        if before is None and len(self._messages) >= self._max_messages:
            self._make_room()
        kept = _RetainedMessage(event, self._now_s() + lease_s)
        self._remember(topic, kept)
        self._node_context.store.put(_KEY + topic.encode(), _encode(kept))
        return True

    def find_matching(self, topic_filter: ParsedTopicFilter) -> Iterable[tuple[Event, float]]:
        """Return the Retained Messages of a Topic Filter, each with the time at which it expires."""
        filter, now_s = Filter(topic_filter.filter), self._now_s()
        topic = topic_filter.topics.literal()
        found = self._messages.values() if topic is None else [self._messages[topic]] if topic in self._messages else []
        return [
            (kept.event, kept.until_s)
            for kept in found
            if kept.event.payload and kept.until_s > now_s and filter.matches(kept.event.attributes)
        ]

    def request_retained(self, topic_filter: ParsedTopicFilter, on_found: Callable[[Event, float], None]) -> None:
        """Request Retained Messages from the network, if its protocol answers requests. `on_found` is called with each
        message that was not known here, and with the time at which it expires."""
        if not self._max_messages or not isinstance(self._node_context.protocol, AnswersRequests):
            return
        if self._open_requests >= MAX_REQUESTS:
            self._node_context.node.note_drop("mqtt_retained_not_asked")
            return
        self._open_requests += 1

        def on_answer(event: Event, hops: int) -> None:
            if event.attributes.get(RETAIN) is True and self.store(event) and event.payload:
                on_found(event, self._now_s() + event.lease_s)

        def on_closed(complete: bool) -> None:
            self._open_requests -= 1

        try:
            self._node_context.node.request(f"{RETAIN} and {topic_filter.filter}", PATIENCE_S, on_answer, on_closed)
        except UserError as error:
            # The filter is too long, or too many requests are open. The known messages were delivered.
            LOG.info("the network is not asked for retained messages: %s", error)
            self._open_requests -= 1

    def check_timeouts(self) -> None:
        """Delete expired Retained Messages."""
        now_s = self._now_s()
        for topic in [topic for topic, kept in self._messages.items() if kept.until_s <= now_s]:
            self._forget(topic)

    def __len__(self) -> int:
        return len(self._messages)

    def _remember(self, topic: str, kept: _RetainedMessage) -> None:
        self._messages[topic] = kept
        if kept.event.payload:
            self._tombstones.pop(topic, None)
        else:
            self._tombstones[topic] = None

    def _make_room(self) -> None:
        """Delete the oldest tombstone, or else the oldest Retained Message."""
        if self._tombstones:
            self._forget(next(iter(self._tombstones)))
        else:
            self._forget(next(iter(self._messages)))
            self._node_context.node.note_drop("mqtt_retained_full")

    def _forget(self, topic: str) -> None:
        del self._messages[topic]
        self._tombstones.pop(topic, None)
        self._node_context.store.delete(_KEY + topic.encode())

    def _now_s(self) -> float:
        return self._node_context.node.recorder.time_s()


def _is_later(event: Event, before: Event, in_order: bool) -> bool:
    if event.id == before.id:
        return False
    # The events of this node are published in order, whatever its clock does.
    return in_order or (event.time_s, event.id) > (before.time_s, before.id)
