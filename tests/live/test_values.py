"""What Python programs give a client: each type has one meaning, in both clients; all others are refused by name."""

import asyncio
import datetime
import decimal
import enum
import fractions
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import carrycast
from carrycast.core.model import Event
from carrycast.errors import UserError
from carrycast.node.api.client import connect
from carrycast.node.api.connection import Connection
from carrycast.node.config import load_config
from carrycast.node.node import LiveNode

WAIT_S = 20.0
CONFIG = """
name = "n"
[listen]
host = "127.0.0.1"
port = 0
[protocol]
name = "epidemic"
[control]
socket = "n.sock"
"""


class Color(str, enum.Enum):  # noqa: UP042
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Plain(enum.Enum):
    A = "x"


@asynccontextmanager
async def running(folder: Path, more: str = "") -> AsyncIterator[Path]:
    """A node; the path of its control channel."""
    (folder / "n.toml").write_text(CONFIG + more)
    async with LiveNode(load_config(folder / "n.toml")):
        yield folder / "n.sock"


PAYLOADS: list[tuple[Any, bytes]] = [
    ("text", b"text"),
    ("abcd", b"abcd"),
    ("", b""),
    ("gr\u00fc\u00df dich \U0001f600", "gr\u00fc\u00df dich \U0001f600".encode()),
    (b"\xff\x00", b"\xff\x00"),
    (bytearray(b"ab"), b"ab"),
    (memoryview(b"abcdef")[::2], b"ace"),
]
VALUES: list[tuple[Any, object]] = [
    (np.int64(-3), -3),
    (np.uint8(200), 200),
    (np.float64(2.5), 2.5),
    (np.float32(0.5), 0.5),
    (np.bool_(True), True),
    (np.str_("A1"), "A1"),
    (Color.RED, "red"),
    (Level.HIGH, 3),
    (True, True),
    (1, 1),
    (1.0, 1.0),
    (2**63 - 1, 2**63 - 1),
    (-(2**63), -(2**63)),
]
WRONG_TYPES: list[Any] = [
    datetime.datetime(2026, 1, 2, 3, 4),
    datetime.date(2026, 1, 2),
    datetime.time(1, 2),
    datetime.timedelta(1),
    np.datetime64("2026-01-02"),
    np.timedelta64(5, "s"),
    np.array([1]),
    np.complex128(1),
    np.bytes_(b"x"),
    # Where it is no longer than a float, it is one.
    *([np.longdouble(1)] if np.longdouble(1).itemsize > 8 else []),
    uuid.UUID(int=1),
    decimal.Decimal("1.1"),
    fractions.Fraction(1, 3),
    Plain.A,
    b"x",
    None,
    [1],
    {"a": 1},
    (1, 2),
    object,
]
WRONG_VALUES: list[Any] = [
    float("nan"),
    float("inf"),
    np.float64("nan"),
    2**63,
    -(2**63) - 1,
    np.uint64(2**64 - 1),
    "\ud800",
]


def test_payloads_arrive_as_the_same_bytes_from_either_client_at_either(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as socket, carrycast.connect_async(socket) as client:
            stream = client.subscribe("n >= 0")
            await client.status()
            for number, (given, _) in enumerate(PAYLOADS):
                await client.publish({"n": number}, payload=given)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, in_thread, socket)
            for _ in range(3):
                for number, (_, expected) in enumerate(PAYLOADS):
                    found = await stream.next_delivery(WAIT_S)
                    assert found is not None
                    assert (found.event.attributes["n"], found.event.payload) == (number, expected)
                    assert type(found.event.payload) is bytes

    def in_thread(socket: Path) -> None:
        with carrycast.connect(socket) as client:
            deliveries = client.subscribe("n >= 0")
            for number, (given, _) in enumerate(PAYLOADS):
                client.publish({"n": number}, given)
            list(client.publish_all(({"n": number}, given) for number, (given, _) in enumerate(PAYLOADS)))
            for _ in range(2):
                for number, (_, expected) in enumerate(PAYLOADS):
                    found = deliveries.next_event(WAIT_S)
                    assert found is not None
                    assert (found.attributes["n"], found.payload) == (number, expected)

    asyncio.run(story())


def test_attributes_arrive_as_their_plain_values(tmp_path: Path) -> None:
    def in_thread(socket: Path) -> list[Event | None]:
        with connect(socket) as client:
            deliveries = client.subscribe(carrycast.Filter("v"))
            every = client.subscribe()
            for value, _ in VALUES:
                client.publish({"value": value})
            deliveries.close()
            return [every.next_event(WAIT_S) for _ in VALUES]

    async def story() -> None:
        async with running(tmp_path) as socket, carrycast.connect_async(socket) as client:
            stream = client.subscribe(carrycast.Filter(""))
            found = await asyncio.get_running_loop().run_in_executor(None, in_thread, socket)
            for value, _ in VALUES:
                await client.publish({"value": value})
            found += [one.event for _ in range(2 * len(VALUES)) if (one := await stream.next_delivery(WAIT_S))]
            plain = [expected for _, expected in VALUES]
            got = [event.attributes["value"] for event in found if event is not None]
            assert got == plain * 3
            assert [type(value) for value in got] == [type(value) for value in plain * 3]

    asyncio.run(story())


Publish = Callable[..., object]


async def attempts(socket: Path, attempt: Callable[[Publish], object]) -> None:
    """The same with each client; what one publishes before it is refused would be seen by the other."""

    def in_thread() -> None:
        with connect(socket) as client:
            attempt(client.publish)
            attempt(lambda *given, **more: list(client.publish_all([(given[0], *given[1:], b"")[:2]], **more)))

    await asyncio.get_running_loop().run_in_executor(None, in_thread)
    async with carrycast.connect_async(socket) as client:
        loop = asyncio.get_running_loop()

        def publish(*given: Any, **more: Any) -> object:
            asked: Awaitable[object] = client.publish(*given, **more)
            return asyncio.run_coroutine_threadsafe(asked, loop).result(WAIT_S)  # type: ignore[arg-type]

        await loop.run_in_executor(None, attempt, publish)


def test_what_is_no_value_of_an_event_is_refused_by_name_and_nothing_is_published(tmp_path: Path) -> None:
    def attempt(publish: Publish) -> None:
        for value in WRONG_TYPES:
            with pytest.raises(TypeError, match="attribute 'when' is ") as refused:
                publish({"road": "A1", "when": value})
            assert repr(value)[:20] in str(refused.value).replace("...", repr(value)), refused.value
        for value in WRONG_VALUES:
            with pytest.raises(UserError, match="attribute 'when' "):
                publish({"when": value})
        with pytest.raises(UserError, match="an attribute name has 1 to 128 characters"):
            publish({"": 1})
        for name in (1, None, b"a"):
            with pytest.raises(TypeError, match="the name of an attribute is a str, not"):
                publish({name: 1})
        for attributes in ([("a", 1)], "a=1", None, {1}):
            with pytest.raises(TypeError, match="attributes are a dict"):
                publish(attributes)
        for payload in (None, 5, ["x"], np.array([1]), datetime.date(2026, 1, 2)):
            with pytest.raises(TypeError, match="payload is bytes or a str, not"):
                publish({"a": 1}, payload)
        with pytest.raises(UserError, match=r"payload: .* is no text that UTF-8 can write"):
            publish({"a": 1}, "\ud800")
        for settings, error, told in (
            ({"lease_s": "60"}, TypeError, "lease_s is a number, not '60'"),
            ({"lease_s": datetime.timedelta(1)}, TypeError, "lease_s is a number, not datetime"),
            ({"lease_s": float("nan")}, UserError, "lease_s is a finite number"),
            ({"lease_s": -1}, UserError, "a lease is longer than 0 s"),
            ({"copies": 1.5}, TypeError, "copies is a whole number"),
            ({"patience_s": float("inf")}, UserError, "patience_s is a finite number"),
            ({"access": 5}, TypeError, "access is a text such as"),
        ):
            with pytest.raises(error, match=told):
                publish({"a": 1}, b"", **settings)

    async def story() -> None:
        async with running(tmp_path) as socket:
            await attempts(socket, attempt)
            async with carrycast.connect_async(socket) as client:
                assert (await client.status()).counts.get("published", 0) == 0

    asyncio.run(story())


def test_numbers_of_numpy_are_leases_and_counts(tmp_path: Path) -> None:
    def attempt(publish: Publish) -> None:
        publish({"a": 1}, lease_s=np.float32(60), patience_s=np.int64(5), copies=np.int32(1))
        publish({"a": 1}, lease_s=np.inf, access=carrycast.Filter("rank = 'major'"))

    async def story() -> None:
        async with running(tmp_path) as socket:
            await attempts(socket, attempt)

    asyncio.run(story())


def test_subscribers_are_checked_alike(tmp_path: Path) -> None:
    def in_thread(socket: Path) -> None:
        with connect(socket) as client:
            for wrong in (5, b"a = 1", None, ["a = 1"]):
                with pytest.raises(TypeError, match="filter is a text such as 'speed > 30' or a Filter, not"):
                    client.subscribe(wrong)  # type: ignore[arg-type]
                with pytest.raises(TypeError, match="filter is a text"):
                    client.request(wrong)  # type: ignore[arg-type]
                with pytest.raises(TypeError, match="filter is a text"):
                    client.advertise(wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="attribute 'born' is datetime"):
                client.subscribe("", attributes={"born": datetime.date(2026, 1, 2)})  # type: ignore[dict-item]
            with pytest.raises(TypeError, match="state is bytes or a str"):
                client.subscribe("", state=5)  # type: ignore[arg-type]
            assert client.request(carrycast.Filter("a = 1"), np.float32(1.0))[0] == []  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="patience_s is a number, not '1'"):
                client.request("", "1")  # type: ignore[arg-type]

    async def story() -> None:
        async with running(tmp_path) as socket, carrycast.connect_async(socket) as client:
            await asyncio.get_running_loop().run_in_executor(None, in_thread, socket)
            with pytest.raises(TypeError, match="filter is a text"):
                client.subscribe(5)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="attribute 'born' is datetime"):
                client.subscribe("", attributes={"born": datetime.date(2026, 1, 2)})  # type: ignore[dict-item]

    asyncio.run(story())


def test_an_event_its_delivery_and_its_id_are_acknowledged(tmp_path: Path) -> None:
    def in_thread(socket: Path) -> None:
        with connect(socket) as client:
            deliveries = client.subscribe("a >= 0", name="sync")
            for number in range(4):
                client.publish({"a": number})
            given = [deliveries.next_delivery(WAIT_S) for _ in range(4)]
            assert all(given)
            first, second, third, _ = [one for one in given if one is not None]
            deliveries.acknowledge(first.event)
            deliveries.acknowledge(second, third.event.id)
            for wrong in (5, "1:2", None):
                with pytest.raises(TypeError, match="to acknowledge an event, give it, its delivery or its id, not"):
                    deliveries.acknowledge(wrong)  # type: ignore[arg-type]
        with connect(socket) as client:
            again = client.subscribe("a >= 0", name="sync").next_event(WAIT_S)
            assert again is not None
            assert again.attributes == {"a": 3}

    async def story() -> None:
        async with running(tmp_path) as socket:
            await asyncio.get_running_loop().run_in_executor(None, in_thread, socket)
            async with carrycast.connect_async(socket) as client:
                stream = client.subscribe("b >= 0", name="aio")
                for number in range(4):
                    await client.publish({"b": number})
                given = [one for _ in range(4) if (one := await stream.next_delivery(WAIT_S))]
                await stream.acknowledge(given[0].event)
                await stream.acknowledge(given[1], given[2].event.id)
                with pytest.raises(TypeError, match="to acknowledge an event"):
                    await stream.acknowledge("1:2")  # type: ignore[arg-type]
            async with carrycast.connect_async(socket) as client:
                found = await client.subscribe("b >= 0", name="aio").next_delivery(WAIT_S)
                assert found is not None
                assert found.event.attributes == {"b": 3}

    asyncio.run(story())


def test_a_delivery_is_acknowledged_whoever_took_it(tmp_path: Path) -> None:
    def client(address: Path) -> None:
        with connect(address) as one:
            log = one.subscribe("n > 0", name="log")
            one.publish({"n": 1})
            delivery = one.next_delivery(log.subscription, WAIT_S)
            assert delivery is not None
            log.acknowledge(delivery)
            log.acknowledge(delivery)
        with connect(address) as one:
            log = one.subscribe("n > 0", name="log")
            one.publish({"n": 2})
            event = log.next_event(WAIT_S)
            assert event is not None
            assert event.attributes == {"n": 2}, "what was acknowledged does not come again"

    async def story() -> None:
        async with running(tmp_path, '[store]\nfile = "n.db"\n') as address:
            await asyncio.to_thread(client, address)

    asyncio.run(story())


def test_many_events_are_pairs_and_levels_are_named(tmp_path: Path) -> None:
    def client(address: Path) -> None:
        with connect(address) as one:
            for wrong in ({"n": 1}, {"n": 1, "m": 2}, ({"n": 1},), "ab", 5):
                with pytest.raises(TypeError, match="publish_all takes pairs of attributes and payload"):
                    list(one.publish_all([wrong]))  # type: ignore[list-item]
            with pytest.raises(UserError, match="level is one of 'accepted', 'stored', 'held', not 'storde'"):
                one.publish({"n": 1}, level="storde")  # type: ignore[arg-type]
            with pytest.raises(UserError, match="busy is one of 'wait', 'refuse', not 'maybe'"):
                one.publish({"n": 1}, busy="maybe")  # type: ignore[arg-type]
            assert len(list(one.publish_all([({"n": 1}, "text"), ({"n": 2}, b"")]))) == 2

    async def story() -> None:
        async with running(tmp_path) as address:
            await asyncio.to_thread(client, address)

    asyncio.run(story())


def test_a_position_of_numpy_is_one_and_what_is_none_is_refused(tmp_path: Path) -> None:
    def in_thread(socket: Path) -> None:
        with connect(socket) as client:
            for there in ((np.float64(1.5), np.int32(2)), np.array([1.5, 2.0]), [1.5, 2]):
                client.move(there, np.array([0.5, 0]))  # type: ignore[arg-type]
                assert client.status().position == (1.5, 2.0)
            for wrong in (("1", "2"), (1,), (1, 2, 3), (None, 1), (float("nan"), 1), 5, (datetime.date(2026, 1, 2), 1)):
                with pytest.raises(UserError, match="position: "):
                    client.move(wrong)  # type: ignore[arg-type]
            assert client.status().position == (1.5, 2.0)

    async def story() -> None:
        async with running(tmp_path, "[position]\nx_m = 0\ny_m = 0\n") as socket:
            await asyncio.get_running_loop().run_in_executor(None, in_thread, socket)

    asyncio.run(story())


def test_an_address_is_a_text_or_a_path() -> None:
    for wrong in (5, None, b"n.sock"):
        with pytest.raises(TypeError, match="the address of a node is a text or a Path, not"):
            carrycast.connect(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="the address of a node is a text or a Path, not"):
            carrycast.connect_async(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ('"attributes":{"a":1},"payload":"tex"', "Invalid base64"),
        ('"attributes":{"a":1},"payload":"a text"', "Invalid base64"),
        ('"attributes":{"a":1},"payload":5', "Expected `bytes`"),
        ('"attributes":{"a":1e999}', "Number out of range"),
        ('"attributes":{"a":NaN}', "malformed"),
        ('"attributes":{"a":null}', "got `null`"),
        ('"attributes":{"a":[1]}', "got `array`"),
        ('"attributes":{"a":9223372036854775808}', "attribute 'a' does not fit in 64 bits"),
        ('"attributes":{"a":123456789012345678901234567890}', "attribute 'a' does not fit in 64 bits"),
        ('"attributes":{"":1}', "an attribute name has 1 to 128 characters"),
        ('"payload":""', "attributes"),
    ],
)
def test_a_line_of_the_control_channel_that_is_no_event_is_refused(tmp_path: Path, fields: str, told: str) -> None:
    def in_thread(socket: Path) -> dict[str, Any]:
        connection = Connection(str(socket))
        connection.send(f'{{"op":"publish","id":1,{fields}}}\n'.encode())
        line = connection.receive(float("inf"))
        connection.close()
        assert line is not None
        return msgspec.json.decode(line, type=dict[str, Any])

    async def story() -> None:
        async with running(tmp_path) as socket:
            answer = await asyncio.get_running_loop().run_in_executor(None, in_thread, socket)
        assert answer["answer"] == "refused"
        assert answer["wrong_use"] is True
        assert told in answer["message"], answer

    asyncio.run(story())
