"""The HTTP server of the live page, on the loopback interface, with a secret key in the address."""

import hmac
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from carrycast.analysis.live_page.nodes import Watchers
from carrycast.analysis.player import live_page
from carrycast.errors import WorkError

HOST = "127.0.0.1"
MAX_REQUESTS = 16
"""The most concurrent requests. A page sends one at a time; further connections wait in the system's queue."""
PATIENCE_S = 10.0
# The page loads nothing from other sites, and no site may embed it in a frame.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class PageServer(ThreadingHTTPServer):
    """Serves one network's page."""

    daemon_threads = True

    def __init__(self, watchers: Watchers, title: str, port: int = 0) -> None:
        self.watchers = watchers
        self.page = live_page(title).encode()
        # Other users of the machine can reach the port. Control sockets are private to their owner, and so is the page.
        self.key = secrets.token_urlsafe(12)
        self._free = threading.BoundedSemaphore(MAX_REQUESTS)
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise WorkError(f"cannot serve the page on {HOST}:{port}: {reason}; try another --port") from None

    @property
    def address(self) -> str:
        """The address to open in a browser."""
        return f"http://{HOST}:{self.server_port}/{self.key}/"

    def process_request_thread(self, request: "socket | tuple[bytes, socket]", client_address: Any) -> None:
        """Handle a request in its thread; at most `MAX_REQUESTS` at a time."""
        with self._free:
            super().process_request_thread(request, client_address)

    def handle_error(self, request: "socket | tuple[bytes, socket]", client_address: Any) -> None:
        """Ignore errors of connections that the browser closes early."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = PATIENCE_S
    server_version = "carrycast"
    sys_version = ""

    def do_GET(self) -> None:
        """Send the page, or the rows since the last request."""
        asked = urlsplit(self.path)
        # Another Host means DNS rebinding: a page of another site, through the visitor's browser.
        if self.headers.get("Host", "") not in (
            f"{HOST}:{self.server.server_port}",
            f"localhost:{self.server.server_port}",
        ):
            self._answer(403, "text/plain", b"this page is for this machine alone\n")
            return
        key, _, rest = asked.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(key.encode(), self.server.key.encode()) or rest not in ("", "story"):
            self._answer(404, "text/plain", b"there is no such page; the command has printed its address\n")
        elif rest == "story":
            query = parse_qs(asked.query)
            chapter, after = (_parse_number(query.get(name, [""])[0]) for name in ("chapter", "after"))
            story = msgspec.json.encode(self.server.watchers.story(chapter, after))
            self._answer(200, "application/json", story)
        else:
            self._answer(200, "text/html; charset=utf-8", self.server.page)

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", POLICY),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


def _parse_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else -1
