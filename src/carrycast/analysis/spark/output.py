"""Files that are written whole or not at all, and a disk that fills up: one line that says where."""

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
"""What a sweep leaves in its output folder: a row per run, the log of finished runs, and traces by the key of a run."""
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A file to write to, which gets its name when the body is over. One that cannot be written is removed, and what
    had the name before stays; a WorkError tells."""
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
    """What the body writes goes into a folder: if there is no room, a WorkError says so. Other errors are not ours."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise WorkError(write_error(folder, error)) from None


def write_atomically(path: Path, content: bytes) -> None:
    """A file with that content."""
    with atomic_file(path) as unfinished:
        unfinished.write_bytes(content)


def write_error(path: Path, error: OSError) -> str:
    """Arrow wraps what the system says in words of its own; the number tells the same."""
    reason = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
    hint = "; make room and start it again: what is done is kept" if error.errno in DISK_FULL else ""
    return f"{path}: cannot be written: {reason}{hint}"


LOCK_FILE = ".lock"


@contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Hold the folder while the body runs. The system lets go of it when the process ends, however it ends."""
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
    """The lock's file, open and ours."""
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise WorkError(f"{path.parent}: in use by {holder}; wait for it, or give another --out") from None
        # Whoever held it before removes it: what was locked here may no longer be the file of that name.
        if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return file
        file.close()
