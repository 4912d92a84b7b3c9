"""Requests for stored events, and advertisements, of a node's clients and of its configuration."""

from collections.abc import Callable

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.model import Advertisement, AdvertisementId, Event, NodeId, Request, RequestId
from carrycast.core.protocol import Advertises
from carrycast.errors import UserError
from carrycast.node.runtime import Cancel, Runtime
from carrycast.node.storage import SequenceNumbers

OnAnswer = Callable[[Event, int], None]
"""Called with each stored event and its hops."""
OnClosed = Callable[[bool], None]
"""Called at the end of a request, with whether it is complete."""

MAX_ADVERTISEMENTS = 1000
"""Of all clients together."""
MAX_REQUESTS = 1000
"""Open requests of all clients together."""


class LocalRequests:
    """The open requests of a node's clients."""

    def __init__(self, node: NodeId, runtime: Runtime, numbers: SequenceNumbers) -> None:
        self._node = node
        self._runtime = runtime
        self._numbers = numbers
        self._open: dict[RequestId, tuple[OnAnswer, OnClosed]] = {}

    def request(self, filter: str, patience_s: float, on_answer: OnAnswer, on_closed: OnClosed) -> Cancel:
        """Request stored events: `on_answer` is called for each, then `on_closed` once. A UserError says what is
        wrong."""
        if len(self._open) >= MAX_REQUESTS:
            raise UserError(f"a node has at most {MAX_REQUESTS} open requests")
        id = RequestId(self._node, self._numbers.take())
        try:
            made = Request(id, Filter(filter).text, patience_s)
            request = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Request)
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise UserError(f"request: {error}") from None
        self._open[id] = on_answer, on_closed
        self._runtime.on_request(self._runtime.now, request)

        def cancel() -> None:
            if self._open.pop(id, None) is not None:
                self._runtime.on_request_canceled(self._runtime.now, id)

        return cancel

    def on_answer(self, id: RequestId, event: Event, hops: int) -> bool:
        """A stored event has arrived; False if no client requested it."""
        found = self._open.get(id)
        if found is not None:
            found[0](event, hops)
        return found is not None

    def on_closed(self, id: RequestId, complete: bool) -> bool:
        """A request has ended; False if it is no client's."""
        found = self._open.pop(id, None)
        if found is not None:
            found[1](complete)
        return found is not None


class LocalAdvertisements:
    """The advertisements of a node's clients and of its configuration."""

    def __init__(self, node: NodeId, runtime: Runtime, numbers: SequenceNumbers) -> None:
        self._node = node
        self._runtime = runtime
        self._numbers = numbers
        self._active: dict[AdvertisementId, Advertisement] = {}

    def advertise(self, filter: str, stored: bool) -> Cancel:
        """Advertise until canceled; a UserError says what is wrong."""
        protocol = self._runtime.plan.protocol
        if not issubclass(protocol, Advertises):
            raise UserError(f"advertisement: {protocol.name} makes no use of any")
        if len(self._active) >= MAX_ADVERTISEMENTS:
            raise UserError(f"a node has at most {MAX_ADVERTISEMENTS} advertisements")
        id = AdvertisementId(self._node, self._numbers.take())
        try:
            made = Advertisement(id, Filter(filter).text, stored)
            advertisement = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Advertisement)
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise UserError(f"advertisement: {error}") from None
        self._active[id] = advertisement
        self._runtime.on_advertise(self._runtime.now, advertisement)

        def cancel() -> None:
            if self._active.pop(id, None) is not None:
                self._runtime.on_unadvertise(self._runtime.now, advertisement)

        return cancel
