"""Every handler of a stack is called in one place, and calls between layers are queued."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from carrycast.core.model import (
    Advertisement,
    AdvertisementId,
    Event,
    EventId,
    Failure,
    NodeId,
    Processor,
    Request,
    RequestId,
    Subscription,
    SubscriptionId,
)
from carrycast.core.protocol import (
    AcknowledgesReplicas,
    Advertises,
    AnswersRequests,
    Beacon,
    BeaconSettings,
    Interface,
    Link,
    Place,
    Protocol,
    RecordingPort,
    Router,
    RunsProcessors,
    Settings,
    Stack,
    StackPlan,
    TimerKey,
    Token,
    UsesRouter,
)
from carrycast.core.protocol.effects import Broadcast, CloseRequest
from carrycast.core.wire import Layer, Message, Parcel
from carrycast.sim.testing.isolation import IsolatedHost

LINK = Link(7, "radio", 0.1)
EVENT = Event(EventId(3, 1), {})


class Word(Message, frozen=True, tag=1):
    text: str


class Top(Protocol, Advertises, AnswersRequests, AcknowledgesReplicas, RunsProcessors, UsesRouter):
    """Has every handler there is, and does nothing in most."""

    name = "top"
    messages = (Word,)

    def on_publish(self, now: float, event: Event) -> None:
        self.port.broadcast(Word("published"))

    def on_advertise(self, now: float, advertisement: Advertisement) -> None: ...

    def on_unadvertise(self, now: float, advertisement: Advertisement) -> None: ...

    def on_request(self, now: float, request: Request) -> None: ...
    def on_request_canceled(self, now: float, request: RequestId) -> None: ...

    def on_await_replicas(self, now: float, event: EventId, copies: int) -> None: ...

    def on_processor(self, now: float, processor: Processor) -> None: ...

    def on_processed(
        self, now: float, token: Token, state: bytes, events: Sequence[Event], cost_s: float, error: str
    ) -> None: ...

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None: ...

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None: ...


class Beneath(Router):
    """Hands up what it hears, and gives back what it should bring."""

    name = "beneath"
    messages = (Word,)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, Word)
        self.up.deliver_packet(sender, Parcel(b"nonsense", message.traffic), 1)

    def on_timer(self, now: float, key: TimerKey) -> None:
        self.up.report_unreachable(9, Parcel(b"nonsense", Word.traffic))

    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        self.up.report_unreachable(target, parcel)


class Plain(Protocol):
    """Without optional interfaces."""

    name = "plain"
    messages = (Word,)


class Watched(Stack):
    """Writes down what is entered; what those named in `failing` tell is taken back."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.entered: list[tuple[Layer, str]] = []
        self.failing: set[str] = set()
        super().__init__(*arguments, **named)

    def run_handler(self, now: float, layer: Layer, handler: Callable[..., None], arguments: tuple[Any, ...]) -> bool:
        self.entered.append((layer, handler.__name__))
        queued_calls = self.queued_calls
        super().run_handler(now, layer, handler, arguments)
        if handler.__name__ in self.failing:
            self.discard_calls_after(queued_calls)
            return False
        return True

    def take(self) -> list[str]:
        """Their names since the last look, those of the stack's own left out."""
        names, self.entered = [name for _, name in self.entered if not name.startswith("_")], []
        return names


def made(
    plan: StackPlan, kind: type[Stack] = Watched, link_observer: Callable[[Link, Failure | None], None] | None = None
) -> tuple[Any, dict[Layer, RecordingPort]]:
    ports = {layer: RecordingPort() for layer in Layer}
    stack = kind(
        plan,
        3,
        ports.__getitem__,
        lambda layer: IsolatedHost(),
        lambda layer: Random(1),
        ("radio",),
        lambda *_: 0.1,
        link_observer,
    )
    return stack, ports


def whole(**named: Any) -> tuple[Watched, dict[Layer, RecordingPort]]:
    return made(StackPlan(Top, Settings(), Beneath, Settings(), BeaconSettings()), **named)


SUBSCRIPTION = Subscription(SubscriptionId(3, 1), "")
ADVERTISEMENT = Advertisement(AdvertisementId(3, 1), "")
ALL, ABOVE = ["discovery", "routing", "dissemination"], ["routing", "dissemination"]
INPUTS: list[tuple[str, tuple[object, ...], list[str]]] = [
    ("on_start", (), ALL),
    ("on_stop", (), ALL[::-1]),
    ("on_message", (Layer.DISSEMINATION, 7, Word("a"), "radio"), ["dissemination"]),
    ("on_overheard", (7, Word("a"), "radio"), ["routing"]),
    ("on_timer", (Layer.DISSEMINATION, "x"), ["dissemination"]),
    ("on_sent", (Layer.DISSEMINATION, 1, None), ["dissemination"]),
    ("on_retune", (Layer.DISSEMINATION, Settings()), ["dissemination"]),
    ("on_link_up", (LINK,), ABOVE),
    ("on_link_changed", (LINK,), ABOVE),
    ("on_link_down", (LINK, Failure.SILENT), ABOVE),
    ("on_neighbor_failed", (7, "radio", Failure.UNREACHABLE), ["discovery"]),
    ("on_publish", (EVENT,), ["dissemination"]),
    ("on_subscribe", (SUBSCRIPTION,), ["dissemination"]),
    ("on_unsubscribe", (SUBSCRIPTION.id,), ["dissemination"]),
    ("on_await_replicas", (EVENT.id, 2), ["dissemination"]),
    ("on_processor", (Processor("p", ""),), ["dissemination"]),
    ("on_processed", (1, b"", [], 0.0, ""), ["dissemination"]),
    ("on_advertise", (ADVERTISEMENT,), ["dissemination"]),
    ("on_unadvertise", (ADVERTISEMENT,), ["dissemination"]),
    ("on_request", (Request(RequestId(3, 1), ""),), ["dissemination"]),
    ("on_request_canceled", (RequestId(3, 1),), ["dissemination"]),
]


def test_these_are_all_the_inputs_of_a_stack() -> None:
    assert {name for name, _, _ in INPUTS} == {name for name in vars(Stack) if name.startswith("on_")}


@pytest.mark.parametrize(("name", "arguments", "layers"), INPUTS, ids=[name for name, _, _ in INPUTS])
def test_every_input_enters_its_handlers_in_the_one_place(
    name: str, arguments: tuple[object, ...], layers: list[str]
) -> None:
    stack, _ = whole()
    getattr(stack, name)(0.0, *arguments)
    assert [(layer.name.lower(), entered) for layer, entered in stack.entered] == [(layer, name) for layer in layers]


def test_what_layers_say_to_each_other_is_entered_there_too() -> None:
    stack, _ = whole()
    stack.on_message(0.0, Layer.ROUTING, 7, Word("a"), "radio")
    stack.on_timer(0.0, Layer.ROUTING, "x")
    stack.on_message(0.0, Layer.DISCOVERY, 7, Beacon(1.0), "radio")
    assert [layer.name.lower() for layer, _ in stack.entered] == [
        *("routing", "dissemination"),
        *("routing", "dissemination"),
        *("discovery", "discovery", "routing", "dissemination"),
    ]
    assert stack.take() == ["on_message", "on_timer", "on_message", "on_link_up", "on_link_up"]


def test_one_message_to_several_goes_down_once_and_to_the_own_node_not_at_all() -> None:
    stack, _ = whole()
    stack.route_each([9, 3, 8], Word("to all"))
    stack.on_timer(0.0, Layer.DISSEMINATION, "whatever comes next")
    entered = [name for _, name in stack.entered]
    assert entered == ["on_timer", "_deliver_packet", "on_route_each"] + 2 * ["_report_unreachable"], "each"
    stack.take()
    stack.route_each([3], Word("to me"))
    stack.on_timer(0.0, Layer.DISSEMINATION, "whatever comes next")
    assert [name for _, name in stack.entered] == ["on_timer", "_deliver_packet"]


def test_what_a_failed_handler_said_is_forgotten_and_the_rest_goes_on() -> None:
    stack, _ = whole()
    stack.failing = {"on_message"}
    stack.on_message(0.0, Layer.ROUTING, 7, Word("a"), "radio")
    stack.on_message(0.0, Layer.DISCOVERY, 7, Beacon(1.0), "radio")
    assert stack.take() == ["on_message", "on_message"]
    stack.failing = {"on_link_up"}
    stack.on_link_up(0.0, LINK)
    assert stack.take() == ["on_link_up", "on_link_up"], "the router's failure is not the protocol's"


def test_publishing_and_subscribing_say_whether_the_protocol_took_it() -> None:
    stack, ports = whole()
    assert stack.on_publish(0.0, EVENT)
    assert ports[Layer.DISSEMINATION].take() == [Broadcast(Word("published"))]
    stack.failing = {"on_publish", "on_subscribe"}
    assert not stack.on_publish(0.0, EVENT)
    assert not stack.on_subscribe(0.0, SUBSCRIPTION)


def test_the_witness_of_links_is_told_before_the_layers_above() -> None:
    queued_calls: list[object] = []
    stack: Watched

    def link_observer(link: Link, lost: Failure | None) -> None:
        queued_calls.append((lost, stack.take()))

    stack, _ = whole(link_observer=link_observer)
    stack.on_message(0.0, Layer.DISCOVERY, 7, Beacon(1.0), "radio")
    stack.on_message(0.5, Layer.DISCOVERY, 7, Beacon(1.0, 1), "radio")
    assert queued_calls == [
        (None, ["on_message"]),
        (Failure.RESTARTED, ["on_link_up", "on_link_up", "on_message"]),
        (None, ["on_link_down", "on_link_down"]),
    ], "link by link, each in its turn"
    assert stack.take() == ["on_link_up", "on_link_up"]


def test_a_protocol_that_keeps_nothing_finds_nothing_at_once() -> None:
    stack, ports = made(StackPlan(Plain, Settings()))
    stack.on_request(0.0, Request(RequestId(3, 1), ""))
    assert ports[Layer.DISSEMINATION].take() == [CloseRequest(RequestId(3, 1), complete=False)]
    assert len(stack.entered) == 1


def test_a_message_may_go_straight_to_its_handler_only_where_nothing_comes_between() -> None:
    plain = StackPlan(Plain, Settings())
    stack, _ = made(plain, Stack)
    assert stack.receiver(Layer.DISSEMINATION) == stack.protocol.on_message
    assert made(plain, Watched)[0].receiver(Layer.DISSEMINATION) is None, "a world does something around each handler"


def test_what_a_layer_tells_another_follows_a_message_that_went_straight_to_its_handler() -> None:
    stack, ports = made(StackPlan(Top, Settings(), Beneath, Settings()), Stack)
    stack.receiver(Layer.ROUTING)(0.0, 7, Word("a"), "radio")
    assert stack.queued_calls == 0, "passed on, and not left for the next input"
    # What it handed up cannot be read, and the layer above is where that is noticed.
    straight = ports[Layer.DISSEMINATION].take()
    stack.on_message(0.0, Layer.ROUTING, 7, Word("a"), "radio")
    assert straight == ports[Layer.DISSEMINATION].take() != []
