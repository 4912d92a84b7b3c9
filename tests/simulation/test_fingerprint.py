"""What a fingerprint depends on, and what not."""

import pytest

from carrycast.core.model import Event, EventId, Subscription, SubscriptionId
from carrycast.core.protocol import Fact
from carrycast.core.wire import Codec, EventMessage, Layer, Message
from carrycast.sim.engine.kernel import Kernel
from carrycast.sim.engine.observers import fingerprint as codes
from carrycast.sim.engine.observers.fingerprint import VERSION, Fingerprint, version_of
from carrycast.sim.engine.observers.recorder import Recorder, Window
from carrycast.sim.radio.medium import Frame
from carrycast.sim.testing import Net
from carrycast.trace import Level, Trace


class Carry(EventMessage, frozen=True, gc=False, tag=1):
    """Carries an event and nothing else."""


class Renamed(EventMessage, frozen=True, gc=False, tag=1):
    """The same message under another name."""


class WithRoute(EventMessage, frozen=True, gc=False, tag=1):
    """Carries a field beside the event."""

    route: int


class Digest(Message, frozen=True, gc=False, tag=2):
    """Carries no event."""

    ids: tuple[int, ...]


OTHERS = {"VERSION", "HEADER_BYTES"}
EVENT = Event(EventId(1, 1), {"a": 1}, b"payload")


def of_frame(message: Message, receivers: bytes = b"") -> str:
    encoded = Codec(Layer.DISSEMINATION, "some", [type(message)]).encode(message)
    found = Fingerprint()
    found.add_frame(5, Frame(1, None, Layer.DISSEMINATION, message, encoded, None, 0), receivers)
    return found.text()


def of_event(event: Event) -> str:
    found = Fingerprint()
    found.add_event(5, 1, event)
    return found.text()


def test_the_version_is_part_of_the_text() -> None:
    text = Fingerprint().text()
    assert text.startswith("2-")
    assert version_of(text) == VERSION == 2
    assert version_of("c636243fe6400e13c4b592c13374d175") == 1


def test_every_code_is_a_number_of_its_own() -> None:
    numbers = [
        value for name, value in vars(codes).items() if name[0].isalpha() and name.isupper() and name not in OTHERS
    ]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_renaming_a_message_changes_nothing() -> None:
    assert of_frame(Carry(EVENT, 1, 2.0)) == of_frame(Renamed(EVENT, 1, 2.0))


def test_every_field_of_a_frame_counts() -> None:
    other = Event(EventId(1, 2), {"a": 1}, b"payload")
    longer = Event(EventId(1, 1), {"a": 1}, b"payload.")
    messages: list[Message] = [
        Carry(EVENT, 1, 2.0),
        Carry(EVENT, 2, 2.0),
        Carry(EVENT, 1, 2.5),
        Carry(other, 1, 2.0),
        Carry(longer, 1, 2.0),
        WithRoute(EVENT, 1, 2.0, 7),
        WithRoute(EVENT, 1, 2.0, 8),
        Digest((1, 2)),
        Digest((1, 3)),
    ]
    assert len({of_frame(message) for message in messages}) == len(messages)
    assert of_frame(messages[0], b"12345678") != of_frame(messages[0])


def test_a_frame_names_its_event_and_the_publication_has_its_bytes() -> None:
    same_size = Event(EventId(1, 1), {"a": 2}, b"payload")
    assert of_frame(Carry(same_size, 1, 2.0)) == of_frame(Carry(EVENT, 1, 2.0))
    assert of_event(same_size) != of_event(EVENT)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Fact("drop", EventId(1, 1), 2, "queue_full"), Fact("drop", EventId(1, 1), 2, "send_queue_full"), True),
        (Fact("handover", EventId(1, 1), 2), Fact("relocation", EventId(1, 1), 2), True),
        (Fact("drop", EventId(1, 1), 2, "queue_full"), Fact("handover", EventId(1, 1), 2, "queue_full"), False),
        (Fact("drop", EventId(1, 1), 2, "queue_full"), Fact("drop", EventId(1, 2), 2, "queue_full"), False),
        (Fact("drop", EventId(1, 1), 2, "queue_full"), Fact("drop", EventId(1, 1), 3, "queue_full"), False),
        (Fact("load", value=0.5), Fact("load", value=0.25), False),
    ],
)
def test_facts_count_by_code_ids_and_value_and_not_by_name(one: Fact, other: Fact, same: bool) -> None:
    def of(fact: Fact) -> str:
        recorder = Recorder(Kernel(), Trace("run", Level.METRICS), 4, Window(0.0, 10.0), 10.0)
        recorder.on_fact(1, Layer.DISSEMINATION, fact)
        return recorder.fingerprint.text()

    assert (of(one) == of(other)) is same


def test_what_a_subscription_asks_for_counts() -> None:
    def of(*asked: object) -> str:
        found = Fingerprint()
        found.add_subscription(5, 1, Subscription(SubscriptionId(1, 1), *asked))  # type: ignore[arg-type]
        return found.text()

    assert len({of("a = 1"), of("a = 2")}) == 2


def test_a_link_that_changes_counts() -> None:
    def of(meet: bool) -> str:
        net = Net.line(2, "flooding")
        if not meet:
            net.cut(0, 1)
        net.run(5.0)
        return net.stop().fingerprint

    assert of(True) != of(False)
