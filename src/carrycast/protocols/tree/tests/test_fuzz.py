"""Messages of arbitrary content make no handler of a broker or a client fail."""

from hypothesis import HealthCheck, given, settings, strategies as st

from carrycast.core.model import (
    Advertisement,
    AdvertisementId,
    Event,
    EventId,
    Request,
    RequestId,
    Subscription,
    SubscriptionId,
)
from carrycast.core.wire import Message
from carrycast.protocols.tree.protocol import Tree
from carrycast.protocols.tree.tests.web import Web
from tests.conformance.strategies import messages

NODES = 4
anything = st.one_of([messages(kind) for kind in Tree.messages])
received_messages = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES), anything)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(st.lists(received_messages, max_size=20), st.sampled_from(["given", "built"]))
def test_no_message_of_any_node_makes_a_handler_fail(received: list[tuple[int, int, Message]], links: str) -> None:
    web = Web(NODES, brokers=(0, 1, 2), links=links, recover_s=1.0, retries=2, cache=5, group_s=1.0)
    for node in range(NODES - 1):
        web.link(node, node + 1)
    web.nodes[1].on_advertise(0.0, Advertisement(AdvertisementId(1, 1), "true", stored=True))
    web.nodes[3].on_subscribe(0.0, Subscription(SubscriptionId(3, 1), "true", history=True))
    for node, sender, message in received:
        web.nodes[node].on_message(web.now, sender, message, "radio")
        web.settle()
    web.run(3.0)
    web.nodes[0].on_publish(web.now, Event(EventId(0, 1), {"a": 1}))
    web.nodes[0].on_request(web.now, Request(RequestId(0, 1), "a = 1"))
    web.settle()
    web.cut(1, 2)
    web.run(20.0)
    for machine in web.nodes:
        machine.on_stop(web.now)
    web.settle()
    assert all(not timers for timers in web.timers)
