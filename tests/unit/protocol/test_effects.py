"""Effects as values, in the order of the port calls."""

from carrycast.core.model import Event, EventId, RequestId, SubscriptionId
from carrycast.core.protocol import Beacon, Fact, RecordingPort
from carrycast.core.protocol.effects import (
    AnswerRequest,
    Broadcast,
    CancelTimer,
    CloseRequest,
    Deliver,
    Note,
    Process,
    Send,
    SendRouted,
    SendRoutedEach,
    SetTimer,
)

EVENT = Event(EventId(0, 0), {})
HELLO = Beacon(1.0)


def test_every_command_is_kept_in_order_and_taken_once() -> None:
    port = RecordingPort()
    port.send(1, HELLO, "radio", 7)
    port.broadcast(HELLO, "radio")
    port.route(2, HELLO)
    port.route_each([2, 4], HELLO)
    port.set_timer("again", 1.5)
    port.cancel_timer(("about", 3))
    port.deliver(SubscriptionId(0, 0), EVENT, 2)
    port.answer(RequestId(0, 0), EVENT, 2)
    port.close_request(RequestId(0, 0), complete=True)
    port.process("mean", b"state", [EVENT], 8)
    port.note(Fact("store", EVENT.id))
    assert port.take() == [
        Send(1, HELLO, "radio", 7),
        Broadcast(HELLO, "radio"),
        SendRouted(2, HELLO),
        SendRoutedEach((2, 4), HELLO),
        SetTimer("again", 1.5),
        CancelTimer(("about", 3)),
        Deliver(SubscriptionId(0, 0), EVENT, 2),
        AnswerRequest(RequestId(0, 0), EVENT, 2),
        CloseRequest(RequestId(0, 0), True),
        Process("mean", b"state", (EVENT,), 8),
        Note(Fact("store", EVENT.id)),
    ]
    assert port.take() == []


def test_messages_alone_can_be_asked_for() -> None:
    port = RecordingPort()
    port.set_timer("again", 1.0)
    port.send(1, Beacon(1.0))
    port.broadcast(Beacon(2.0))
    port.route(3, Beacon(3.0))
    assert port.take_messages() == [Beacon(1.0), Beacon(2.0), Beacon(3.0)]
