"""Retrieval of stored events at one node: requests, forwarding and responses, within any protocol.

[000 §IV] A request is forwarded to one of the repositories that advertise matching events, and records the nodes it
passes. Each response carries one event and returns along that path. Subscription tables are not used on the way, so
only the requester receives old events.
"""

from abc import ABC, abstractmethod
from collections import Counter
from random import Random
from typing import NamedTuple

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Event, EventId, NodeId, Request, RequestId, Subscription, SubscriptionId
from carrycast.core.parts import BufferedEvent, LeasedBuffer
from carrycast.core.protocol import Fact, Host, Port, TimerKey
from carrycast.services.retrieval.messages import (
    MAX_HOPS,
    MAX_IDS,
    MAX_PATH,
    ResponseEnd,
    RetrievalId,
    RetrievalRequest,
    RetrievalResponse,
)
from carrycast.services.retrieval.repository_choice import RepositoryBranch, RequestPart, split_request
from carrycast.services.retrieval.requester import Requester
from carrycast.services.retrieval.settings import RetrievalSettings
from carrycast.services.retrieval.stored import StoredEvents

WAITING_TIMER = "waiting requests"


class _Waiting(NamedTuple):
    sender: NodeId
    request: RetrievalRequest
    until: float


class WaitingRequests:
    """Requests of other nodes that wait because no route to a repository is known, each until its time-out. When there
    are too many, the oldest request of the neighbor with the most requests is dropped."""

    def __init__(self, port: Port, most: int) -> None:
        self._port = port
        self._most = most
        self._waiting: dict[tuple[NodeId, RetrievalId], _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, now: float, sender: NodeId, request: RetrievalRequest) -> None:
        """Add a request; a later attempt replaces an earlier one."""
        key = (request.path[-1], request.ask._replace(attempt=0))
        if key not in self._waiting and len(self._waiting) >= self._most:
            self._make_room()
        self._waiting[key] = _Waiting(sender, request, now + request.remaining_s)
        self._restart_timer(now)

    def take(self, now: float) -> list[tuple[NodeId, RetrievalRequest]]:
        """Remove and return all waiting requests, with their remaining time."""
        found = [
            (one.sender, _replace_remaining(one.request, one.until - now))
            for one in self._waiting.values()
            if one.until > now
        ]
        self._waiting.clear()
        self._port.cancel_timer(WAITING_TIMER)
        return found

    def forget(self, neighbor: NodeId) -> None:
        """A neighbor is lost: drop its requests, since responses could not reach it."""
        self._drop([key for key, one in self._waiting.items() if one.sender == neighbor], "path_broken")

    def expire(self, now: float) -> None:
        """Drop requests that have timed out."""
        self._drop([key for key, one in self._waiting.items() if one.until <= now], "no_advertisement")
        self._restart_timer(now)

    def stop(self) -> None:
        """Stop the timer."""
        self._port.cancel_timer(WAITING_TIMER)

    def _make_room(self) -> None:
        most = max(Counter(one.sender for one in self._waiting.values()).items(), key=lambda item: item[1])[0]
        oldest = next(key for key, one in self._waiting.items() if one.sender == most)
        self._drop([oldest], "too_many_waiting_requests")

    def _drop(self, keys: list[tuple[NodeId, RetrievalId]], reason: str) -> None:
        for key in keys:
            self._port.note(Fact("drop", peer=self._waiting.pop(key).sender, reason=reason))

    def _restart_timer(self, now: float) -> None:
        end = min((one.until for one in self._waiting.values()), default=float("inf"))
        self._port.set_timer(WAITING_TIMER, max(0.0, end - now))


def _replace_remaining(request: RetrievalRequest, remaining_s: float) -> RetrievalRequest:
    return RetrievalRequest(
        request.ask, request.filter, request.attributes, request.path, remaining_s, request.credit, request.known
    )


class RetrievalRoutes(ABC):
    """The information about routes that the protocol provides to the service."""

    @abstractmethod
    def branches(self, without: NodeId) -> list[RepositoryBranch]:
        """The filters of stored events behind each neighbor, except one."""

    @abstractmethod
    def reaches(self, node: NodeId) -> bool:
        """Whether a node is a neighbor right now."""

    @abstractmethod
    def history(self, now: float, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """Deliver an event of a subscription's history. It may also have arrived as a publication."""


class Retrieval:
    """Sends requests, forwards requests and responses, and answers from the events that this node stores."""

    def __init__(
        self, node: NodeId, port: Port, host: Host, rng: Random, settings: RetrievalSettings, routes: RetrievalRoutes
    ) -> None:
        self._node = node
        self._port = port
        self._rng = rng
        self._settings = settings
        self._routes = routes
        self.stored = StoredEvents(port, host.store, settings.max_stored)
        self._requester = Requester(port, settings, host.incarnation, self)
        self._waits = settings.no_route == "wait"
        self._waiting = WaitingRequests(port, settings.max_asks)
        self._answers_from: dict[NodeId, int] = {}
        """The number of responses from each neighbor: the load of it and the nodes behind it."""
        self._cache = LeasedBuffer(settings.cache) if settings.cache else None

    def start(self, now: float) -> None:
        """Load the stored events."""
        self.stored.load(now)

    def retune(self, settings: RetrievalSettings) -> None:
        """Change the settings for later requests."""
        self._settings = self._requester.settings = settings

    def stop(self) -> None:
        """Stop all timers."""
        self.stored.stop()
        self._waiting.stop()
        self._requester.stop()

    def request(self, now: float, request: Request) -> None:
        """An application requests stored events."""
        self._requester.request(now, request)

    def cancel(self, request: RequestId) -> None:
        """The application cancels a request."""
        self._requester.cancel(request)

    def subscribe(self, now: float, subscription: Subscription, known: tuple[EventId, ...] = ()) -> None:
        """[000 §IV] Request the events that were published before a new subscription, or while the subscriber was
        disconnected. Called after the subscription was sent, so that no event is lost in between."""
        self._requester.subscribe(now, subscription, known)

    def unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        """A subscription has ended: further events of its history are dropped."""
        self._requester.unsubscribe(now, subscription)

    def on_timer(self, now: float, key: TimerKey) -> bool:
        """A timer of retrieval; False if it is another timer."""
        if key == "expire":
            self.stored.expire(now)
        elif key == WAITING_TIMER:
            self._waiting.expire(now)
        else:
            return self._requester.on_timer(now, key)
        return True

    def forget(self, neighbor: NodeId) -> None:
        """A neighbor is lost: requests sent through it are sent again when there is another route."""
        self._answers_from.pop(neighbor, None)
        if self._waits:
            self._requester.on_neighbor_lost(neighbor)
            self._waiting.forget(neighbor)

    def on_routes(self, now: float) -> None:
        """There is a new neighbor or advertisement: forward the requests that wait for a route."""
        if self._waits:
            self._requester.on_routes(now)
            if len(self._waiting):
                for sender, request in self._waiting.take(now):
                    self._forward_request(now, sender, request)

    # Requests.

    def on_request(self, now: float, sender: NodeId, request: RetrievalRequest) -> None:
        """[000 §IV] A request from a neighbor."""
        flaw = self._rejection_reason(sender, request)
        if flaw:
            self._port.note(Fact("drop", peer=sender, reason=flaw))
        else:
            self._forward_request(now, sender, request)

    def _rejection_reason(self, sender: NodeId, request: RetrievalRequest) -> str:
        if not request.path or request.path[0] != sender:
            return "path_forged"
        if self._node in request.path or len(set(request.path)) < len(request.path):
            return "path_loops"
        if len(request.path) >= MAX_PATH:
            return "path_too_long"
        try:
            Filter(request.filter)
        except FilterError:
            return "filter_unreadable"
        return ""

    def forward_own(self, now: float, request: RetrievalRequest, elsewhere: bool) -> tuple[NodeId, ...]:
        """Forward a request of this node. Returns the neighbors it was sent to; none if no repository is reachable."""
        return self._forward_request(now, self._node, request, elsewhere)

    def _forward_request(
        self, now: float, sender: NodeId, request: RetrievalRequest, elsewhere: bool = False
    ) -> tuple[NodeId, ...]:
        branches = self._routes.branches(sender)
        own = [] if elsewhere else [RepositoryBranch(self._node, text, 0) for text in self.stored.filters]
        parts = self._split(Filter(request.filter), own, branches, not request.path)
        if self._waits and request.path and not (parts and self._routes.reaches(sender)):
            # No repository, or no path back, is known yet.
            self._waiting.add(now, sender, request)
            return ()
        if not parts or request.credit < len(parts):
            if parts or not self._waits:
                reason = "request_split_too_often" if parts else "no_advertisement"
                self._port.note(Fact("drop", peer=sender, reason=reason))
            return ()
        known = request.known
        if self._cache is not None and request.path:
            known = self._answer_from_cache(now, request)
        path = (self._node, *request.path)
        share, rest = divmod(request.credit, len(parts))
        for place, part in enumerate(parts):
            credit = share + (rest if place == 0 else 0)
            if part.neighbor == self._node:
                self._answer(now, request, part.filter, credit, known)
            else:
                onward = RetrievalRequest(
                    request.ask, part.filter, request.attributes, path, request.remaining_s, credit, known
                )
                self._port.send(part.neighbor, onward)
        return tuple(part.neighbor for part in parts)

    def _split(
        self, wanted: Filter, own: list[RepositoryBranch], branches: list[RepositoryBranch], asking: bool
    ) -> list[RequestPart]:
        # A request of this node that its own store can answer completely needs no message.
        if asking and any(Filter(branch.filter).covers(wanted) for branch in own):
            return [RequestPart(self._node, wanted.text)]
        return split_request(wanted, own + branches, self._choose)

    def _choose(self, branches: list[RepositoryBranch]) -> RepositoryBranch:
        if self._settings.choice == "nearest":
            least = min(branch.hops for branch in branches)
            branches = [branch for branch in branches if branch.hops == least]
        elif self._settings.choice == "least_loaded":
            least = min(self._answers_from.get(branch.neighbor, 0) for branch in branches)
            branches = [branch for branch in branches if self._answers_from.get(branch.neighbor, 0) == least]
        return branches[0] if len(branches) == 1 else self._rng.choice(branches)

    # Answers.

    def _answer(
        self, now: float, request: RetrievalRequest, filter: str, credit: int, known: tuple[EventId, ...]
    ) -> None:
        """[000 §IV] "sends back a Response() message for each matching event". The end lists their ids."""
        found = self.stored.find_matching(now, filter, request.attributes)
        self._port.note(Fact("asked", peer=request.path[-1] if request.path else self._node))
        for event, left_s in found:
            if event.id not in known:
                self._port.note(Fact("respond", event=event.id))
                self._send_back(
                    now, RetrievalResponse(event, 0, left_s, ask=request.ask, path=(self._node, *request.path))
                )
        ids = [event.id for event, _ in found]
        chunks = [tuple(ids[start : start + MAX_IDS]) for start in range(0, len(ids), MAX_IDS)] or [()]
        share, rest = divmod(credit, len(chunks))
        for place, chunk in enumerate(chunks):
            part = share + (rest if place == 0 else 0)
            if part:
                self._send_back(now, ResponseEnd(request.ask, (self._node, *request.path), part, chunk))

    def _answer_from_cache(self, now: float, request: RetrievalRequest) -> tuple[EventId, ...]:
        """[000 §VIII] Answer from cached responses, and return the ids that the repository need not send again."""
        assert self._cache is not None
        self._cache.expire(now)
        known = list(request.known)
        for kept in self._cache.find_matching(now, request.filter, request.attributes):
            if len(known) < MAX_IDS and kept.id not in known:
                known.append(kept.id)
                self._port.note(Fact("respond", event=kept.id, reason="cache"))
                back = RetrievalResponse(
                    kept.event, 0, kept.until - now, ask=request.ask, path=(self._node, *request.path)
                )
                self._send_back(now, back)
        return tuple(known)

    def on_answer(self, now: float, sender: NodeId, message: RetrievalResponse | ResponseEnd) -> None:
        """A response from a neighbor, for this node or to be forwarded."""
        if not message.path or message.path[0] != self._node:
            self._port.note(Fact("drop", peer=sender, reason="path_forged"))
            return
        if isinstance(message, RetrievalResponse):
            if self._routes.reaches(sender):
                self._answers_from[sender] = self._answers_from.get(sender, 0) + 1
            if self._cache is not None and len(message.path) > 1 and message.event.id not in self._cache:
                event = message.event
                until = now + min(message.remaining_s, event.lease_s)
                self._cache.add(BufferedEvent(until, event.id, event, message.hops))
        self._send_back(now, message)

    def _send_back(self, now: float, message: RetrievalResponse | ResponseEnd) -> None:
        """[000 §IV] "pops off its identifier from the sequence and forwards it to the first ... of the remaining"."""
        path = message.path[1:]
        if not path:
            self._requester.take(now, message)
        elif not self._routes.reaches(path[0]):
            event = message.event.id if isinstance(message, RetrievalResponse) else None
            self._port.note(Fact("drop", event=event, peer=path[0], reason="path_broken"))
        elif isinstance(message, RetrievalResponse):
            hops = min(message.hops + 1, MAX_HOPS)
            onward = RetrievalResponse(message.event, hops, message.remaining_s, ask=message.ask, path=path)
            self._port.send(path[0], onward)
        else:
            self._port.send(path[0], ResponseEnd(message.ask, path, message.credit, message.events))

    def on_response(self, now: float, message: RetrievalResponse) -> None:
        """A response to a request of this node. A repository that was disconnected, or is new, stores its event."""
        if self.stored.wants(message.event):
            self.stored.keep(now, message.event, message.remaining_s)

    def on_history_event(self, now: float, subscription: SubscriptionId, message: RetrievalResponse) -> None:
        """An event of a subscription's history has arrived."""
        self._routes.history(now, subscription, message.event, message.hops)
