"""One node's part in the retrieval of stored events, whatever protocol carries the messages.

[000 §IV] A request goes to one of the repositories that advertise what it asks for, and gathers the nodes it passes;
each answer carries one event and walks that path back. Tables of subscriptions are never asked on the way, so the
asker, and only it, receives old events.
"""

from abc import ABC, abstractmethod
from random import Random

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Event, EventId, NodeId, Request, RequestId, Subscription, SubscriptionId
from carrycast.core.parts.buffer import BufferedEvent, LeasedBuffer
from carrycast.core.protocol import Fact, Host, Port, TimerKey
from carrycast.services.retrieval.messages import (
    MAX_HOPS,
    MAX_IDS,
    MAX_PATH,
    AllAnswered,
    Answered,
    Asked,
)
from carrycast.services.retrieval.own import OwnRequests
from carrycast.services.retrieval.parts import Branch, Part, parts_of
from carrycast.services.retrieval.settings import RetrievalSettings
from carrycast.services.retrieval.stored import StoredEvents
from carrycast.services.retrieval.waiting import TIMER as WAITING
from carrycast.services.retrieval.waiting import WaitingRequests


class Ways(ABC):
    """What the service must know of the protocol that it is part of."""

    @abstractmethod
    def branches(self, without: NodeId) -> list[Branch]:
        """Behind which neighbors, but one, events of which filters are stored."""

    @abstractmethod
    def reaches(self, node: NodeId) -> bool:
        """Whether a node is a neighbor right now."""

    @abstractmethod
    def history(self, now: float, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """An event from before a subscription; it may have come meanwhile by itself."""


class Retrieval:
    """Asks, passes requests and answers on, and answers from what this node stores."""

    def __init__(
        self, node: NodeId, port: Port, host: Host, rng: Random, settings: RetrievalSettings, ways: Ways
    ) -> None:
        self._node = node
        self._port = port
        self._rng = rng
        self._settings = settings
        self._ways = ways
        self.stored = StoredEvents(port, host.store, settings.max_stored)
        self._own = OwnRequests(port, settings, host.incarnation, self)
        self._waits = settings.no_route == "wait"
        self._waiting = WaitingRequests(port, settings.max_asks)
        self._answers_from: dict[NodeId, int] = {}
        """How many answers came from each neighbor: what it and those behind it have to carry."""
        self._cache = LeasedBuffer(settings.cache) if settings.cache else None

    # What applications, and the host, do.

    def start(self, now: float) -> None:
        """The node is up: what it stored before is still there."""
        self.stored.load(now)

    def retune(self, settings: RetrievalSettings) -> None:
        """Whom later requests go to, and how often they are repeated."""
        self._settings = self._own.settings = settings

    def stop(self) -> None:
        """Disarm everything."""
        self.stored.stop()
        self._waiting.stop()
        self._own.stop()

    def request(self, now: float, request: Request) -> None:
        """An application asks."""
        self._own.request(now, request)

    def cancel(self, request: RequestId) -> None:
        """It no longer waits for the answers."""
        self._own.cancel(request)

    def subscribe(self, now: float, subscription: Subscription, known: tuple[EventId, ...] = ()) -> None:
        """[000 §IV] A new subscriber wants what was published before, or one that was away what it does not know:
        called after its subscription went out, so that nothing falls between."""
        self._own.subscribe(now, subscription, known)

    def unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        """A subscription has ended: what still comes of its history is for nobody."""
        self._own.unsubscribe(now, subscription)

    def on_timer(self, now: float, key: TimerKey) -> bool:
        """A timer of retrieval; False if it is none."""
        if key == "expire":
            self.stored.expire(now)
        elif key == WAITING:
            self._waiting.expire(now)
        else:
            return self._own.on_timer(now, key)
        return True

    def forget(self, neighbor: NodeId) -> None:
        """A neighbor is gone: what was asked through it is asked again when there is another way."""
        self._answers_from.pop(neighbor, None)
        if self._waits:
            self._own.lose(neighbor)
            self._waiting.forget(neighbor)

    def on_routes(self, now: float) -> None:
        """A neighbor or an advertisement is new: requests that wait for one are passed on."""
        if self._waits:
            self._own.on_routes(now)
            if len(self._waiting):
                for sender, asked in self._waiting.take(now):
                    self._pass_request(now, sender, asked)

    # Requests on their way to a repository.

    def on_asked(self, now: float, sender: NodeId, asked: Asked) -> None:
        """[000 §IV] A request from a neighbor."""
        flaw = self._flaw(sender, asked)
        if flaw:
            self._port.note(Fact("drop", peer=sender, reason=flaw))
        else:
            self._pass_request(now, sender, asked)

    def _flaw(self, sender: NodeId, asked: Asked) -> str:
        if not asked.path or asked.path[0] != sender:
            return "path_forged"
        if self._node in asked.path or len(set(asked.path)) < len(asked.path):
            return "path_loops"
        if len(asked.path) >= MAX_PATH:
            return "path_too_long"
        try:
            Filter(asked.filter)
        except FilterError:
            return "filter_unreadable"
        return ""

    def pass_own(self, now: float, asked: Asked, elsewhere: bool) -> tuple[NodeId, ...]:
        """A request of this node's own: to which neighbors it went, none if nobody can be asked."""
        return self._pass_request(now, self._node, asked, elsewhere)

    def _pass_request(self, now: float, sender: NodeId, asked: Asked, elsewhere: bool = False) -> tuple[NodeId, ...]:
        branches = self._ways.branches(sender)
        own = [] if elsewhere else [Branch(self._node, text, 0) for text in self.stored.filters]
        parts = self._parts(Filter(asked.filter), own, branches, not asked.path)
        if self._waits and asked.path and not (parts and self._ways.reaches(sender)):
            # Nobody can be asked yet, or the way back is not known yet.
            self._waiting.add(now, sender, asked)
            return ()
        if not parts or asked.credit < len(parts):
            if parts or not self._waits:
                reason = "request_split_too_often" if parts else "no_advertisement"
                self._port.note(Fact("drop", peer=sender, reason=reason))
            return ()
        known = asked.known
        if self._cache is not None and asked.path:
            known = self._answer_from_cache(now, asked)
        path = (self._node, *asked.path)
        share, rest = divmod(asked.credit, len(parts))
        for place, part in enumerate(parts):
            credit = share + (rest if place == 0 else 0)
            if part.neighbor == self._node:
                self._answer(now, asked, part.filter, credit, known)
            else:
                onward = Asked(asked.ask, part.filter, asked.attributes, path, asked.remaining_s, credit, known)
                self._port.send(part.neighbor, onward)
        return tuple(part.neighbor for part in parts)

    def _parts(self, wanted: Filter, own: list[Branch], branches: list[Branch], asking: bool) -> list[Part]:
        # What an application asks of its own node's store needs no message, if that has it all.
        if asking and any(Filter(branch.filter).covers(wanted) for branch in own):
            return [Part(self._node, wanted.text)]
        return parts_of(wanted, own + branches, self._choose)

    def _choose(self, branches: list[Branch]) -> Branch:
        if self._settings.choice == "nearest":
            least = min(branch.hops for branch in branches)
            branches = [branch for branch in branches if branch.hops == least]
        elif self._settings.choice == "least_loaded":
            least = min(self._answers_from.get(branch.neighbor, 0) for branch in branches)
            branches = [branch for branch in branches if self._answers_from.get(branch.neighbor, 0) == least]
        return branches[0] if len(branches) == 1 else self._rng.choice(branches)

    # Answers.

    def _answer(self, now: float, asked: Asked, filter: str, credit: int, known: tuple[EventId, ...]) -> None:
        """[000 §IV] "sends back a Response() message for each matching event"; and at the end, which they were."""
        found = self.stored.wanted(now, filter, asked.attributes)
        self._port.note(Fact("asked", peer=asked.path[-1] if asked.path else self._node))
        for event, left_s in found:
            if event.id not in known:
                self._port.note(Fact("respond", event=event.id))
                self._send_back(now, Answered(event, 0, left_s, ask=asked.ask, path=(self._node, *asked.path)))
        ids = [event.id for event, _ in found]
        chunks = [tuple(ids[start : start + MAX_IDS]) for start in range(0, len(ids), MAX_IDS)] or [()]
        share, rest = divmod(credit, len(chunks))
        for place, chunk in enumerate(chunks):
            part = share + (rest if place == 0 else 0)
            if part:
                self._send_back(now, AllAnswered(asked.ask, (self._node, *asked.path), part, chunk))

    def _answer_from_cache(self, now: float, asked: Asked) -> tuple[EventId, ...]:
        """[000 §VIII] What passed by before need not come all the way again; the repository is told."""
        assert self._cache is not None
        self._cache.expire(now)
        known = list(asked.known)
        for kept in self._cache.matching(now, asked.filter, asked.attributes):
            if len(known) < MAX_IDS and kept.id not in known:
                known.append(kept.id)
                self._port.note(Fact("respond", event=kept.id, reason="cache"))
                back = Answered(kept.event, 0, kept.until - now, ask=asked.ask, path=(self._node, *asked.path))
                self._send_back(now, back)
        return tuple(known)

    def on_answer(self, now: float, sender: NodeId, message: Answered | AllAnswered) -> None:
        """An answer from a neighbor, for this node or to be passed on."""
        if not message.path or message.path[0] != self._node:
            self._port.note(Fact("drop", peer=sender, reason="path_forged"))
            return
        if isinstance(message, Answered):
            if self._ways.reaches(sender):
                self._answers_from[sender] = self._answers_from.get(sender, 0) + 1
            if self._cache is not None and len(message.path) > 1 and message.event.id not in self._cache:
                event = message.event
                until = now + min(message.remaining_s, event.lease_s)
                self._cache.add(BufferedEvent(until, event.id, event, message.hops))
        self._send_back(now, message)

    def _send_back(self, now: float, message: Answered | AllAnswered) -> None:
        """[000 §IV] "pops off its identifier from the sequence and forwards it to the first ... of the remaining"."""
        path = message.path[1:]
        if not path:
            self._own.take(now, message)
        elif not self._ways.reaches(path[0]):
            event = message.event.id if isinstance(message, Answered) else None
            self._port.note(Fact("drop", event=event, peer=path[0], reason="path_broken"))
        elif isinstance(message, Answered):
            hops = min(message.hops + 1, MAX_HOPS)
            onward = Answered(message.event, hops, message.remaining_s, ask=message.ask, path=path)
            self._port.send(path[0], onward)
        else:
            self._port.send(path[0], AllAnswered(message.ask, path, message.credit, message.events))

    # What the node's own requests bring.

    def take_answer(self, now: float, message: Answered) -> None:
        """A repository that was away, or is new, catches up with the others."""
        if self.stored.wants(message.event):
            self.stored.keep(now, message.event, message.remaining_s)

    def take_history(self, now: float, subscription: SubscriptionId, message: Answered) -> None:
        """An event from before a subscription."""
        self._ways.history(now, subscription, message.event, message.hops)
