"""Every message type of every protocol, router and discovery: to bytes and back, and what mutated bytes do."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from carrycast.core.protocol import BeaconDiscovery
from carrycast.core.protocol.machine import StateMachine
from carrycast.core.protocol.registry import find_protocol, find_router, protocol_names, router_names
from carrycast.core.wire import Codec, DecodeError, Layer, Message
from tests.conformance.strategies import messages

MACHINES: list[tuple[Layer, type[StateMachine]]] = [
    *((Layer.DISSEMINATION, find_protocol(name)) for name in protocol_names()),
    *((Layer.ROUTING, find_router(name)) for name in router_names()),
    (Layer.DISCOVERY, BeaconDiscovery),
]
TYPES = [
    (Codec(layer, machine.name, machine.messages), kind) for layer, machine in MACHINES for kind in machine.messages
]

every_type = pytest.mark.parametrize(
    ("codec", "kind"), TYPES, ids=[f"{codec.name}-{kind.__name__}" for codec, kind in TYPES]
)
# A message whose parts must agree with each other, such as lists of equal length, rejects many of the random ones.
few = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def test_every_protocol_says_something() -> None:
    assert {codec.name for codec, _ in TYPES} >= set(protocol_names())


@every_type
def test_what_is_good_for_a_while_is_declared_so_that_waiting_counts(codec: Codec, kind: type[Message]) -> None:
    named = {name for name in kind.__struct_fields__ if name in ("remaining_s", "valid_s", "validity_s", "lease_s")}
    assert named <= set(kind.durations) <= set(kind.__struct_fields__)


@every_type
@few
@given(data=st.data())
def test_waiting_shortens_what_is_declared_and_nothing_else(
    codec: Codec, kind: type[Message], data: st.DataObject
) -> None:
    message = data.draw(messages(kind))
    waited_s = data.draw(st.floats(0, 1e6))
    aged = message.age_by(waited_s)
    over = any(getattr(message, name) <= waited_s for name in kind.durations)
    assert (aged is None) == (over and waited_s > 0)
    if aged is not None:
        assert codec.decode(codec.encode(aged)) == aged
        for name in kind.__struct_fields__:
            shorter_s = waited_s if name in kind.durations else 0
            if shorter_s:
                assert getattr(aged, name) == getattr(message, name) - shorter_s
            elif name != "parcel":
                assert getattr(aged, name) == getattr(message, name)


@every_type
@few
@given(data=st.data())
def test_it_survives_the_wire_and_its_size_is_exact(codec: Codec, kind: type[Message], data: st.DataObject) -> None:
    message = data.draw(messages(kind))
    frame = codec.encode(message)
    assert codec.decode(frame) == message
    assert type(codec.decode(frame)) is kind
    assert codec.size(message) == len(frame)


@every_type
@few
@given(data=st.data())
def test_flipped_cut_and_added_bytes_are_a_message_or_a_decode_error(
    codec: Codec, kind: type[Message], data: st.DataObject
) -> None:
    frame = bytearray(codec.encode(data.draw(messages(kind))))
    for place, value in data.draw(st.lists(st.tuples(st.integers(0, len(frame) - 1), st.integers(0, 255)))):
        frame[place] = value
    mutated = bytes(frame[: data.draw(st.integers(0, len(frame)))]) + data.draw(st.binary(max_size=8))
    try:
        message = codec.decode(mutated)
    except DecodeError:
        return
    assert isinstance(message, codec.messages)
    assert codec.decode(codec.encode(message)) == message
