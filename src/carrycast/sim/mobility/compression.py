"""Reading files that may be compressed. The first bytes decide the format, never the name."""

import bz2
import errno
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from carrycast.errors import UserError

GZIP, BZIP2, XZ, ZIP, ZSTD = "gzip", "bzip2", "xz", "zip", "zstd"
_MAGIC = {
    b"\x1f\x8b": GZIP,
    b"BZh": BZIP2,
    b"\xfd7zXZ\x00": XZ,
    b"PK\x03\x04": ZIP,
    b"\x28\xb5\x2f\xfd": ZSTD,
}
# In bzip2 the block size and six digits of pi follow the magic. "BZh" alone may begin a text file.
_BZIP2_BLOCK = b"1AY&SY"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def detect_compression(path: Path) -> str | None:
    """Detect the compression of a file; None if it is not compressed."""
    with path.open("rb") as file:
        start = file.read(16)
    for magic, name in _MAGIC.items():
        if start.startswith(magic) and (name != BZIP2 or start[4:10] == _BZIP2_BLOCK):
            return name
    return None


def open_decompressed(path: Path) -> BinaryIO:
    """Open a file for reading, decompressed if it is compressed."""
    packing = detect_compression(path)
    if packing == GZIP:
        return cast(BinaryIO, gzip.open(path, "rb"))
    if packing == BZIP2:
        return cast(BinaryIO, bz2.open(path, "rb"))
    if packing == XZ:
        return cast(BinaryIO, lzma.open(path, "rb"))
    if packing == ZIP:
        return _open_zip(path)
    if packing == ZSTD:
        return _open_zstd(path)
    return path.open("rb")


@contextmanager
def decompressed_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed. A file that is unreadable or truncated gives a UserError of one line."""
    try:
        with open_decompressed(path) as file:
            yield file
    except _BROKEN:
        raise UserError(f"{path}: the {_compression_name(path)} file is cut or broken; compress it again") from None
    except OSError as error:
        if error.errno in _FULL:
            # The disk is full: the caller's own writing failed inside the `with` block, not the reading.
            raise
        # bzip2 reports broken data as an OSError without an error number.
        if error.errno is None and detect_compression(path) is not None:
            raise UserError(f"{path}: the {_compression_name(path)} file is cut or broken; compress it again") from None
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def _compression_name(path: Path) -> str:
    try:
        return detect_compression(path) or "packed"
    except OSError:
        return "packed"


def _open_zip(path: Path) -> BinaryIO:
    archive = zipfile.ZipFile(path)
    files = [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX/")]
    if len(files) != 1:
        archive.close()
        raise UserError(f"{path}: a zip archive of {len(files)} files; unpack it and name the files that are meant")
    if files[0].flag_bits & 1:
        archive.close()
        raise UserError(f"{path}: a zip archive with a password; unpack it first")
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, archive.open(files[0]))))


def _open_zstd(path: Path) -> BinaryIO:
    try:
        import pyarrow as pa
    except ImportError:
        raise UserError(f"{path}: packed with zstd; unpack it first") from None
    return cast(BinaryIO, io.BufferedReader(pa.input_stream(str(path), compression="zstd")))
