"""Requests that a node answers from its own buffer. A request stays open for events that arrive from neighbors.

Other nodes may have more events, so an answer is never complete. If a node has had a neighbor for as long as the
requester would wait, it has already exchanged events with it, and closes the request at once.
"""

from collections.abc import Iterable

from carrycast.core.matching import serves
from carrycast.core.model import Event, EventId, NodeId, Request, RequestId, Subscription, SubscriptionId
from carrycast.core.parts.buffer import BufferedEvent
from carrycast.core.parts.neighbors import Neighbors
from carrycast.core.protocol import AnswersRequests, Fact, Link, Port

REQUESTS = "requests"
"""The timer for the end of the requests' patience."""
MAX_REQUESTS = 4096
"""Open requests of one node; each is matched against every new event."""


class AnswersFromBuffer(AnswersRequests):
    """A protocol that answers requests from its own buffer."""

    _requests: "OpenRequests"

    def on_request_canceled(self, now: float, request: RequestId) -> None:
        self._requests.cancel(request)


class _OpenRequest:
    __slots__ = ("answered", "id", "until", "wanted")

    def __init__(self, request: Request, until: float) -> None:
        self.id = request.id
        self.until = until
        self.wanted = Subscription(SubscriptionId(0, 0), request.filter, attributes=request.attributes)
        self.answered: set[EventId] = set()


class OpenRequests:
    """The open requests of one node's applications."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._links = Neighbors()
        self._since: dict[NodeId, float] = {}
        """When each neighbor appeared."""
        self._open: dict[RequestId, _OpenRequest] = {}
        self._armed = False

    def link_up(self, now: float, link: Link) -> None:
        """A link is up."""
        if self._links.add(link):
            self._since[link.neighbor] = now

    def link_down(self, link: Link) -> None:
        """A link is down."""
        if self._links.remove(link):
            del self._since[link.neighbor]

    def open(self, now: float, request: Request, held: Iterable[BufferedEvent]) -> None:
        """Open a request; the answer begins with the buffered events that match it."""
        one = _OpenRequest(request, now + request.patience_s)
        for stored in held:
            one.answered.add(stored.id)
            self._port.answer(request.id, stored.event, stored.hops)
        settled = any(now - since >= request.patience_s for since in self._since.values())
        if len(self._open) >= MAX_REQUESTS:
            self._port.note(Fact("drop", reason="too_many_asks"))
        if settled or len(self._open) >= MAX_REQUESTS:
            self._port.close_request(request.id, complete=False)
            return
        self._open[request.id] = one
        self._watch(now)

    def answer_with(self, event: Event, hops: int) -> None:
        """Answer the open requests that a new event matches."""
        for one in self._open.values():
            if event.id not in one.answered and serves(event, one.wanted):
                one.answered.add(event.id)
                self._port.answer(one.id, event, hops)

    def cancel(self, id: RequestId) -> None:
        """Cancel a request."""
        self._open.pop(id, None)

    def on_timer(self, now: float) -> None:
        """Close the requests whose patience has expired."""
        for id in [one.id for one in self._open.values() if one.until <= now]:
            del self._open[id]
            self._port.close_request(id, complete=False)
        self._watch(now)

    def stop(self) -> None:
        """Disarm the timer."""
        if self._armed:
            self._port.cancel_timer(REQUESTS)

    def _watch(self, now: float) -> None:
        end = min((one.until for one in self._open.values()), default=float("inf"))
        self._armed = end < float("inf")
        self._port.set_timer(REQUESTS, max(0.0, end - now))
