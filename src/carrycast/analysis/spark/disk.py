"""Files that are written whole or not at all, and a disk that fills up: one line that says where."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from carrycast.errors import WorkError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file to write to, which gets its name when the body is over. One that cannot be written is removed, and what
    had the name before stays; a WorkError tells."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.parent / f".{path.name}-{os.getpid()}.tmp"
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise WorkError(cannot(path, error)) from None


@contextmanager
def room(folder: Path) -> Iterator[None]:
    """What the body writes goes into a folder: if there is no room, a WorkError says so. Other errors are not ours."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise WorkError(cannot(folder, error)) from None


def write_whole(path: Path, content: bytes) -> None:
    """A file with that content."""
    with whole(path) as unfinished:
        unfinished.write_bytes(content)


def cannot(path: Path, error: OSError) -> str:
    """Arrow wraps what the system says in words of its own; the number tells the same."""
    reason = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
    hint = "; make room and start it again: what is done is kept" if error.errno in FULL else ""
    return f"{path}: cannot be written: {reason}{hint}"
