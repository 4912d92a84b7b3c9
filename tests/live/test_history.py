"""Requests for stored events before any node can answer: the events arrive later, and completeness is reported."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from carrycast.core.model import SubscriptionId
from carrycast.lab.loopback.network import LoopbackNetwork, until
from carrycast.node.api.async_client import AsyncClient
from carrycast.node.api.client import connect
from carrycast.node.api.durable_subscription import Consumer, LocalDelivery
from carrycast.node.config import NodeConfig
from carrycast.node.node import LiveNode
from tests.live.conftest import MakeConfig, Run
from tests.live.test_applications import with_application

pytestmark = pytest.mark.live

STORE, BROKER, CLIENT = 1, 2, 3
PATIENT_S = 30.0
"""For a machine that is busy with something else."""
ALARM = "topic = 'alarm'"


class Told:
    """A subscriber that writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[int] = []
        self.history: list[bool] = []

    @property
    def reader(self) -> Consumer:
        return Consumer(self._read, on_history=lambda _, complete: self.history.append(complete))

    def _read(self, _: SubscriptionId, delivery: LocalDelivery) -> None:
        number = delivery.event.attributes["n"]
        assert isinstance(number, int)
        self.events.append(number)


Made = Callable[..., list[NodeConfig]]


@pytest.fixture
def made(config: MakeConfig, tmp_path: Path) -> Made:
    """A store, a broker and a client, each with a file of its own."""

    def make(protocol: str = "tree", **settings: object) -> list[NodeConfig]:
        if protocol == "tree":
            settings = {"group_s": 0.2, "refresh_s": 0.5, "defer_s": 0.5, **settings}
        configs = [
            replace(
                config(node, protocol, store=tmp_path / f"{node}.db", control=tmp_path / f"{node}.sock", **settings),  # type: ignore[arg-type]
                roles=() if node == CLIENT else ("broker",),
                directory={"broker": (STORE, BROKER)},
            )
            for node in (STORE, BROKER, CLIENT)
        ]
        keeps = (ALARM,) if protocol == "tree" else ()
        return [replace(configs[0], keeps=keeps), *configs[1:]]

    return make


def publish(node: LiveNode, number: int) -> None:
    node.publish({"topic": "alarm", "n": number}, lease_s=3600)


async def linked(network: LoopbackNetwork) -> None:
    network.link(STORE, BROKER)
    network.link(BROKER, CLIENT)
    await network.wait_until_discovered(PATIENT_S)


@pytest.mark.parametrize("order", list(permutations((STORE, BROKER, CLIENT))))
def test_whatever_starts_first_the_history_comes_and_is_told_to_be_complete(
    order: tuple[int, ...], made: Made, run: Run
) -> None:
    async def story() -> None:
        async with LoopbackNetwork(made()) as network:
            network.link(STORE, BROKER)
            network.link(BROKER, CLIENT)
            for number in range(3):
                publish(network.nodes[STORE], number)
            for node in order:
                await network.stop(node)
            told, requested = Told(), asyncio.get_running_loop().create_future()
            found: list[int] = []
            for node in order:
                started = await network.start(node)
                if node == CLIENT:
                    # At once: no neighbor is known yet.
                    started.subscribe(ALARM, told.reader, history=True)
                    started.request(
                        ALARM,
                        PATIENT_S,
                        lambda event, hops: found.append(int(str(event.attributes["n"]))),
                        requested.set_result,
                    )
                    await asyncio.sleep(0.2)
            await until(lambda: True in told.history, PATIENT_S)
            assert sorted(told.events) == [0, 1, 2]
            assert await asyncio.wait_for(requested, PATIENT_S) is True
            assert sorted(found) == [0, 1, 2]

    run(story())


def test_a_named_subscription_gets_what_was_published_while_its_node_was_down(made: Made, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(made()) as network:
            await linked(network)
            told = Told()
            network.nodes[CLIENT].subscribe(ALARM, told.reader, name="log", history=True)
            publish(network.nodes[STORE], 0)
            await until(lambda: told.events == [0] and True in told.history, PATIENT_S)
            await network.crash(CLIENT)
            publish(network.nodes[STORE], 1)
            # And nobody is there when it starts again.
            await network.crash(BROKER)
            node = await network.start(CLIENT)
            again = Told()
            node.subscribe(ALARM, again.reader, name="log", history=True)
            await asyncio.sleep(0.2)
            assert again.events == again.history == []
            await network.start(BROKER)
            await until(lambda: True in again.history, PATIENT_S)
            assert again.events == [1], "and not again what it has had"

    run(story())


def test_if_nobody_ever_answers_the_end_says_that_it_is_not_complete(made: Made, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(made(history_s=0.3)) as network:
            await network.stop(STORE)
            network.link(BROKER, CLIENT)
            told, ended = Told(), asyncio.get_running_loop().create_future()
            client = network.nodes[CLIENT]
            client.subscribe(ALARM, told.reader, history=True)
            client.request(ALARM, 0.3, lambda event, hops: None, ended.set_result)
            assert not ended.done()
            assert await asyncio.wait_for(ended, PATIENT_S) is False
            await until(lambda: told.history == [False], PATIENT_S)
            # The subscription stands, and so does its wish: a store that comes later is asked.
            network.link(STORE, BROKER)
            publish(await network.start(STORE), 7)
            await until(lambda: told.history == [False, True], PATIENT_S)
            assert told.events == [7]

    run(story())


@pytest.mark.parametrize("protocol", ["epidemic", "drift", "spray_and_wait"])
def test_where_every_node_carries_a_request_waits_for_a_neighbor(protocol: str, made: Made, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(made(protocol)) as network:
            publish(network.nodes[BROKER], 5)
            found: list[object] = []
            ended = asyncio.get_running_loop().create_future()
            client = network.nodes[CLIENT]
            told = Told()
            client.subscribe(ALARM, told.reader, history=True)
            client.request(ALARM, PATIENT_S, lambda event, hops: found.append(event.attributes["n"]), ended.set_result)
            await asyncio.sleep(0.2)
            assert not ended.done()
            network.link(BROKER, CLIENT)
            await until(lambda: found == [5] and told.events == [5], PATIENT_S)
            # Nobody knows what others carry.
            assert told.history == [False]

    run(story())


def test_both_clients_tell_whether_the_history_was_complete(made: Made, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with LoopbackNetwork(made()) as network:
            for number in range(3):
                publish(network.nodes[STORE], number)

            def plain(name: str | None) -> tuple[list[object], list[bool | None]]:
                said: list[bool | None] = []
                with connect(str(tmp_path / f"{CLIENT}.sock"), PATIENT_S) as client:
                    deliveries = client.subscribe(ALARM, name=name, history=True, on_history=said.append)
                    said.append(deliveries.history_complete)
                    numbers: list[object] = []
                    while deliveries.history_complete is not True:
                        event = deliveries.next_event(0.1)
                        if event is not None:
                            # Not before the last of it was taken.
                            said.append(deliveries.history_complete)
                            numbers.append(event.attributes["n"])
                            deliveries.acknowledge()
                return numbers, said

            asked = [asyncio.ensure_future(asyncio.to_thread(plain, name)) for name in (None, "log")]
            await asyncio.sleep(0.2)
            await linked(network)
            for answer in asked:
                numbers, said = await asyncio.wait_for(answer, PATIENT_S)
                assert sorted(map(str, numbers)) == ["0", "1", "2"]
                assert said[0] is None
                assert said[-1] is True

            async with AsyncClient(str(tmp_path / f"{CLIENT}.sock")) as client:
                heard: list[bool] = []
                stream = client.subscribe(ALARM, history=True, on_history=heard.append)
                numbers = [(await stream.next_delivery(PATIENT_S)).event.attributes["n"] for _ in range(3)]  # type: ignore[union-attr]
                while stream.history_complete is None:
                    await asyncio.sleep(0.01)
                assert sorted(map(str, numbers)) == ["0", "1", "2"]
                assert stream.history_complete is True
                assert heard == [True]

    run(story())


def test_a_policy_is_retrieved_when_the_link_comes_and_not_a_retry_later(made: Made, run: Run) -> None:
    text = "policy slow roles sensor then { set discovery.period_s = 0.2 }"

    async def story() -> None:
        store, broker, client = made()
        configs = [
            with_application(with_application(store, "policy_repository"), "policy_tool", stored_s=PATIENT_S),
            broker,
            with_application(client, "policy_decision", roles=["sensor"], retry_s=3600.0, refetch_s=3600.0),
        ]
        async with LoopbackNetwork(configs) as network:
            published = asyncio.get_running_loop().create_future()
            body = b'{"text": "%s"}' % text.encode()
            network.nodes[STORE].command("policy_tool", "publish", body, published.set_result)
            assert b'"stored_by":[1]' in await asyncio.wait_for(published, PATIENT_S)
            await asyncio.sleep(0.5)
            await linked(network)
            point = network.nodes[CLIENT].application("policy_decision")
            await until(lambda: [one.id for one in point.catalog.active_policies()] == ["slow"], PATIENT_S)  # type: ignore[attr-defined]
            await until(lambda: bool(point.retrieved), PATIENT_S)  # type: ignore[attr-defined]

    run(story())


def test_a_request_whose_client_has_gone_keeps_nobody_from_asking(made: Made, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(made(max_asks=2)) as network:
            client = network.nodes[CLIENT]
            for _ in range(10):
                client.request(ALARM, 3600.0, lambda event, hops: None, lambda complete: None)()
            assert "too_many_asks" not in client.drops
            ended = asyncio.get_running_loop().create_future()
            client.request(ALARM, 3600.0, lambda event, hops: None, ended.set_result)
            await linked(network)
            assert await asyncio.wait_for(ended, PATIENT_S) is True

    run(story())
