"""The files of an ingest, made ready to be read: unpacked, in UTF-8, and under names that Spark takes as they are."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from carrycast.analysis.fleets.formats import IngestFormat
from carrycast.analysis.fleets.points import ReadOptions
from carrycast.analysis.fleets.text import BLANKS, copy_text, detect_delimiter, detect_encoding, read_start
from carrycast.errors import UserError
from carrycast.sim.mobility import BZIP2, GZIP, detect_compression

SUFFIXES = r"(\.\w+)?(\.(gz|bz2|xz|zip|zst))?$"
"""Of a file's name, in the words of Python and of Java."""
# Spark unpacks these by the ends of their names.
_SPARK_UNPACKS = {None: "csv", GZIP: "csv.gz", BZIP2: "csv.bz2"}


class FleetFile(NamedTuple):
    """A file, and where it is read."""

    path: Path
    format: IngestFormat
    plain: Path

    @property
    def name(self) -> str:
        """As users know it."""
        return self.path.name


def file_stem(name: str) -> str:
    """A file's name without its suffixes."""
    return re.sub(SUFFIXES, "", name, count=1)


def prepare_files(formats: Mapping[Path, IngestFormat], source: ReadOptions, scratch: Path) -> list[FleetFile]:
    """Make files ready to be read; those that are so already are linked."""
    folder = scratch / "plain"
    folder.mkdir()
    return [
        FleetFile(path, one, _prepare_file(path, one, source, folder, k))
        for k, (path, one) in enumerate(formats.items())
    ]


def _prepare_file(path: Path, one: IngestFormat, source: ReadOptions, folder: Path, number: int) -> Path:
    if one.name in ("parquet", "sumo", "gpx"):
        # XML tells its encoding itself. Spark reads no file whose name begins with a dot or an underscore, and takes
        # brackets for patterns.
        return _link(path, folder / f"{number:05}.parquet") if one.name == "parquet" else path
    encoding = detect_encoding(path, source.encoding)
    if one.name != "csv":
        if encoding == "utf-8":
            return path
        copy_text(path, encoding, False, folder / f"{number:05}.txt")
        return folder / f"{number:05}.txt"
    blanks = detect_delimiter(read_start(path, source.encoding)) == BLANKS
    packing = detect_compression(path)
    if encoding == "utf-8" and not blanks and packing in _SPARK_UNPACKS:
        return _link(path, folder / f"{number:05}.{_SPARK_UNPACKS[packing]}")
    copy_text(path, encoding, blanks, folder / f"{number:05}.csv")
    return folder / f"{number:05}.csv"


def _link(path: Path, to: Path) -> Path:
    to.symlink_to(path.absolute())
    return to


@contextmanager
def restore_file_names(inputs: Sequence[FleetFile]) -> Iterator[None]:
    """Errors name files as users know them."""
    try:
        yield
    except UserError as error:
        told = str(error)
        for one in inputs:
            told = told.replace(str(one.plain), str(one.path))
        raise UserError(told) from None


class RowCount(NamedTuple):
    """What readers found in a file."""

    records: int
    """That the file has, counted apart from the rows made of them."""
    rows: int
    superseded: int = 0

    def to_facts(self, one: FleetFile) -> dict[str, Any]:
        """For people."""
        told = {"format": one.format.name, "records": self.records, "rows": self.rows}
        return {**told, "superseded": self.superseded} if self.superseded else told
