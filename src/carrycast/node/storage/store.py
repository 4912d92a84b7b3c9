"""The durable store of a node: one SQLite database in WAL mode (write-ahead log).

Each layer has a table of its own. Other tables hold the named subscriptions, their backlogs, and the reserved sequence
numbers. The writes of one handler are a savepoint, which is rolled back if the handler raises; many handlers share one
commit (`group_commit.py`). Committed writes survive a crash of the process, synced writes survive a power cut.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec

from carrycast.core.model import NodeId, Subscription, SubscriptionId
from carrycast.core.protocol import ApplicationStore, DurableStore
from carrycast.core.wire import Layer
from carrycast.errors import WorkError

FORMAT = 2
"""The version of the tables. Version 1 (until 0.1) had no backlog table; it is upgraded when it is opened."""
IN_MEMORY = ":memory:"
PROBE = b"\0probe"
PROBE_BYTES = 1 << 17
"""More than the largest event and the rows that are written with it."""
FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
"""The errors of SQLite on a full disk, or for a file that may not grow."""
TICK_S = 0.5
"""The unit of incarnations without a store. Two starts of a process are further apart, and 2^31 ticks last until
2059."""
TICKS_FROM_S = 1_735_689_600.0
"""The beginning of 2025, in seconds since 1970."""
MAX_UNWRITTEN_S = 1 << 20
"""Twelve days. If the disk seems to have been full for longer, the clock is wrong."""
ANOTHER = "give back the key_file or the name it had, or move the file away to start again without its content"
WAY_OUT = "move the file away to start again without its content, and with a new key_file"
"""A node without its store may reuse sequence numbers, so it needs another identity."""

BACKLOG_TABLES = (
    "CREATE TABLE IF NOT EXISTS backlog (subscription INTEGER, position INTEGER, event BLOB, hops INTEGER, "
    "arrived_s REAL, handed INTEGER, PRIMARY KEY (subscription, position)) WITHOUT ROWID",
    # Rows are numbered in the order of arrival over all subscriptions.
    "CREATE TABLE IF NOT EXISTS taken (number INTEGER PRIMARY KEY, subscription INTEGER, source INTEGER, "
    "sequence INTEGER, UNIQUE (subscription, source, sequence))",
)


class _NoRoomError(Exception):
    """The disk has no room for a new store."""


class StoredSubscription(msgspec.Struct, frozen=True):
    """A named subscription: its name, and when its lease ends by the wall clock."""

    name: str
    subscription: Subscription
    until_wall_s: float | None


class NodeStore:
    """The database of one node."""

    def __init__(self, path: Path | None, node: NodeId) -> None:
        """Open or create the database at a path; without a path it is in memory."""
        self._path = path
        self._open = False
        self.has_savepoint = False
        """Whether anything was written since the last `release_savepoint`."""
        self.commits = 0
        """The number of commits so far."""
        self._unwritten_counters: dict[str, int] = {}
        """Sequence numbers reserved while the disk was full, to be written when there is room."""
        self._log: int | None = None
        self.failed: WorkError | None = None
        """Why the present transaction cannot be committed; the next commit reports it."""
        self.on_begin: Callable[[], None] = _do_nothing
        """Called with the first write of each transaction, to schedule its commit."""
        self.before_commit: Callable[[], None] = _do_nothing
        """Called before each commit, to add writes to it."""
        self.on_rollback: Callable[[], None] = _do_nothing
        """Called when a transaction was rolled back."""
        if path is not None:
            # Readable to its owner only: events may be encrypted on the network. An existing file is not changed.
            with suppress(OSError):
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._node = node
        self._create_error: str | None = None
        """Why the file could not be created. Until it is, the database is in memory and commits fail."""
        try:
            self._connect(path)
        except _NoRoomError as error:
            self._connect(None)
            self._create_error = str(error)

    def _connect(self, path: Path | None) -> None:
        try:
            self._database = sqlite3.connect(IN_MEMORY if path is None else path, isolation_level=None, timeout=0.5)
        except sqlite3.Error as error:
            raise WorkError(f"cannot open the store {path}: {error}") from None
        self._is_new = False
        try:
            self._prepare(self._node)
        except BaseException as error:
            self._database.close()
            if isinstance(error, sqlite3.OperationalError) and self._is_new and error.sqlite_errorcode & 0xFF in FULL:
                raise _NoRoomError(str(error)) from None
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise WorkError(f"the store {path} is in use by another node") from None
            if isinstance(error, sqlite3.OperationalError):
                raise WorkError(f"cannot use the store {path}: {error}") from None
            if isinstance(error, sqlite3.Error):
                raise WorkError(f"the store {path} is damaged, or none of carrycast: {error}; {WAY_OUT}") from None
            raise

    def layer(self, layer: Layer) -> DurableStore:
        """Return the table of one layer."""
        return LayerStore(self, f"layer_{layer.name.lower()}")

    def application(self, name: str) -> DurableStore:
        """Return the part of the table of applications that belongs to one application."""
        return ApplicationStore(LayerStore(self, "applications"), name)

    def reserve(self, counter: str, block: int) -> int:
        """Reserve `block` sequence numbers that no earlier start of this node has used, and return the first. The
        reservation is on disk when this returns."""
        row = self._database.execute("SELECT next FROM counters WHERE name = ?", (counter,)).fetchone()
        first: int = max(0 if row is None else row[0], self._unwritten_counters.get(counter, 0))
        try:
            self.set_counter(counter, first + block)
            self.commit()
            self._database.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        except (WorkError, sqlite3.OperationalError) as error:
            return self._reserve_unwritten(counter, first, block, error)
        self._unwritten_counters.pop(counter, None)
        return first

    def _reserve_unwritten(self, counter: str, first: int, block: int, error: Exception) -> int:
        """Reserve numbers on a full disk, to be written when there is room. For each tenth of a second since the file
        was last written one block is skipped, so that no earlier start can have used the numbers, unless the clock was
        set back."""
        if self._path is None or not isinstance(error, WorkError):
            raise WorkError(f"cannot write to the store {self._path}: {error}") from None
        if counter not in self._unwritten_counters:
            first += block * self._unwritten_ticks()
        self._unwritten_counters[counter] = first + block
        return first

    def _unwritten_ticks(self) -> int:
        """Return for how long nothing could be written, in tenths of a second; a process takes longer to start."""
        assert self._path is not None
        if self._create_error is not None:
            return max(1, int((time.time() - TICKS_FROM_S) / TICK_S))
        # Reservations are checkpointed into the file itself, so its time of change is that of the last one.
        passed_s = time.time() - self._path.stat().st_mtime
        return min(max(1, int(10 * passed_s)), 10 * MAX_UNWRITTEN_S)

    def read_counters(self, prefix: str) -> dict[str, int]:
        """Read all counters whose names begin with a prefix, by the rest of their names."""
        rows = self.query("SELECT name, next FROM counters WHERE substr(name, 1, ?) = ?", (len(prefix), prefix))
        return {name[len(prefix) :]: number for name, number in rows}

    def set_counter(self, name: str, number: int) -> None:
        """Write a counter with the next commit."""
        self.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", (name, number))

    def probe(self) -> None:
        """Check that the disk has room for an event of the largest size, and write the reservations that had none."""
        if self._create_error is not None:
            self._create()
        self.execute("INSERT OR REPLACE INTO applications VALUES (?, zeroblob(?))", (PROBE, PROBE_BYTES))
        for name, number in self._unwritten_counters.items():
            self.set_counter(name, number)
        self.commit()
        self._unwritten_counters.clear()
        self.execute("DELETE FROM applications WHERE key = ?", (PROBE,))

    def _create(self) -> None:
        """Create the file for which there was no room; nothing was committed to the database in memory."""
        with suppress(WorkError):
            self.commit()
        before = self._database
        try:
            self._connect(self._path)
        except (_NoRoomError, WorkError) as error:
            self._database = before
            self.failed = WorkError(f"cannot make the store {self._path}: {error}")
            raise self.failed from None
        before.close()
        self._create_error = self.failed = None

    def read_subscriptions(self) -> list[StoredSubscription]:
        """Read the named subscriptions, in the order in which they were made."""
        rows = self._database.execute("SELECT standing FROM subscriptions ORDER BY sequence").fetchall()
        try:
            return [msgspec.msgpack.decode(row[0], type=StoredSubscription) for row in rows]
        except (msgspec.MsgspecError, ValueError) as error:
            raise WorkError(f"{self._path} holds a subscription that cannot be read: {error}") from None

    def put_subscription(self, stored: StoredSubscription) -> None:
        """Write a named subscription, and commit."""
        row = (stored.subscription.id.sequence, msgspec.msgpack.encode(stored))
        self.execute("INSERT OR REPLACE INTO subscriptions VALUES (?, ?)", row)
        self.commit()

    def delete_subscription(self, subscription: SubscriptionId) -> None:
        """Delete a named subscription and its backlog, with the next commit."""
        self.execute("DELETE FROM subscriptions WHERE sequence = ?", (subscription.sequence,))
        for table in ("backlog", "taken"):
            self.execute(f"DELETE FROM {table} WHERE subscription = ?", (subscription.sequence,))

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> int:
        """Write with the next commit; the number of changed rows. On a full disk a WorkError is raised, and all writes
        since the last commit are lost, because SQLite may have rolled the transaction back."""
        if not self._open:
            self._database.execute("BEGIN")
            self._open = True
            self.on_begin()
        if not self.has_savepoint:
            self._database.execute("SAVEPOINT handler")
            self.has_savepoint = True
        try:
            return self._database.execute(statement, values).rowcount
        except sqlite3.OperationalError as error:
            self.failed = WorkError(f"cannot write to the store {self._path}: {error}")
            self.has_savepoint = False
            if not self._database.in_transaction:
                # Later writes of this transaction go into a new one, which is rolled back, too.
                self._database.execute("BEGIN")
            raise self.failed from None

    def query(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self._database.execute(statement, values).fetchall()

    def iterate(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        """Return a cursor over the rows of a query. The caller closes it."""
        return self._database.execute(statement, values)

    @property
    def in_transaction(self) -> bool:
        """Whether there are writes that are not committed."""
        return self._open

    def release_savepoint(self) -> None:
        """A handler has returned: its writes stay in the transaction."""
        if self.has_savepoint:
            self.has_savepoint = False
            self._database.execute("RELEASE handler")

    def rollback_savepoint(self) -> None:
        """A handler has raised: undo its writes, and only these."""
        if self.has_savepoint:
            self.has_savepoint = False
            self._database.execute("ROLLBACK TO handler")
            self._database.execute("RELEASE handler")

    def commit(self) -> None:
        """Commit the transaction. If that fails it is rolled back, and a WorkError, which is also in `failed`, says
        why."""
        if not self._open:
            return
        if self._create_error is not None and self.failed is None:
            self.failed = WorkError(f"cannot make the store {self._path}: {self._create_error}")
        if self.failed is None:
            with suppress(WorkError):
                self.before_commit()
        self._open = self.has_savepoint = False
        try:
            if self.failed is None:
                self._database.execute("COMMIT")
                self.commits += 1
        except sqlite3.Error as error:
            self.failed = WorkError(f"cannot write to the store {self._path}: {error}")
        if self.failed is not None:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self.on_rollback()
            raise self.failed

    def sync(self) -> None:
        """Sync the committed writes to the disk. SQLite appends commits to the WAL and syncs only with a checkpoint.
        This takes milliseconds, so it may be called from another thread."""
        if self._path is not None:
            if self._log is None:
                # SQLite holds no POSIX lock on the WAL file, so closing it here releases none.
                self._log = os.open(f"{self._path}-wal", os.O_RDONLY)
            os.fdatasync(self._log)

    def close(self) -> None:
        """Close the database; an open transaction is lost."""
        if self._log is not None:
            os.close(self._log)
        self._database.close()

    def _prepare(self, node: NodeId) -> None:
        database = self._database
        # One process per store: a second node on the same file would use the same sequence numbers.
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        # Checked before anything is changed, because the file may belong to another program.
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "store" not in tables:
            raise WorkError(f"{self._path} is a database of another program; name another file in [store]")
        self._is_new = not tables
        # Damage is reported at the start: a protocol that cannot read its table later would continue without its
        # events.
        [(damage,)] = database.execute("PRAGMA quick_check(1)").fetchall()
        if damage != "ok":
            raise sqlite3.DatabaseError(damage.splitlines()[-1])
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        # A full disk is reported by the commit, not within a handler.
        database.execute("PRAGMA cache_spill = OFF")
        if "backlog" in tables and database.execute("SELECT format, node FROM store").fetchone() == (FORMAT, node):
            return  # Nothing has to be written, so a node can start on a full disk.
        database.execute("BEGIN IMMEDIATE")
        database.execute("CREATE TABLE IF NOT EXISTS store (format INTEGER, node INTEGER)")
        database.execute("CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, next INTEGER)")
        database.execute("CREATE TABLE IF NOT EXISTS subscriptions (sequence INTEGER PRIMARY KEY, standing BLOB)")
        for table in ("applications", *(f"layer_{layer.name.lower()}" for layer in Layer)):
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        for statement in BACKLOG_TABLES:
            database.execute(statement)
        owner = database.execute("SELECT format, node FROM store").fetchone()
        if owner is None:
            database.execute("INSERT INTO store VALUES (?, ?)", (FORMAT, node))
        elif owner[0] > FORMAT:
            raise WorkError(
                f"the store {self._path} was written by a newer carrycast (format {owner[0]}, not {FORMAT}); run that "
                f"one, or {WAY_OUT}"
            )
        elif owner[1] != node:
            raise WorkError(f"the store {self._path} belongs to node {owner[1]}, not to node {node}; {ANOTHER}")
        else:
            database.execute("UPDATE store SET format = ?", (FORMAT,))
        database.execute("COMMIT")


class LayerStore(DurableStore):
    """The table of one layer, as the protocol interface offers it."""

    def __init__(self, store: NodeStore, table: str) -> None:
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
        # Keys are sorted, so the first one without the prefix ends the list.
        return list(takewhile(lambda item: item[0].startswith(prefix), ((row[0], row[1]) for row in rows)))


def _do_nothing() -> None:
    """The default of the hooks of a store."""
