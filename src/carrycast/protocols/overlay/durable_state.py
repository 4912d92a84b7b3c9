"""Durable state of a broker, if `durable` is set: clients, modulators, streams, relocations in progress.

A record is written before the broker confirms something that depends on it: an event accepted, an input processed.
Acknowledgements that only shorten a record are not written: a peer that sends them again gets the same answer.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import msgspec

from carrycast.core.model import NodeId
from carrycast.core.protocol import DurableStore
from carrycast.protocols.overlay.context import NodeContext
from carrycast.protocols.overlay.messages import RelocationRecord, SequenceNumber

T = TypeVar("T")

CLIENT, INCOMING, RESUMED, RELEASED = b"c/", b"a/", b"b/", b"r/"

RelocationKey = tuple[NodeId, SequenceNumber]
"""The other broker of a relocation, and its id."""


class DurableRecord(NamedTuple):
    """A record and the time at which it was written; the node's clock goes on when it restarts."""

    time: float
    record: RelocationRecord


class RecordStore(Generic[T]):
    """The records under one prefix of the durable store."""

    def __init__(self, prefix: bytes, store: DurableStore | None, kind: type[T]) -> None:
        self._prefix = prefix
        self._store = store
        self._decoder = msgspec.msgpack.Decoder(kind)

    def put(self, key: object, value: T) -> None:
        """Write a record."""
        if self._store is not None:
            self._store.put(self._prefix + msgspec.msgpack.encode(key), msgspec.msgpack.encode(value))

    def remove(self, key: object) -> None:
        """Remove a record."""
        if self._store is not None:
            self._store.delete(self._prefix + msgspec.msgpack.encode(key))

    def items(self) -> list[tuple[bytes, T]]:
        """All records, by encoded key."""
        if self._store is None:
            return []
        found = list(self._store.items(self._prefix))
        return [(key[len(self._prefix) :], self._decoder.decode(value)) for key, value in found]


class DurableBrokerState:
    """A broker's part of the node's durable store; it writes nothing without the setting."""

    def __init__(self, context: NodeContext) -> None:
        self.durable = context.settings.durable
        store = context.host.store if self.durable else None
        self.clients = RecordStore(CLIENT, store, DurableRecord)
        self.incoming = RecordStore(INCOMING, store, DurableRecord)
        self.resumed = RecordStore(RESUMED, store, bool)
        self.released = RecordStore(RELEASED, store, bool)
        self._changed: dict[NodeId, None] = {}

    def mark_changed(self, client: NodeId) -> None:
        """The state of a client differs from its record."""
        if self.durable:
            self._changed[client] = None

    def flush(self, now: float, snapshot: Callable[[float, NodeId], RelocationRecord | None]) -> None:
        """Write the changed records; remove those of clients without state here."""
        for client in self._changed:
            record = snapshot(now, client)
            if record is None:
                self.clients.remove(client)
            else:
                self.clients.put(client, DurableRecord(now, record))
        self._changed.clear()

    def relocation_keys(self, records: "RecordStore[bool] | RecordStore[DurableRecord]") -> list[RelocationKey]:
        """The keys of stored relocations."""
        return [msgspec.msgpack.decode(key, type=RelocationKey) for key, _ in records.items()]
