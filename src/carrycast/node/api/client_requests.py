"""The requests for stored events that one client has open."""

import asyncio
from functools import partial

from carrycast.core.model import Event
from carrycast.node.api.messages import AskStored, Closed
from carrycast.node.api.outlet import Kind, Outlet
from carrycast.node.api.served import Served
from carrycast.node.api.told import answer_of
from carrycast.node.runtime.applications import Forget


class ClientRequests:
    """Answers go to the client as far as it reads; the end says so if some were dropped."""

    def __init__(self, node: Served, outlet: Outlet) -> None:
        self._node = node
        self._outlet = outlet
        self._open: dict[object, Forget] = {}
        self._all_over = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def request(self, question: AskStored) -> None:
        """Ask for stored events; a UserError says what is wrong."""
        mark, over, all_said = object(), False, True
        kind = Kind.HELD

        def answered(event: Event, hops: int) -> None:
            nonlocal all_said
            if not self._outlet.tell(event, kind, partial(answer_of, question.id, event, hops)):
                self._node.note_drop("client_slow")
                all_said = False

        def closed(complete: bool) -> None:
            nonlocal over
            over = True
            self._open.pop(mark, None)
            self._all_over.set()
            self._outlet.say_in_turn(partial(Closed, id=question.id, complete=complete and all_said))

        forget = self._node.request(question.filter, question.patience_s, answered, closed)
        # What was answered so far the node holds itself.
        kind = Kind.ASKED
        # It may be over already: a protocol that stores nothing says so at once.
        if not over:
            self._open[mark] = forget

    async def all_over(self) -> None:
        """Wait until none is open: each ends with its patience."""
        while self._open:
            self._all_over.clear()
            await self._all_over.wait()

    def forget(self) -> None:
        """The client is gone."""
        for forget in self._open.values():
            forget()
