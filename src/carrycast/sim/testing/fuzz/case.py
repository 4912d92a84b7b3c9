"""One fuzz case: the tables of a scenario, the files that it names, and the seed of its runs."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from carrycast.core.settings import read_toml

SCENARIO = "scenario.toml"
PROCESSORS = "processors.py"
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class FuzzCase(msgspec.Struct, frozen=True):
    """A scenario to run. `files` maps the names of its files to their content, except the file of processors."""

    tables: dict[str, object]
    files: dict[str, str]
    seed: int

    def write(self, folder: Path) -> Path:
        """Write the scenario and its files into a folder; return the scenario's file."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (folder / name).write_text(text, "utf-8")
        if "processors" in self.tables:
            (folder / PROCESSORS).write_text(Path(__file__).with_name(PROCESSORS).read_text("utf-8"), "utf-8")
        path = folder / SCENARIO
        path.write_text(format_toml(self.tables), "utf-8")
        return path


def load_case(path: Path, seed: int) -> FuzzCase:
    """Load a case from a scenario file, such as one that a failed case left behind."""
    tables = read_toml(path)
    files = {
        other.name: other.read_text("utf-8")
        for other in sorted(path.parent.iterdir())
        if other.suffix in (".csv", ".txt", ".policy", ".jsonl")
    }
    return FuzzCase(tables, files, seed)


def format_toml(tables: Mapping[str, object]) -> str:
    """Format tables as TOML: plain values, then a section for each table and each entry of a list of tables."""
    plain, sections = [], []
    for key, value in tables.items():
        if isinstance(value, Mapping):
            sections.append(_format_section(f"[{_format_key(key)}]", value))
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            sections += [_format_section(f"[[{_format_key(key)}]]", item) for item in value]
        else:
            plain.append(f"{_format_key(key)} = {format_value(value)}")
    return "\n".join(plain) + "\n" + "".join(sections)


def _format_section(head: str, table: Mapping[str, object]) -> str:
    return (
        "\n".join(["", head, *(f"{_format_key(key)} = {format_value(value)}" for key, value in table.items())]) + "\n"
    )


def format_value(value: object) -> str:
    """Format a value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _format_string(value)
    if isinstance(value, float):
        return _format_float(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_format_key(key)} = {format_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_value, value)) + "]"
    return str(value)


def _format_float(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    return text if re.search(r"[.e]", text) else f"{text}.0"


def _format_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _format_string(key)


def _format_string(text: str) -> str:
    def escape(match: re.Match[str]) -> str:
        return f"\\u{ord(match[0]):04x}" if match[0] not in '"\\' else f"\\{match[0]}"

    return '"' + re.sub(r'["\\\x00-\x1f\x7f]', escape, text) + '"'
