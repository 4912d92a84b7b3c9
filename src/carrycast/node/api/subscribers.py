"""The subscriptions of a node's applications: who listens, which of them stand by name, and what waits for them."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.model import FOREVER_S, Event, NodeId, ProcessorId, Scalar, Subscription, SubscriptionId
from carrycast.core.protocol.optional import AnswersRequests, serves_processors
from carrycast.core.wire import Layer
from carrycast.errors import UserError, WorkError
from carrycast.node.api.consumer import Consumer, Delivery, Reader
from carrycast.node.recorder import LOG, NodeRecorder
from carrycast.node.runtime.runtime import Runtime
from carrycast.node.storage.backlog import Backlog, BacklogSettings
from carrycast.node.storage.group_commit import GroupCommit
from carrycast.node.storage.sequence_numbers import SequenceNumbers
from carrycast.node.storage.store import NodeStore, StoredSubscription

Listener: TypeAlias = Callable[[SubscriptionId, Event, int], None]

REVIEW_S = 60.0
"""How often what waits is looked through for what is too old."""
GO_ON_S = 1.0
"""When what could not be handed over is tried again, because the store could not be written."""
MAX_SUBSCRIPTIONS = 10_000
"""All applications of a node together."""


@dataclass(slots=True)
class _Entry:
    subscription: Subscription
    name: str | None
    reader: Reader | None
    """Of one without a name."""
    consumer: Consumer | None
    """Of one with a name."""
    timer: asyncio.TimerHandle | None = None
    history: bool | None = None
    """Of one without a name: whether its history was complete, once that is known."""
    gap: str = ""
    """Why its results do not go on where they were, until a reader has been told."""

    def tell_gap(self) -> None:
        """Tell the reader, if there is one that listens to that."""
        reader = self.reader if self.consumer is None else self.consumer.reader
        if self.gap and reader is not None and reader.gap is not None:
            reader.gap(self.subscription.id, self.gap)
            self.gap = ""

    def same(self, filter: str, attributes: dict[str, Scalar], processor: ProcessorId | None) -> bool:
        """With another filter or processor or other attributes it is ended, to be made anew: what waits for it was for
        whom it no longer is."""
        standing = self.subscription
        asked = (Filter(filter).text, attributes, processor)
        return asked == (standing.filter, standing.attributes, standing.processor)


def _reader(listener: "Listener | Reader | None") -> Reader | None:
    """A plain listener has an event when it has returned."""
    if listener is None or isinstance(listener, Reader):
        return listener
    return Reader(lambda id, delivery: listener(id, delivery.event, delivery.hops))


class Subscribers:
    """The table of local subscriptions.

    One without a name ends with its listener. One with a name stands until it is ended or its lease is over, across
    restarts if the node has a store; what arrives waits, in the store, until its reader has acknowledged it.
    """

    def __init__(
        self,
        node: NodeId,
        runtime: Runtime,
        recorder: NodeRecorder,
        store: NodeStore,
        group_commit: GroupCommit,
        sequence: SequenceNumbers,
        backlog: BacklogSettings,
    ) -> None:
        self._node = node
        self._runtime = runtime
        self._recorder = recorder
        self._store = store
        self._group_commit = group_commit
        self._sequence = sequence
        self._backlog = backlog
        self._review: asyncio.TimerHandle | None = None
        self._going_on: asyncio.TimerHandle | None = None
        group_commit.on_rollback = self._on_undone
        recorder.on_gap = self._on_gap
        self._loop = asyncio.get_running_loop()
        self._entries: dict[SubscriptionId, _Entry] = {}
        self._named: dict[str, SubscriptionId] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting(self) -> int:
        """How many events wait for clients that are away."""
        return sum(consumer.waiting for consumer in self._consumers)

    @property
    def _consumers(self) -> list[Consumer]:
        return [entry.consumer for entry in self._entries.values() if entry.consumer is not None]

    def restore(self) -> None:
        """Subscribe again to what stood when the node last ran."""
        self._review = self._loop.call_later(REVIEW_S, self._review_all)
        for standing in self._store.standing():
            subscription, until = standing.subscription, standing.until_wall_s
            if until is not None:
                remaining_s = until - time.time()
                if remaining_s <= 0:
                    self._store.forget(subscription.id)
                    self._store.commit()
                    continue
                subscription = msgspec.structs.replace(subscription, lease_s=remaining_s)
            entry = _Entry(subscription, standing.name, None, self._consumer(subscription.id))
            # No broker has its state for a node that started again.
            entry.gap = "" if subscription.processor is None else "node_restarted"
            self._enter(entry)

    def subscribe(
        self,
        filter: str,
        listener: Listener | Reader | None,
        name: str | None = None,
        lease_s: float = FOREVER_S,
        attributes: Mapping[str, Scalar] | None = None,
        processor: ProcessorId | None = None,
        state: bytes = b"",
        history: bool = False,
    ) -> SubscriptionId:
        """Subscribe, or read on from the subscription of that name. A UserError says what is wrong."""
        reader, told = _reader(listener), dict(attributes or {})
        standing = None if name is None else self._standing(name)
        if standing is not None and standing.same(filter, told, processor):
            return self._read_on(standing, reader)
        if len(self._entries) - (standing is not None) >= MAX_SUBSCRIPTIONS:
            raise UserError(f"a node has at most {MAX_SUBSCRIPTIONS} subscriptions")
        protocol = self._runtime.plan.protocol
        if processor is not None and not serves_processors(protocol):
            raise UserError(f"subscription: {protocol.name} runs no processors for subscriptions")
        if history and not issubclass(protocol, AnswersRequests):
            raise UserError(f"subscription: {protocol.name} stores nothing that could be history")
        text = Filter(filter).text
        id = SubscriptionId(self._node, self._sequence.take())
        try:
            made = Subscription(id, text, lease_s, told, history=history, processor=processor, state=state)
            # Decoding checks types and bounds, as it would on another node.
            subscription = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Subscription)
        except (ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
            raise UserError(f"subscription: {error}") from None
        if name is None:
            self._enter_unnamed(subscription, reader)
            return id
        # With one commit the new one stands and the old one does not; a disk that is full leaves everything as it was.
        if standing is not None:
            self._store.forget(standing.subscription.id)
        until = None if math.isinf(lease_s) else time.time() + lease_s
        self._store.keep(StoredSubscription(name, subscription, until))
        if standing is not None:
            self._end(standing)
        consumer = self._consumer(id)
        consumer.attach(reader)
        self._enter(_Entry(subscription, name, None, consumer))
        # After the caller has learned the id.
        self._loop.call_soon(consumer.hand_over)
        return id

    def detach(self, id: SubscriptionId) -> None:
        """Its application has gone: a named subscription stays, another ends."""
        entry = self._entries.get(id)
        if entry is None:
            return
        if entry.consumer is None:
            self.unsubscribe(id)
        else:
            entry.consumer.attach(None)

    def acknowledge(self, id: SubscriptionId, positions: list[int]) -> None:
        """The reader of a named subscription has so much, for good when it is committed."""
        entry = self._entries.get(id)
        if entry is None:
            raise UserError("the subscription has ended, perhaps with its lease, and so has what it is to acknowledge")
        if entry.consumer is None:
            raise UserError("only events of a named subscription are acknowledged")
        entry.consumer.acknowledge(positions)

    def unsubscribe(self, id: SubscriptionId) -> bool:
        """End a subscription; False if there is none."""
        entry = self._entries.get(id)
        if entry is None:
            return False
        if entry.name is not None:
            # First, for it stands if this cannot be written.
            self._store.forget(id)
            self._store.commit()
        self._end(entry)
        return True

    def deliver(self, id: SubscriptionId, event: Event, hops: int) -> None:
        """An event for a subscription: to its reader, or to those that wait for one."""
        entry = self._entries.get(id)
        if entry is None:
            self._recorder.drop(Layer.DISSEMINATION, "no_such_subscription")
        elif entry.consumer is not None:
            try:
                fresh = entry.consumer.take(event, hops)
            except WorkError:
                self._recorder.drop(Layer.DISSEMINATION, "store_failed")
                return
            if fresh:
                self._recorder.deliver(id, event, hops)
            else:
                # The protocol has forgotten, over a restart, what this subscription has got.
                self._recorder.drop(Layer.DISSEMINATION, "delivered_before")
        else:
            self._recorder.deliver(id, event, hops)
            if entry.reader is not None:
                self._call(entry.reader, id, Delivery(event, hops))

    def close_history(self, id: SubscriptionId, complete: bool) -> None:
        """What was stored before a subscription has been delivered, all of it if `complete`."""
        entry = self._entries.get(id)
        if entry is None:
            return
        if entry.consumer is not None:
            entry.consumer.close_history(complete)
            return
        entry.history = complete
        if entry.reader is not None and entry.reader.history is not None:
            entry.reader.history(id, complete)

    def close(self) -> None:
        """The node stops: no lease ends any more."""
        for timer in (self._review, self._going_on):
            if timer is not None:
                timer.cancel()
        self._group_commit.on_rollback = lambda: None
        for entry in self._entries.values():
            if entry.timer is not None:
                entry.timer.cancel()

    def _enter(self, entry: _Entry) -> None:
        subscription = entry.subscription
        self._entries[subscription.id] = entry
        if entry.name is not None:
            self._named[entry.name] = subscription.id
        if not math.isinf(subscription.lease_s):
            entry.timer = self._loop.call_later(subscription.lease_s, self._on_lease_over, entry)
        self._recorder.subscribe(subscription)
        if not self._runtime.on_subscribe(self._runtime.now, subscription):
            self.unsubscribe(subscription.id)
            raise WorkError("the protocol failed on the subscription; the node's log has the reason")

    def _enter_unnamed(self, subscription: Subscription, reader: Reader | None) -> None:
        early: list[Delivery] = []
        entry = _Entry(subscription, None, Reader(lambda _, delivery: early.append(delivery)), None)
        self._enter(entry)
        entry.reader = reader
        if reader is not None:
            for delivery in early:
                # History: after the caller has learned the id.
                self._loop.call_soon(self._call, reader, subscription.id, delivery._replace(held=True))
            if entry.history is not None and reader.history is not None:
                self._loop.call_soon(reader.history, subscription.id, entry.history)

    def _consumer(self, id: SubscriptionId) -> Consumer:
        return Consumer(id, Backlog(self._store, id, self._backlog), self._group_commit, self._recorder)

    def _standing(self, name: str) -> _Entry | None:
        """The subscription of that name, if nobody reads it."""
        if name not in self._named:
            return None
        entry = self._entries[self._named[name]]
        assert entry.consumer is not None
        if entry.consumer.reader is not None:
            raise UserError(f"another application listens to the subscription {name!r}")
        return entry

    def _read_on(self, entry: _Entry, reader: Reader | None) -> SubscriptionId:
        assert entry.consumer is not None
        entry.consumer.attach(reader)
        # After the caller has learned the id.
        self._loop.call_soon(entry.tell_gap)
        self._loop.call_soon(entry.consumer.hand_over)
        return entry.subscription.id

    def _on_gap(self, id: SubscriptionId, reason: str) -> None:
        entry = self._entries.get(id)
        if entry is not None:
            entry.gap = reason
            entry.tell_gap()

    def _on_lease_over(self, entry: _Entry) -> None:
        reader = entry.reader if entry.consumer is None else entry.consumer.reader
        if entry.name is not None:
            # If that cannot be written, the next start sees that it is over.
            with suppress(WorkError):
                self._store.forget(entry.subscription.id)
                self._store.commit()
        self._end(entry)
        if reader is not None and reader.ended is not None:
            reader.ended(entry.subscription.id)

    def _end(self, entry: _Entry) -> None:
        id = entry.subscription.id
        del self._entries[id]
        if entry.timer is not None:
            entry.timer.cancel()
        if entry.name is not None:
            del self._named[entry.name]
        if entry.consumer is not None:
            entry.consumer.attach(None)
        self._recorder.unsubscribe(id)
        self._runtime.on_unsubscribe(self._runtime.now, id)

    def _review_all(self) -> None:
        self._review = self._loop.call_later(REVIEW_S, self._review_all)
        for consumer in self._consumers:
            with suppress(WorkError):
                consumer.review()

    def _on_undone(self) -> None:
        """Nothing of the last commit is kept: neither what has come nor what was acknowledged."""
        for consumer in self._consumers:
            consumer.rollback()
        if self._going_on is None:
            self._going_on = self._loop.call_later(GO_ON_S, self._go_on)

    def _go_on(self) -> None:
        self._going_on = None
        for consumer in self._consumers:
            consumer.hand_over()

    def _call(self, reader: Reader, id: SubscriptionId, delivery: Delivery) -> None:
        try:
            reader.read(id, delivery)
        except Exception as error:
            LOG.error("an application raised on a delivery", exc_info=error)
            self._recorder.drop(Layer.DISSEMINATION, "application_raised")
