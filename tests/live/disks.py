"""Really full disks: a small mounted file system, or a file size limit where none can be mounted."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pytest


class Disk(Protocol):
    """A folder on a disk that can be full."""

    folder: Path

    def fill(self) -> None: ...

    def free(self) -> None: ...


class SmallDisk:
    """A file system of two megabytes, in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """Write until nothing more fits."""
        filler = os.open(self.folder / "filler", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        with suppress(OSError):
            while True:
                os.write(filler, bytes(4096))
        os.close(filler)

    def free(self) -> None:
        """There is room again."""
        (self.folder / "filler").unlink()


class LimitedFiles:
    """Files of this process may not grow beyond a page, as if the disk were full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        """Python ignores the signal; writes fail."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, self._before[1]))

    def free(self) -> None:
        """As before."""
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


@contextmanager
def disk(kind: str, folder: Path) -> Iterator[Disk]:
    """One of `KINDS`; skipped where it cannot be made."""
    if kind == "limit":
        limited = LimitedFiles(folder)
        try:
            yield limited
        finally:
            limited.free()
        return
    place = folder / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    try:
        made = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        made = False
    if not made:
        pytest.skip("no file system can be mounted here; the same is tested with a limit of the process")
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


KINDS = ("file system", "limit")
