"""The output folder of a sweep: atomic writes, errors of a full disk, and a lock against a second writer."""

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from carrycast.errors import UserError, WorkError

RUNS_FILE = "runs.parquet"
RUNS_FOLDER = "runs"
TRACES_FOLDER = "traces"
"""The contents of the output folder: a row per run, the log of finished runs, and traces by the key of their run."""
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` when the body ends. If it cannot be written, the old file stays and a
    WorkError says why."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.parent / f".{path.name}-{os.getpid()}.tmp"
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise WorkError(write_error(path, error)) from None


@contextmanager
def report_full_disk(folder: Path) -> Iterator[None]:
    """Turn the error of a full disk, raised by the body, into a WorkError that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise WorkError(write_error(folder, error)) from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with atomic_file(path) as unfinished:
        unfinished.write_bytes(content)


def write_error(path: Path, error: OSError) -> str:
    """Return the message for a failed write. It uses the error number, because Arrow adds its own text to the
    system's."""
    reason = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
    hint = "; make room and start it again: what is done is kept" if error.errno in DISK_FULL else ""
    return f"{path}: cannot be written: {reason}{hint}"


LOCK_FILE = ".lock"


@contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Lock a folder while the body runs. The operating system releases the lock when the process ends."""
    path = out / LOCK_FILE
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = _acquire(path)
    except OSError as error:
        raise UserError(f"{out}: cannot be written to: {error.strerror or error}") from None
    with file:
        file.truncate(0)
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}\n")
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _acquire(path: Path) -> IO[str]:
    """Open and lock the lock file; raise a WorkError that names the process that holds it."""
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise WorkError(f"{path.parent}: in use by {holder}; wait for it, or give another --out") from None
        # The previous holder removes the file, so the locked file may no longer be the one of that name.
        if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return file
        file.close()
