"""Neighbors exchange the filters of their subscriptions at the start of a contact and when they change."""

from collections.abc import Callable, Iterator
from typing import Annotated

from msgspec import Meta

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Event, FilterText, NodeId
from carrycast.core.parts.interests import KnownFilters
from carrycast.core.parts.local import LocalSubscriptions
from carrycast.core.protocol import Fact, Port, Token
from carrycast.core.wire import Message

MAX_FILTERS = 1024
"""The most filters in one message."""
MAX_FILTER_BYTES = 16_384
"""The most bytes of filters in one message, so that it fits in a datagram. More are sent in several messages."""
MAX_UNKNOWN_SENDERS = 256
"""The most remembered senders that are not neighbors yet: their discovery may be faster than this node's."""

Filters = Annotated[tuple[FilterText, ...], Meta(max_length=MAX_FILTERS)]


class SubscriptionUpdate(Message, frozen=True, gc=False, tag=1):
    """The filters of the sender's applications: replacing the previous ones, or in addition to them."""

    filters: Filters
    instead: bool = True
    answer: bool = False
    """Whether the receiver should reply with its own filters."""


def split_filters(texts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Filters in groups that fit into messages, in order; one empty group if there are none."""
    part: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode())
        if part and (len(part) == MAX_FILTERS or size + length > MAX_FILTER_BYTES):
            yield tuple(part)
            part, size = [], 0
        part.append(text)
        size += length
    yield tuple(part)


def canonical_filters(texts: tuple[str, ...]) -> tuple[str, ...] | None:
    """The canonical texts of filters; None if one does not parse."""
    try:
        return tuple(dict.fromkeys(Filter(text).text for text in texts))
    except FilterError:
        return None


class SubscriptionExchange:
    """The filters of each neighbor, and which neighbors have received this node's filters."""

    def __init__(self, port: Port, local: LocalSubscriptions, token: Callable[[NodeId], Token]) -> None:
        self._port = port
        self._local = local
        self._token = token
        """Gives the token of an update to a neighbor; a failed update is reported by `on_failure`."""
        self.interests = KnownFilters()
        self._wants: dict[NodeId, dict[str, None]] = {}
        self._sent: dict[NodeId, None] = {}
        """The neighbors to which this node's filters were sent."""
        self._linked: dict[NodeId, None] = {}

    def own(self) -> tuple[str, ...]:
        """The filters of this node's applications, without duplicates."""
        return tuple(dict.fromkeys(Filter(subscription.filter).text for subscription in self._local))

    def knows(self, neighbor: NodeId) -> bool:
        """Whether a neighbor has sent its filters."""
        return neighbor in self._wants

    def wants(self, neighbor: NodeId, event: Event) -> bool:
        """Whether an event matches a filter of a neighbor."""
        wanted = self._wants.get(neighbor)
        return wanted is not None and any(text in wanted for text in self.interests.match(event))

    def on_neighbor_up(self, neighbor: NodeId) -> None:
        """A neighbor is up: send it the filters, unless its request for them came earlier."""
        self._linked[neighbor] = None
        if neighbor not in self._sent:
            self.send(neighbor, answer=neighbor not in self._wants)

    def on_neighbor_down(self, neighbor: NodeId) -> None:
        """A neighbor is gone: forget its filters."""
        self._linked.pop(neighbor, None)
        self._sent.pop(neighbor, None)
        if self._wants.pop(neighbor, None):
            self.interests.keep(text for wants in self._wants.values() for text in wants)

    def on_failure(self, neighbor: NodeId) -> None:
        """An update failed, and is to be sent again."""
        self._sent.pop(neighbor, None)

    def find_outdated(self) -> list[NodeId]:
        """The neighbors without this node's current filters."""
        return [neighbor for neighbor in self._linked if neighbor not in self._sent]

    def find_silent(self) -> list[NodeId]:
        """The neighbors that received an update and have not sent their filters."""
        return [neighbor for neighbor in self._linked if neighbor in self._sent and neighbor not in self._wants]

    def invalidate(self) -> None:
        """Local subscriptions have changed: no neighbor has the current ones."""
        self._sent.clear()

    def send(self, neighbor: NodeId, answer: bool = False) -> None:
        """Send this node's filters to a neighbor."""
        self._sent[neighbor] = None
        for number, part in enumerate(split_filters(self.own())):
            message = SubscriptionUpdate(part, instead=number == 0, answer=answer and number == 0)
            self._port.send(neighbor, message, token=self._token(neighbor))

    def on_update(self, sender: NodeId, message: SubscriptionUpdate) -> bool:
        """An update has arrived; True if this node should reply with its filters."""
        before = self._wants.get(sender)
        texts = canonical_filters(message.filters)
        if texts is None or not self.interests.learn(texts):
            self._port.note(Fact("drop", peer=sender, reason="wants_unreadable"))
            return False
        if before is None or message.instead:
            self._wants[sender] = dict.fromkeys(texts)
            if before:
                self.interests.keep(text for wants in self._wants.values() for text in wants)
        else:
            before.update(dict.fromkeys(texts))
        self._limit_unknown_senders()
        # A neighbor that asks again although it was sent the filters has lost them: its link was down.
        return message.answer and (before is not None or sender not in self._sent)

    def _limit_unknown_senders(self) -> None:
        unknown = [node for node in self._wants if node not in self._linked]
        for node in unknown[: max(0, len(unknown) - MAX_UNKNOWN_SENDERS)]:
            self._port.note(Fact("drop", peer=node, reason="too_many_strangers"))
            self.on_neighbor_down(node)
