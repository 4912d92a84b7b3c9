"""The events of one subscription, as an asyncio client takes and acknowledges them."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from carrycast.core.model import Event, EventId, SubscriptionId
from carrycast.errors import UserError
from carrycast.node.api.deliveries import (
    TOGETHER,
    Acknowledgeable,
    Arrivals,
    Delivery,
    HistoryEnd,
    HistoryListener,
    event_id,
)
from carrycast.node.api.messages import MAX_POSITIONS, AcknowledgeRequest, AcknowledgeResponse, SubscribeRequest

if TYPE_CHECKING:
    from carrycast.node.api.async_client import AsyncClient


class AsyncDeliveries(AsyncIterator[Event]):
    """`async for event in deliveries`, over as many connections as it takes.

    Of a named subscription, iterating acknowledges what it gave when it is asked for more, so what a program was killed
    over comes again. Who takes events by `next_delivery` acknowledges them by `acknowledge`.
    """

    def __init__(
        self, client: "AsyncClient", question: SubscribeRequest, on_history: HistoryListener | None = None
    ) -> None:
        self.question = question
        self.asked = 0
        """The number of the question that the node was last asked."""
        self.subscription: SubscriptionId | None = None
        """As long as the node is there."""
        self.known = asyncio.Event()
        """Set while the node has said which subscription it is, and when it has ended."""
        self._client = client
        self._arrivals = Arrivals(on_history=on_history)
        self._positions: dict[EventId, int] = {}
        """Of what was given on this connection and is not acknowledged."""
        self._came = asyncio.Event()
        self._ended = False
        self._lapsed = False
        self._error: Exception | None = None

    @property
    def ended(self) -> bool:
        """Whether no more will come than is here already: it was closed, or its lease is over."""
        return self._ended

    @property
    def missed(self) -> int:
        """Events for which there was no room."""
        return self._arrivals.missed

    @property
    def gaps(self) -> list[str]:
        """Each time that results did not go on where they were, and why."""
        return list(self._arrivals.gaps)

    @property
    def history_complete(self) -> bool | None:
        """Whether all stored events from before have been taken; False if some are missing, None if it is not known
        yet or was not asked for (`history`). A False becomes True if the rest comes later."""
        self._arrivals.waits()
        return self._arrivals.history_complete

    def __aiter__(self) -> "AsyncDeliveries":
        return self

    async def __anext__(self) -> Event:
        if len(self._positions) >= TOGETHER or not self._arrivals.waits():
            self._settle()
        delivery = await self.next_delivery()
        if delivery is None:
            raise StopAsyncIteration
        return delivery.event

    async def next_delivery(self, timeout_s: float | None = None) -> Delivery | None:
        """The next event and whether it may have come before; None if none comes in time, or the subscription ends."""
        while (delivery := self._arrivals.take()) is None:
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._came.clear()
            try:
                await asyncio.wait_for(self._came.wait(), timeout_s)
            except TimeoutError:
                return None
        if delivery.position is not None:
            self._positions[delivery.event.id] = delivery.position
        return delivery

    async def acknowledge(self, *events: Acknowledgeable) -> None:
        """These, or all that were given so far, do not come again when this returns. Of those given before the
        connection was lost nothing can be said: they come again."""
        if self._lapsed and self._positions:
            raise UserError("the subscription has ended with its lease, and so has what it is to acknowledge")
        for question in self._acknowledgements(events):
            await self._client.ask(question, AcknowledgeResponse)

    async def close(self) -> None:
        """End the subscription, named or not."""
        await self._client.unsubscribe(self)

    def _settle(self) -> None:
        for question in self._acknowledgements(()):
            # Nobody waits for the answer; if it is lost they come again.
            self._client.send(question).add_done_callback(lambda answered: answered.cancelled() or answered.exception())

    def _acknowledgements(self, events: tuple[Acknowledgeable, ...]) -> list[AcknowledgeRequest]:
        ids = [event_id(event) for event in events] or tuple(self._positions)
        positions = [self._positions.pop(id) for id in ids if id in self._positions]
        subscription = self.subscription
        if subscription is None:
            return []
        return [
            AcknowledgeRequest(
                id=self._client.number(), subscription=subscription, positions=positions[first : first + MAX_POSITIONS]
            )
            for first in range(0, len(positions), MAX_POSITIONS)
        ]

    # What the client tells.

    def on_subscribed(self, subscription: SubscriptionId) -> None:
        """It stands, over this connection."""
        self.subscription = subscription
        self.known.set()

    def on_delivery(self, delivery: Delivery) -> None:
        """An event has come."""
        self._arrivals.add(delivery)
        self._came.set()

    def on_history_end(self, end: HistoryEnd) -> None:
        """The stored events from before have come, or as many as will."""
        self._arrivals.waiting.append(end)
        self._came.set()

    def on_gap(self, reason: str) -> None:
        """Results do not go on where they were."""
        self._arrivals.gaps.append(reason)

    def on_lost(self) -> None:
        """The connection is gone: what is not acknowledged comes again over the next, also if it waits here."""
        self.subscription = None
        self.known.clear()
        self._positions.clear()
        self._arrivals.history_complete = None
        if self.question.name is not None:
            self._arrivals.waiting.clear()

    def on_lapsed(self) -> None:
        """Its lease is over."""
        self.subscription = None
        self._lapsed = True
        self.end()

    def end(self, error: Exception | None = None) -> None:
        """No more will come."""
        self._ended = True
        self._error = error
        self._came.set()
        self.known.set()
