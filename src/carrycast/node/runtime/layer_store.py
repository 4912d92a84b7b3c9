"""The part of a node's store that one layer sees."""

from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING

from carrycast.core.protocol import DurableStore

if TYPE_CHECKING:
    from carrycast.node.runtime.store import NodeStore


class LayerStore(DurableStore):
    """One layer's table."""

    def __init__(self, store: "NodeStore", table: str) -> None:
        self._store = store
        self._get = f"SELECT value FROM {table} WHERE key = ?"
        self._put = f"INSERT OR REPLACE INTO {table} VALUES (?, ?)"
        self._delete = f"DELETE FROM {table} WHERE key = ?"
        self._items = f"SELECT key, value FROM {table} WHERE key >= ? ORDER BY key"

    def get(self, key: bytes) -> bytes | None:
        rows = self._store.query(self._get, (key,))
        return rows[0][0] if rows else None

    def put(self, key: bytes, value: bytes) -> None:
        self._store.execute(self._put, (key, value))

    def delete(self, key: bytes) -> None:
        self._store.execute(self._delete, (key,))

    def items(self, prefix: bytes = b"") -> Iterable[tuple[bytes, bytes]]:
        rows = self._store.query(self._items, (prefix,))
        # Keys come in order from the prefix on, so the first that does not begin so ends the list.
        return list(takewhile(lambda item: item[0].startswith(prefix), ((row[0], row[1]) for row in rows)))
