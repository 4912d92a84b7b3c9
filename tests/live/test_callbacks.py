"""Subscriptions of Python clients as context managers, and with functions that are called for each event."""

import asyncio
from pathlib import Path

import pytest

import carrycast
from carrycast.core.model import Event, Scalar
from carrycast.node.node import LiveNode
from tests.live.conftest import MakeConfig, Run
from tests.live.test_embedded import config as embedded_config, free_port
from tests.patience import PATIENCE_S


def test_a_client_calls_functions_as_events_arrive(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    place = tmp_path / "node.sock"
    fast: list[Scalar] = []
    slow: list[Scalar] = []

    def work() -> None:
        with carrycast.connect(place) as client:
            client.subscribe("v > 30", on_event=lambda event: fast.append(event.attributes["v"]))
            client.subscribe("v <= 30", name="slow", on_event=lambda event: slow.append(event.attributes["v"]))
            for value in (10, 40, 20, 50):
                client.publish({"v": value})
            while len(fast) + len(slow) < 4:
                client.run(timeout_s=0.05)
            assert client.run(timeout_s=0.0) == 0

    async def story() -> None:
        async with LiveNode(config(1, "epidemic", store=tmp_path / "store", control=place)):
            await asyncio.wait_for(asyncio.to_thread(work), PATIENCE_S)

    run(story())
    assert (fast, slow) == ([40, 50], [10, 20])


def test_run_ends_with_the_last_subscription_that_has_a_function(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    place = tmp_path / "node.sock"

    def work() -> None:
        with carrycast.connect(place) as client:
            client.subscribe("", lease_s=0.2, on_event=print)
            assert client.run() == 0

    async def story() -> None:
        async with LiveNode(config(1, "epidemic", control=place)):
            await asyncio.wait_for(asyncio.to_thread(work), PATIENCE_S)

    run(story())


def test_a_function_that_raises_leaves_its_event_unacknowledged(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    place = tmp_path / "node.sock"

    def fail(event: Event) -> None:
        raise RuntimeError("the application failed")

    def work() -> None:
        with carrycast.connect(place) as client:
            client.subscribe("", name="log", on_event=fail)
            id = client.publish({"n": 1}, level="stored")
            with pytest.raises(RuntimeError, match="the application failed"):
                client.run(timeout_s=PATIENCE_S)
        with carrycast.connect(place) as client:
            delivery = client.subscribe("", name="log").next_delivery(PATIENCE_S)
            assert delivery is not None
            assert (delivery.event.id, delivery.again) == (id, True)

    async def story() -> None:
        made = config(1, "epidemic", store=tmp_path / "store", durable=True, control=place)
        async with LiveNode(made):
            await asyncio.wait_for(asyncio.to_thread(work), 2 * PATIENCE_S)

    run(story())


def test_a_block_ends_a_plain_subscription_and_acknowledges_a_named_one(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    place = tmp_path / "node.sock"

    def work() -> None:
        with carrycast.connect(place) as client:
            with client.subscribe("") as plain:
                client.publish({"n": 1})
                assert next(plain).attributes == {"n": 1}
            assert plain.ended
            with client.subscribe("", name="log") as log:
                client.publish({"n": 2}, level="stored")
                assert next(log).attributes == {"n": 2}
            assert not log.ended
            assert client.status().waiting["clients"] == 0

    async def story() -> None:
        made = config(1, "epidemic", store=tmp_path / "store", durable=True, control=place)
        async with LiveNode(made):
            await asyncio.wait_for(asyncio.to_thread(work), PATIENCE_S)

    run(story())


def test_the_asyncio_client_calls_functions_and_coroutines(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    place = tmp_path / "node.sock"

    async def story() -> None:
        made = config(1, "epidemic", store=tmp_path / "store", durable=True, control=place)
        async with LiveNode(made), carrycast.connect_async(place) as client:
            seen: asyncio.Queue[tuple[str, Scalar]] = asyncio.Queue()

            async def wait_first(event: Event) -> None:
                await asyncio.sleep(0)
                await seen.put(("coroutine", event.attributes["n"]))

            plain = client.subscribe("", on_event=lambda event: seen.put_nowait(("function", event.attributes["n"])))
            async with client.subscribe("", name="log", on_event=wait_first) as log:
                await client.publish({"n": 1})
                both = [await asyncio.wait_for(seen.get(), PATIENCE_S) for _ in range(2)]
                assert sorted(both) == [("coroutine", 1), ("function", 1)]
            assert not log.ended
            await plain.close()
            assert plain.ended
            await log.close()

    run(story())


def test_an_error_of_a_function_is_raised_when_its_subscription_is_closed(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    place = tmp_path / "node.sock"

    async def story() -> None:
        async with LiveNode(config(1, "epidemic", control=place)), carrycast.connect_async(place) as client:
            called = asyncio.Event()

            def fail(event: Event) -> None:
                called.set()
                raise RuntimeError("the application failed")

            deliveries = client.subscribe("", on_event=fail)
            await client.publish({"n": 1})
            await asyncio.wait_for(called.wait(), PATIENCE_S)
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="the application failed"):
                await deliveries.close()

    run(story())


def test_a_node_in_a_program_calls_a_function_and_survives_its_errors() -> None:
    async def story() -> None:
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["message"]))
        seen: list[Scalar] = []

        def on_event(event: Event) -> None:
            if event.attributes["n"] == 1:
                raise RuntimeError("the application failed")
            seen.append(event.attributes["n"])

        async with carrycast.Node(embedded_config("a", free_port())) as node:
            with_function = node.subscribe("", on_event=on_event)
            id = await node.publish({"n": 1})
            await node.publish({"n": 2})
            await asyncio.sleep(0.05)
            assert seen == [2]
            assert reported == [f"on_event failed for event {id}"]
            assert node.drops["listener_failed"] == 1
            with_function.close()

    asyncio.run(story())
