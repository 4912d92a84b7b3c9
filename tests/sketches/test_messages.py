"""Every message of the sketches goes through the wire."""

import pytest

from driftcast.model import AdvertisementId, Event, EventId
from driftcast.protocol import StateMachine
from driftcast.wire import Codec, Layer, Message

from . import retrieval, tree
from .rounds import Round

E = Event(EventId(1, 2), {"topic": "a", "value": 1.5}, lease_s=100.0)
AD = AdvertisementId(4, 1)
ROUND = Round(1, 2)
SAMPLES: dict[type[StateMachine], tuple[Message, ...]] = {
    tree.Tree: (
        tree.Subscribe("a = 1"),
        tree.Unsubscribe("a = 1"),
        tree.Advertise(AD, "a = 1"),
        tree.Unadvertise(AD),
        tree.Publish(E, 1, 2.0),
        retrieval.Asked(ROUND, "a = 1", {"role": "medic"}, (1, 2), 10.0),
        retrieval.Answered(E, 2, 3.0, ask=ROUND, path=(1,)),
        retrieval.AllAnswered(ROUND, (1,), 1),
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
