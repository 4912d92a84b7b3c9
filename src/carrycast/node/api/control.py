"""The server of the client API (control channel): local clients publish, subscribe, set the position, read the status.

It listens on a Unix socket that only its owner may open, or on a port of 127.0.0.1 for clients that know its token. The
number of clients is bounded.
"""

import asyncio
import os
import socket
import stat
from pathlib import Path

from carrycast.errors import UserError, WorkError
from carrycast.node.api.client_session import CHUNK_BYTES, ClientSession
from carrycast.node.api.node_interface import NodeInterface
from carrycast.node.api.token import TOKEN_REQUIRED, is_admitted, read_or_create_token

MAX_CLIENTS = 64
"""Local programs of one device; a program that leaks connections must not take the node's files."""
IDLE_S = 5.0
"""A client that has nothing open and was silent for so long may be disconnected in favor of another."""
SHUTDOWN_TURNS = 3


class ControlServer:
    """Accepts clients."""

    def __init__(self, node: NodeInterface, place: Path | int, token_file: Path | None = None) -> None:
        """`place` is a socket path or a port; a port needs a token file."""
        if isinstance(place, int) and token_file is None:
            raise UserError("a control port needs a token: name a token_file in [control]")
        self._node = node
        self._place = place
        self._token = None if token_file is None else read_or_create_token(token_file)
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], ClientSession] = {}

    async def start(self) -> None:
        """Listen; a WorkError if the socket or the port is in use."""
        try:
            listening = _unix_socket(self._place) if isinstance(self._place, Path) else _loopback_socket(self._place)
        except OSError as error:
            where = self._place if isinstance(self._place, Path) else f"127.0.0.1:{self._place}"
            raise WorkError(f"cannot listen for clients on {where}: {error.strerror or error}") from None
        if isinstance(self._place, Path):
            self._server = await asyncio.start_unix_server(self._on_client, sock=listening, limit=CHUNK_BYTES)
        else:
            self._server = await asyncio.start_server(self._on_client, sock=listening, limit=CHUNK_BYTES)

    @property
    def address(self) -> str:
        """The address that clients connect to."""
        if isinstance(self._place, Path):
            return str(self._place)
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        assert self._server is not None
        self._server.close()
        for client in self._clients.values():
            client.abort()
        await asyncio.gather(*self._clients, return_exceptions=True)
        # A connection that was accepted at the last moment starts, and is closed, within the next turns of the loop.
        for _ in range(SHUTDOWN_TURNS):
            await asyncio.sleep(0)
        if isinstance(self._place, Path):
            self._place.unlink(missing_ok=True)

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        client = ClientSession(self._node, reader, writer)
        if self._server is None or not self._server.is_serving():
            client.abort()
            return
        if len(self._clients) >= MAX_CLIENTS and not self._make_room():
            client.reject(f"the node serves at most {MAX_CLIENTS} clients")
            return
        self._clients[task] = client
        try:
            if self._token is not None and not await is_admitted(reader, self._token):
                client.reject(TOKEN_REQUIRED)
                return
            await client.serve()
        finally:
            del self._clients[task]

    def _make_room(self) -> bool:
        """Disconnect the client that has been idle longest, if one is; False if none is."""
        idle = [client for client in self._clients.values() if client.silent or client.idle_s >= IDLE_S]
        if idle:
            longest = max(idle, key=lambda client: client.idle_s)
            longest.reject("the node needs the place of a client that is silent")
            longest.abort()
        return bool(idle)


def _unix_socket(path: Path) -> socket.socket:
    """A listening socket at a path; the leftover of a node that has ended is replaced."""
    if path.exists():
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise WorkError(f"cannot listen for clients on {path}: there is a file of that name, and it is no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except OSError:
                path.unlink()
            else:
                raise WorkError(f"cannot listen for clients on {path}: another node does")
    path.parent.mkdir(parents=True, exist_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    before = os.umask(0o077)
    try:
        listening.bind(str(path))
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening


def _loopback_socket(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
    except BaseException:
        listening.close()
        raise
    return listening
