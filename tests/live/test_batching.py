"""Messages to one neighbor in one turn of the event loop are merged, if their type allows it."""

import asyncio
from collections.abc import Callable

from carrycast.core.model import FOREVER_S, Event, EventId
from carrycast.core.protocol.effects import Broadcast, Send
from carrycast.core.wire import Layer
from carrycast.node.node import LiveNode
from carrycast.node.runtime.batching import MessageBatching
from carrycast.node.runtime.publisher import PublicationRequest
from carrycast.protocols.epidemic.messages import MAX_IDS, HolderQuery, SummaryVector, Transfer, TransferRequest
from tests.live.conftest import MakeConfig, Run

HERE = Layer.DISSEMINATION
Left = list[tuple[Send | Broadcast, tuple[object, ...]]]


def ids(*numbers: int) -> tuple[EventId, ...]:
    return tuple(EventId(1, n) for n in numbers)


def story(tell: Callable[[MessageBatching, Left], None]) -> Left:
    left: Left = []

    async def told() -> None:
        loop = asyncio.get_running_loop()
        joining = MessageBatching(loop, lambda layer, effect, tokens: left.append((effect, tokens)))
        tell(joining, left)
        await asyncio.sleep(0)

    asyncio.run(told())
    return left


def test_messages_of_a_kind_to_one_neighbor_are_one_and_all_their_tokens_are_on_its_way() -> None:
    def tell(joining: MessageBatching, left: Left) -> None:
        joining.send(HERE, Send(2, SummaryVector(ids(1)), None, 11))
        joining.send(HERE, Send(3, SummaryVector(ids(1)), None, 12))
        joining.send(HERE, Send(2, TransferRequest(ids(9))))
        joining.send(HERE, Send(2, SummaryVector(ids(2, 3))))
        joining.send(HERE, Send(2, SummaryVector(ids(4)), None, 13))
        joining.send(HERE, Send(2, SummaryVector(ids(5)), "wire", 14))
        joining.send(HERE, Broadcast(SummaryVector(ids(6))))
        joining.send(HERE, Broadcast(SummaryVector(ids(7))))
        assert left == [], "until the loop has gone around"

    assert story(tell) == [
        (Send(2, SummaryVector(ids(1, 2, 3, 4)), None, 11), (11, 13)),
        (Send(3, SummaryVector(ids(1)), None, 12), (12,)),
        (Send(2, TransferRequest(ids(9))), ()),
        (Send(2, SummaryVector(ids(5)), "wire", 14), (14,)),
        (Broadcast(SummaryVector(ids(6, 7))), ()),
    ]


def test_what_cannot_be_joined_goes_at_once() -> None:
    transfer = Transfer(Event(EventId(1, 1), {}), 1, 60.0)

    def tell(joining: MessageBatching, left: Left) -> None:
        joining.send(HERE, Send(2, transfer, None, 5))
        joining.send(HERE, Send(2, transfer))
        assert left == [(Send(2, transfer, None, 5), (5,)), (Send(2, transfer), ())]

    assert len(story(tell)) == 2


def test_what_would_be_too_long_becomes_several() -> None:
    def tell(joining: MessageBatching, left: Left) -> None:
        for n in range(MAX_IDS + 1):
            joining.send(HERE, Send(2, HolderQuery(ids(n)), None, n))

    first, second = story(tell)
    assert first[0].message == HolderQuery(ids(*range(MAX_IDS)))
    assert first[1] == tuple(range(MAX_IDS))
    assert second == (Send(2, HolderQuery(ids(MAX_IDS)), None, MAX_IDS), (MAX_IDS,))


def test_what_is_forgotten_never_leaves() -> None:
    def tell(joining: MessageBatching, left: Left) -> None:
        joining.send(HERE, Send(2, SummaryVector(ids(1)), None, 11))
        joining.clear()

    assert story(tell) == []


def test_a_node_that_crashes_says_nothing_more(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LiveNode(config(2, "epidemic")) as two:
            one = LiveNode(config(1, "epidemic"))
            await one.start()
            one.add_peer(two.address)
            two.add_peer(one.address)
            while not (one.neighbors and two.neighbors):
                await asyncio.sleep(0.01)
            one.publish({"n": 1})
            sent = one.recorder.counts["sent"]
            await one.crash()
            await asyncio.sleep(0.3)
            assert one.recorder.counts["sent"] == sent

    run(story())


def test_a_burst_of_events_is_told_of_at_once(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LiveNode(config(1, "epidemic")) as one, LiveNode(config(2, "epidemic")) as two:
            one.add_peer(two.address)
            two.add_peer(one.address)
            while not (one.neighbors and two.neighbors):
                await asyncio.sleep(0.01)
            inbox: list[EventId] = []
            two.subscribe("n >= 0", lambda subscription, event, hops: inbox.append(event.id))
            before = one.recorder.counts["sent"]
            found = one.publish_all([PublicationRequest({"n": n}, b"", FOREVER_S, None) for n in range(50)])
            while len(inbox) < 50:
                await asyncio.sleep(0.01)
            assert inbox == found
            assert one.recorder.counts["sent"] - before < 60, "a summary and 50 transfers, beside beacons"

    run(story())
