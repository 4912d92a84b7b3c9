"""Reading settings that people wrote: a TOML file becomes typed values, or one line that says what is wrong where."""

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from driftcast.errors import UserError

T = TypeVar("T")

MAX_FILE_BYTES = 1 << 20


def read_toml(path: Path) -> dict[str, object]:
    """The tables of a TOML file."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"{path}: a settings file has at most {MAX_FILE_BYTES} bytes")
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: is not TOML: {error}") from None


def typed(value: object, kind: type[T], where: str, prefix: str = "") -> T:
    """A value as a settings type. `where` is the file or option it came from, `prefix` its place in there."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {_explained(str(error), value, kind, prefix)}") from None


def field_names(kind: type[msgspec.Struct]) -> list[str]:
    """The keys that a settings type knows."""
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def unknown_key(key: str, allowed: list[str]) -> str:
    """What to say of a key that nobody knows."""
    close = difflib.get_close_matches(key, allowed, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown key {key!r}; {hint}allowed: {', '.join(sorted(allowed)) or 'nothing'}"


def _explained(text: str, value: object, kind: type[object], prefix: str) -> str:
    """msgspec's message, with the key first and, for an unknown key, what is allowed."""
    reason, _, place = text.partition(" - at `$")
    path = place.removesuffix("`").lstrip(".")
    where = ".".join(part for part in (prefix, path) if part)
    unknown = re.search(r"unknown field `(.*)`", reason)
    if unknown is not None:
        allowed = _allowed_at(kind, path)
        return f"{where}: {unknown_key(unknown[1], allowed)}" if where else unknown_key(unknown[1], allowed)
    given = _value_at(value, path)
    if given is not None and not isinstance(given, Mapping | list) and repr(given) not in reason:
        reason = f"{reason} (it is {given!r})"
    return f"{where}: {reason}" if where else reason


def _allowed_at(kind: type[object], path: str) -> list[str]:
    """The keys known at a path below a settings type, as far as types tell."""
    here: object = kind
    for part in filter(None, re.split(r"\.|(?=\[)", path)):
        if part.startswith("["):
            here = _inner(here)
            continue
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(_struct(here))}
        here = fields.get(part)
    found = _struct(here)
    config = msgspec.structs.fields(found)
    tag = found.__struct_config__.tag_field
    return [field.encode_name for field in config] + ([tag] if tag else [])


def _inner(kind: object) -> object:
    """The element type of a list or of a table with free keys."""
    arguments = getattr(kind, "__args__", ())
    return arguments[-1] if arguments and arguments[-1] is not Ellipsis else (arguments[0] if arguments else None)


def _struct(kind: object) -> type[msgspec.Struct]:
    """The settings type behind an annotation: itself, or the first one in a union."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    for argument in getattr(kind, "__args__", ()):
        if isinstance(argument, type) and issubclass(argument, msgspec.Struct):
            return argument
    return msgspec.Struct


def _value_at(value: object, path: str) -> object:
    for part in filter(None, re.split(r"\.|(?=\[)", path)):
        try:
            if part.startswith("["):
                value = value[int(part.strip("[]"))] if isinstance(value, list) else None
            else:
                value = value[part] if isinstance(value, Mapping) else None
        except (KeyError, IndexError, ValueError):
            return None
    return value
