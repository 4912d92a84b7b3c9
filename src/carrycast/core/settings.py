"""Settings files: converts TOML to typed values. An error is one line with the place and the problem."""

import difflib
import enum
import functools
import math
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from carrycast.errors import UserError

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_NAMES = "names"
InputFile: TypeAlias = Annotated[str, Meta(min_length=1, extra={_NAMES: "file"})]
"""A setting that names an input file. Only `map_files` resolves relative names, against the folder of the settings, and
only for settings of this type. The content of such a file is part of the key of a run."""
FunctionInFile: TypeAlias = Annotated[str, Meta(extra={_NAMES: "function"})]
"""A setting that names a function in an input file, as `file.py:name`."""

MAX_FILE_BYTES = 1 << 20


def read_toml(path: Path) -> dict[str, object]:
    """Read the tables of a TOML file."""
    if "\0" in str(path):
        raise UserError(f"{str(path)!r}: the name of a file has no NUL character")
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"{path}: a settings file has at most {MAX_FILE_BYTES} bytes")
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file{_suggest_file(path)}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: is not TOML: {error}") from None


def _suggest_file(path: Path) -> str:
    """Suggest a file with a similar name in the same folder."""
    close = difflib.get_close_matches(path.name, sorted(one.name for one in path.parent.glob(f"*{path.suffix}")), 1)
    return f"; did you mean {path.with_name(close[0])}?" if close else ""


def parse_settings(value: object, kind: type[T], where: str, prefix: str = "") -> T:
    """Convert a value to a settings type. `where` is its file or option, `prefix` its path in there."""
    invalid = _invalid_number(value, prefix)
    if invalid is not None:
        raise UserError(f"{where}: {invalid[0]}: {invalid[1]}")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {_explain(str(error), value, kind, prefix)}") from None


def map_files(settings: S, change: Callable[[str], str]) -> S:
    """A copy of settings with `change` applied to the name of each declared input file."""
    hints = _hints(type(settings))
    mapped = {name: _map_value(getattr(settings, name), hints[name], change) for name in settings.__struct_fields__}
    changed = {name: value for name, value in mapped.items() if value is not getattr(settings, name)}
    return msgspec.structs.replace(settings, **changed) if changed else settings


_home = Path()
_elsewhere: Mapping[str, str] = {}


def relocate(home: Path, places: Mapping[str, str]) -> None:
    """Resolve file names as on another machine, for a worker of a cluster. `home` is the working folder there. `places`
    maps the paths of files there to their copies on this machine."""
    global _home, _elsewhere
    _home, _elsewhere = home, places


def file_locator(base: Path) -> Callable[[str], str]:
    """Return a function for `map_files` that resolves file names against a folder."""

    def place(name: str) -> str:
        if "\0" in name:
            raise UserError(f"{name!r}: the name of a file has no NUL character")
        found = str((_home / base / name).absolute())
        return _elsewhere.get(found, found)

    return place


def field_names(kind: type[msgspec.Struct]) -> list[str]:
    """The keys of a settings type, except `base`, which the reader of the file sets."""
    return [field.encode_name for field in msgspec.structs.fields(kind) if field.name != "base"]


def unknown_key(key: str, allowed: list[str]) -> str:
    """The error message for an unknown key."""
    close = difflib.get_close_matches(key, allowed, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown key {key!r}; {hint}allowed: {', '.join(sorted(allowed)) or 'nothing'}"


@functools.cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, object]:
    """The annotations of a type, cached."""
    return typing.get_type_hints(kind, include_extras=True)


def _map_value(value: object, hint: object, change: Callable[[str], str]) -> object:
    if hasattr(hint, "__metadata__"):
        extras = [meta.extra or {} for meta in hint.__metadata__ if isinstance(meta, Meta)]
        names = [extra[_NAMES] for extra in extras if _NAMES in extra]
        if names and isinstance(value, str):
            file, colon, function = value.rpartition(":") if names[0] == "function" else (value, "", "")
            return change(file) + colon + function
        return _map_value(value, typing.get_args(hint)[0], change)
    if isinstance(value, msgspec.Struct):
        return map_files(value, change)
    inner = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for option in inner:
            found = _map_value(value, option, change)
            if found is not value:
                return found
    elif isinstance(value, list | tuple) and inner:
        # Lists and tuples of any length have one element type; other tuples have a type for each position.
        each = inner if len(inner) == len(value) and inner[-1] is not Ellipsis else inner[:1] * len(value)
        made = [_map_value(item, kind, change) for item, kind in zip(value, each, strict=True)]
        if any(new is not old for new, old in zip(made, value, strict=True)):
            return type(value)(made)
    elif isinstance(value, dict) and inner:
        table = {key: _map_value(item, inner[-1], change) for key, item in value.items()}
        if any(table[key] is not item for key, item in value.items()):
            return table
    return value


def _invalid_number(value: object, path: str) -> tuple[str, str] | None:
    """The path of a number that no setting accepts (NaN, -inf, beyond 64 bits), and the problem."""
    if isinstance(value, float) and (math.isnan(value) or value == -math.inf):
        return path or "value", f"{value} is no value; give a number, or inf for no limit"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return path or "value", f"{str(value)[:40]} does not fit in 64 bits; give a smaller number, or inf for no limit"
    items: list[tuple[str, object]] = []
    if isinstance(value, Mapping):
        items = [(f"{path}.{key}" if path else str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f"{path}[{place}]", item) for place, item in enumerate(value)]
    return next((found for at, item in items if (found := _invalid_number(item, at)) is not None), None)


def _explain(text: str, value: object, kind: type[object], prefix: str) -> str:
    """Rewrite msgspec's message: the key comes first, and an unknown key is followed by the allowed ones."""
    reason, _, place = text.partition(" - at `$")
    path = place.removesuffix("`").lstrip(".")
    where = ".".join(part for part in (prefix, path) if part)
    unknown = re.search(r"unknown field `(.*)`", reason)
    if unknown is not None:
        allowed = _allowed_at(kind, path, value)
        return f"{where}: {unknown_key(unknown[1], allowed)}" if where else unknown_key(unknown[1], allowed)
    missing = re.search(r"missing required field `(.*)`", reason)
    if missing is not None:
        key = f"{path}.{missing[1]}" if path else missing[1]
        choices = _choices_at(kind, key, value)
        hint = f"; give {' or '.join(choices)}" if choices else ""
        return f"{prefix}.{key}: this key is required{hint}" if prefix else f"{key}: this key is required{hint}"
    given = _value_at(value, path)
    if reason.startswith("Invalid "):
        choices = _choices_at(kind, path, value)
        reason = f"{given!r} is none of {', '.join(choices)}" if choices else reason
    named = re.search(rf"(?<![\w.]){re.escape(repr(given))}(?![\w.])", reason) is not None
    if given is not None and not isinstance(given, Mapping | list) and not named:
        reason = f"{reason} (it is {given!r})"
    return f"{where}: {reason}" if where else reason


def _type_at(kind: object, path: str, value: object) -> object:
    """The annotation at a path within a settings type, or None if the types do not determine it."""
    here, given = kind, value
    for part in _parts(path):
        if part.startswith("["):
            here = _inner(here)
        else:
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(_struct(here, given))}
            here = fields.get(part)
        given = _value_at(given, part)
    return here


def _allowed_at(kind: object, path: str, value: object) -> list[str]:
    """The keys that are allowed at a path."""
    found = _struct(_type_at(kind, path, value), _value_at(value, path))
    tag = found.__struct_config__.tag_field
    return [*field_names(found), *([tag] if tag else [])]


def _choices_at(kind: object, path: str, value: object) -> list[str]:
    """The values that are allowed at a path, if they can be listed: of an enumeration, a literal, or a tag."""
    parent, _, last = path.rpartition(".")
    above = _type_at(kind, parent, value)
    tags = [
        str(option.__struct_config__.tag)
        for option in _options(above)
        if option.__struct_config__.tag_field == last and option.__struct_config__.tag is not None
    ]
    here = _type_at(kind, path, value) if not tags else None
    if hasattr(here, "__metadata__"):
        here = typing.get_args(here)[0]
    if isinstance(here, type) and issubclass(here, enum.Enum):
        return [repr(member.value) for member in here]
    literal = typing.get_args(here) if typing.get_origin(here) is typing.Literal else ()
    return [repr(choice) for choice in tags or literal]


def _parts(path: str) -> list[str]:
    return [part for part in re.split(r"\.|(?=\[)", path) if part]


def _inner(kind: object) -> object:
    """The element type of a list or of a table with free keys."""
    arguments = getattr(kind, "__args__", ())
    return arguments[-1] if arguments and arguments[-1] is not Ellipsis else (arguments[0] if arguments else None)


def _options(kind: object) -> list[type[msgspec.Struct]]:
    """The settings types of an annotation: the type itself, or the members of a union."""
    found = [kind, *getattr(kind, "__args__", ())]
    return [option for option in found if isinstance(option, type) and issubclass(option, msgspec.Struct)]


def _struct(kind: object, given: object) -> type[msgspec.Struct]:
    """The settings type that the given table selects by its tag, else the first."""
    options = _options(kind)
    for option in options:
        config = option.__struct_config__
        if config.tag_field and isinstance(given, Mapping) and given.get(config.tag_field) == config.tag:
            return option
    return options[0] if options else msgspec.Struct


def _value_at(value: object, path: str) -> object:
    for part in _parts(path):
        try:
            if part.startswith("["):
                value = value[int(part.strip("[]"))] if isinstance(value, list) else None
            else:
                value = value[part] if isinstance(value, Mapping) else None
        except (KeyError, IndexError, ValueError):
            return None
    return value
