"""A live node inside a Python program, without a daemon and without a control channel."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from carrycast.core.model import FOREVER_S, Event, EventId, Scalar, SubscriptionId
from carrycast.errors import WorkError
from carrycast.node.api import BUSY, POLL_S, WAIT_S, FilterLike, Payload, filter_text, plain_attributes, plain_bytes
from carrycast.node.config import config_from, load_config
from carrycast.node.node import LiveNode

MAX_QUEUED = 10_000
"""The most events that wait for a slow reader; the oldest are dropped as `reader_slow`."""


class Node:
    """A live node of this process, for asyncio.

    The configuration is that of `carrycast node`: a file's path, or its tables as a dict.

    >>> import asyncio, carrycast
    >>> async def main():
    ...     tables = {"name": "car", "listen": {"host": "127.0.0.1", "port": 0}}
    ...     async with carrycast.Node(tables) as node, node.subscribe("speed > 30") as events:
    ...         await node.publish({"speed": 31}, "too fast")
    ...         event = await events.next_event(timeout_s=10)
    ...         print(event.attributes, event.payload.decode())
    >>> asyncio.run(main())
    {'speed': 31} too fast
    """

    def __init__(self, config: str | Path | Mapping[str, object]) -> None:
        """Read and check the configuration; a `UserError` says what is wrong with it."""
        loaded = config_from(config) if isinstance(config, Mapping) else load_config(Path(config))
        self._node = LiveNode(loaded)

    async def __aenter__(self) -> "Node":
        await self._node.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._node.stop()

    @property
    def id(self) -> int:
        """The id of the node."""
        return self._node.node

    @property
    def neighbors(self) -> list[int]:
        """The ids of its neighbors, as far as discovery has found them."""
        return self._node.neighbors

    @property
    def drops(self) -> Mapping[str, int]:
        """How many events, frames and messages were dropped, by reason."""
        return self._node.drops

    async def publish(
        self,
        attributes: Mapping[str, Scalar],
        payload: Payload = b"",
        *,
        lease_s: float = FOREVER_S,
        stored: bool = False,
    ) -> EventId:
        """Publish an event. A text is sent as UTF-8. With `stored`, return when the event is on the disk.

        While the node's neighbors cannot keep up the call waits; a `WorkError` says so if that takes too long.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        while self._node.is_busy():
            if loop.time() > deadline:
                self._node.note_drop("busy")
                raise WorkError(f"{BUSY} for {WAIT_S:g} s; publish again later")
            await asyncio.sleep(POLL_S)
        event = plain_attributes(attributes), plain_bytes(payload, "payload"), lease_s
        if not stored:
            return self._node.publish(*event)
        committed: asyncio.Future[None] = loop.create_future()

        def on_committed(error: WorkError | None) -> None:
            if committed.done():
                return
            if error is None:
                committed.set_result(None)
            else:
                committed.set_exception(error)

        id = self._node.publish(*event, on_stored=on_committed)
        await committed
        return id

    def subscribe(
        self, filter: FilterLike = "", *, lease_s: float = FOREVER_S, on_event: Callable[[Event], object] | None = None
    ) -> "EventStream":
        """Subscribe to the events that match a filter, from now on: an async iterator and context manager.

        With `on_event` that function is called for each event instead, in the event loop; it must not block.
        """
        return EventStream(self._node, filter_text(filter), lease_s, on_event)


class EventStream:
    """The events of one subscription. Leaving its context, or `close()`, ends the subscription."""

    def __init__(
        self, node: LiveNode, filter: str, lease_s: float, on_event: Callable[[Event], object] | None = None
    ) -> None:
        self._node = node
        self._listener = on_event
        self._queued: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._closed = False
        self._id = node.subscribe(filter, self._on_event, lease_s=lease_s)

    async def __aenter__(self) -> "EventStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> Event:
        event = await self.next_event()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next_event(self, timeout_s: float | None = None) -> Event | None:
        """The next event; None if none came in time, or the stream is closed."""
        while not self._queued:
            if self._closed:
                return None
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), timeout_s)
            except TimeoutError:
                return None
        return self._queued.popleft()

    def close(self) -> None:
        """End the subscription; events that are queued can still be read."""
        if not self._closed:
            self._closed = True
            self._node.unsubscribe(self._id)
            self._arrived.set()

    def _on_event(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        if self._listener is not None:
            self._call_listener(self._listener, event)
            return
        if len(self._queued) >= MAX_QUEUED:
            self._queued.popleft()
            self._node.note_drop("reader_slow")
        self._queued.append(event)
        self._arrived.set()

    def _call_listener(self, on_event: Callable[[Event], object], event: Event) -> None:
        """A function that raises ends neither the node nor the subscription; the loop's handler reports the error."""
        try:
            on_event(event)
        except Exception as error:
            self._node.note_drop("listener_failed")
            context = {"message": f"on_event failed for event {event.id}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
