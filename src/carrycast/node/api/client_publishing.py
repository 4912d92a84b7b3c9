"""The publications of one client: published in batches, each answered when its delivery guarantee is met."""

import asyncio
from collections.abc import Callable, Sequence

from carrycast.core.model import FOREVER_S, EventId
from carrycast.errors import UserError, WorkError
from carrycast.node.api.messages import AnyRequest, AnyResponse, ErrorResponse, PublishRequest, PublishResponse
from carrycast.node.api.node_interface import NodeInterface
from carrycast.node.recorder import LOG
from carrycast.node.runtime import PublicationRequest, RequiredCopies

POLL_S = 0.005
"""How often a publisher that waits checks whether the node is still busy."""
WAIT_S = 20.0
"""How long a publisher waits for a busy node before it is refused; its client waits for the response longer."""

BUSY = "the node cannot keep up: its neighbors have not taken what was published before"


class DeliveryGuarantee:
    """The response to one publication: when its event is stored and, at level `held`, replicated to neighbors."""

    def __init__(self, request: PublishRequest, send: Callable[[AnyResponse], None]) -> None:
        self._request = request
        self._send = send
        self._is_stored = False
        self._holders: int | None = None
        self.event: EventId | None = None
        """Set before any response."""

    @property
    def copies(self) -> RequiredCopies | None:
        """How many neighbors are to hold the event."""
        request = self._request
        if request.level != "held":
            return None
        return RequiredCopies(request.copies, request.patience_s, self._on_replicated)

    def on_stored(self, error: WorkError | None) -> None:
        """The event is on the disk, or why not."""
        if error is not None:
            self._send(ErrorResponse(id=self._request.id, message=str(error), wrong_use=False))
            return
        self._is_stored = True
        self._respond()

    def _on_replicated(self, holders: int) -> None:
        self._holders = holders
        self._respond()

    def _respond(self) -> None:
        """Neighbors may be faster than the node's own disk."""
        assert self.event is not None
        if self._request.level == "stored":
            self._send(PublishResponse(id=self._request.id, event=self.event))
        elif self._is_stored and self._holders is not None:
            self._send(PublishResponse(id=self._request.id, event=self.event, held=self._holders))


class ClientPublisher:
    """Publishes for one client."""

    def __init__(self, node: NodeInterface, send: Callable[[AnyResponse], None]) -> None:
        self._node = node
        self._send = send
        self.pending = 0
        """Responses that wait for the disk or for neighbors."""

    def publish(self, requests: list[PublishRequest]) -> None:
        """Publish a batch of events."""
        if not requests:
            return
        guarantees = [
            None if request.level == "accepted" else DeliveryGuarantee(request, self._send_pending)
            for request in requests
        ]
        publications = [_publication(*pair) for pair in zip(requests, guarantees, strict=True)]
        try:
            results: Sequence[EventId | Exception] = self._node.publish_all(publications)
        except Exception as error:
            results = [error] * len(requests)
        for request, guarantee, result in zip(requests, guarantees, results, strict=True):
            if not isinstance(result, EventId):
                self._send(error_response(request, result))
            elif guarantee is None:
                self._send(PublishResponse(id=request.id, event=result))
            else:
                guarantee.event = result
                self.pending += 1

    async def publish_when_ready(self, request: PublishRequest) -> None:
        """Publish an event once the node is not busy; if that takes too long, respond with an error."""
        if request.busy == "refuse" and self._node.is_busy():
            self._node.note_drop("busy")
            self._send(error_response(request, WorkError("the node cannot keep up; publish again later, or wait")))
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        while self._node.is_busy():
            if loop.time() > deadline:
                self._node.note_drop("busy")
                self._send(error_response(request, WorkError(f"{BUSY} for {WAIT_S:g} s; publish again later")))
                return
            await asyncio.sleep(POLL_S)
        self.publish([request])

    def _send_pending(self, response: AnyResponse) -> None:
        self.pending -= 1
        self._send(response)


def _publication(request: PublishRequest, guarantee: DeliveryGuarantee | None) -> PublicationRequest:
    event = (request.attributes, request.payload, request.lease_s or FOREVER_S, request.access)
    if guarantee is None:
        return PublicationRequest(*event)
    return PublicationRequest(*event, guarantee.on_stored, guarantee.copies)


def error_response(request: AnyRequest, error: Exception) -> ErrorResponse:
    """Why a request failed. An internal error is logged, and not shown to the client."""
    if isinstance(error, UserError | WorkError):
        return ErrorResponse(id=request.id, message=str(error), wrong_use=isinstance(error, UserError))
    LOG.error("a request of a client failed", exc_info=error)
    return ErrorResponse(id=request.id, message="the node failed on this; its log has the reason", wrong_use=False)
