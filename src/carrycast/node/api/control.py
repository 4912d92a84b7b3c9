"""The control channel: local clients publish, subscribe, tell where the node is and ask for its status.

A Unix socket that only its owner may open, or a port on 127.0.0.1 for who knows its token; for a bounded number of
clients.
"""

import asyncio
import os
import socket
import stat
from pathlib import Path

from carrycast.errors import UserError, WorkError
from carrycast.node.api.client_session import CHUNK_BYTES, ClientSession
from carrycast.node.api.node_interface import NodeInterface
from carrycast.node.api.token import WITHOUT, admitted, made_token

MAX_CLIENTS = 64
"""Local programs of one device; a program that leaks connections must not take the node's files."""
IDLE_S = 5.0
"""A client that has nothing open and was silent for so long may lose its place to another."""
LAST_TURNS = 3


class ControlServer:
    """Accepts clients."""

    def __init__(self, node: NodeInterface, place: Path | int, token_file: Path | None = None) -> None:
        """A port needs a file for its token."""
        if isinstance(place, int) and token_file is None:
            raise UserError("a control port needs a token: name a token_file in [control]")
        self._node = node
        self._place = place
        self._token = None if token_file is None else made_token(token_file)
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], ClientSession] = {}

    async def start(self) -> None:
        """Listen; a WorkError if the place is taken."""
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
        """What a client connects to."""
        if isinstance(self._place, Path):
            return str(self._place)
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def stop(self) -> None:
        """Hang up on everybody and listen no more."""
        assert self._server is not None
        self._server.close()
        for client in self._clients.values():
            client.abort()
        await asyncio.gather(*self._clients, return_exceptions=True)
        # Who was let in at the last moment begins, and is turned away, within the next turns of the loop.
        for _ in range(LAST_TURNS):
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
            client.refuse(f"the node serves at most {MAX_CLIENTS} clients")
            return
        self._clients[task] = client
        try:
            if self._token is not None and not await admitted(reader, self._token):
                client.refuse(WITHOUT)
                return
            await client.serve()
        finally:
            del self._clients[task]

    def _make_room(self) -> bool:
        """Of clients that have never said anything, or neither wait for anything nor have said anything for a while,
        the one silent longest goes."""
        idle = [client for client in self._clients.values() if client.silent or client.idle_s >= IDLE_S]
        if idle:
            longest = max(idle, key=lambda client: client.idle_s)
            longest.refuse("the node needs the place of a client that is silent")
            longest.abort()
        return bool(idle)


def _unix_socket(path: Path) -> socket.socket:
    """A socket at a path; one left behind by a node that is gone is replaced."""
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
