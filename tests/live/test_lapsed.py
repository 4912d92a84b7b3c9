"""A subscription whose lease ends while somebody reads it: the reader is told, and does not wait for ever."""

import asyncio
import json
from pathlib import Path

import pytest

from carrycast.api import connect_async
from carrycast.errors import UserError
from carrycast.lab.loopback.network import until
from carrycast.node.api import client_session
from carrycast.node.api.client import connect
from carrycast.node.commands import SubscribeArguments, subscribe
from carrycast.node.node import LiveNode
from tests.live.conftest import MakeConfig, Run
from tests.live.test_control import raw, with_node

LEASE_S = 0.5


@pytest.mark.parametrize("name", [None, "log"])
def test_a_plain_client_that_iterates_comes_to_the_end(
    config: MakeConfig, run: Run, tmp_path: Path, name: str | None
) -> None:
    def client(address: str) -> None:
        with connect(address) as one:
            other = one.subscribe("n = 2", name=None if name is None else "other")
            log = one.subscribe("n = 1", name=name, lease_s=LEASE_S)
            published = one.publish({"n": 1})
            assert [event.id for event in log] == [published]
            assert log.ended
            assert log.next_event(5) is None
            # What was said too late harms nobody.
            one.acknowledge(log.subscription, [1], wait=False)
            log.close()
            later = one.publish({"n": 2})
            assert next(other).id == later
            assert not other.ended

    with_node(config, run, tmp_path / "1.sock", client)


@pytest.mark.parametrize("name", [None, "log"])
def test_an_asyncio_client_that_iterates_comes_to_the_end(
    config: MakeConfig, run: Run, tmp_path: Path, name: str | None
) -> None:
    async def story() -> None:
        made = config(1, control=tmp_path / "1.sock")
        node = LiveNode(made)
        await node.start()
        async with connect_async(str(tmp_path / "1.sock")) as one:
            log = one.subscribe("n = 1", name=name, lease_s=LEASE_S)
            published = await one.publish({"n": 1})
            async with asyncio.timeout(10):
                assert [event.id async for event in log] == [published]
            assert log.ended
            await node.stop()
            await until(lambda: one._writer is None)
            # It does not begin again with the next connection.
            async with LiveNode(made):
                await until(lambda: one._writer is not None)
                assert (await one.status()).subscriptions == 0
                await log.close()

    run(story())


def test_who_acknowledges_by_himself_after_the_end_is_told(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with LiveNode(config(1, control=tmp_path / "1.sock")):
            async with connect_async(str(tmp_path / "1.sock")) as one:
                log = one.subscribe("n = 1", name="log", lease_s=LEASE_S)
                await one.publish({"n": 1})
                assert await log.next_delivery(5) is not None
                await until(lambda: log.ended)
                with pytest.raises(UserError, match="has ended with its lease"):
                    await log.acknowledge()

            def client(address: str) -> None:
                with connect(address) as one:
                    log = one.subscribe("n = 1", name="log", lease_s=LEASE_S)
                    one.publish({"n": 1})
                    assert log.next_event(5) is not None
                    assert log.next_event(5) is None
                    with pytest.raises(UserError, match="the subscription has ended"):
                        log.acknowledge()

            await asyncio.to_thread(client, str(tmp_path / "1.sock"))

    run(story())


def test_the_line_says_which_and_its_place_is_free(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_session, "MAX_CLIENT_SUBSCRIPTIONS", 1)
    asked = {"op": "subscribe", "id": 1, "filter": "n = 1", "lease_s": LEASE_S}

    def client(address: str) -> None:
        with raw(address) as line, line.makefile("rb") as answers:
            for _ in range(2):
                line.sendall(json.dumps(asked).encode() + b"\n")
                subscription = json.loads(answers.readline())["subscription"]
                told = {"answer": "unsubscribed", "id": 0, "subscription": subscription}
                assert json.loads(answers.readline()) == told
            # Who does not know the line, and ends it, is answered.
            line.sendall(json.dumps({"op": "unsubscribe", "id": 2, "subscription": subscription}).encode() + b"\n")
            assert json.loads(answers.readline())["id"] == 2

    with_node(config, run, 0, client)


def test_the_command_ends_and_says_why(
    config: MakeConfig, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def client(address: str) -> None:
        with connect(address) as one:
            one.subscribe("n = 1", name="log", lease_s=2 * LEASE_S)
            published = one.publish({"n": 1})
        assert [event.id for event in subscribe(address, SubscribeArguments("n = 1", name="log"))] == [published]

    with_node(config, run, tmp_path / "1.sock", client)
    assert "the subscription has ended with its lease" in capsys.readouterr().err
