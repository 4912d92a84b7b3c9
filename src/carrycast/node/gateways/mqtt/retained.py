"""The last retained message of each topic, as far as this node has heard of it.

The gateway subscribes to whatever is retained anywhere in the network, with history where the protocol can answer for
what was before. Of two messages of one topic the later counts, by the clocks of their publishers, so that all nodes
come to the same; among those of this node the order of publication. A message without a payload takes its topic's away,
and is remembered for a while, so that an older one that comes late does not bring it back.
"""

from collections.abc import Callable, Iterable

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.model import FOREVER_S, Event, SubscriptionId
from carrycast.core.protocol.optional import AnswersRequests
from carrycast.errors import UserError
from carrycast.node.gateways import GatewayContext
from carrycast.node.gateways.mqtt.events import RETAIN
from carrycast.node.gateways.mqtt.topic_filters import TOPIC, ParsedTopicFilter
from carrycast.node.recorder import LOG

_KEY = b"r"
TAKEN_AWAY_S = 86_400.0
PATIENCE_S = 10.0
"""How long others may take to answer for what they retain."""
MAX_ASKED = 64
"""Such questions at a time; who subscribes meanwhile gets what is known here."""
WHATEVER = RETAIN
"""The filter of all that is retained: the attribute is a boolean."""

_encode = msgspec.msgpack.Encoder().encode


class _Kept(msgspec.Struct, array_like=True):
    event: Event
    until_s: float
    """By the node's clock."""


_decode = msgspec.msgpack.Decoder(_Kept).decode


class RetainedMessages:
    """The table, in the node's store."""

    def __init__(self, node_context: GatewayContext, most: int) -> None:
        self._node_context = node_context
        self._most = most
        self._kept: dict[str, _Kept] = {}
        self._taken_away: dict[str, None] = {}
        self._asked = 0
        """Requests to the network that are open."""

    def start(self) -> None:
        """Read what is in the store, and listen from now on."""
        for key, value in self._node_context.store.items(_KEY):
            try:
                kept = _decode(value)
                self._note(str(kept.event.attributes[TOPIC]), kept)
            except (msgspec.MsgspecError, ValueError, KeyError) as error:
                LOG.error("a retained message in the store cannot be read and is forgotten: %s", error)
                self._node_context.store.delete(key)
        if not self._most:
            return
        node, protocol = self._node_context.node, self._node_context.protocol
        history = isinstance(protocol, AnswersRequests)
        try:
            node.subscribe(WHATEVER, self._on_event, None, FOREVER_S, None, None, b"", history)
        except UserError as error:
            # Its certificate may allow less than everything that anybody retains.
            LOG.warning("what is retained at other nodes is not kept here: %s", error)

    def _on_event(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        self.keep(event)

    def keep(self, event: Event, is_own: bool = False) -> bool:
        """A retained message; an older one than is there changes nothing. `own` has just been published here."""
        topic = event.attributes.get(TOPIC)
        if not self._most or not isinstance(topic, str):
            return False
        before = self._kept.get(topic)
        if before is not None and not _later(
            event, before.event, is_own and before.event.source == self._node_context.id
        ):
            return False
        lease_s = min(event.lease_s, FOREVER_S if event.payload else TAKEN_AWAY_S)
        if before is None and len(self._kept) >= self._most:
            self._make_room()
        kept = _Kept(event, self._now_s() + lease_s)
        self._note(topic, kept)
        self._node_context.store.put(_KEY + topic.encode(), _encode(kept))
        return True

    def matching(self, topic_filter: ParsedTopicFilter) -> Iterable[tuple[Event, float]]:
        """What is retained that somebody wants, each with when it ends."""
        filter, now_s = Filter(topic_filter.filter), self._now_s()
        topic = topic_filter.topics.literal()
        found = self._kept.values() if topic is None else [self._kept[topic]] if topic in self._kept else []
        return [
            (kept.event, kept.until_s)
            for kept in found
            if kept.event.payload and kept.until_s > now_s and filter.matches(kept.event.attributes)
        ]

    def request_retained(self, topic_filter: ParsedTopicFilter, found: Callable[[Event, float], None]) -> None:
        """Ask the network, where its protocol answers, for what is retained; `found` is called for what was not known
        here, with when it ends."""
        if not self._most or not isinstance(self._node_context.protocol, AnswersRequests):
            return
        if self._asked >= MAX_ASKED:
            self._node_context.node.note_drop("mqtt_retained_not_asked")
            return
        self._asked += 1

        def answered(event: Event, hops: int) -> None:
            if event.attributes.get(RETAIN) is True and self.keep(event) and event.payload:
                found(event, self._now_s() + event.lease_s)

        def closed(complete: bool) -> None:
            self._asked -= 1

        try:
            self._node_context.node.request(f"{RETAIN} and {topic_filter.filter}", PATIENCE_S, answered, closed)
        except UserError as error:
            # Too long with its condition, or too many are open: what is known here has been told.
            LOG.info("retained messages are not asked for: %s", error)
            self._asked -= 1

    def check_timeouts(self) -> None:
        """Forget what is over."""
        now_s = self._now_s()
        for topic in [topic for topic, kept in self._kept.items() if kept.until_s <= now_s]:
            self._forget(topic)

    def __len__(self) -> int:
        return len(self._kept)

    def _note(self, topic: str, kept: _Kept) -> None:
        self._kept[topic] = kept
        if kept.event.payload:
            self._taken_away.pop(topic, None)
        else:
            self._taken_away[topic] = None

    def _make_room(self) -> None:
        """The oldest goes; what was taken away goes first."""
        if self._taken_away:
            self._forget(next(iter(self._taken_away)))
        else:
            self._forget(next(iter(self._kept)))
            self._node_context.node.note_drop("mqtt_retained_full")

    def _forget(self, topic: str) -> None:
        del self._kept[topic]
        self._taken_away.pop(topic, None)
        self._node_context.store.delete(_KEY + topic.encode())

    def _now_s(self) -> float:
        return self._node_context.node.recorder.time_s()


def _later(event: Event, before: Event, in_order: bool) -> bool:
    if event.id == before.id:
        return False
    # One's own come in order, whatever the clock does.
    return in_order or (event.time_s, event.id) > (before.time_s, before.id)
