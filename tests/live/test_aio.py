"""The asyncio client: it goes on over restarts of its node, and says what it does not know."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path

import pytest

import carrycast
from carrycast.errors import ConnectionLostError, UserError, WorkError
from carrycast.lab.loopback.network import until
from carrycast.node.api import async_client, client_core
from carrycast.node.node import LiveNode
from tests.live.conftest import MakeConfig, Run


def test_many_publications_are_on_their_way_together_and_events_come_by_iterating(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    async def story() -> None:
        place = tmp_path / "node.sock"
        made = config(1, "epidemic", store=tmp_path / "store", durable=True, control=place)
        async with LiveNode(made), carrycast.connect_async(str(place)) as client:
            log = client.subscribe("n >= 0", name="log")
            plain = client.subscribe("n < 2")
            ids = await asyncio.gather(*(client.publish({"n": n}, level="stored") for n in range(600)))
            assert len(set(ids)) == 600
            taken = []
            async for event in log:
                taken.append(event.id)
                if len(taken) == 600:
                    break
            assert set(taken) == set(ids)
            assert {event.attributes["n"] for event in [await anext(plain), await anext(plain)]} == {0, 1}
            await log.acknowledge()
            assert (await client.status()).waiting["clients"] == 0
            await plain.close()
            assert [event async for event in plain] == []

    run(story())


def test_a_named_subscription_goes_on_when_the_node_is_back(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_client, "RETRY_S", 0.01)

    async def story() -> None:
        place = tmp_path / "node.sock"
        made = config(1, "epidemic", store=tmp_path / "store", durable=True, control=place)
        node = LiveNode(made)
        await node.start()
        async with carrycast.connect_async(str(place), 10) as client:
            log = client.subscribe("n >= 0", name="log")
            first = await client.publish({"n": 1})
            second = await client.publish({"n": 2})
            taken = [await log.next_delivery(5), await log.next_delivery(5)]
            assert [one.event.id for one in taken if one] == [first, second]
            await log.acknowledge(first)
            await node.crash()
            await until(lambda: log.subscription is None)
            with pytest.raises(ConnectionLostError, match="is away"):
                client._send(b"")
            asking = asyncio.create_task(client.publish({"n": 3}))
            node = LiveNode(made)
            await node.start()
            third = await asking
            again = [await log.next_delivery(5), await log.next_delivery(5)]
            assert [(one.event.id, one.again) for one in again if one] == [(second, True), (third, False)]
        await node.stop()

    run(story())


def test_what_is_refused_or_never_answered_is_said(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_core, "MAX_BUFFERED", 2)

    async def story() -> None:
        place = tmp_path / "node.sock"
        with pytest.raises(WorkError, match="no node answers at"):
            async with carrycast.connect_async(str(place), 0.05):
                pass
        async with LiveNode(replace(config(1), control=place)) as node:
            async with carrycast.connect_async(str(place)) as client:
                with pytest.raises(UserError, match="expected"):
                    await anext(client.subscribe("n >"))
                with pytest.raises(UserError, match="flooding does not keep on disk what is published"):
                    await client.publish({"n": 1}, level="stored")
                with pytest.raises(UserError, match="attribute 'n' is not a finite number"):
                    await asyncio.wait_for(client.publish({"n": math.nan}), 5)
                with pytest.raises(UserError, match="longer than 0 s"):
                    await client.publish({"n": 1}, lease_s=0)
                full = client.subscribe("n >= 0")
                for n in range(5):
                    await client.publish({"n": n})
                await until(lambda: full.missed == 3)
                assert [(await anext(full)).attributes["n"] for _ in range(2)] == [0, 1]
                assert await full.next_delivery(0.01) is None
            assert await full.next_delivery() is None, "a client that was closed gives nothing more"
            with pytest.raises(WorkError, match="this client is closed"):
                await client.status()
            await until(lambda: node.status().subscriptions == 0)

    run(story())


def test_history_comes_without_a_name_too(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        place = tmp_path / "node.sock"
        async with LiveNode(config(1, "epidemic", control=place)), carrycast.connect_async(str(place)) as client:
            ids = [await client.publish({"n": n}) for n in range(3)]
            late = client.subscribe("n >= 0", history=True)
            assert [found.event.id for _ in ids if (found := await late.next_delivery(5))] == ids

    run(story())


def test_a_subscription_can_be_ended_before_its_node_has_said_that_it_stands_and_while_it_is_away(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_client, "RETRY_S", 0.01)

    async def story() -> None:
        place = tmp_path / "node.sock"
        made = config(1, "epidemic", store=tmp_path / "store", durable=True, control=place)
        node = LiveNode(made)
        await node.start()
        async with carrycast.connect_async(str(place), 10) as client:
            for name in ("log", None):
                await client.subscribe("n >= 0", name=name).close()
                assert (await client.status()).subscriptions == 0
            log, plain = client.subscribe("n >= 0", name="log"), client.subscribe("n >= 0")
            await client.publish({"n": 1})
            await node.crash()
            await until(lambda: log.subscription is None)
            await plain.close()
            ending = asyncio.create_task(log.close())
            node = LiveNode(made)
            await node.start()
            await ending
            assert node.status().subscriptions == 0
            left = client.subscribe("n >= 0", name="left")
            await client.status()
        await left.close()
        assert node.status().subscriptions == 1, "whoever is gone ends nothing that has a name"
        await node.stop()

    run(story())


def test_a_token_that_is_wrong_or_away_is_said_and_the_client_goes_on_with_the_right_one(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_client, "RETRY_S", 0.01)
    right, told = tmp_path / "right", tmp_path / "told"

    async def story() -> None:
        async with LiveNode(replace(config(1), control=0, control_token=right)) as node:
            place = f"{told}@{node.control_address}"
            with pytest.raises(UserError, match="told: cannot be read: No such file"):
                async with carrycast.connect_async(place):
                    pass
            told.write_text("0" * 64)
            async with carrycast.connect_async(place, 10) as client:
                with pytest.raises(ConnectionLostError, match="hung up: this port needs the node's token"):
                    await client.status()
                told.unlink()
                await until(lambda: "cannot be read" in client._connect_error)
                asking = asyncio.create_task(client.status())
                told.write_text(right.read_text())
                assert (await asking).node == 1
                await node.stop()
                await until(lambda: client._writer is None)
                asking = asyncio.create_task(client.status())
                await asyncio.sleep(0)
            with pytest.raises(WorkError, match="this client is closed"):
                await asking

    run(story())
