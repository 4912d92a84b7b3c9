"""Requests of clients for stored events: who asked, and what comes back."""

from collections.abc import Callable

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.model import Event, NodeId, Request, RequestId
from carrycast.errors import UserError
from carrycast.node.runtime.applications import Forget
from carrycast.node.runtime.numbers import Numbers
from carrycast.node.runtime.runtime import Runtime

Answered = Callable[[Event, int], None]
Closed = Callable[[bool], None]

MAX_REQUESTS = 1000
"""Of all clients together that are open."""


class Requests:
    """The open requests of a node's clients."""

    def __init__(self, node: NodeId, runtime: Runtime, numbers: Numbers) -> None:
        self._node = node
        self._runtime = runtime
        self._numbers = numbers
        self._open: dict[RequestId, tuple[Answered, Closed]] = {}

    def request(self, filter: str, patience_s: float, answered: Answered, closed: Closed) -> Forget:
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
