"""The subscriptions of a node's applications: who listens, which of them stand by name, and what waits for them."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from driftcast.errors import UserError, WorkError
from driftcast.live.host.runtime import Runtime
from driftcast.live.host.sequence import Sequence
from driftcast.live.host.store import NodeStore, Standing
from driftcast.live.record import LOG, Record
from driftcast.matching import Filter
from driftcast.model import FOREVER_S, Event, NodeId, ProcessorId, Scalar, Subscription, SubscriptionId
from driftcast.protocol.optional import AnswersRequests, serves_processors
from driftcast.wire import Layer

Listener: TypeAlias = Callable[[SubscriptionId, Event, int], None]

BACKLOG = 1000
"""Events that wait for the application of a named subscription; the oldest makes room."""
MAX_SUBSCRIPTIONS = 10_000
"""All applications of a node together."""


@dataclass(slots=True)
class _Entry:
    subscription: Subscription
    name: str | None
    listener: Listener | None
    timer: asyncio.TimerHandle | None = None
    backlog: deque[tuple[Event, int]] = field(default_factory=deque)


class Subscribers:
    """The table of local subscriptions.

    One without a name ends with its listener. One with a name stands until it is ended or its lease is over, across
    restarts if the node has a store; what arrives while nobody listens waits, in memory.
    """

    def __init__(
        self, node: NodeId, runtime: Runtime, record: Record, store: NodeStore | None, sequence: Sequence
    ) -> None:
        self._node = node
        self._runtime = runtime
        self._record = record
        self._store = store
        self._sequence = sequence
        self._loop = asyncio.get_running_loop()
        self._entries: dict[SubscriptionId, _Entry] = {}
        self._named: dict[str, SubscriptionId] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting(self) -> int:
        """How many events wait for clients that are away."""
        return sum(len(entry.backlog) for entry in self._entries.values())

    def restore(self) -> None:
        """Subscribe again to what stood when the node last ran."""
        if self._store is None:
            return
        for standing in self._store.standing():
            subscription, until = standing.subscription, standing.until_wall_s
            if until is not None:
                remaining_s = until - time.time()
                if remaining_s <= 0:
                    self._store.forget(subscription.id)
                    continue
                subscription = msgspec.structs.replace(subscription, lease_s=remaining_s)
            self._enter(_Entry(subscription, standing.name, None))

    def subscribe(
        self,
        filter: str,
        listener: Listener | None,
        name: str | None = None,
        lease_s: float = FOREVER_S,
        attributes: Mapping[str, Scalar] | None = None,
        processor: ProcessorId | None = None,
        state: bytes = b"",
        history: bool = False,
    ) -> SubscriptionId:
        """Subscribe, or listen again to the subscription of that name. A UserError says what is wrong."""
        if name is not None and name in self._named:
            found = self._listen_again(name, filter, listener, dict(attributes or {}))
            if found is not None:
                return found
        if len(self._entries) >= MAX_SUBSCRIPTIONS:
            raise UserError(f"a node has at most {MAX_SUBSCRIPTIONS} subscriptions")
        protocol = self._runtime.plan.protocol
        if processor is not None and not serves_processors(protocol):
            raise UserError(f"subscription: {protocol.name} runs no processors for subscriptions")
        if history and not issubclass(protocol, AnswersRequests):
            raise UserError(f"subscription: {protocol.name} stores nothing that could be history")
        text = Filter(filter).text
        id = SubscriptionId(self._node, self._sequence.take())
        try:
            told = dict(attributes or {})
            made = Subscription(id, text, lease_s, told, history=history, processor=processor, state=state)
            # Decoding checks types and bounds, as it would on another node.
            subscription = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Subscription)
        except (ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
            raise UserError(f"subscription: {error}") from None
        self._enter(_Entry(subscription, name, listener))
        if name is not None and self._store is not None:
            until = None if math.isinf(lease_s) else time.time() + lease_s
            self._store.keep(Standing(name, subscription, until))
        return id

    def detach(self, id: SubscriptionId) -> None:
        """Its application has gone: a named subscription stays, another ends."""
        entry = self._entries.get(id)
        if entry is not None:
            entry.listener = None
            if entry.name is None:
                self.unsubscribe(id)

    def unsubscribe(self, id: SubscriptionId) -> bool:
        """End a subscription; False if there is none."""
        entry = self._entries.pop(id, None)
        if entry is None:
            return False
        if entry.timer is not None:
            entry.timer.cancel()
        if entry.name is not None:
            del self._named[entry.name]
            if self._store is not None:
                self._store.forget(id)
        self._record.unsubscribe(id)
        self._runtime.on_unsubscribe(self._runtime.now, id)
        return True

    def deliver(self, id: SubscriptionId, event: Event, hops: int) -> None:
        """An event for a subscription: to its listener, or to those that wait for one."""
        entry = self._entries.get(id)
        if entry is None:
            self._record.drop(Layer.DISSEMINATION, "no_such_subscription")
            return
        self._record.deliver(id, event, hops)
        if entry.listener is not None and not entry.backlog:
            self._call(entry.listener, id, event, hops)
        else:
            if len(entry.backlog) >= BACKLOG:
                entry.backlog.popleft()
                self._record.drop(Layer.DISSEMINATION, "backlog_full")
            entry.backlog.append((event, hops))

    def close(self) -> None:
        """The node stops: no lease ends any more."""
        for entry in self._entries.values():
            if entry.timer is not None:
                entry.timer.cancel()

    def _enter(self, entry: _Entry) -> None:
        subscription = entry.subscription
        self._entries[subscription.id] = entry
        if entry.name is not None:
            self._named[entry.name] = subscription.id
        if not math.isinf(subscription.lease_s):
            entry.timer = self._loop.call_later(subscription.lease_s, self.unsubscribe, subscription.id)
        self._record.subscribe(subscription)
        if not self._runtime.on_subscribe(self._runtime.now, subscription):
            self.unsubscribe(subscription.id)
            raise WorkError("the protocol failed on the subscription; the node's log has the reason")

    def _listen_again(
        self, name: str, filter: str, listener: Listener | None, attributes: dict[str, Scalar]
    ) -> SubscriptionId | None:
        """The standing subscription if it is the same; with another filter or other attributes it is ended, to be made
        anew, and what waits for it was for whom it no longer is."""
        id = self._named[name]
        entry = self._entries[id]
        if entry.listener is not None:
            raise UserError(f"another application listens to the subscription {name!r}")
        if (Filter(filter).text, attributes) != (entry.subscription.filter, entry.subscription.attributes):
            self.unsubscribe(id)
            return None
        entry.listener = listener
        if listener is not None:
            # After the caller has learned the id.
            self._loop.call_soon(self._hand_over, id)
        return id

    def _hand_over(self, id: SubscriptionId) -> None:
        entry = self._entries.get(id)
        while entry is not None and entry.backlog and entry.listener is not None:
            event, hops = entry.backlog.popleft()
            self._call(entry.listener, id, event, hops)

    def _call(self, listener: Listener, id: SubscriptionId, event: Event, hops: int) -> None:
        try:
            listener(id, event, hops)
        except Exception as error:
            LOG.error("an application raised on a delivery", exc_info=error)
            self._record.drop(Layer.DISSEMINATION, "application_raised")
