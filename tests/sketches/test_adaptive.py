"""004: adaptive routing."""

from random import Random

from driftcast.protocol import Fact, RecordingPort, Settings
from driftcast.protocol.effects import (
    Broadcast,
    Note,
    Send,
    SetTimer,
)

from . import adaptive
from .fake_host import FakeHost
from .samples import event, link


def test_an_event_goes_to_subscribers_then_to_the_best_carriers_and_is_kept_by_a_good_one() -> None:
    port = RecordingPort()
    node = adaptive.Adaptive(0, Settings(), port, FakeHost(), Random(0))
    node.on_start(0.0)
    assert [type(effect) for effect in port.take()] == [SetTimer, SetTimer]
    for neighbor in range(1, 6):
        node.on_link_up(0.0, link(neighbor))
    wanted = "topic = 'a'"
    for neighbor, utility in ((1, 1.0), (2, 0.2), (3, 0.9)):
        node.on_message(1.0, neighbor, adaptive.Utilities(1, 60.0, ((wanted, utility, utility),)), "radio")
    node.on_timer(2.0, "sample")
    utilities, disseminate, sample = port.take()
    assert isinstance(utilities, Broadcast)
    assert isinstance(disseminate, SetTimer)
    assert disseminate.key == "disseminate"
    assert sample == SetTimer("sample", 10.0)

    # ⌈0.4 · 5⌉ = 2 links: the subscriber and the best carrier.
    carried = event(0, topic="a")
    node.on_publish(3.0, carried)
    onward = adaptive.Carried(carried, 1, 100.0)
    assert port.take() == [
        Send(1, onward),
        Send(3, onward),
        Note(Fact("store", event=carried.id, value=0.5 * adaptive.GAIN + 0.5)),
    ]
    node.on_timer(60.0, "retry")
    again = adaptive.Carried(carried, 1, 43.0)
    assert port.take() == [Send(1, again), Send(3, again), SetTimer("retry", 60.0)]
    node.on_timer(120.0, "retry")
    assert port.take() == [Note(Fact("evict", event=carried.id, reason="lease_over")), SetTimer("retry", 60.0)]
