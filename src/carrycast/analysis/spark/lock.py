"""One writer at a time in an output folder: a second is refused and told who the first is."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from carrycast.errors import UserError, WorkError

LOCK_FILE = ".lock"


@contextmanager
def held(out: Path) -> Iterator[None]:
    """Hold the folder while the body runs. The system lets go of it when the process ends, however it ends."""
    path = out / LOCK_FILE
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = _taken(path)
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


def _taken(path: Path) -> IO[str]:
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
