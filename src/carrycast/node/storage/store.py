"""What outlives a start: an SQLite file in WAL mode, for one node.

Each layer has a table of its own. The host keeps there the subscriptions that stand, what waits for them, and the
numbers already given away. The writes of a handler stay together: they are dropped when it raises, and many handlers
share one commit (`group_commit.py`). What is committed outlives a crash of the process, what is synced a power cut too.
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
from carrycast.core.protocol import DurableStore
from carrycast.core.protocol.application_host import ApplicationStore
from carrycast.core.wire import Layer
from carrycast.errors import WorkError

FORMAT = 2
"""1, until 0.1, had no table of what waits for subscriptions. Its other tables are the same, so it is taken over."""
IN_MEMORY = ":memory:"
PROBE = b"\0probe"
PROBE_BYTES = 1 << 17
"""More than an event and what is written with it."""
FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
"""What SQLite calls a disk that is full, or a file that may not grow."""
TICK_S = 0.5
"""Two starts of a process are further apart, and 2^31 of these, the most that fits, reach until 2059."""
TICKS_FROM_S = 1_735_689_600.0
"""The beginning of 2025, in seconds since 1970."""
LONGEST_UNWRITTEN_S = 1 << 20
"""A disk is not full for longer than twelve days, or the clock is wrong."""
ANOTHER = "give back the key_file or the name it had, or move the file away to begin anew, without what it holds"
WAY_OUT = "move the file away to begin anew, without what it holds and with a new key_file"
"""A node that begins anew may give numbers away again, so it has to be another one."""

BACKLOG_TABLES = (
    "CREATE TABLE IF NOT EXISTS backlog (subscription INTEGER, position INTEGER, event BLOB, hops INTEGER, "
    "arrived_s REAL, handed INTEGER, PRIMARY KEY (subscription, position)) WITHOUT ROWID",
    # The order of rows is the order of arrival, over all subscriptions.
    "CREATE TABLE IF NOT EXISTS taken (number INTEGER PRIMARY KEY, subscription INTEGER, source INTEGER, "
    "sequence INTEGER, UNIQUE (subscription, source, sequence))",
)


class _UnmadeError(Exception):
    """There is no room to make a store."""


class StoredSubscription(msgspec.Struct, frozen=True):
    """A subscription that stands: its name at the control channel, and when it ends by the wall clock."""

    name: str
    subscription: Subscription
    until_wall_s: float | None


class NodeStore:
    """The file of one node."""

    def __init__(self, path: Path | None, node: NodeId) -> None:
        """Without a path it is in memory, and outlives nothing."""
        self._path = path
        self._open = False
        self.has_savepoint = False
        """Whether anything was written since the last `settle`."""
        self.commits = 0
        """How often something was kept."""
        self._owed: dict[str, int] = {}
        """Numbers given away on a full disk, to be written when there is room."""
        self._log: int | None = None
        self.failed: WorkError | None = None
        """Why something that was written is not kept; whoever commits next takes it from here."""
        self.on_begin: Callable[[], None] = _nobody
        """Called with the first write after each commit, so that somebody commits."""
        self.before_commit: Callable[[], None] = _nobody
        """Called before each commit, to write what belongs to it."""
        self.on_rollback: Callable[[], None] = _nobody
        """Called when nothing of it is kept."""
        if path is not None:
            # What is sealed on its way is not for everybody on this machine; a file that is there stays as it is.
            with suppress(OSError):
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._node = node
        self._unmade: str | None = None
        """Why the file could not be made: then all is in memory, and nothing can be committed until it is."""
        try:
            self._connect(path)
        except _UnmadeError as error:
            self._connect(None)
            self._unmade = str(error)

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
                raise _UnmadeError(str(error)) from None
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise WorkError(f"the store {path} is in use by another node") from None
            if isinstance(error, sqlite3.OperationalError):
                raise WorkError(f"cannot use the store {path}: {error}") from None
            if isinstance(error, sqlite3.Error):
                raise WorkError(f"the store {path} is damaged, or none of carrycast: {error}; {WAY_OUT}") from None
            raise

    def layer(self, layer: Layer) -> DurableStore:
        """The part that one layer sees."""
        return LayerStore(self, f"layer_{layer.name.lower()}")

    def application(self, name: str) -> DurableStore:
        """The part that one application sees."""
        return ApplicationStore(LayerStore(self, "applications"), name)

    def reserve(self, counter: str, block: int) -> int:
        """The first of `block` numbers that no start of this node has had before; on disk when this returns."""
        row = self._database.execute("SELECT next FROM counters WHERE name = ?", (counter,)).fetchone()
        first: int = max(0 if row is None else row[0], self._owed.get(counter, 0))
        try:
            self.set_counter(counter, first + block)
            self.commit()
            self._database.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        except (WorkError, sqlite3.OperationalError) as error:
            return self._reserve_unwritten(counter, first, block, error)
        self._owed.pop(counter, None)
        return first

    def _reserve_unwritten(self, counter: str, first: int, block: int, error: Exception) -> int:
        """Numbers on a full disk: they are written when there is room. Until then a start begins as many blocks further
        on as tenths of a second have passed since the file was written, so that no start before it has had them,
        unless the clock was set back."""
        if self._path is None or not isinstance(error, WorkError):
            raise WorkError(f"cannot write to the store {self._path}: {error}") from None
        if counter not in self._owed:
            first += block * self._unwritten_ticks()
        self._owed[counter] = first + block
        return first

    def _unwritten_ticks(self) -> int:
        """For how long nothing could be written, in tenths of a second: a process takes longer to start."""
        assert self._path is not None
        if self._unmade is not None:
            return max(1, int((time.time() - TICKS_FROM_S) / TICK_S))
        # Numbers that could be written are in the file itself, not only in its log.
        passed_s = time.time() - self._path.stat().st_mtime
        return min(max(1, int(10 * passed_s)), 10 * LONGEST_UNWRITTEN_S)

    def counters(self, prefix: str) -> dict[str, int]:
        """All numbers whose name begins so, by the rest of their names."""
        rows = self.query("SELECT name, next FROM counters WHERE substr(name, 1, ?) = ?", (len(prefix), prefix))
        return {name[len(prefix) :]: number for name, number in rows}

    def set_counter(self, name: str, number: int) -> None:
        """Keep a number with the next commit."""
        self.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", (name, number))

    def probe(self) -> None:
        """See whether there is room for an event of the longest kind, and write the numbers that had none."""
        if self._unmade is not None:
            self._make()
        self.execute("INSERT OR REPLACE INTO applications VALUES (?, zeroblob(?))", (PROBE, PROBE_BYTES))
        for name, number in self._owed.items():
            self.set_counter(name, number)
        self.commit()
        self._owed.clear()
        self.execute("DELETE FROM applications WHERE key = ?", (PROBE,))

    def _make(self) -> None:
        """Make the file for which there was no room; nothing was committed to what stood in for it."""
        with suppress(WorkError):
            self.commit()
        before = self._database
        try:
            self._connect(self._path)
        except (_UnmadeError, WorkError) as error:
            self._database = before
            self.failed = WorkError(f"cannot make the store {self._path}: {error}")
            raise self.failed from None
        before.close()
        self._unmade = self.failed = None

    def standing(self) -> list[StoredSubscription]:
        """The subscriptions that stand, in the order in which they were made."""
        rows = self._database.execute("SELECT standing FROM subscriptions ORDER BY sequence").fetchall()
        try:
            return [msgspec.msgpack.decode(row[0], type=StoredSubscription) for row in rows]
        except (msgspec.MsgspecError, ValueError) as error:
            raise WorkError(f"{self._path} holds a subscription that cannot be read: {error}") from None

    def keep(self, standing: StoredSubscription) -> None:
        """A subscription stands from now on."""
        row = (standing.subscription.id.sequence, msgspec.msgpack.encode(standing))
        self.execute("INSERT OR REPLACE INTO subscriptions VALUES (?, ?)", row)
        self.commit()

    def forget(self, subscription: SubscriptionId) -> None:
        """A subscription no longer stands, from the next commit on, and what was for it is for nobody."""
        self.execute("DELETE FROM subscriptions WHERE sequence = ?", (subscription.sequence,))
        for table in ("backlog", "taken"):
            self.execute(f"DELETE FROM {table} WHERE subscription = ?", (subscription.sequence,))

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> int:
        """A write, kept with the next commit; how many rows it changed. If it cannot be written, as on a full disk, a
        WorkError, and nothing since the last commit is kept: SQLite may have ended the transaction."""
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
                # For what is written until somebody commits, and is not kept either.
                self._database.execute("BEGIN")
            raise self.failed from None

    def query(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of a question."""
        return self._database.execute(statement, values).fetchall()

    def each(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        """The rows of a question one by one, for who may not want all of them. Whoever asks closes it."""
        return self._database.execute(statement, values)

    @property
    def in_transaction(self) -> bool:
        """Whether anything is written and not committed."""
        return self._open

    def release_savepoint(self) -> None:
        """The writes since the last `settle` belong together and stay, whatever raises later."""
        if self.has_savepoint:
            self.has_savepoint = False
            self._database.execute("RELEASE handler")

    def rollback_savepoint(self) -> None:
        """Drop the writes since the last `settle`, and only these."""
        if self.has_savepoint:
            self.has_savepoint = False
            self._database.execute("ROLLBACK TO handler")
            self._database.execute("RELEASE handler")

    def commit(self) -> None:
        """Keep what was written; if that fails nothing of it is kept, and a WorkError, also in `lost`, says why."""
        if not self._open:
            return
        if self._unmade is not None and self.failed is None:
            self.failed = WorkError(f"cannot make the store {self._path}: {self._unmade}")
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
        """Bring what was committed to the disk. It may be called from another thread, as it takes milliseconds: SQLite
        appends commits to the log, and its own syncs are of whole checkpoints."""
        if self._path is not None:
            if self._log is None:
                # No lock of SQLite's is on this file, so that closing it gives none away.
                self._log = os.open(f"{self._path}-wal", os.O_RDONLY)
            os.fdatasync(self._log)

    def close(self) -> None:
        """Let go of the file; what is not committed is gone."""
        if self._log is not None:
            os.close(self._log)
        self._database.close()

    def _prepare(self, node: NodeId) -> None:
        database = self._database
        # One process per store: a second node on the same file would give the same numbers away.
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        # Before anything is changed in what may belong to another program.
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "store" not in tables:
            raise WorkError(f"{self._path} is a database of another program; name another file in [store]")
        self._is_new = not tables
        # Better now than in the midst of it: a protocol that cannot read what it held goes on without it.
        [(damage,)] = database.execute("PRAGMA quick_check(1)").fetchall()
        if damage != "ok":
            raise sqlite3.DatabaseError(damage.splitlines()[-1])
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        # What does not fit on the disk fails when it is committed, not in the midst of a handler.
        database.execute("PRAGMA cache_spill = OFF")
        if "backlog" in tables and database.execute("SELECT format, node FROM store").fetchone() == (FORMAT, node):
            return  # Nothing has to be written, so that a node starts on a full disk.
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
    """One layer's table."""

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
        # Keys come in order from the prefix on, so the first that does not begin so ends the list.
        return list(takewhile(lambda item: item[0].startswith(prefix), ((row[0], row[1]) for row in rows)))


def _nobody() -> None:
    """Who writes commits by himself."""
