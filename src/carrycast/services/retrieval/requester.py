"""The requests of a node: sent as soon as a repository is reachable, closed when complete or on time-out."""

from typing import Protocol

from carrycast.core.matching import serves
from carrycast.core.model import (
    Event,
    EventId,
    FilterText,
    NodeId,
    Request,
    RequestId,
    Scalar,
    Subscription,
    SubscriptionId,
)
from carrycast.core.protocol import Fact, Port, TimerKey
from carrycast.services.retrieval.messages import (
    MAX_ATTEMPT,
    MAX_IDS,
    WHOLE,
    ResponseEnd,
    RetrievalId,
    RetrievalRequest,
    RetrievalResponse,
)
from carrycast.services.retrieval.settings import RetrievalSettings


class OpenRequest:
    """A request of an application, or for the history of a subscription, until it is complete or times out."""

    __slots__ = (
        "announced",
        "attempt",
        "attributes",
        "credit",
        "elsewhere",
        "filter",
        "late",
        "not_before",
        "retries",
        "since",
        "taken",
        "until",
        "via",
        "waiting",
        "wanted_by",
    )

    def __init__(
        self,
        now: float,
        wanted_by: RequestId | SubscriptionId,
        filter: FilterText,
        attributes: dict[str, Scalar],
        patience_s: float,
        retries: int,
        elsewhere: bool = False,
    ) -> None:
        self.since = now
        self.until = now + patience_s
        self.wanted_by = wanted_by
        self.filter = filter
        self.attributes = attributes
        self.retries = retries
        self.elsewhere = elsewhere
        self.waiting = False
        """Whether no repository is reachable yet."""
        self.late = False
        """Whether the history was reported as incomplete. Events that arrive later are still delivered."""
        self.not_before = 0.0
        """The time from which a late request may be sent again over a new route."""
        self.via: tuple[NodeId, ...] = ()
        """The neighbors to which the request was sent last."""
        self.attempt = 0
        self.credit = 0
        """The share of the request that has been answered completely."""
        self.taken: dict[EventId, None] = {}
        self.announced: dict[EventId, None] = {}

    def find_missing(self) -> list[EventId]:
        """The announced events that have not arrived."""
        return [event for event in self.announced if event not in self.taken]

    def is_complete(self) -> bool:
        """Whether every repository that was asked has listed its events, and all of them have arrived."""
        return self.credit == WHOLE and not self.find_missing()

    def start_attempt(self) -> None:
        """Start another attempt. Only its responses count for completeness; events that have arrived stay."""
        self.attempt = (self.attempt + 1) % (MAX_ATTEMPT + 1)
        self.credit = 0


class RequestForwarder(Protocol):
    """The service that forwards the requests and receives the responses."""

    def forward_own(self, now: float, request: RetrievalRequest, elsewhere: bool) -> tuple[NodeId, ...]:
        """Forward a request of this node. Returns the neighbors it was sent to; none if no repository is reachable."""

    def on_history_event(self, now: float, subscription: SubscriptionId, message: RetrievalResponse) -> None:
        """A stored event for the history of a subscription."""

    def on_response(self, now: float, message: RetrievalResponse) -> None:
        """A stored event that this node requested; it may have to store it."""


class Requester:
    """The requests of a node's applications, and the histories of its subscriptions."""

    def __init__(self, port: Port, settings: RetrievalSettings, incarnation: int, forwarding: RequestForwarder) -> None:
        self._port = port
        self.settings = settings
        self._waits = settings.no_route == "wait"
        self._incarnation = incarnation
        self._forwarding = forwarding
        self._number = 0
        self._requests: dict[RetrievalId, OpenRequest] = {}

    def stop(self) -> None:
        """Stop all timers."""
        for id in self._requests:
            self._disarm(id)
        self._requests.clear()

    def request(self, now: float, request: Request) -> None:
        """An application requests stored events."""
        patience_s = request.patience_s
        self._open(now, request.id, request.filter, request.attributes, patience_s, elsewhere=request.elsewhere)

    def cancel(self, request: RequestId) -> None:
        """The application cancels a request; later responses are dropped."""
        for id, ask in list(self._requests.items()):
            if isinstance(ask.wanted_by, RequestId) and ask.wanted_by == request:
                self._disarm(id)
                del self._requests[id]

    def subscribe(self, now: float, subscription: Subscription, known: tuple[EventId, ...]) -> None:
        """A subscription requests its history."""
        if self._waits:
            # An open request for the same history would return every event twice.
            for id in self._requests_of(subscription.id):
                self._disarm(id)
                del self._requests[id]
        patience_s = self.settings.history_s
        self._open(now, subscription.id, subscription.filter, subscription.attributes, patience_s, known)

    def unsubscribe(self, now: float, subscription: SubscriptionId) -> None:
        """A subscription has ended: further events of its history are dropped."""
        for id in self._requests_of(subscription):
            self._close(now, id)

    def _requests_of(self, subscription: SubscriptionId) -> list[RetrievalId]:
        # An application's request may have an equal id of another type.
        requests = self._requests.items()
        return [
            id for id, ask in requests if isinstance(ask.wanted_by, SubscriptionId) and ask.wanted_by == subscription
        ]

    def on_timer(self, now: float, key: TimerKey) -> bool:
        """A timer of a request; False if it is another timer."""
        if not isinstance(key, tuple) or key[0] not in ("patience", "again"):
            return False
        word, id = key
        assert isinstance(id, RetrievalId)
        if word == "patience":
            self._on_patience_expired(now, id)
        else:
            self._retry(now, id)
        return True

    def on_neighbor_lost(self, neighbor: NodeId) -> None:
        """A neighbor is lost: requests sent through it are sent again when there is another route."""
        for ask in self._requests.values():
            ask.waiting = ask.waiting or neighbor in ask.via

    def on_routes(self, now: float) -> None:
        """There is a new neighbor or advertisement: send the requests that wait for a route, then the late ones."""
        for id, ask in list(self._requests.items()):
            if ask.waiting:
                self._resend(now, id, ask)
            elif ask.late:
                # Delayed, because a neighbor may send any number of advertisements.
                self._port.set_timer(("again", id), max(0.0, ask.not_before - now))

    def _resend(self, now: float, id: RetrievalId, ask: OpenRequest) -> None:
        if ask.via:
            ask.start_attempt()
        ask.not_before = now + self.settings.history_s
        self._send(now, id, ask, ask.until - now)

    def _open(
        self,
        now: float,
        wanted_by: RequestId | SubscriptionId,
        filter: FilterText,
        attributes: dict[str, Scalar],
        patience_s: float,
        known: tuple[EventId, ...] = (),
        elsewhere: bool = False,
    ) -> None:
        self._port.note(Fact("ask"))
        if len(self._requests) >= self.settings.max_asks:
            self._port.note(Fact("drop", reason="too_many_asks"))
            self._notify_end(wanted_by, complete=False)
            return
        self._number += 1
        id = RetrievalId(self._incarnation, self._number)
        ask = self._requests[id] = OpenRequest(
            now, wanted_by, filter, attributes, patience_s, self.settings.retries, elsewhere
        )
        ask.taken |= dict.fromkeys(known)
        # An infinite delay starts no timer.
        self._port.set_timer(("patience", id), patience_s)
        if ask.retries:
            self._port.set_timer(("again", id), self.settings.retry_s)
        self._send(now, id, ask, patience_s)

    def _retry(self, now: float, id: RetrievalId) -> None:
        ask = self._requests.get(id)
        if ask is not None and ask.late and not ask.waiting:
            self._resend(now, id, ask)
            return
        if ask is None or ask.until <= now:
            return
        if ask.waiting and self._waits:
            self._port.set_timer(("again", id), self.settings.retry_s)
            return
        ask.retries -= 1
        ask.start_attempt()
        if ask.retries:
            self._port.set_timer(("again", id), self.settings.retry_s)
        self._port.note(Fact("ask_again", value=float(len(ask.find_missing()))))
        self._send(now, id, ask, ask.until - now)

    def _send(self, now: float, id: RetrievalId, ask: OpenRequest, remaining_s: float) -> None:
        remaining_s = float("inf") if self._is_permanent(ask) else remaining_s
        known = tuple(ask.taken)[-MAX_IDS:]
        request = RetrievalRequest(
            id._replace(attempt=ask.attempt), ask.filter, ask.attributes, (), remaining_s, known=known
        )
        via = self._forwarding.forward_own(now, request, ask.elsewhere)
        if via:
            ask.waiting, ask.via = False, via
        elif self._waits:
            if not ask.waiting:
                ask.waiting = True
                self._port.note(Fact("ask_waits"))
        elif not ask.retries:
            # No repository was asked, so the result is incomplete.
            self._close(now, id)

    def _is_permanent(self, ask: OpenRequest) -> bool:
        """Whether the request stays open as long as its subscription."""
        return self._waits and isinstance(ask.wanted_by, SubscriptionId)

    def take(self, now: float, message: RetrievalResponse | ResponseEnd) -> None:
        """A response has arrived."""
        ask = self._requests.get(remove_attempt(message.ask))
        if ask is None:
            event = message.event.id if isinstance(message, RetrievalResponse) else None
            self._port.note(Fact("drop", event=event, reason="answer_for_nobody"))
            return
        if isinstance(message, ResponseEnd):
            if message.ask.attempt == ask.attempt:
                ask.credit = min(WHOLE, ask.credit + message.credit)
            ask.announced |= dict.fromkeys(message.events)
        elif message.event.id in ask.taken or not self._matches(ask, message.event):
            reason = "answer_repeated" if message.event.id in ask.taken else "answer_unasked"
            self._port.note(Fact("drop", event=message.event.id, reason=reason))
            return
        else:
            if not ask.taken:
                self._port.note(Fact("ask_answered"))
            ask.taken[message.event.id] = None
            self._port.note(Fact("response", event=message.event.id, value=float(message.hops)))
            self._forwarding.on_response(now, message)
            if isinstance(ask.wanted_by, RequestId):
                self._port.answer(ask.wanted_by, message.event, message.hops)
            else:
                self._forwarding.on_history_event(now, ask.wanted_by, message)
        if ask.is_complete():
            self._close(now, remove_attempt(message.ask))

    def _matches(self, ask: OpenRequest, event: Event) -> bool:
        """Whether an event matches the request. Responders are not authenticated, so this is checked on arrival."""
        return serves(event, Subscription(SubscriptionId(0, 0), ask.filter, attributes=ask.attributes))

    def _on_patience_expired(self, now: float, id: RetrievalId) -> None:
        ask = self._requests[id]
        if not self._is_permanent(ask):
            self._close(now, id)
            return
        ask.late = True
        self._note_incomplete(ask)
        self._notify_end(ask.wanted_by, complete=False)

    def _close(self, now: float, id: RetrievalId) -> None:
        ask = self._requests.pop(id)
        self._disarm(id)
        complete = ask.is_complete()
        if complete:
            self._port.note(Fact("ask_complete", value=now - ask.since))
        elif not ask.late:
            self._note_incomplete(ask)
        self._notify_end(ask.wanted_by, complete)

    def _disarm(self, id: RetrievalId) -> None:
        self._port.cancel_timer(("patience", id))
        self._port.cancel_timer(("again", id))

    def _note_incomplete(self, ask: OpenRequest) -> None:
        self._port.note(Fact("ask_incomplete", value=float(len(ask.find_missing()))))
        for event in ask.find_missing()[:MAX_IDS]:
            self._port.note(Fact("missing", event=event))

    def _notify_end(self, wanted_by: RequestId | SubscriptionId, complete: bool) -> None:
        if isinstance(wanted_by, RequestId):
            self._port.close_request(wanted_by, complete)
        else:
            self._port.close_history(wanted_by, complete)


def remove_attempt(ask: RetrievalId) -> RetrievalId:
    """The id of a request without the number of its attempt, under which it is kept here."""
    return ask._replace(attempt=0)
