"""Prepares the files of an ingest for reading: decompressed, in UTF-8, under names that Spark accepts."""

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
"""The suffixes of a file's name, as a regular expression of both Python and Java."""
# Spark decompresses these by the suffix of their names.
_SPARK_UNPACKS = {None: "csv", GZIP: "csv.gz", BZIP2: "csv.bz2"}


class FleetFile(NamedTuple):
    """A file of the user, and the path `plain` from which it is read."""

    path: Path
    format: IngestFormat
    plain: Path

    @property
    def name(self) -> str:
        """The name that users know."""
        return self.path.name


def file_stem(name: str) -> str:
    """A file's name without its suffixes."""
    return re.sub(SUFFIXES, "", name, count=1)


def prepare_files(formats: Mapping[Path, IngestFormat], source: ReadOptions, scratch: Path) -> list[FleetFile]:
    """Prepare files for reading. Files that need no conversion are linked."""
    folder = scratch / "plain"
    folder.mkdir()
    return [
        FleetFile(path, one, _prepare_file(path, one, source, folder, k))
        for k, (path, one) in enumerate(formats.items())
    ]


def _prepare_file(path: Path, one: IngestFormat, source: ReadOptions, folder: Path, number: int) -> Path:
    if one.name in ("parquet", "sumo", "gpx"):
        # XML states its encoding. Spark ignores files whose name begins with a dot or an underscore, and treats
        # brackets as patterns, so it reads a link with a plain name.
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
    """Replace the paths of prepared files in errors by the paths that users know."""
    try:
        yield
    except UserError as error:
        text = str(error)
        for one in inputs:
            text = text.replace(str(one.plain), str(one.path))
        raise UserError(text) from None


class RowCount(NamedTuple):
    """The number of rows of a file."""

    records: int
    """The records of the file, counted independently of the rows read from them."""
    rows: int
    superseded: int = 0

    def to_facts(self, one: FleetFile) -> dict[str, Any]:
        """The counts of a file, as `fleet.json` states them."""
        facts = {"format": one.format.name, "records": self.records, "rows": self.rows}
        return {**facts, "superseded": self.superseded} if self.superseded else facts
