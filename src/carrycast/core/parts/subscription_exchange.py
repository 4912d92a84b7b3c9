"""What neighbors want: nodes that meet tell each other their filters, and tell them again when they change."""

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
"""In one message."""
MAX_FILTER_BYTES = 16_384
"""In one message, so that it fits in a datagram; more filters travel in more messages."""
MAX_GUESTS = 256
"""Nodes that have spoken and are no neighbors yet: discovery may be later here than there."""

Filters = Annotated[tuple[FilterText, ...], Meta(max_length=MAX_FILTERS)]


class SubscriptionUpdate(Message, frozen=True, gc=False, tag=1):
    """My applications want these: instead of what I said before, or in addition to it."""

    filters: Filters
    instead: bool = True
    answer: bool = False
    """Whether the other is to say what it wants."""


def split_filters(texts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Filters in the order given, in as many groups as messages need; one group without any if there are none."""
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
    """Filters as they are compared; None if one of them is none."""
    try:
        return tuple(dict.fromkeys(Filter(text).text for text in texts))
    except FilterError:
        return None


class SubscriptionExchange:
    """What each neighbor wants, and which of them know what this node wants."""

    def __init__(self, port: Port, local: LocalSubscriptions, token: Callable[[NodeId], Token]) -> None:
        self._port = port
        self._local = local
        self._token = token
        """Under which the outcome of what is told to a neighbor is learned; a failure comes back as `failed`."""
        self.interests = KnownFilters()
        self._wants: dict[NodeId, dict[str, None]] = {}
        self._told: dict[NodeId, None] = {}
        """Who knows what this node wants, or is about to."""
        self._linked: dict[NodeId, None] = {}

    def own(self) -> tuple[str, ...]:
        """The filters of this node's applications, each once."""
        return tuple(dict.fromkeys(Filter(subscription.filter).text for subscription in self._local))

    def knows(self, neighbor: NodeId) -> bool:
        """Whether a neighbor has said what it wants."""
        return neighbor in self._wants

    def filters_of(self, neighbor: NodeId) -> tuple[str, ...]:
        """What a neighbor wants, as far as it has said."""
        return tuple(self._wants.get(neighbor, ()))

    def wants(self, neighbor: NodeId, event: Event) -> bool:
        """Whether a neighbor wants an event."""
        wanted = self._wants.get(neighbor)
        return wanted is not None and any(text in wanted for text in self.interests.match(event))

    def linked(self, neighbor: NodeId) -> None:
        """A neighbor has come: tell it, unless it has asked before it was noticed here."""
        self._linked[neighbor] = None
        if neighbor not in self._told:
            self.tell(neighbor, answer=neighbor not in self._wants)

    def parted(self, neighbor: NodeId) -> None:
        """A neighbor has gone, and with it what was said."""
        self._linked.pop(neighbor, None)
        self._told.pop(neighbor, None)
        if self._wants.pop(neighbor, None):
            self.interests.keep(text for wants in self._wants.values() for text in wants)

    def failed(self, neighbor: NodeId) -> None:
        """It was not reached, and is to be told again."""
        self._told.pop(neighbor, None)

    def untold(self) -> list[NodeId]:
        """The neighbors that are to be told."""
        return [neighbor for neighbor in self._linked if neighbor not in self._told]

    def silent(self) -> list[NodeId]:
        """The neighbors that were told and have not said what they want."""
        return [neighbor for neighbor in self._linked if neighbor in self._told and neighbor not in self._wants]

    def renew(self) -> None:
        """The own subscriptions have changed: nobody knows them now."""
        self._told.clear()

    def tell(self, neighbor: NodeId, answer: bool = False) -> None:
        """Say what this node wants."""
        self._told[neighbor] = None
        for number, part in enumerate(split_filters(self.own())):
            message = SubscriptionUpdate(part, instead=number == 0, answer=answer and number == 0)
            self._port.send(neighbor, message, token=self._token(neighbor))

    def heard(self, sender: NodeId, message: SubscriptionUpdate) -> bool:
        """A node says what it wants; True if it is to be told what this node wants."""
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
        self._limit_guests()
        # Who asks although it was told, and has spoken before, has lost what it knew: its link was down for a while.
        return message.answer and (before is not None or sender not in self._told)

    def _limit_guests(self) -> None:
        guests = [node for node in self._wants if node not in self._linked]
        for node in guests[: max(0, len(guests) - MAX_GUESTS)]:
            self._port.note(Fact("drop", peer=node, reason="too_many_strangers"))
            self.parted(node)
