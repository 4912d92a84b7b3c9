"""The control channel: clients publish and subscribe, and none of them can harm the node."""

import asyncio
import json
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest

from carrycast.api import connect_async
from carrycast.core.model import EventId, Position, Velocity
from carrycast.errors import UserError, WorkError
from carrycast.lab.loopback.network import until
from carrycast.node.api import client_session, control, outbound_queue
from carrycast.node.api.client import connect
from carrycast.node.api.control import MAX_CLIENTS
from carrycast.node.api.messages import MAX_LINE_BYTES
from carrycast.node.api.token import first_line, split_token
from carrycast.node.commands import SubscribeArguments, move, parse_attributes, publish, status, subscribe
from carrycast.node.node import LiveNode
from carrycast.node.runtime.publisher import MAX_EVENT_BYTES
from tests.live.conftest import MakeConfig, Run
from tests.live.talker import Talker

Story = Callable[[str], None]


def with_node(config: MakeConfig, run: Run, place: Path | int, client: Story) -> None:
    """Run a client, which blocks, in a thread beside a node."""

    async def story() -> None:
        with tempfile.TemporaryDirectory() as folder:
            token = Path(folder) / "token"
            made = replace(config(1, control=place), control_token=token if isinstance(place, int) else None)
            async with LiveNode(made) as node:
                assert node.control_address is not None
                file = f"{token}@" if isinstance(place, int) else ""
                await asyncio.to_thread(client, f"{file}{node.control_address}")

    run(story())


def raw(address: str) -> socket.socket:
    token, place = split_token(address)
    host, _, port = place.rpartition(":")
    made = socket.create_connection((host, int(port)), timeout=5)
    assert token is not None
    made.sendall(first_line(token))
    return made


def send_until_hung_up(line: socket.socket) -> None:
    """Send a line without an end; a timeout, which fails the test, if the other side bears it all."""
    try:
        for _ in range(64):
            line.sendall(b"x" * (MAX_LINE_BYTES // 8))
        while line.recv(65_536):
            pass
    except ConnectionError:
        pass


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "node.sock"


def test_a_client_gets_what_it_subscribed_to(config: MakeConfig, run: Run, place: Path) -> None:
    def client(address: str) -> None:
        with connect(address) as one, connect(address) as other:
            fast, all = one.subscribe("speed > 30"), one.subscribe()
            id = other.publish({"speed": 31, "road": "A1", "icy": True}, payload=b"\x00\xff", lease_s=5)
            other.publish({"speed": 1.5})
            event = next(fast)
            assert isinstance(event.id, EventId)
            assert (event.id, event.attributes) == (id, {"speed": 31, "road": "A1", "icy": True})
            assert (event.payload, event.lease_s) == (b"\x00\xff", 5.0)
            assert [next(all).attributes["speed"] for _ in range(2)] == [31, 1.5]
            assert fast.next_event(timeout_s=0.02) is None
            fast.close()
            assert list(fast) == []
            assert one.status().subscriptions == 1

    with_node(config, run, place, client)
    with_node(config, run, 0, client)


def test_the_commands_publish_subscribe_and_tell_the_status(config: MakeConfig, run: Run, place: Path) -> None:
    async def story() -> None:
        async with LiveNode(config(1, control=place)) as node:
            received = asyncio.create_task(
                asyncio.to_thread(lambda: list(subscribe(str(place), SubscribeArguments("n > 1"), 2, 5)))
            )
            await until(lambda: node.status().subscriptions == 1)
            await asyncio.to_thread(publish, str(place), {"n": 1})
            await asyncio.to_thread(publish, str(place), {"n": 2})
            await asyncio.to_thread(publish, str(place), {"n": 3}, b"x", 9.0)
            assert [event.attributes["n"] for event in await received] == [2, 3]
            answer = await asyncio.to_thread(status, str(place))
            assert (answer.name, answer.protocol, answer.counts["published"]) == ("node-1", "flooding", 3)
            assert (
                await asyncio.to_thread(lambda: list(subscribe(str(place), SubscribeArguments(), timeout_s=0.02))) == []
            )

    run(story())


def test_a_node_is_told_where_it_is_and_its_protocol_reads_it(config: MakeConfig, run: Run, place: Path) -> None:
    async def story() -> None:
        async with LiveNode(replace(config(1, Talker, control=place), position=Position(1.0, 2.0))) as node:
            host = Talker.all[1].host

            async def told(
                at: tuple[float, float] | None, moving: tuple[float, float] = (0.0, 0.0)
            ) -> tuple[Position | None, Velocity | None]:
                await asyncio.to_thread(move, str(place), at, moving)
                return host.position(0.0), host.velocity(0.0)

            standing = Velocity(0.0, 0.0)
            assert (host.position(0.0), host.velocity(0.0)) == (Position(1.0, 2.0), standing)
            assert await told((-3.5, 4e6), (1.5, 0)) == (Position(-3.5, 4e6), Velocity(1.5, 0.0))
            assert node.status().position == Position(-3.5, 4e6)
            assert await told((7, 8)) == (Position(7.0, 8.0), standing)
            assert await told(None) == (None, None)
            assert (await asyncio.to_thread(status, str(place))).position is None
            for wrong in ((nan, 0.0), (0.0, inf), (1e10, 0.0)):
                with pytest.raises(UserError, match="position: "):
                    await told(wrong)
            assert host.position(0.0) is None
        # It starts where its configuration has it.
        async with LiveNode(node.config):
            assert Talker.all[1].host.position(0.0) == Position(1.0, 2.0)

    run(story())


def test_a_node_that_has_no_position_cannot_be_given_one(config: MakeConfig, run: Run, place: Path) -> None:
    def client(address: str) -> None:
        with pytest.raises(UserError, match=r"no position to change; give it \[position\] in its configuration"):
            move(address, (1.0, 2.0))

    with_node(config, run, place, client)


@pytest.mark.parametrize("said", ["[1]", "[1, null]", "[1, 1e999]", '"here"', "[1, 2, 3]", "7"])
def test_a_position_that_is_none_is_not_understood(config: MakeConfig, run: Run, said: str) -> None:
    def client(address: str) -> None:
        with raw(address) as line:
            line.sendall(b'{"op": "position", "position": %s}\n' % said.encode())
            answer = json.loads(line.makefile().readline())
            assert (answer["answer"], answer["wrong_use"]) == ("refused", True)

    with_node(config, run, 0, client)


def test_a_named_subscription_keeps_events_for_a_client_that_comes_back(
    config: MakeConfig, run: Run, place: Path
) -> None:
    def client(address: str) -> None:
        with connect(address) as one:
            one.subscribe("n > 0", name="logger")
            one.subscribe("n > 0")
        with connect(address) as one:
            while one.status().subscriptions != 1:
                pass
            ids = [one.publish({"n": n}) for n in (1, 2)]
            again = one.subscribe("n > 0", name="logger")
            assert [next(again).id for _ in range(2)] == ids

    with_node(config, run, place, client)


def test_who_comes_back_as_somebody_else_gets_nothing_that_waited_for_whom_it_was(
    config: MakeConfig, run: Run, place: Path
) -> None:
    def client(address: str) -> None:
        with connect(address) as one:
            one.subscribe("n > 0", name="logger", attributes={"rank": "major"})
        with connect(address) as one:
            secret = one.publish({"n": 1}, access="rank = 'major'")
            demoted = one.subscribe("n > 0", name="logger", attributes={"rank": "minor"})
            one.publish({"n": 2}, access="rank = 'major'")
            plain = one.publish({"n": 3})
            got = next(demoted).id
            assert got == plain != secret

    with_node(config, run, place, client)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda client: client.subscribe("speed >"), "filter: expected"),
        (lambda client: client.subscribe("", lease_s=-1), "a lease is longer than 0 s"),
        (lambda client: client.publish({"n": 2**63}), "does not fit in 64 bits"),
        (lambda client: client.publish({"": 1}), "an attribute name has"),
        (lambda client: client.publish({"n": 1}, copies=65), "not understood: Expected"),
        (lambda client: client.publish({"n": 1}, payload=bytes(MAX_EVENT_BYTES)), "fit in a datagram"),
        (lambda client: client.publish({"n": 1}, payload=bytes(2 << 20)), "fit through the control channel"),
        (lambda client: client.publish({"n": 1}, access="role ="), "access: filter: expected"),
        (lambda client: client.unsubscribe((1, 5)), "this client has no subscription"),
    ],
)
def test_what_a_client_asks_wrongly_is_refused_in_one_line(
    config: MakeConfig, run: Run, place: Path, ask: Callable[[object], object], message: str
) -> None:
    def client(address: str) -> None:
        with connect(address) as one:
            with pytest.raises(UserError, match=message):
                ask(one)
            assert one.status().name == "node-1"

    with_node(config, run, place, client)


def test_garbage_lines_are_answered_and_an_endless_line_ends_the_connection(config: MakeConfig, run: Run) -> None:
    def client(address: str) -> None:
        garbage = [b"", b"\xff\xfe", b"[]", b"{}", b'{"op": "publish"}', b'{"op": "fly"}', b"[" * 100_000, b"1" * 5000]
        with raw(address) as line, line.makefile("rb") as answers:
            for bad in garbage:
                line.sendall(bad + b"\n")
                answer = json.loads(answers.readline())
                assert answer["answer"] == "refused"
                assert answer["message"].startswith("not understood")
            line.sendall(b'{"op": "status", "id": 7}\n')
            assert json.loads(answers.readline())["id"] == 7
        with raw(address) as line:
            send_until_hung_up(line)
        assert status(address).name == "node-1"

    with_node(config, run, 0, client)


def test_a_client_that_does_not_read_loses_events_and_the_node_goes_on(
    config: MakeConfig, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbound_queue, "MAX_LIVE_BYTES", 10_000)

    def client(address: str) -> None:
        with connect(address) as idle, connect(address) as busy:
            unread = idle.subscribe("")
            drops: dict[str, int] = {}
            while "client_slow" not in drops:
                for _ in range(20):
                    busy.publish({"n": 1}, payload=bytes(40_000))
                drops = busy.status().drops
            received = 0
            while unread.next_delivery(timeout_s=0.05) is not None:
                received += 1
            assert received > 0

    with_node(config, run, place, client)


def test_too_many_clients_and_too_many_subscriptions_are_refused(
    config: MakeConfig, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "MAX_CLIENTS", 2)
    monkeypatch.setattr(client_session, "MAX_CLIENT_SUBSCRIPTIONS", 3)

    def client(address: str) -> None:
        with connect(address) as one, connect(address) as two:
            assert one.status().name == two.status().name
            with connect(address) as three, pytest.raises(WorkError, match=r"at most 2 clients|gone|hung up"):
                three.status()
            for _ in range(3):
                one.subscribe("n = 1")
            with pytest.raises(UserError, match="at most 3 subscriptions"):
                one.subscribe("n = 1")

    with_node(config, run, place, client)


def test_a_node_that_stops_hangs_up_on_its_clients(config: MakeConfig, run: Run, place: Path) -> None:
    async def story() -> None:
        async with LiveNode(config(1, control=place)) as node:
            assert place.stat().st_mode & 0o077 == 0
            waiting = asyncio.create_task(asyncio.to_thread(lambda: list(subscribe(str(place), SubscribeArguments()))))
            await until(lambda: node.status().subscriptions == 1)
        with pytest.raises(WorkError, match=r"hung up|gone"):
            await waiting
        assert not place.exists()
        with pytest.raises(WorkError, match=r"no node answers at .*is `carrycast node` running"):
            connect(str(place))

    run(story())


def test_a_place_in_use_is_refused_and_a_dead_socket_is_replaced(config: MakeConfig, run: Run, place: Path) -> None:
    async def story() -> None:
        async with LiveNode(config(1, control=place)):
            with pytest.raises(WorkError, match="another node does"):
                await LiveNode(config(2, control=place)).start()
            assert (await asyncio.to_thread(status, str(place))).name == "node-1"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(place))
        async with LiveNode(config(2, control=place)):
            assert (await asyncio.to_thread(status, str(place))).name == "node-2"
        place.write_text("a letter")
        with pytest.raises(WorkError, match="it is no socket"):
            await LiveNode(config(2, control=place)).start()
        with pytest.raises(WorkError, match="cannot listen for clients on"):
            await LiveNode(config(2, control=place.parent / ("x" * 120))).start()
        on_port = replace(config(1, control=0), control_token=place.parent / "token")
        async with LiveNode(on_port) as node:
            assert node.control_address is not None
            port = int(node.control_address.rpartition(":")[2])
            with pytest.raises(
                WorkError, match=f"cannot listen for clients on 127.0.0.1:{port}: Address already in use"
            ):
                await LiveNode(replace(on_port, control=port)).start()

    run(story())


def test_a_client_notices_that_it_talks_to_no_node() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        connect(f"127.0.0.1:{server.getsockname()[1]}") as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(b"220 mail.example ESMTP\r\n")
            with pytest.raises(WorkError, match="is no node of carrycast"):
                client.status()


def test_attributes_are_read_from_words() -> None:
    read = parse_attributes(["speed=31", "load=0.5", "icy=true", "road=A1", "id='7'", "text=a=b", "empty="])
    assert read == {
        "speed": 31,
        "load": 0.5,
        "icy": True,
        "road": "A1",
        "id": "7",
        "text": "a=b",
        "empty": "",
    }
    assert isinstance(read["icy"], bool)
    with pytest.raises(UserError, match="write name=value"):
        parse_attributes(["speed"])


def test_a_port_needs_the_token_of_its_node(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    token = tmp_path / "run" / "token"

    def attempts(port: str) -> None:
        # A web page makes a browser on this machine say this.
        body = b'{"op": "publish", "attributes": {"n": 1}}\n'
        posted = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        for line in (posted, body, b'{"op": "token", "token": "%s"}\n' % (b"0" * 64) + body, b"\xff\n", b"[" * 10_000):
            with socket.create_connection(("127.0.0.1", int(port)), 5) as stranger:
                stranger.sendall(line + b"\n")
                told = b""
                with suppress(ConnectionError):
                    while chunk := stranger.recv(4096):
                        told += chunk
            assert told.count(b"\n") <= 1, told
            assert b"published" not in told
        with pytest.raises(WorkError, match="needs the node's token"):
            status(f"127.0.0.1:{port}")
        with pytest.raises(UserError, match="cannot be read"):
            status(f"{tmp_path}/none@127.0.0.1:{port}")
        assert status(f"{token}@127.0.0.1:{port}").counts.get("published", 0) == 0

    async def story() -> None:
        async with LiveNode(replace(config(1, control=0), control_token=token)) as node:
            assert token.stat().st_mode & 0o077 == 0
            assert node.control_address is not None
            port = node.control_address.rpartition(":")[2]
            await asyncio.to_thread(attempts, port)
            async with connect_async(f"{token}@127.0.0.1:{port}") as client:
                assert (await client.publish({"n": 1})).source == 1
        with pytest.raises(UserError, match="needs a token"):
            await LiveNode(config(2, control=0)).start()

    run(story())


def test_what_looks_like_http_ends_the_connection(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with LiveNode(config(1, control=tmp_path / "1.sock")) as node:
            reader, writer = await asyncio.open_unix_connection(tmp_path / "1.sock")
            writer.write(b'GET /{"op":"publish"} HTTP/1.1\r\n{"op": "publish", "attributes": {"n": 1}}\n')
            assert b"no web server" in await reader.read()
            writer.close()
            assert node.status().counts.get("published", 0) == 0

    run(story())


def test_silent_clients_make_room_for_others(config: MakeConfig, run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with LiveNode(config(1, control=tmp_path / "1.sock")):
            idle = [await asyncio.open_unix_connection(tmp_path / "1.sock") for _ in range(MAX_CLIENTS)]
            idle[3][1].write(b'{"op": "pub')  # half a line
            for _ in range(5):
                assert (await asyncio.to_thread(status, str(tmp_path / "1.sock"))).name == "node-1"
            for _, writer in idle:
                writer.close()

    run(story())


def test_idle_clients_make_room_for_others_and_busy_ones_do_not(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "IDLE_S", 0.1)

    def client(address: str) -> None:
        idle = [raw(address) for _ in range(control.MAX_CLIENTS - 1)]
        with connect(address) as reader:
            deliveries = reader.subscribe("n = 1")
            time.sleep(0.3)
            for _ in range(3):
                with connect(address) as other:
                    other.publish({"n": 1})
                assert deliveries.next_event(5.0) is not None, "who subscribes is not idle, however silent it is"
        for one in idle:
            one.close()

    with_node(config, run, 0, client)


def test_half_lines_and_deep_json_hold_nobody_up(config: MakeConfig, run: Run) -> None:
    def client(address: str) -> None:
        half, deep = raw(address), raw(address)
        half.sendall(b'{"op": "publish", "id": 1, "attributes": {"n": 1')
        for text in (b"[" * 100_000, b'{"op": "command", "id": 2, "body": ' + b'{"a":' * 50_000):
            deep.sendall(text + b"\n")
            assert b"not understood" in deep.recv(65536)
        with connect(address) as other:
            other.publish({"n": 2})
        half.sendall(b'}}\n{"op": "status", "id": 2}\n')
        answers = b""
        while answers.count(b"\n") < 2:
            answers += half.recv(65536)
        assert [json.loads(line)["answer"] for line in answers.splitlines()] == ["published", "status"]
        for one in (half, deep):
            one.close()

    with_node(config, run, 0, client)
