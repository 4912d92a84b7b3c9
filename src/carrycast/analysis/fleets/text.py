"""Text files of users: detection of encoding and delimiter, and conversion to UTF-8."""

import codecs
import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

from carrycast.errors import UserError
from carrycast.sim.mobility import decompressed_file

SNIFFED_BYTES = 1 << 16
DELIMITERS = ",;\t|"
BLANKS = " "
"""Columns are separated by any number of blanks."""
_MARKS = (
    # The mark of UTF-32 begins with that of UTF-16, so it is tried first.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def detect_encoding(path: Path, chosen: str | None) -> str:
    """The encoding of a file: as the user says, by its byte order mark, or UTF-8."""
    if chosen is not None:
        try:
            # Some codecs are not for text.
            b"a".decode(chosen, errors="replace")
            return codecs.lookup(chosen).name
        except LookupError:
            raise UserError(f"--encoding {chosen!r}: no such encoding; give one such as latin-1 or cp1252") from None
    with decompressed_file(path) as file:
        start = file.read(4)
    return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")


def read_start(path: Path, encoding: str | None = None) -> str:
    """Read the start of a file, decompressed, as text.

    Undecodable bytes are replaced, since the start only serves to detect formats and columns.
    """
    with decompressed_file(path) as file:
        raw = file.read(SNIFFED_BYTES)
    return raw.decode(detect_encoding(path, encoding), errors="replace").removeprefix("\ufeff")


def complete_lines(start: str) -> list[str]:
    """The lines in the start of a file, without the last one, which may be cut."""
    lines = re.split("\r\n|\r|\n", start)
    return lines[:-1] if len(lines) > 1 else lines


def detect_delimiter(start: str) -> str:
    """Detect the delimiter of a table: the most frequent candidate in its first line."""
    header = complete_lines(start)[0]
    found = max(DELIMITERS, key=lambda mark: (header.count(mark), -DELIMITERS.index(mark)))
    return found if found in header else BLANKS


def split_rows(start: str, most: int = 1000) -> list[list[str]]:
    """Split the first rows of a table, including its header."""
    lines = [line for line in complete_lines(start) if line.strip()][:most]
    delimiter = detect_delimiter(start)
    if delimiter == BLANKS:
        return [line.split() for line in lines]
    return [[field.strip() for field in row] for row in csv.reader(lines, delimiter=delimiter)]


def split_header(start: str) -> list[str]:
    """Split the header of a table."""
    return next(iter(split_rows(start, 1)), [])


def sample_columns(start: str, header: Sequence[str] | None) -> dict[str, list[object]]:
    """Some values of each column of a table."""
    rows = split_rows(start)
    columns, rows = (rows[0], rows[1:]) if header is None else (list(header), rows)
    return {name: [row[k] for row in rows if k < len(row)] for k, name in enumerate(columns)}


def copy_text(path: Path, encoding: str, blanks: bool, to: Path) -> None:
    """Copy a text file to UTF-8, uncompressed, with a newline after each line; `blanks` between columns become tabs."""
    with to.open("w", encoding="utf-8", newline="\n") as written, decompressed_file(path) as file:
        # newline=None: "\r\n", "\r" and "\n" all end a line. Each line is cut once, however long it is.
        text = io.TextIOWrapper(file, encoding=encoding, errors="strict", newline=None)
        try:
            for number, raw in enumerate(text):
                line = raw if number else raw.removeprefix("\ufeff")
                # A last line without a newline stays so: readers reject it where a number may be cut.
                end = "\n" if line.endswith("\n") else ""
                written.write("\t".join(line.split()) + end if blanks else line)
        except UnicodeDecodeError:
            raise UserError(not_text_error(path, encoding)) from None
        finally:
            # The context manager closes the file.
            text.detach()


def not_text_error(path: Path, encoding: str) -> str:
    """The error text for a file that is not in this encoding."""
    return (
        f"{path}: is no text in {encoding}: say in which encoding it is, as in --encoding latin-1 or --encoding cp1252"
    )


def is_xml_with(start: str, mark: str) -> bool:
    """Whether a file that starts with this text is XML with that mark in it."""
    return start.lstrip("\ufeff \t\r\n").startswith("<") and mark in start
