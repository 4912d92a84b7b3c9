"""A world for applications alone: every event reaches every subscription at once, and every request every repository.

Nothing is lost here unless a test cuts a node off, so what goes wrong is the applications' own doing.
"""

import heapq
from collections.abc import Callable, Mapping
from random import Random

import msgspec

from carrycast.core.matching import Filter
from carrycast.core.model import (
    Advertisement,
    Event,
    EventId,
    NodeId,
    Request,
    RequestId,
    Scalar,
    Subscription,
    SubscriptionId,
)
from carrycast.core.model.wall_clock import WallTime
from carrycast.core.protocol import Capability, Fact
from carrycast.core.protocol.application import Application, find_application
from carrycast.core.protocol.application_host import ApplicationHost, ApplicationKey, HostedApplications
from carrycast.services.policy.policy_text import parse_policies
from carrycast.services.policy.rule import Policy
from carrycast.sim.testing.isolation import IsolatedHost


class BusHost(IsolatedHost):
    """A node with a calendar."""

    def __init__(self, roles: tuple[str, ...], ahead_s: float, bus: "Bus", name: str = "") -> None:
        super().__init__()
        self.name = name
        self.roles = roles
        self.offers = frozenset({Capability.DURABLE_STORE, Capability.CALENDAR})
        self._ahead_s = ahead_s
        self._bus = bus

    def calendar(self, now: float) -> WallTime:
        return WallTime(self._bus.began_s + now + self._ahead_s)


class BusNode(ApplicationHost):
    """One node of the bus, across its crashes."""

    def __init__(
        self, id: NodeId, bus: "Bus", roles: tuple[str, ...] = (), ahead_s: float = 0.0, name: str = ""
    ) -> None:
        self.id = id
        self.bus = bus
        self.host = BusHost(roles, ahead_s, bus, name)
        self.kinds: list[tuple[str, dict[str, object]]] = []
        self.kept: dict[EventId, Event] = {}
        """What its protocol keeps for advertisements; outlives a crash."""
        self.up = False
        self.cut_off = False
        self.facts: list[Fact] = []
        self.replies: dict[int, dict[str, object]] = {}
        self.acted: list[tuple[object, ...]] = []
        self.broken: dict[str, str] = {}
        """Names of variables and commands whose use fails, and how."""
        self._numbers = 0
        self._events = 0

    def run(self, name: str, **settings: object) -> Application:
        """Have the node run an application."""
        self.kinds.append((name, settings))
        self.start()
        return self.hosted.application(name)

    def start(self) -> None:
        def maker(name: str, settings: dict[str, object]) -> Callable[..., Application]:
            kind = find_application(name)
            chosen = msgspec.convert(settings, kind.settings_type)
            return lambda port: kind(self.id, chosen, port, self.host, Random(self.id))

        self.subscriptions: dict[SubscriptionId, Subscription] = {}
        self.advertisements: list[Advertisement] = []
        self.timers: dict[ApplicationKey, object] = {}
        self.hosted = HostedApplications(
            self.id, self, [(name, maker(name, settings)) for name, settings in self.kinds]
        )
        self.up = True
        self.hosted.start()

    def crash(self) -> None:
        self.hosted.crash()
        self.up = False
        self.host.incarnation += 1

    def command(self, name: str, verb: str, **body: object) -> dict[str, object] | None:
        """Give a command and let ten seconds pass; the answer, if it has come."""
        self._numbers += 1
        command = self._numbers
        self.hosted.on_command(name, command, verb, msgspec.json.encode(body))
        self.bus.pass_s(10)
        return self.replies.get(command)

    # What applications ask for.

    def call_soon(self, action: Callable[[], None]) -> None:
        self.bus.at(0, action)

    def now(self) -> float:
        return self.bus.now_s

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def run_handler(self, handler: Callable[[], None]) -> bool:
        handler()
        return True

    def publish(self, attributes: Mapping[str, Scalar], payload: bytes, lease_s: float, access: str | None) -> None:
        self._events += 1
        event = Event(EventId(self.id, self._events), dict(attributes), payload, 0.0, lease_s)
        self.bus.longest_bytes = max(self.bus.longest_bytes, len(payload))
        for node in self.bus.reached(self):
            node.receive(event)

    def receive(self, event: Event) -> None:
        if any(Filter(one.filter).matches(event.attributes) for one in self.advertisements if one.stored):
            self.kept[event.id] = event
        for subscription in list(self.subscriptions.values()):
            if Filter(subscription.filter).matches(event.attributes):
                self.hosted.on_event(subscription.id, event, 1)

    def subscribe(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.id] = subscription

    def unsubscribe(self, id: SubscriptionId) -> None:
        del self.subscriptions[id]

    def advertise(self, advertisement: Advertisement) -> None:
        self.advertisements.append(advertisement)

    def unadvertise(self, advertisement: Advertisement) -> None:
        self.advertisements.remove(advertisement)

    def request(self, request: Request) -> None:
        others = [node for node in self.bus.reached(self) if node is not self or not request.elsewhere]
        asked = [node for node in others if node.advertisements]
        for event in self.bus.stored(self, request.filter):
            if any(Filter(one.filter).matches(event.attributes) for one in self.advertisements if one.stored):
                self.kept[event.id] = event
            self.hosted.on_answer(request.id, event, 1)
        self.hosted.on_closed(request.id, complete=bool(asked))

    def cancel_request(self, id: RequestId) -> None:
        """Each is answered at once."""

    def set_timer(self, key: ApplicationKey, delay_s: float) -> None:
        mark = self.timers[key] = object()
        hosted = self.hosted

        def fire() -> None:
            if self.timers.get(key) is mark and self.up and hosted is self.hosted:
                del self.timers[key]
                hosted.on_timer(key)

        self.bus.at(delay_s, fire)

    def cancel_timer(self, key: ApplicationKey) -> None:
        self.timers.pop(key, None)

    def perform(self, verb: str, name: str, values: tuple[Scalar, ...], done: Callable[[str], None]) -> None:
        self.acted.append((verb, name, *values))
        done(self.broken.get(name, ""))

    def reply(self, command: int, body: bytes) -> None:
        self.replies[command] = msgspec.json.decode(body)

    def note(self, fact: Fact) -> None:
        self.facts.append(fact)

    def reasons(self) -> list[str]:
        return [fact.reason for fact in self.facts if fact.kind == "drop"]


class Bus:
    """Nodes, and time."""

    def __init__(self, began_s: float = 1_767_225_600.0) -> None:
        """It begins with 2026, a Thursday, unless it is said otherwise."""
        self.began_s = began_s
        self.now_s = 0.0
        self.nodes: list[BusNode] = []
        self.longest_bytes = 0
        """Of all payloads so far."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def node(self, *roles: str, ahead_s: float = 0.0, name: str = "") -> BusNode:
        made = BusNode(len(self.nodes), self, roles, ahead_s, name)
        self.nodes.append(made)
        return made

    def reached(self, node: BusNode) -> list[BusNode]:
        others = [other for other in self.nodes if other.up and not other.cut_off]
        return others if not node.cut_off else [node]

    def stored(self, asker: BusNode, filter: str) -> list[Event]:
        found = {id: event for node in self.reached(asker) if node.advertisements for id, event in node.kept.items()}
        return [event for _, event in sorted(found.items()) if Filter(filter).matches(event.attributes)]

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now_s + delay_s, self._count, action))

    def pass_s(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._queue)
            action()
        self.now_s = until_s


def parse_policy(text: str) -> Policy:
    """The only policy of a text."""
    [policy] = parse_policies(text)
    return policy


def policy_json(policy: Policy) -> str:
    """A policy as users write it in JSON."""
    return msgspec.json.encode(policy).decode()
