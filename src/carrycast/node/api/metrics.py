"""Monitoring: a small HTTP server with `GET /metrics` in the text format of OpenMetrics, and `GET /health`.

Requests that are anything else, too long or too slow are rejected.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from carrycast.errors import WorkError
from carrycast.node.api.messages import Status
from carrycast.node.link import SocketAddress, format_socket_address
from carrycast.node.recorder import DelayHistogram

MAX_REQUEST_BYTES = 8192
REQUEST_S = 5.0
MAX_CONNECTIONS = 16
"""Open connections; one more closes the oldest, which is slow or silent."""
COUNTED = ("delivered", "published", "received", "retried", "sent")
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
Samples: TypeAlias = Sequence[tuple[str, Mapping[str, str], float]]
"""Of one metric family: the suffix of its name, labels, value."""
PLAIN = "text/plain; charset=utf-8"


class Health(NamedTuple):
    """The health of a node."""

    failure: str | None = None
    """What is wrong."""
    warning: str | None = None
    """What will be wrong unless somebody acts."""


def openmetrics(status: Status, delays: DelayHistogram) -> str:
    """All metrics, in the text format of OpenMetrics 1.0."""
    return "\n".join([*_lines(status, delays), "# EOF", ""])


def _lines(status: Status, delays: DelayHistogram) -> Iterator[str]:
    labels = {"name": status.name, "node": str(status.node), "protocol": status.protocol}
    yield from _family("node", "info", "The node.", [("_info", labels, 1)])
    yield from _family("uptime_seconds", "gauge", "Since the node started.", [("", {}, status.uptime_s)])
    # A counter that has not been incremented is 0, not absent, so that its first change is seen.
    counts = dict.fromkeys(COUNTED, 0) | status.counts
    events = [("_total", {"kind": kind}, count) for kind, count in sorted(counts.items())]
    yield from _family("events", "counter", "Published, delivered; messages sent, retried, received.", events)
    drops = [("_total", {"reason": reason}, count) for reason, count in sorted(status.drops.items())]
    yield from _family("drops", "counter", "What was dropped, by reason.", drops)
    yield from _retention(status)
    waiting = [("", {"where": where}, count) for where, count in sorted(status.waiting.items())]
    yield from _family("waiting", "gauge", "What waits: messages to send, events for subscribers and others.", waiting)
    yield from _family("subscriptions", "gauge", "Of local applications.", [("", {}, status.subscriptions)])
    yield from _family("neighbors", "gauge", "Nodes with a link.", [("", {}, len(status.neighbors))])
    links: list[tuple[str, Mapping[str, str], float]] = []
    for link, cost_s in status.links.items():
        neighbor, _, interface = link.partition("/")
        links.append(("", {"neighbor": neighbor, "interface": interface}, cost_s))
    yield from _family("link_cost_seconds", "gauge", "Links that are up, and what each costs.", links)
    ends_s = status.certificate_ends_s
    if ends_s is not None:
        help = "When the node's certificate ends, in seconds since 1970."
        yield from _family("certificate_end_timestamp_seconds", "gauge", help, [("", {}, ends_s)])
    yield from _family("delay_seconds", "histogram", "From publication to delivery, by both clocks.", _buckets(delays))


def _retention(status: Status) -> Iterator[str]:
    """For each level: accepted = kept + removed."""
    levels = status.retention.items()
    accepted = [("_total", {"level": level}, one.accepted) for level, one in levels]
    yield from _family("retention_accepted", "counter", "Events that came to be kept, by level.", accepted)
    kept = [("", {"level": level}, one.kept) for level, one in levels]
    yield from _family("retention_kept", "gauge", "Events that the protocol keeps, by level.", kept)
    removed = [
        ("_total", {"level": level, "reason": reason}, number)
        for level, one in levels
        for reason, number in sorted(one.removed.items())
    ]
    yield from _family("retention_removed", "counter", "Events that are kept no longer, by reason.", removed)
    length = [("", {"level": level}, one.log_bytes) for level, one in levels]
    yield from _family("retention_log_bytes", "gauge", "What events take in the retention log, by level.", length)


def _buckets(delays: DelayHistogram) -> Samples:
    samples: Samples = [
        ("_bucket", {"le": "+Inf" if bound is None else f"{bound:g}"}, count) for bound, count in delays.accumulate()
    ]
    return [*samples, ("_count", {}, delays.count), ("_sum", {}, delays.sum_s)]


def _family(name: str, kind: str, help: str, samples: Samples) -> Iterator[str]:
    full = f"carrycast_{name}"
    yield f"# TYPE {full} {kind}"
    if name.endswith("_seconds"):
        yield f"# UNIT {full} seconds"
    yield f"# HELP {full} {help}"
    for suffix, labels, value in samples:
        written = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        yield f"{full}{suffix}{{{written}}} {value!r}" if written else f"{full}{suffix} {value!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsServer:
    """Answers one request for each connection."""

    def __init__(
        self, status: Callable[[], Status], delays: DelayHistogram, health: Callable[[], Health], place: SocketAddress
    ) -> None:
        self._status = status
        self._delays = delays
        self._health = health
        self._place = place
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> None:
        """Listen; a WorkError if the port is in use."""
        host, port = self._place
        try:
            self._server = await asyncio.start_server(self._on_client, host, port, limit=MAX_REQUEST_BYTES)
        except OSError as error:
            raise WorkError(
                f"cannot serve metrics on {format_socket_address(self._place)}: {error.strerror or error}"
            ) from None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        assert self._server is not None
        self._server.close()
        for writer in self._clients.values():
            writer.transport.abort()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._clients) >= MAX_CONNECTIONS:
            # Rejecting the new one instead would let idle connections block the health check.
            self._clients.pop(next(iter(self._clients))).transport.abort()
        self._clients[task] = writer
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_S)
            writer.write(self._answer(head))
            await asyncio.wait_for(writer.drain(), REQUEST_S)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            self._clients.pop(task, None)
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", PLAIN, "not understood\n")
        if words[0] not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", PLAIN, "GET only\n")
        path = words[1].partition(b"?")[0]
        if path == b"/metrics":
            return _response("200 OK", OPENMETRICS, openmetrics(self._status(), self._delays), words[0])
        if path == b"/health":
            failure, warning = self._health()
            state = "200 OK" if failure is None else "503 Service Unavailable"
            text = (failure or "ok") + ("" if warning is None else f"\nwarning: {warning}")
            return _response(state, PLAIN, f"{text}\n", words[0])
        return _response("404 Not Found", PLAIN, "there are /metrics and /health\n")


def _response(state: str, kind: str, text: str, method: bytes = b"GET") -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {state}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if method == b"HEAD" else body)
