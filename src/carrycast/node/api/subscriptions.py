"""The subscriptions of a node's clients: those that end with their connection, and durable ones, which have a name."""

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
from carrycast.core.protocol import AnswersRequests, serves_processors
from carrycast.core.wire import Layer
from carrycast.errors import UserError, WorkError
from carrycast.node.api.durable_subscription import Consumer, DurableSubscription, LocalDelivery
from carrycast.node.recorder import LOG, NodeRecorder
from carrycast.node.runtime import Runtime
from carrycast.node.storage import Backlog, BacklogSettings, GroupCommit, NodeStore, SequenceNumbers, StoredSubscription

Listener: TypeAlias = Callable[[SubscriptionId, Event, int], None]

CLEANUP_S = 60.0
"""How often backlogs are checked for events that are too old."""
RETRY_S = 1.0
"""How long after a failed commit delivery is retried."""
MAX_SUBSCRIPTIONS = 10_000
"""All applications of a node together."""


@dataclass(slots=True)
class _LocalSubscription:
    subscription: Subscription
    name: str | None
    transient_consumer: Consumer | None
    """The consumer, without a name."""
    durable: DurableSubscription | None
    """The backlog and the consumer, with a name."""
    timer: asyncio.TimerHandle | None = None
    history_complete: bool | None = None
    """Without a name: whether its history was complete, once that is known."""
    gap: str = ""
    """Why results do not continue where they were, until a consumer has been notified."""

    @property
    def consumer(self) -> Consumer | None:
        """The present consumer."""
        return self.transient_consumer if self.durable is None else self.durable.consumer

    def notify_gap(self) -> None:
        """Notify the consumer of a gap, if there is a consumer that wants to know."""
        consumer = self.consumer
        if self.gap and consumer is not None and consumer.on_gap is not None:
            consumer.on_gap(self.subscription.id, self.gap)
            self.gap = ""

    def is_same(self, filter: str, attributes: dict[str, Scalar], processor: ProcessorId | None) -> bool:
        """Whether a client asks for the same subscription again. With another filter, processor or attributes the old
        one ends and a new one begins, because the backlog was selected by the old ones."""
        present = self.subscription
        asked = (Filter(filter).text, attributes, processor)
        return asked == (present.filter, present.attributes, present.processor)


def _as_consumer(listener: "Listener | Consumer | None") -> Consumer | None:
    """A plain listener needs no acknowledgement."""
    if listener is None or isinstance(listener, Consumer):
        return listener
    return Consumer(lambda id, delivery: listener(id, delivery.event, delivery.hops))


class ClientSubscriptions:
    """The table of local subscriptions.

    One without a name ends with its consumer. One with a name is durable: it lasts until it is ended or its lease
    expires, across restarts if the node has a store, and its events stay in a backlog until they are acknowledged.
    """

    def __init__(
        self,
        node: NodeId,
        runtime: Runtime,
        recorder: NodeRecorder,
        store: NodeStore,
        group_commit: GroupCommit,
        numbers: SequenceNumbers,
        backlog: BacklogSettings,
    ) -> None:
        self._node = node
        self._runtime = runtime
        self._recorder = recorder
        self._store = store
        self._group_commit = group_commit
        self._numbers = numbers
        self._backlog = backlog
        self._cleanup: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        group_commit.on_rollback = self._on_rollback
        recorder.on_gap = self._on_gap
        self._loop = asyncio.get_running_loop()
        self._entries: dict[SubscriptionId, _LocalSubscription] = {}
        self._by_name: dict[str, SubscriptionId] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def backlog_count(self) -> int:
        """How many events are queued in all backlogs."""
        return sum(durable.backlog_count for durable in self._durable)

    @property
    def _durable(self) -> list[DurableSubscription]:
        return [entry.durable for entry in self._entries.values() if entry.durable is not None]

    def restore(self) -> None:
        """Subscribe again to the named subscriptions in the store."""
        self._cleanup = self._loop.call_later(CLEANUP_S, self._clean_up)
        for stored in self._store.read_subscriptions():
            subscription, until = stored.subscription, stored.until_wall_s
            if until is not None:
                remaining_s = until - time.time()
                if remaining_s <= 0:
                    self._store.delete_subscription(subscription.id)
                    self._store.commit()
                    continue
                subscription = msgspec.structs.replace(subscription, lease_s=remaining_s)
            entry = _LocalSubscription(subscription, stored.name, None, self._make_durable(subscription.id))
            # No broker has the processor's state for a node that has restarted.
            entry.gap = "" if subscription.processor is None else "node_restarted"
            self._add(entry)

    def subscribe(
        self,
        filter: str,
        listener: Listener | Consumer | None,
        name: str | None = None,
        lease_s: float = FOREVER_S,
        attributes: Mapping[str, Scalar] | None = None,
        processor: ProcessorId | None = None,
        state: bytes = b"",
        history: bool = False,
    ) -> SubscriptionId:
        """Subscribe, or resume the subscription of that name. A UserError says what is wrong."""
        consumer, plain_attributes = _as_consumer(listener), dict(attributes or {})
        present = None if name is None else self._find(name)
        if present is not None and present.is_same(filter, plain_attributes, processor):
            return self._resume(present, consumer)
        if len(self._entries) - (present is not None) >= MAX_SUBSCRIPTIONS:
            raise UserError(f"a node has at most {MAX_SUBSCRIPTIONS} subscriptions")
        self._check_protocol(processor, history)
        text = Filter(filter).text
        id = SubscriptionId(self._node, self._numbers.take())
        try:
            made = Subscription(id, text, lease_s, plain_attributes, history=history, processor=processor, state=state)
            # Decoding checks types and bounds, as another node would.
            subscription = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Subscription)
        except (ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
            raise UserError(f"subscription: {error}") from None
        if name is None:
            self._add_transient(subscription, consumer)
            return id
        # One commit replaces the old one by the new one; on a full disk both stay as they are.
        if present is not None:
            self._store.delete_subscription(present.subscription.id)
        until = None if math.isinf(lease_s) else time.time() + lease_s
        self._store.put_subscription(StoredSubscription(name, subscription, until))
        if present is not None:
            self._remove(present)
        durable = self._make_durable(id)
        durable.attach(consumer)
        self._add(_LocalSubscription(subscription, name, None, durable))
        # After the caller has learned the id.
        self._loop.call_soon(durable.deliver_backlog)
        return id

    def _check_protocol(self, processor: ProcessorId | None, history: bool) -> None:
        protocol = self._runtime.plan.protocol
        if processor is not None and not serves_processors(protocol):
            raise UserError(f"subscription: {protocol.name} runs no processors for subscriptions")
        if history and not issubclass(protocol, AnswersRequests):
            raise UserError(f"subscription: {protocol.name} stores nothing that could be history")

    def detach(self, id: SubscriptionId) -> None:
        """Its client has disconnected: a named subscription stays, another ends."""
        entry = self._entries.get(id)
        if entry is None:
            return
        if entry.durable is None:
            self.unsubscribe(id)
        else:
            entry.durable.attach(None)

    def acknowledge(self, id: SubscriptionId, positions: list[int]) -> None:
        """The consumer of a named subscription has received these, for good once this is committed."""
        entry = self._entries.get(id)
        if entry is None:
            raise UserError("the subscription has ended, perhaps with its lease, and so has what it is to acknowledge")
        if entry.durable is None:
            raise UserError("only events of a named subscription are acknowledged")
        entry.durable.acknowledge(positions)

    def unsubscribe(self, id: SubscriptionId) -> bool:
        """End a subscription; False if there is none."""
        entry = self._entries.get(id)
        if entry is None:
            return False
        if entry.name is not None:
            # First: if this cannot be written, the subscription stays.
            self._store.delete_subscription(id)
            self._store.commit()
        self._remove(entry)
        return True

    def deliver(self, id: SubscriptionId, event: Event, hops: int) -> None:
        """Deliver an event to the consumer of a subscription, or append it to its backlog."""
        entry = self._entries.get(id)
        if entry is None:
            self._recorder.drop(Layer.DISSEMINATION, "no_such_subscription")
        elif entry.durable is not None:
            try:
                is_new = entry.durable.on_event(event, hops)
            except WorkError:
                self._recorder.drop(Layer.DISSEMINATION, "store_failed")
                return
            if is_new:
                self._recorder.deliver(id, event, hops)
            else:
                # After a restart the protocol may not remember which events it has delivered.
                self._recorder.drop(Layer.DISSEMINATION, "delivered_before")
        else:
            self._recorder.deliver(id, event, hops)
            if entry.transient_consumer is not None:
                self._call(entry.transient_consumer, id, LocalDelivery(event, hops))

    def close_history(self, id: SubscriptionId, complete: bool) -> None:
        """The stored events from before a subscription have been delivered, all of them if `complete`."""
        entry = self._entries.get(id)
        if entry is None:
            return
        if entry.durable is not None:
            entry.durable.close_history(complete)
            return
        entry.history_complete = complete
        if entry.transient_consumer is not None and entry.transient_consumer.on_history is not None:
            entry.transient_consumer.on_history(id, complete)

    def close(self) -> None:
        """The node stops: cancel all timers."""
        for timer in (self._cleanup, self._retry):
            if timer is not None:
                timer.cancel()
        self._group_commit.on_rollback = lambda: None
        for entry in self._entries.values():
            if entry.timer is not None:
                entry.timer.cancel()

    def _add(self, entry: _LocalSubscription) -> None:
        subscription = entry.subscription
        self._entries[subscription.id] = entry
        if entry.name is not None:
            self._by_name[entry.name] = subscription.id
        if not math.isinf(subscription.lease_s):
            entry.timer = self._loop.call_later(subscription.lease_s, self._on_lease_expired, entry)
        self._recorder.subscribe(subscription)
        if not self._runtime.on_subscribe(self._runtime.now, subscription):
            self.unsubscribe(subscription.id)
            raise WorkError("the protocol failed on the subscription; the node's log has the reason")

    def _add_transient(self, subscription: Subscription, consumer: Consumer | None) -> None:
        early: list[LocalDelivery] = []
        entry = _LocalSubscription(subscription, None, Consumer(lambda _, delivery: early.append(delivery)), None)
        self._add(entry)
        entry.transient_consumer = consumer
        if consumer is not None:
            for delivery in early:
                # The history, after the caller has learned the id.
                self._loop.call_soon(self._call, consumer, subscription.id, delivery._replace(in_store=True))
            if entry.history_complete is not None and consumer.on_history is not None:
                self._loop.call_soon(consumer.on_history, subscription.id, entry.history_complete)

    def _make_durable(self, id: SubscriptionId) -> DurableSubscription:
        return DurableSubscription(id, Backlog(self._store, id, self._backlog), self._group_commit, self._recorder)

    def _find(self, name: str) -> _LocalSubscription | None:
        """The subscription of that name; a UserError if it has a consumer already."""
        if name not in self._by_name:
            return None
        entry = self._entries[self._by_name[name]]
        assert entry.durable is not None
        if entry.durable.consumer is not None:
            raise UserError(f"another application listens to the subscription {name!r}")
        return entry

    def _resume(self, entry: _LocalSubscription, consumer: Consumer | None) -> SubscriptionId:
        assert entry.durable is not None
        entry.durable.attach(consumer)
        # After the caller has learned the id.
        self._loop.call_soon(entry.notify_gap)
        self._loop.call_soon(entry.durable.deliver_backlog)
        return entry.subscription.id

    def _on_gap(self, id: SubscriptionId, reason: str) -> None:
        entry = self._entries.get(id)
        if entry is not None:
            entry.gap = reason
            entry.notify_gap()

    def _on_lease_expired(self, entry: _LocalSubscription) -> None:
        consumer = entry.consumer
        if entry.name is not None:
            # If this cannot be written, the next start sees that the lease has expired.
            with suppress(WorkError):
                self._store.delete_subscription(entry.subscription.id)
                self._store.commit()
        self._remove(entry)
        if consumer is not None and consumer.on_ended is not None:
            consumer.on_ended(entry.subscription.id)

    def _remove(self, entry: _LocalSubscription) -> None:
        id = entry.subscription.id
        del self._entries[id]
        if entry.timer is not None:
            entry.timer.cancel()
        if entry.name is not None:
            del self._by_name[entry.name]
        if entry.durable is not None:
            entry.durable.attach(None)
        self._recorder.unsubscribe(id)
        self._runtime.on_unsubscribe(self._runtime.now, id)

    def _clean_up(self) -> None:
        self._cleanup = self._loop.call_later(CLEANUP_S, self._clean_up)
        for durable in self._durable:
            with suppress(WorkError):
                durable.remove_excess()

    def _on_rollback(self) -> None:
        """A commit failed: neither new events nor acknowledgements were kept."""
        for durable in self._durable:
            durable.rollback()
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_S, self._deliver_again)

    def _deliver_again(self) -> None:
        self._retry = None
        for durable in self._durable:
            durable.deliver_backlog()

    def _call(self, consumer: Consumer, id: SubscriptionId, delivery: LocalDelivery) -> None:
        try:
            consumer.deliver(id, delivery)
        except Exception as error:
            LOG.error("an application raised on a delivery", exc_info=error)
            self._recorder.drop(Layer.DISSEMINATION, "application_raised")
