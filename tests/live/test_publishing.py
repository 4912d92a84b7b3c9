"""What a client publishes at once is published together, and each of it answered for itself, in order."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from carrycast.core.model import FOREVER_S, EventId
from carrycast.errors import UserError, WorkError
from carrycast.node.api import connection
from carrycast.node.api.client import connect
from carrycast.node.api.client_session import MAX_BATCH
from carrycast.node.node import LiveNode
from carrycast.node.runtime import publisher
from carrycast.node.runtime.publisher import PublicationRequest
from tests.live.conftest import MakeConfig, Run
from tests.live.keyed import Operator


def publish(id: int, **more: object) -> dict[str, object]:
    return {"op": "publish", "id": id, "attributes": {"n": id}, "payload": "", **more}


async def answers(place: Path, *questions: dict[str, object] | bytes) -> list[dict[str, Any]]:
    reader, writer = await asyncio.open_unix_connection(place)
    said = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in questions]
    writer.write(b"\n".join([*said, b""]))
    found = [json.loads(await asyncio.wait_for(reader.readline(), 10)) for _ in questions]
    writer.close()
    return found


def test_wrong_ones_among_them_and_other_questions_are_answered_in_order(
    config: MakeConfig, run: Run, tmp_path: Path
) -> None:
    place = tmp_path / "1.sock"

    async def story() -> None:
        async with LiveNode(config(1, control=place)) as node:
            found = await answers(
                place,
                publish(1),
                publish(2, access="no ( filter"),
                b"garbage",
                publish(3, level="stored"),
                publish(4),
                {"op": "status", "id": 5},
                publish(6, attributes={"x" * 200: 1}),
                publish(7),
            )
            assert [one["answer"] for one in found] == [
                "published",
                "refused",
                "refused",
                "refused",
                "published",
                "status",
                "refused",
                "published",
            ]
            assert [one.get("id") for one in found] == [1, 2, 0, 3, 4, 5, 6, 7]
            assert found[5]["counts"]["published"] == 2, "what was asked first is done first"
            assert "does not keep on disk" in found[3]["message"]
            assert node.recorder.counts["published"] == 3

    run(story())


@pytest.mark.parametrize("keyed", [False, True])
def test_more_than_fit_together_are_all_published(config: MakeConfig, run: Run, tmp_path: Path, keyed: bool) -> None:
    place = tmp_path / "1.sock"
    number = 2 * MAX_BATCH + 5

    async def story() -> None:
        made = config(1, "epidemic", control=place, store=tmp_path / "1", durable=True)
        async with LiveNode(Operator().keyed(made) if keyed else made) as node:
            inbox: list[object] = []
            node.subscribe("n >= 0", lambda subscription, event, hops: inbox.append(event.attributes["n"]))
            levels = ("accepted", "stored")
            found = await answers(place, *(publish(n, level=levels[n % 2]) for n in range(number)))
            assert {one["answer"] for one in found} == {"published"}
            assert sorted(one["id"] for one in found) == list(range(number))
            assert len({tuple(one["event"]) for one in found}) == number
            assert inbox == list(range(number))

    run(story())


def test_a_node_that_is_busy_refuses_or_lets_wait(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, busy = tmp_path / "1.sock", [True]
    monkeypatch.setattr(LiveNode, "is_busy", lambda node, more=0: busy[0])

    async def story() -> None:
        async with LiveNode(config(1, control=place)) as node:
            asking = asyncio.create_task(answers(place, publish(1, busy="refuse"), publish(2), publish(3)))
            await asyncio.sleep(0.1)
            assert node.recorder.counts["published"] == 0
            busy[0] = False
            assert [one["answer"] for one in await asking] == ["refused", "published", "published"]
            assert node.drops["busy"] == 1

    run(story())


def test_one_that_is_wrong_does_not_hold_up_the_others_of_a_node(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LiveNode(config(1)) as node:
            wanted = [
                PublicationRequest({"n": n}, b"", lease_s, None) for n, lease_s in enumerate((1.0, -1.0, FOREVER_S))
            ]
            first, second, third = node.publish_all(wanted)
            assert isinstance(first, EventId)
            assert isinstance(second, UserError)
            assert isinstance(third, EventId)
            assert node.publish_all([]) == []
        with pytest.raises(WorkError, match="does not run"):
            node.publish_all(wanted)

    run(story())


def test_who_publishes_many_without_reading_what_it_is_told_meanwhile_is_not_stuck(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SEND_S", 3.0)
    place = tmp_path / "node.sock"

    def client() -> None:
        with connect(str(place)) as one:
            everything = one.subscribe("n >= 0")
            ids = list(one.publish_all(({"n": n}, bytes(4000)) for n in range(600)))
            assert [event.id for _ in ids if (event := everything.next_event(5))] == ids

    async def story() -> None:
        async with LiveNode(config(1, control=place)):
            await asyncio.to_thread(client)

    run(story())


def test_one_for_which_there_is_no_room_does_not_hold_up_the_others(
    config: MakeConfig, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "MAX_WAITING", 0)
    place = tmp_path / "1.sock"

    async def story() -> None:
        async with LiveNode(config(1, "epidemic", store=tmp_path / "store", durable=True, control=place)):
            found = await answers(place, publish(1), publish(2, level="held"), publish(3))
            assert [(one["answer"], one["id"]) for one in found] == [("published", 1), ("refused", 2), ("published", 3)]
            assert "publishers wait for copies already" in found[1]["message"]

    run(story())
