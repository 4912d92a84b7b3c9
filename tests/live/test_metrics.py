"""Monitoring: metrics that a parser of OpenMetrics would take, a health check, and what a service manager is told."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from carrycast.lab.loopback.network import Inbox, until
from carrycast.node.api import metrics
from carrycast.node.node import LiveNode
from carrycast.node.recorder import DelayHistogram
from carrycast.node.service_manager import ServiceManager
from tests.live.conftest import MakeConfig, Run
from tests.patience import PATIENCE_S


async def asked(port: int, request: bytes) -> tuple[str, dict[str, str], str]:
    """The state, the headers and the body of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    state, *headers = head.split("\r\n")
    return state.removeprefix("HTTP/1.1 "), dict(line.split(": ", 1) for line in headers), body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def test_metrics_tell_what_was_delivered_dropped_and_waits(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        made = replace(config(1), metrics=("127.0.0.1", 0))
        async with LiveNode(made) as node:
            inbox = Inbox()
            node.subscribe("n >= 0", inbox)
            for n in range(3):
                node.publish({"n": n})
            node.note_drop('odd "reason"')
            state, headers, body = await asked(node.metrics.port, get("/metrics"))
            assert (state, headers["Content-Type"]) == ("200 OK", metrics.OPENMETRICS)
            lines = body.split("\n")
            assert lines[-2:] == ["# EOF", ""]
            assert 'carrycast_events_total{kind="delivered"} 3' in lines
            assert r'carrycast_drops_total{reason="odd \"reason\""} 1' in lines
            assert 'carrycast_waiting{where="send/udp"} 0' in lines
            assert "carrycast_delay_seconds_count 3" in lines
            assert 'carrycast_delay_seconds_bucket{le="+Inf"} 3' in lines
            families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
            assert len(set(families)) == len(families)
            samples = [line for line in lines[:-2] if not line.startswith("#")]
            assert all(any(line.startswith(family) for family in families) for line in samples)

    run(story())


def test_what_has_not_happened_is_told_as_0_and_what_the_protocol_keeps_is_counted(
    config: MakeConfig, run: Run
) -> None:
    async def told(node: LiveNode) -> list[str]:
        return (await asked(node.metrics.port, get("/metrics")))[2].split("\n")

    async def story() -> None:
        async with LiveNode(replace(config(1, "epidemic", buffer=2), metrics=("127.0.0.1", 0))) as node:
            lines = await told(node)
            assert 'carrycast_events_total{kind="published"} 0' in lines
            assert 'carrycast_events_total{kind="delivered"} 0' in lines
            assert 'carrycast_waiting{where="buffer"} 0' in lines
            for n in range(3):
                node.publish({"n": n})
            assert 'carrycast_waiting{where="buffer"} 2' in await told(node)

    run(story())


def test_health_says_what_is_wrong_and_other_requests_are_turned_away(
    config: MakeConfig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "REQUEST_S", 0.1)

    async def story() -> None:
        async with LiveNode(replace(config(1), metrics=("127.0.0.1", 0))) as node:
            port = node.metrics.port
            assert (await asked(port, get("/health")))[::2] == ("200 OK", "ok\n")
            node._group_commit.failure = "the disk is full"
            assert (await asked(port, get("/health")))[::2] == ("503 Service Unavailable", "the disk is full\n")
            assert (await asked(port, get("/")))[0] == "404 Not Found"
            assert (await asked(port, b"POST /metrics HTTP/1.1\r\n\r\n"))[0] == "405 Method Not Allowed"
            assert (await asked(port, b"HEAD /metrics HTTP/1.1\r\n\r\n"))[2] == ""
            assert (await asked(port, b"nonsense\r\n\r\n"))[0] == "400 Bad Request"
            node._group_commit.failure = None
            # Half a request, and one without an end: nothing comes, and others are served.
            assert (await asked(port, b"GET /metr"))[0] == ""
            assert (await asked(port, b"x" * 100_000))[0] == ""
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(metrics.MAX_CONNECTIONS + 5)]
            await asyncio.sleep(0.3)
            assert (await asked(port, get("/health")))[0] == "200 OK"
            for _, writer in held:
                writer.close()

    run(story())


def test_who_holds_connections_open_shuts_nobody_out_and_the_end_is_quiet(
    config: MakeConfig, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with LiveNode(replace(config(1), metrics=("127.0.0.1", 0))) as node:
            port = node.metrics.port
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(metrics.MAX_CONNECTIONS + 5)]
            for _, writer in held:
                writer.write(b"GET /hea")
            assert (await asked(port, get("/health")))[0] == "200 OK"
        for _, writer in held:
            writer.close()

    run(story())
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_delays_are_counted_in_buckets() -> None:
    delays = DelayHistogram()
    for delay_s in (-5.0, 0.001, 0.05, 7200.0):
        delays.add(delay_s)
    told = dict(delays.accumulate())
    assert (told[0.001], told[0.01], told[0.1], told[3600.0], told[None]) == (2, 2, 3, 3, 4)
    assert delays.sum_s == pytest.approx(7200.051)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(str(tmp_path / "notify"))
        opened.setblocking(False)
        yield opened


def heard(manager: socket.socket, said: list[str]) -> list[str]:
    """All that was said so far: the queue of a socket has room for a few messages only."""
    with suppress(BlockingIOError):
        while True:
            said.append(manager.recv(1000).decode())
    return said


def test_a_service_manager_that_does_not_listen_holds_up_nobody(
    run: Run, manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "1000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                other.sendto(b"of another service", str(tmp_path / "notify"))

    async def story() -> None:
        service = ServiceManager()
        service.notify_ready("node a runs")
        said: list[str] = []
        await until(lambda: "READY=1\nSTATUS=node a runs" in heard(manager, said), PATIENCE_S)
        # It says that it is alive until the queue is full again, and goes on.
        told = asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, told.set)
        await told.wait()
        service.notify_stopping()

    run(story())


def test_a_service_manager_is_told_of_the_start_of_life_and_of_the_end(
    run: Run, manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    said: list[str] = []

    async def story() -> None:
        service = ServiceManager()
        service.notify_ready("node a runs")
        await until(lambda: heard(manager, said).count("WATCHDOG=1") >= 3, PATIENCE_S)
        service.notify_stopping()
        await until(lambda: "STOPPING=1" in heard(manager, said), PATIENCE_S)

    run(story())
    assert said[0] == "READY=1\nSTATUS=node a runs"
    assert said[-1] == "STOPPING=1"


def test_without_a_manager_nothing_is_said_and_one_that_is_gone_does_no_harm(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def story() -> None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
        ServiceManager().notify_ready("")
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
        service = ServiceManager()
        service.notify_ready("")
        service.notify_stopping()

    run(story())
