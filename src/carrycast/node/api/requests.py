"""Requests of clients for stored events: who asked, and what comes back."""

from collections.abc import Callable

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.model import Advertisement, AdvertisementId, Event, NodeId, Request, RequestId
from carrycast.core.protocol import Advertises
from carrycast.errors import UserError
from carrycast.node.runtime.application_host import Forget
from carrycast.node.runtime.runtime import Runtime
from carrycast.node.storage.sequence_numbers import SequenceNumbers

OnAnswer = Callable[[Event, int], None]
OnClosed = Callable[[bool], None]

MAX_ADVERTISEMENTS = 1000
MAX_REQUESTS = 1000
"""Of all clients together that are open."""


class Requests:
    """The open requests of a node's clients."""

    def __init__(self, node: NodeId, runtime: Runtime, numbers: SequenceNumbers) -> None:
        self._node = node
        self._runtime = runtime
        self._numbers = numbers
        self._open: dict[RequestId, tuple[OnAnswer, OnClosed]] = {}

    def request(self, filter: str, patience_s: float, answered: OnAnswer, closed: OnClosed) -> Forget:
        """Ask; `answered` for each stored event, then `closed` once. A UserError says what is wrong."""
        if len(self._open) >= MAX_REQUESTS:
            raise UserError(f"a node has at most {MAX_REQUESTS} open requests")
        id = RequestId(self._node, self._numbers.take())
        try:
            made = Request(id, Filter(filter).text, patience_s)
            request = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Request)
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise UserError(f"request: {error}") from None
        self._open[id] = answered, closed
        self._runtime.on_request(self._runtime.now, request)

        def forget() -> None:
            if self._open.pop(id, None) is not None:
                self._runtime.on_request_canceled(self._runtime.now, id)

        return forget

    def on_answer(self, id: RequestId, event: Event, hops: int) -> bool:
        """A stored event; False if nobody asked."""
        found = self._open.get(id)
        if found is not None:
            found[0](event, hops)
        return found is not None

    def on_closed(self, id: RequestId, complete: bool) -> bool:
        """The end of a request; False if nobody asked."""
        found = self._open.pop(id, None)
        if found is not None:
            found[1](complete)
        return found is not None


class Advertisements:
    """Those that stand."""

    def __init__(self, node: NodeId, runtime: Runtime, numbers: SequenceNumbers) -> None:
        self._node = node
        self._runtime = runtime
        self._numbers = numbers
        self._standing: dict[AdvertisementId, Advertisement] = {}

    def advertise(self, filter: str, stored: bool) -> Forget:
        """Advertise until it is forgotten; a UserError says what is wrong."""
        protocol = self._runtime.plan.protocol
        if not issubclass(protocol, Advertises):
            raise UserError(f"advertisement: {protocol.name} makes no use of any")
        if len(self._standing) >= MAX_ADVERTISEMENTS:
            raise UserError(f"a node has at most {MAX_ADVERTISEMENTS} advertisements")
        id = AdvertisementId(self._node, self._numbers.take())
        try:
            made = Advertisement(id, Filter(filter).text, stored)
            advertisement = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Advertisement)
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise UserError(f"advertisement: {error}") from None
        self._standing[id] = advertisement
        self._runtime.on_advertise(self._runtime.now, advertisement)

        def forget() -> None:
            if self._standing.pop(id, None) is not None:
                self._runtime.on_unadvertise(self._runtime.now, advertisement)

        return forget
