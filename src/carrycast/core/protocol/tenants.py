"""The applications of one node: whose subscription, request and timer is whose, and what each asks its node for.

A world gives it a `Landlord`, which does what is asked, and tells it what has happened. Handlers are entered one at a
time, from a queue: what a protocol delivers in the middle of its own handler waits until that has returned.
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
"""Inputs that wait for the applications of a node; beyond that events are dropped, so that a flood costs no memory."""

TenantKey = tuple[str, Key]
"""The name of an application and its key."""


class Landlord(ABC):
    """What a world does for the applications of a node."""

    @abstractmethod
    def soon(self, action: Callable[[], None]) -> None:
        """Call it when whatever runs now has returned."""

    @abstractmethod
    def now(self) -> float:
        """The node's clock."""

    @abstractmethod
    def number(self) -> int:
        """One that no subscription, advertisement or request of this node has had, also before a restart."""

    @abstractmethod
    def enter(self, handler: Callable[[], None]) -> bool:
        """Run a handler; False if it raised and its writes to the store are taken back."""

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
        """It no longer waits for them."""

    @abstractmethod
    def set_timer(self, key: TenantKey, delay_s: float) -> None:
        """`Tenants.on_timer(key)` after a delay."""

    @abstractmethod
    def cancel_timer(self, key: TenantKey) -> None:
        """Disarm."""

    @abstractmethod
    def act(self, verb: str, name: str, values: tuple[Scalar, ...], done: Callable[[str], None]) -> None:
        """Do something to the node, and say how it went: nothing, or what was wrong."""

    @abstractmethod
    def reply(self, command: int, body: bytes) -> None:
        """An application answers a command."""

    @abstractmethod
    def note(self, fact: Fact) -> None:
        """A fact for the trace."""


class _Port(ApplicationPort):
    """Keeps what one application asks for until its handler has returned."""

    __slots__ = ("_asked", "_name", "_tenants")

    def __init__(self, name: str, tenants: "Tenants", asked: list[Callable[[], None]]) -> None:
        self._name = name
        self._tenants = tenants
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
        self._ask(self._tenants.landlord.publish, dict(attributes), payload, lease_s, access)

    def subscribe(self, key: Key, filter: str) -> None:
        self._ask(self._tenants.subscribe, (self._name, key), filter)

    def unsubscribe(self, key: Key) -> None:
        self._ask(self._tenants.unsubscribe, (self._name, key))

    def advertise(self, key: Key, filter: str, stored: bool = False) -> None:
        self._ask(self._tenants.advertise, (self._name, key), filter, stored)

    def unadvertise(self, key: Key) -> None:
        self._ask(self._tenants.unadvertise, (self._name, key))

    def request(self, key: Key, filter: str, patience_s: float = 10.0, elsewhere: bool = False) -> None:
        self._ask(self._tenants.request, (self._name, key), filter, patience_s, elsewhere)

    def set_timer(self, key: Key, delay_s: float) -> None:
        self._ask(self._tenants.landlord.set_timer, (self._name, key), delay_s)

    def cancel_timer(self, key: Key) -> None:
        self._ask(self._tenants.landlord.cancel_timer, (self._name, key))

    def act(self, token: int, verb: str, name: str, values: tuple[Scalar, ...]) -> None:
        self._ask(self._tenants.act, self._name, token, verb, name, values)

    def reply(self, command: int, body: bytes) -> None:
        self._ask(self._tenants.landlord.reply, command, body)

    def note(self, fact: Fact) -> None:
        self._ask(self._tenants.landlord.note, fact)


class Tenants:
    """The applications of one start of a node."""

    def __init__(
        self, node: NodeId, landlord: Landlord, makers: Sequence[tuple[str, Callable[[ApplicationPort], Application]]]
    ) -> None:
        self.landlord = landlord
        self._node = node
        self._asked: list[Callable[[], None]] = []
        self._applications = {name: make(_Port(name, self, self._asked)) for name, make in makers}
        self._inputs: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._going = False
        self._over = False
        self._subscriptions: dict[TenantKey, SubscriptionId] = {}
        self._subscribers: dict[SubscriptionId, TenantKey] = {}
        self._advertisements: dict[TenantKey, Advertisement] = {}
        self._requests: dict[RequestId, TenantKey] = {}
        self._curtailed: set[RequestId] = set()
        """Requests of whose answers some were dropped here."""

    def __contains__(self, name: str) -> bool:
        return name in self._applications

    def application(self, name: str) -> Application:
        """One of them."""
        return self._applications[name]

    @property
    def subscriptions(self) -> list[SubscriptionId]:
        """All that stand."""
        return list(self._subscribers)

    @property
    def advertisements(self) -> list[Advertisement]:
        """The same."""
        return list(self._advertisements.values())

    # What happens to them.

    def start(self) -> None:
        """The node is up."""
        for application in self._applications.values():
            self._input(application.on_start)

    def stop(self) -> None:
        """The node stops: each is told, at once, and may still ask for something; nothing runs afterwards."""
        self._go()
        for application in self._applications.values():
            self._run(application.on_stop, ())
        self._over = True

    def crash(self) -> None:
        """Nothing runs any more."""
        self._over = True

    def on_event(self, id: SubscriptionId, event: Event, hops: int) -> bool:
        """An event for a subscription; False if it is none of theirs."""
        whose = self._subscribers.get(id)
        if whose is None:
            return False
        if not self._is_flooded(event):
            self._input(self._applications[whose[0]].on_event, whose[1], event, hops)
        return True

    def on_answer(self, id: RequestId, event: Event, hops: int) -> bool:
        """A stored event for a request; False if it is none of theirs."""
        whose = self._requests.get(id)
        if whose is None:
            return False
        if self._is_flooded(event):
            self._curtailed.add(id)
        else:
            self._input(self._applications[whose[0]].on_answer, whose[1], event, hops)
        return True

    def on_closed(self, id: RequestId, complete: bool) -> bool:
        """A request is over; False if it is none of theirs."""
        whose = self._requests.pop(id, None)
        if whose is None:
            return False
        # What was dropped here has not come, whatever the protocol says.
        whole = complete and id not in self._curtailed
        self._curtailed.discard(id)
        self._input(self._applications[whose[0]].on_closed, whose[1], whole)
        return True

    def on_timer(self, key: TenantKey) -> None:
        """A timer has run out."""
        self._input(self._applications[key[0]].on_timer, key[1])

    def on_command(self, name: str, command: int, verb: str, body: bytes) -> None:
        """Somebody wants something of one of them."""
        self._input(self._applications[name].on_command, command, verb, body)

    def _is_flooded(self, event: Event) -> bool:
        """Whether there is no room for more events; timers, ends and outcomes are few, and never dropped."""
        if len(self._inputs) < MAX_QUEUE:
            return False
        self.landlord.note(Fact("drop", event.id, reason="application_busy"))
        return True

    def _input(self, handler: Callable[..., None], *arguments: object) -> None:
        self._inputs.append((handler, arguments))
        if not self._going:
            self._going = True
            self.landlord.soon(self._go)

    def _go(self) -> None:
        while self._inputs and not self._over:
            self._run(*self._inputs.popleft())
        self._going = False

    def _run(self, handler: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """A handler, then what it asked for; or nothing of that if it raised."""
        went_well = self.landlord.enter(lambda: handler(self.landlord.now(), *arguments))
        asked = self._asked[:]
        self._asked.clear()
        for what in asked if went_well else ():
            what()

    # What they ask for.

    def subscribe(self, key: TenantKey, filter: str) -> None:
        """A key that is in use is given to the new subscription."""
        self.unsubscribe(key)
        id = SubscriptionId(self._node, self.landlord.number())
        self._subscriptions[key], self._subscribers[id] = id, key
        self.landlord.subscribe(Subscription(id, filter))

    def unsubscribe(self, key: TenantKey) -> None:
        """One that is not there is no mistake."""
        id = self._subscriptions.pop(key, None)
        if id is not None:
            del self._subscribers[id]
            self.landlord.unsubscribe(id)

    def advertise(self, key: TenantKey, filter: str, stored: bool) -> None:
        """A key that is in use is given to the new advertisement."""
        self.unadvertise(key)
        advertisement = Advertisement(AdvertisementId(self._node, self.landlord.number()), filter, stored)
        self._advertisements[key] = advertisement
        self.landlord.advertise(advertisement)

    def unadvertise(self, key: TenantKey) -> None:
        """One that is not there is no mistake."""
        advertisement = self._advertisements.pop(key, None)
        if advertisement is not None:
            self.landlord.unadvertise(advertisement)

    def request(self, key: TenantKey, filter: str, patience_s: float, elsewhere: bool) -> None:
        """What is still to come for an older request of the same key goes nowhere."""
        for id in [id for id, whose in self._requests.items() if whose == key]:
            del self._requests[id]
            self._curtailed.discard(id)
            self.landlord.cancel_request(id)
        id = RequestId(self._node, self.landlord.number())
        self._requests[id] = key
        self.landlord.request(Request(id, filter, patience_s, elsewhere=elsewhere))

    def act(self, name: str, token: int, verb: str, what: str, values: tuple[Scalar, ...]) -> None:
        """The outcome comes later, as an input."""
        application = self._applications[name]
        self.landlord.act(verb, what, values, lambda error: self._input(application.on_acted, token, error))


class PartOfStore(DurableStore):
    """One application's part of the store that all of a node share: its keys begin with its name."""

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
