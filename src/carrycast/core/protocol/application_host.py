"""Runs the applications of one node, and maps each subscription, request and timer to the application that owns it.

Each environment implements `ApplicationHost`, which carries out the applications' calls. Inputs are queued and handlers
run one at a time: an event that a protocol delivers in its handler reaches the application afterwards.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from carrycast.core.model import (
    FOREVER_S,
    Advertisement,
    AdvertisementId,
    Event,
    NodeId,
    Request,
    RequestId,
    Scalar,
    Subscription,
    SubscriptionId,
)
from carrycast.core.protocol.application import Application, ApplicationPort, Key
from carrycast.core.protocol.host import DurableStore
from carrycast.core.protocol.port import Fact

MAX_QUEUE = 10_000
"""The most inputs queued for the applications of a node. Further events are dropped, which bounds the memory."""

ApplicationKey = tuple[str, Key]
"""The name of an application and the application's own key."""


class ApplicationHost(ABC):
    """The services of an environment to the applications of a node."""

    @abstractmethod
    def call_soon(self, action: Callable[[], None]) -> None:
        """Call the action after the current handler has returned."""

    @abstractmethod
    def now(self) -> float:
        """The node's clock."""

    @abstractmethod
    def next_number(self) -> int:
        """A sequence number that no subscription, advertisement or request of this node has used, even before a
        restart."""

    @abstractmethod
    def run_handler(self, handler: Callable[[], None]) -> bool:
        """Run a handler; False if it raised, in which case its writes to the store are rolled back."""

    @abstractmethod
    def publish(self, attributes: Mapping[str, Scalar], payload: bytes, lease_s: float, access: str | None) -> None:
        """An application publishes."""

    @abstractmethod
    def subscribe(self, subscription: Subscription) -> None:
        """An application subscribes."""

    @abstractmethod
    def unsubscribe(self, id: SubscriptionId) -> None:
        """A subscription ends."""

    @abstractmethod
    def advertise(self, advertisement: Advertisement) -> None:
        """An application advertises."""

    @abstractmethod
    def unadvertise(self, advertisement: Advertisement) -> None:
        """An advertisement ends."""

    @abstractmethod
    def request(self, request: Request) -> None:
        """An application asks for stored events."""

    @abstractmethod
    def cancel_request(self, id: RequestId) -> None:
        """An application no longer waits for a request."""

    @abstractmethod
    def set_timer(self, key: ApplicationKey, delay_s: float) -> None:
        """Call `HostedApplications.on_timer(key)` after a delay."""

    @abstractmethod
    def cancel_timer(self, key: ApplicationKey) -> None:
        """Disarm a timer."""

    @abstractmethod
    def perform(self, verb: str, name: str, values: tuple[Scalar, ...], done: Callable[[str], None]) -> None:
        """Perform a management action on the node. `done` gets an empty text, or the error."""

    @abstractmethod
    def reply(self, command: int, body: bytes) -> None:
        """An application answers a command."""

    @abstractmethod
    def note(self, fact: Fact) -> None:
        """A fact for the trace."""


class _BufferedApplicationPort(ApplicationPort):
    """Queues the calls of one application until its handler has returned."""

    __slots__ = ("_applications", "_asked", "_name")

    def __init__(self, name: str, hosted: "HostedApplications", asked: list[Callable[[], None]]) -> None:
        self._name = name
        self._applications = hosted
        self._asked = asked

    def _ask(self, what: Callable[..., None], *arguments: object) -> None:
        self._asked.append(lambda: what(*arguments))

    def publish(
        self,
        attributes: Mapping[str, Scalar],
        payload: bytes = b"",
        lease_s: float = FOREVER_S,
        access: str | None = None,
    ) -> None:
        self._ask(self._applications.host.publish, dict(attributes), payload, lease_s, access)

    def subscribe(self, key: Key, filter: str) -> None:
        self._ask(self._applications.subscribe, (self._name, key), filter)

    def unsubscribe(self, key: Key) -> None:
        self._ask(self._applications.unsubscribe, (self._name, key))

    def advertise(self, key: Key, filter: str, stored: bool = False) -> None:
        self._ask(self._applications.advertise, (self._name, key), filter, stored)

    def unadvertise(self, key: Key) -> None:
        self._ask(self._applications.unadvertise, (self._name, key))

    def request(self, key: Key, filter: str, patience_s: float = 10.0, elsewhere: bool = False) -> None:
        self._ask(self._applications.request, (self._name, key), filter, patience_s, elsewhere)

    def set_timer(self, key: Key, delay_s: float) -> None:
        self._ask(self._applications.host.set_timer, (self._name, key), delay_s)

    def cancel_timer(self, key: Key) -> None:
        self._ask(self._applications.host.cancel_timer, (self._name, key))

    def perform(self, token: int, verb: str, name: str, values: tuple[Scalar, ...]) -> None:
        self._ask(self._applications.perform, self._name, token, verb, name, values)

    def reply(self, command: int, body: bytes) -> None:
        self._ask(self._applications.host.reply, command, body)

    def note(self, fact: Fact) -> None:
        self._ask(self._applications.host.note, fact)


class HostedApplications:
    """The applications of a node, from one start of the node to its stop or crash."""

    def __init__(
        self,
        node: NodeId,
        host: ApplicationHost,
        makers: Sequence[tuple[str, Callable[[ApplicationPort], Application]]],
    ) -> None:
        self.host = host
        self._node = node
        self._asked: list[Callable[[], None]] = []
        self._applications = {name: make(_BufferedApplicationPort(name, self, self._asked)) for name, make in makers}
        self._inputs: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._scheduled = False
        self._stopped = False
        self._subscriptions: dict[ApplicationKey, SubscriptionId] = {}
        self._subscribers: dict[SubscriptionId, ApplicationKey] = {}
        self._advertisements: dict[ApplicationKey, Advertisement] = {}
        self._requests: dict[RequestId, ApplicationKey] = {}
        self._incomplete: set[RequestId] = set()
        """Requests for which the queue limit dropped some responses."""

    def __contains__(self, name: str) -> bool:
        return name in self._applications

    def application(self, name: str) -> Application:
        """An application by its name."""
        return self._applications[name]

    @property
    def subscriptions(self) -> list[SubscriptionId]:
        """The active subscriptions of all applications."""
        return list(self._subscribers)

    @property
    def advertisements(self) -> list[Advertisement]:
        """The active advertisements of all applications."""
        return list(self._advertisements.values())

    # Inputs from the environment.

    def start(self) -> None:
        """The node is up."""
        for application in self._applications.values():
            self._input(application.on_start)

    def stop(self) -> None:
        """The node stops: every application's `on_stop` runs at once, and no handler runs afterwards."""
        self._drain()
        for application in self._applications.values():
            self._run(application.on_stop, ())
        self._stopped = True

    def crash(self) -> None:
        """The node crashes: no handler runs afterwards."""
        self._stopped = True

    def on_event(self, id: SubscriptionId, event: Event, hops: int) -> bool:
        """An event for a subscription; False if the subscription is not an application's."""
        owner = self._subscribers.get(id)
        if owner is None:
            return False
        if not self._is_queue_full(event):
            self._input(self._applications[owner[0]].on_event, owner[1], event, hops)
        return True

    def on_answer(self, id: RequestId, event: Event, hops: int) -> bool:
        """A stored event for a request; False if the request is not an application's."""
        owner = self._requests.get(id)
        if owner is None:
            return False
        if self._is_queue_full(event):
            self._incomplete.add(id)
        else:
            self._input(self._applications[owner[0]].on_answer, owner[1], event, hops)
        return True

    def on_closed(self, id: RequestId, complete: bool) -> bool:
        """A request is closed; False if the request is not an application's."""
        owner = self._requests.pop(id, None)
        if owner is None:
            return False
        # A response that was dropped here is missing, even if the protocol found them all.
        whole = complete and id not in self._incomplete
        self._incomplete.discard(id)
        self._input(self._applications[owner[0]].on_closed, owner[1], whole)
        return True

    def on_timer(self, key: ApplicationKey) -> None:
        """A timer has run out."""
        self._input(self._applications[key[0]].on_timer, key[1])

    def on_command(self, name: str, command: int, verb: str, body: bytes) -> None:
        """A command for one application, from the client API."""
        self._input(self._applications[name].on_command, command, verb, body)

    def _is_queue_full(self, event: Event) -> bool:
        """Whether the input queue is full. Only events are dropped: other inputs are few."""
        if len(self._inputs) < MAX_QUEUE:
            return False
        self.host.note(Fact("drop", event.id, reason="application_busy"))
        return True

    def _input(self, handler: Callable[..., None], *arguments: object) -> None:
        self._inputs.append((handler, arguments))
        if not self._scheduled:
            self._scheduled = True
            self.host.call_soon(self._drain)

    def _drain(self) -> None:
        while self._inputs and not self._stopped:
            self._run(*self._inputs.popleft())
        self._scheduled = False

    def _run(self, handler: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Run a handler, then the calls it made; if it raised, its calls are discarded."""
        went_well = self.host.run_handler(lambda: handler(self.host.now(), *arguments))
        asked = self._asked[:]
        self._asked.clear()
        for what in asked if went_well else ():
            what()

    # Calls from the applications.

    def subscribe(self, key: ApplicationKey, filter: str) -> None:
        """Subscribe; a subscription under the same key is replaced."""
        self.unsubscribe(key)
        id = SubscriptionId(self._node, self.host.next_number())
        self._subscriptions[key], self._subscribers[id] = id, key
        self.host.subscribe(Subscription(id, filter))

    def unsubscribe(self, key: ApplicationKey) -> None:
        """End a subscription; an unknown key is ignored."""
        id = self._subscriptions.pop(key, None)
        if id is not None:
            del self._subscribers[id]
            self.host.unsubscribe(id)

    def advertise(self, key: ApplicationKey, filter: str, stored: bool) -> None:
        """Advertise; an advertisement under the same key is replaced."""
        self.unadvertise(key)
        advertisement = Advertisement(AdvertisementId(self._node, self.host.next_number()), filter, stored)
        self._advertisements[key] = advertisement
        self.host.advertise(advertisement)

    def unadvertise(self, key: ApplicationKey) -> None:
        """End an advertisement; an unknown key is ignored."""
        advertisement = self._advertisements.pop(key, None)
        if advertisement is not None:
            self.host.unadvertise(advertisement)

    def request(self, key: ApplicationKey, filter: str, patience_s: float, elsewhere: bool) -> None:
        """Request stored events; an older request under the same key is canceled."""
        for id in [id for id, owner in self._requests.items() if owner == key]:
            del self._requests[id]
            self._incomplete.discard(id)
            self.host.cancel_request(id)
        id = RequestId(self._node, self.host.next_number())
        self._requests[id] = key
        self.host.request(Request(id, filter, patience_s, elsewhere=elsewhere))

    def perform(self, name: str, token: int, verb: str, what: str, values: tuple[Scalar, ...]) -> None:
        """Perform a management action; its outcome arrives later as the input `on_performed`."""
        application = self._applications[name]
        self.host.perform(verb, what, values, lambda error: self._input(application.on_performed, token, error))


class ApplicationStore(DurableStore):
    """One application's part of the node's durable store: its keys are prefixed with its name."""

    def __init__(self, whole: DurableStore, name: str) -> None:
        self._whole = whole
        self._prefix = name.encode() + b"\0"

    def get(self, key: bytes) -> bytes | None:
        return self._whole.get(self._prefix + key)

    def put(self, key: bytes, value: bytes) -> None:
        self._whole.put(self._prefix + key, value)

    def delete(self, key: bytes) -> None:
        self._whole.delete(self._prefix + key)

    def items(self, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        cut = len(self._prefix)
        return [(key[cut:], value) for key, value in self._whole.items(self._prefix + prefix)]
