"""The applications of a node: ownership of subscriptions and requests, order of handlers, and stop."""

from collections.abc import Callable, Mapping
from random import Random

from carrycast.core.model import Advertisement, Event, EventId, Request, RequestId, Scalar, Subscription, SubscriptionId
from carrycast.core.protocol import Fact, Settings
from carrycast.core.protocol.application import Application, Key
from carrycast.core.protocol.application_host import (
    ApplicationHost,
    ApplicationKey,
    ApplicationStore,
    HostedApplications,
)
from carrycast.sim.engine.host import MemoryStore
from carrycast.sim.testing.isolation import IsolatedHost

EVENT = Event(EventId(9, 1), {})


class Scribe(Application):
    """Writes down what happens, and does what a test has it do."""

    name = "scribe"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.seen: list[tuple[object, ...]] = []
        self.next: Callable[[Scribe], None] = lambda scribe: None

    def _saw(self, *what: object) -> None:
        self.seen.append(what)
        once, self.next = self.next, lambda scribe: None
        once(self)

    def on_start(self, now: float) -> None:
        self._saw("start", now)

    def on_stop(self, now: float) -> None:
        self._saw("stop")

    def on_event(self, now: float, key: Key, event: Event, hops: int) -> None:
        self._saw("event", key, hops)

    def on_answer(self, now: float, key: Key, event: Event, hops: int) -> None:
        self._saw("answer", key)

    def on_closed(self, now: float, key: Key, complete: bool) -> None:
        self._saw("closed", key, complete)

    def on_timer(self, now: float, key: Key) -> None:
        self._saw("timer", key)

    def on_performed(self, now: float, token: int, error: str) -> None:
        self._saw("acted", token, error)


class House(ApplicationHost):
    """Does nothing but remember."""

    def __init__(self) -> None:
        self.did: list[tuple[object, ...]] = []
        self.waiting: list[Callable[[], None]] = []
        self.numbers = 0
        self.failing = False

    def settle(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()

    def call_soon(self, action: Callable[[], None]) -> None:
        self.waiting.append(action)

    def now(self) -> float:
        return 7.0

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def run_handler(self, handler: Callable[[], None]) -> bool:
        handler()
        return not self.failing

    def publish(self, attributes: Mapping[str, Scalar], payload: bytes, lease_s: float, access: str | None) -> None:
        self.did.append(("publish", dict(attributes)))

    def subscribe(self, subscription: Subscription) -> None:
        self.did.append(("subscribe", subscription.id.sequence, subscription.filter))

    def unsubscribe(self, id: SubscriptionId) -> None:
        self.did.append(("unsubscribe", id.sequence))

    def advertise(self, advertisement: Advertisement) -> None:
        self.did.append(("advertise", advertisement.id.sequence))

    def unadvertise(self, advertisement: Advertisement) -> None:
        self.did.append(("unadvertise", advertisement.id.sequence))

    def request(self, request: Request) -> None:
        self.did.append(("request", request))

    def cancel_request(self, id: RequestId) -> None:
        self.did.append(("cancel request", id))

    def set_timer(self, key: ApplicationKey, delay_s: float) -> None:
        self.did.append(("set_timer", key, delay_s))

    def cancel_timer(self, key: ApplicationKey) -> None:
        self.did.append(("cancel_timer", key))

    def perform(self, verb: str, name: str, values: tuple[Scalar, ...], done: Callable[[str], None]) -> None:
        self.did.append((verb, name, *values))
        done("no")

    def reply(self, command: int, body: bytes) -> None:
        self.did.append(("reply", command, body))

    def note(self, fact: Fact) -> None:
        self.did.append(("note", fact.reason))


def made() -> tuple[HostedApplications, House, Scribe]:
    house = House()
    hosted = HostedApplications(
        3, house, [("scribe", lambda port: Scribe(3, Settings(), port, IsolatedHost(), Random(1)))]
    )
    hosted.start()
    house.settle()
    scribe = hosted.application("scribe")
    assert isinstance(scribe, Scribe)
    return hosted, house, scribe


def doing(hosted: HostedApplications, house: House, scribe: Scribe, what: Callable[[Scribe], None]) -> None:
    """Have it do something in a handler."""
    scribe.next = what
    hosted.on_timer(("scribe", "go"))
    house.settle()


def test_effects_follow_when_the_handler_has_returned_in_their_order() -> None:
    hosted, house, scribe = made()

    def what(scribe: Scribe) -> None:
        scribe.port.publish({"a": 1})
        scribe.port.perform(4, "set", "x", (1,))
        scribe.port.set_timer("t", 2.0)
        assert house.did == []

    doing(hosted, house, scribe, what)
    assert house.did == [("publish", {"a": 1}), ("set", "x", 1), ("set_timer", ("scribe", "t"), 2.0)]
    assert scribe.seen == [("start", 7.0), ("timer", "go"), ("acted", 4, "no")]


def test_what_comes_within_a_handler_waits_its_turn() -> None:
    hosted, house, scribe = made()
    doing(hosted, house, scribe, lambda scribe: scribe.port.subscribe("k", "true"))
    [(_, number, _)] = house.did
    assert isinstance(number, int)

    def deliver_another(scribe: Scribe) -> None:
        hosted.on_event(SubscriptionId(3, number), EVENT, 1)
        assert scribe.seen[2:] == [("event", "k", 0)]

    scribe.next = deliver_another
    hosted.on_event(SubscriptionId(3, number), EVENT, 0)
    assert scribe.seen[2:] == [], "not before whoever says so has returned"
    house.settle()
    assert scribe.seen[2:] == [("event", "k", 0), ("event", "k", 1)]
    assert not hosted.on_event(SubscriptionId(3, 99), EVENT, 0)


def test_a_key_that_is_used_again_is_the_new_one_and_the_old_one_ends() -> None:
    hosted, house, scribe = made()

    def what(scribe: Scribe) -> None:
        scribe.port.subscribe("k", "x = 1")
        scribe.port.subscribe("k", "x = 2")
        scribe.port.advertise("k", "x = 1", stored=True)
        scribe.port.advertise("k", "x = 2", stored=True)
        for key in ("k", "nothing"):
            scribe.port.unsubscribe(key)
            scribe.port.unadvertise(key)

    doing(hosted, house, scribe, what)
    assert house.did == [
        ("subscribe", 1, "x = 1"),
        ("unsubscribe", 1),
        ("subscribe", 2, "x = 2"),
        ("advertise", 3),
        ("unadvertise", 3),
        ("advertise", 4),
        ("unsubscribe", 2),
        ("unadvertise", 4),
    ]


def test_answers_to_a_request_that_was_asked_anew_go_nowhere() -> None:
    hosted, house, scribe = made()
    doing(hosted, house, scribe, lambda scribe: scribe.port.request("k", "true"))
    doing(hosted, house, scribe, lambda scribe: scribe.port.request("k", "true", elsewhere=True))
    first, cancelled, second = (did[1] for did in house.did)
    assert isinstance(first, Request)
    assert cancelled == first.id
    assert isinstance(second, Request)
    assert (first.elsewhere, second.elsewhere) == (False, True)
    assert not hosted.on_answer(first.id, EVENT, 1)
    assert not hosted.on_closed(first.id, complete=True)
    assert hosted.on_answer(second.id, EVENT, 1)
    assert hosted.on_closed(second.id, complete=True)
    assert not hosted.on_closed(second.id, complete=True)
    house.settle()
    assert scribe.seen[-2:] == [("answer", "k"), ("closed", "k", True)]


def test_a_handler_that_failed_asked_for_nothing() -> None:
    hosted, house, scribe = made()
    house.failing = True
    doing(hosted, house, scribe, lambda scribe: scribe.port.publish({}))
    house.failing = False
    doing(hosted, house, scribe, lambda scribe: scribe.port.publish({"b": 1}))
    assert house.did == [("publish", {"b": 1})]


def test_nothing_runs_after_the_end() -> None:
    hosted, house, scribe = made()
    hosted.on_timer(("scribe", "before"))
    scribe.next = lambda scribe: scribe.port.publish({"last": 1})
    hosted.stop()
    assert scribe.seen[1:] == [("timer", "before"), ("stop",)]
    assert house.did[-1] == ("publish", {"last": 1})
    hosted.on_timer(("scribe", "after"))
    house.settle()
    assert scribe.seen[-1] == ("stop",)


def test_who_takes_no_commands_says_so() -> None:
    hosted, house, _ = made()
    hosted.on_command("scribe", 5, "dance", b"")
    house.settle()
    assert house.did == [("reply", 5, b'{"error":"this application takes no commands"}')]


def test_each_application_has_a_part_of_the_store() -> None:
    whole = MemoryStore()
    one, two = ApplicationStore(whole, "a"), ApplicationStore(whole, "ab")
    one.put(b"k", b"1")
    two.put(b"k", b"2")
    two.put(b"x", b"3")
    assert (one.get(b"k"), two.get(b"k"), one.get(b"x")) == (b"1", b"2", None)
    assert one.items() == [(b"k", b"1")]
    assert two.items(b"x") == [(b"x", b"3")]
    two.delete(b"k")
    two.delete(b"nothing")
    assert one.items() == [(b"k", b"1")]
