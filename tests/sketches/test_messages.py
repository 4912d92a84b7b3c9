"""Every message of the sketches goes through the wire."""

import pytest

from driftcast.model import Event, EventId, SubscriptionId
from driftcast.protocol import StateMachine
from driftcast.wire import Codec, Layer, Message

from . import overlay, relocation
from .rounds import Round

E = Event(EventId(1, 2), {"topic": "a", "value": 1.5}, lease_s=100.0)
ROUND = Round(1, 2)
SAMPLES: dict[type[StateMachine], tuple[Message, ...]] = {
    relocation.Relocating: (
        relocation.Raw(E, 0, 9.0, client=1, epoch=2, number=3),
        relocation.Attach("count", b"state"),
        relocation.Nearest(1),
        relocation.Prepare(1, 2, "count", (3, 4)),
        relocation.Ready(1, 2, True),
        relocation.Switch(1, 2, 3),
        relocation.Marker(1, 2),
        relocation.Moved(1, 2, b"state", ((3, 4),)),
        relocation.Output(E, 1, 9.0, epoch=2),
        relocation.End(2, 3),
    ),
    overlay.Overlay: (
        overlay.RingQuery(1, ROUND, 3, 1),
        overlay.RingAnswer(ROUND, 3, 0.5),
        relocation.Nearest(1),
        overlay.Topology((overlay.Item(1, ROUND, ((3, 4),)),)),
        overlay.Home(SubscriptionId(1, 2)),
        overlay.SourceRouted(E, 1, 9.0, path=(1, 2)),
    ),
}


@pytest.mark.parametrize("machine", SAMPLES, ids=lambda machine: machine.name)
def test_every_message_survives_the_wire(machine: type[StateMachine]) -> None:
    samples = SAMPLES[machine]
    assert {type(sample) for sample in samples} == set(machine.messages)
    codec = Codec(Layer.DISSEMINATION, machine.name, machine.messages)
    for sample in samples:
        frame = codec.encode(sample)
        assert codec.decode(frame) == sample
        assert codec.size(sample) == len(frame)
