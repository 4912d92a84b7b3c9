"""A member that drives an event's count of hops to its end does not stop the event: whoever passes it on says a number
that others accept."""

from typing import Any

import msgspec
import pytest

from carrycast.core.wire import MAX_HOPS, EventMessage, Message
from carrycast.sim.engine.node import SimPort
from carrycast.sim.testing import Net

LIAR = 0
CARRIERS = (
    *("adaptive", "asp", "drift", "epidemic", "first_contact", "processor_flooding", "prophet"),
    *("semi_probabilistic", "spray_and_wait", "tree"),
)


@pytest.mark.parametrize("name", CARRIERS)
def test_an_event_with_the_last_count_of_hops_goes_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    roles: dict[str, object] = {"roles": {"broker": "100%"}} if name == "tree" else {}
    net = Net.line(4, name, roles)
    heard: list[int] = []

    def said(port: SimPort, message: Message) -> Message:
        if not isinstance(message, EventMessage):
            return message
        if port._node.id == LIAR:
            return msgspec.structs.replace(message, hops=MAX_HOPS)
        heard.append(message.hops)
        return message

    def lying(honest: Any, place: int) -> Any:
        """A way out of a node, whose argument at this place is the message."""

        def way(port: SimPort, *given: Any, **named: Any) -> None:
            honest(port, *given[:place], said(port, given[place]), *given[place + 1 :], **named)

        return way

    for name_of_way, place in (("send", 1), ("send_each", 1), ("broadcast", 0)):
        monkeypatch.setattr(SimPort, name_of_way, lying(getattr(SimPort, name_of_way), place))
    net.subscribe(3, "topic = 1")
    net.run(15)
    event = net.publish(LIAR, {"topic": 1}, lease_s=60.0)
    net.run(30)
    assert net.list_delivered(3) == [event]
    assert heard
    assert max(heard) <= MAX_HOPS
