"""Durable state of a broker, if `durable` is set: clients, modulators, streams, relocations in progress.

A record is written before the broker confirms something that depends on it: an event accepted, an input processed.
Acknowledgements that only shorten a record are not written: a peer that sends them again gets the same answer.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import msgspec

from carrycast.core.model import NodeId
from carrycast.core.protocol import DurableStore
from carrycast.protocols.overlay.context import Station
from carrycast.protocols.overlay.messages import Record, Round

T = TypeVar("T")

CLIENT, ARRIVING, BEGUN, RELEASED = b"c/", b"a/", b"b/", b"r/"

MoveKey = tuple[NodeId, Round]


class Written(NamedTuple):
    """A record and when it was written; the node's clock runs on over its starts."""

    time: float
    record: Record


class Kind(Generic[T]):
    """What is kept under one prefix."""

    def __init__(self, prefix: bytes, store: DurableStore | None, kind: type[T]) -> None:
        self._prefix = prefix
        self._store = store
        self._decoder = msgspec.msgpack.Decoder(kind)

    def put(self, key: object, value: T) -> None:
        """Keep something."""
        if self._store is not None:
            self._store.put(self._prefix + msgspec.msgpack.encode(key), msgspec.msgpack.encode(value))

    def remove(self, key: object) -> None:
        """Forget it."""
        if self._store is not None:
            self._store.delete(self._prefix + msgspec.msgpack.encode(key))

    def items(self) -> list[tuple[bytes, T]]:
        """All of it, by encoded key."""
        if self._store is None:
            return []
        found = list(self._store.items(self._prefix))
        return [(key[len(self._prefix) :], self._decoder.decode(value)) for key, value in found]


class Ledger:
    """The broker's part of the node's durable store; nothing at all without the setting."""

    def __init__(self, station: Station) -> None:
        self.durable = station.settings.durable
        store = station.host.store if self.durable else None
        self.clients = Kind(CLIENT, store, Written)
        self.arriving = Kind(ARRIVING, store, Written)
        self.begun = Kind(BEGUN, store, bool)
        self.released = Kind(RELEASED, store, bool)
        self._touched: dict[NodeId, None] = {}

    def touch(self, client: NodeId) -> None:
        """Something of a client is otherwise than it was written."""
        if self.durable:
            self._touched[client] = None

    def flush(self, now: float, snapshot: Callable[[float, NodeId], Record | None]) -> None:
        """Write what was touched; who has nothing here any more is forgotten."""
        for client in self._touched:
            record = snapshot(now, client)
            if record is None:
                self.clients.remove(client)
            else:
                self.clients.put(client, Written(now, record))
        self._touched.clear()

    def moves(self, kind: "Kind[bool] | Kind[Written]") -> list[MoveKey]:
        """The moves that are written of, by who gives and their name."""
        return [msgspec.msgpack.decode(key, type=MoveKey) for key, _ in kind.items()]
