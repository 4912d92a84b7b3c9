"""Whatever valid messages come to a topic holder, in whatever order: it raises nothing and keeps its bounds."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from carrycast.core.model import Position
from carrycast.core.protocol import Place, TimerKey
from carrycast.core.protocol.effects import CancelTimer, SetTimer
from carrycast.core.protocol.registry import find_protocol
from carrycast.protocols.topic_holder.tests.bench import HERE, ME, Bench, make_jam, make_subscription
from tests.conformance.strategies import messages

MOST = 5
BOUNDS: dict[str, object] = {"max_held": MOST, "max_waiting": MOST, "max_seen": MOST, "list_bytes": 200}


@pytest.mark.parametrize(("holder", "mode"), [("node", "rendezvous"), ("place", "broker"), ("road", "rendezvous")])
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_messages_in_any_order_do_no_harm(holder: str, mode: str, data: st.DataObject) -> None:
    bench = Bench(HERE, holder=holder, mode=mode, hand_over=holder != "node", fan_out="tree", **BOUNDS)
    armed: dict[TimerKey, None] = {}

    def settle() -> None:
        for effect in bench.port.take():
            match effect:
                case SetTimer(key=key):
                    armed[key] = None
                case CancelTimer(key=key):
                    armed.pop(key, None)

    now = 0.0
    kinds = st.sampled_from(find_protocol("topic_holder").messages).flatmap(messages)
    bench.node.on_subscribe(now, make_subscription(ME))
    settle()
    for number in range(data.draw(st.integers(1, 10))):
        now += data.draw(st.sampled_from([0.0, 0.001, 1.0, 40.0]))
        message, peer = data.draw(kinds), data.draw(st.integers(0, 9))
        match data.draw(st.integers(0, 5)):
            case 0:
                bench.node.on_message(now, peer, message, "radio")
            case 1:
                place = Place(Position(1.0, 1.0))
                bench.node.on_unreachable(now, place if data.draw(st.booleans()) else peer, message)
            case 2:
                bench.node.on_publish(now, make_jam(ME, sequence=number))
            case 3 if armed:
                key = data.draw(st.sampled_from(list(armed)))
                del armed[key]
                bench.node.on_timer(now, key)
            case _:
                bench.node.on_packet(now, peer, message, 3)
        settle()
        assert len(bench.node.table) <= MOST
        assert len(bench.node.handled) <= MOST
    bench.node.on_stop(now)
    settle()
    assert not armed
