"""The arguments of the Python clients, converted for requests: each type has one meaning, all others are rejected.

JSON would accept more types and change their meaning: a `datetime` becomes text, bytes become base64, and a `str` in
place of bytes would be decoded as base64.
"""

import datetime
import math
import os
import reprlib
import sys
from collections.abc import Iterable, Mapping
from typing import TypeAlias, get_args

from carrycast.core.matching import Filter
from carrycast.core.model import Scalar, check_attributes
from carrycast.errors import UserError
from carrycast.node.api.messages import Busy, Level, PublishRequest

Payload: TypeAlias = bytes | bytearray | memoryview | str
"""Text is encoded as UTF-8; a receiver gets bytes."""
FilterLike: TypeAlias = str | Filter
AddressLike: TypeAlias = str | os.PathLike[str]

_PLAIN = frozenset({str, int, float, bool})
_HINTS: tuple[tuple[type, str], ...] = (
    (datetime.datetime, "write .timestamp() for a number or .isoformat() for text"),
    (datetime.date, "write .isoformat() for text"),
    (datetime.timedelta, "write .total_seconds() for a number"),
    (bytes, "bytes belong into the payload"),
    (type(None), "leave the attribute out"),
)


def publish_request(
    id: int,
    attributes: Mapping[str, Scalar],
    payload: Payload,
    lease_s: float | None,
    access: FilterLike | None,
    level: Level,
    copies: int,
    patience_s: float,
    busy: Busy = "wait",
) -> PublishRequest:
    """The request that publishes an event. A TypeError or a UserError names a value that no event can have."""
    _check_choice(level, get_args(Level), "level")
    _check_choice(busy, get_args(Busy), "busy")
    return PublishRequest(
        id=id,
        attributes=plain_attributes(attributes),
        payload=plain_bytes(payload, "payload"),
        lease_s=plain_lease(lease_s),
        access=None if access is None else filter_text(access, "access"),
        level=level,
        copies=_whole_number(copies, "copies"),
        patience_s=plain_number(patience_s, "patience_s"),
        busy=busy,
    )


def attributes_and_payload(event: object) -> tuple[Mapping[str, Scalar], Payload]:
    """One event of many; attributes without a payload would be unpacked into two names."""
    if isinstance(event, tuple | list) and len(event) == 2:
        return event[0], event[1]
    usage = "publish_all takes pairs of attributes and payload, such as ({'speed': 31}, b'')"
    raise TypeError(f"{usage}, not {reprlib.repr(event)}")


def plain_attributes(attributes: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Attributes with plain values in place of subclasses and numpy scalars."""
    if not isinstance(attributes, Mapping):
        raise TypeError(f"attributes are a dict of names and values, not {reprlib.repr(attributes)}")
    found: dict[str, Scalar] = {}
    for name, value in attributes.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of an attribute is a str, not {reprlib.repr(name)}")
        plain = value if type(value) in _PLAIN else _plain_scalar(value)
        if plain is None:
            problem = (
                f"attribute {name!r} is {reprlib.repr(value)}, and a {type(value).__name__} is no value of an event"
            )
            raise TypeError(f"{problem}: {_hint(value)}")
        found[str.__str__(name)] = plain
    try:
        check_attributes(found)
    except ValueError as error:
        raise UserError(str(error)) from None
    return found


def plain_bytes(value: Payload, what: str) -> bytes:
    """Bytes, or text encoded as UTF-8."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{what}: {reprlib.repr(value)} is no text that UTF-8 can write: {error.reason}") from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{what} is bytes or a str, not {reprlib.repr(value)}, a {type(value).__name__}")


def plain_number(value: float, what: str) -> float:
    """A finite number; numpy scalars too."""
    plain = value if type(value) in _PLAIN else _plain_scalar(value)
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        raise TypeError(f"{what} is a number, not {reprlib.repr(value)}, a {type(value).__name__}")
    if not math.isfinite(plain):
        raise UserError(f"{what} is a finite number, not {plain}")
    return plain


def plain_pair(values: Iterable[object] | None) -> list[object] | None:
    """A position or a velocity, with plain values in place of numpy scalars. The caller checks the rest."""
    if values is None or not isinstance(values, Iterable):
        return values
    return [value if type(value) in _PLAIN else _plain_scalar(value) for value in values]


def _check_choice(value: str, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise UserError(f"{what} is one of {', '.join(map(repr, allowed))}, not {reprlib.repr(value)}")


def _whole_number(value: int, what: str) -> int:
    plain = plain_number(value, what)
    if not isinstance(plain, int):
        raise TypeError(f"{what} is a whole number, not {plain}")
    return plain


def plain_lease(lease_s: float | None) -> float | None:
    """A lease; None if it does not end."""
    if lease_s is None or lease_s == math.inf:
        return None
    plain = plain_number(lease_s, "lease_s")
    if not plain > 0:
        raise UserError("a lease is longer than 0 s")
    return plain


def filter_text(filter: FilterLike, what: str = "filter") -> str:
    """The text of a filter."""
    if isinstance(filter, Filter):
        return filter.text
    if isinstance(filter, str):
        return filter
    raise TypeError(f"{what} is a text such as 'speed > 30' or a Filter, not {reprlib.repr(filter)}")


def plain_address(address: AddressLike) -> str:
    """The address of a node's control channel; the path of its socket may be a `Path`."""
    found = os.fspath(address) if isinstance(address, os.PathLike) else address
    if not isinstance(found, str):
        raise TypeError(f"the address of a node is a text or a Path, not {reprlib.repr(address)}")
    return found


def _plain_scalar(value: object) -> Scalar | None:
    """The plain value of a subclass or of a numpy scalar; None if there is none without loss."""
    # By the base class's own method: that of an enumeration returns something else.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic):
        return None
    kind: str = value.dtype.kind
    if kind == "b":
        return bool(value)
    if kind in "iu":
        return int(value)
    # A float of more than 64 bits has no plain value.
    return float(value) if kind == "f" and value.dtype.itemsize <= 8 else None


def _hint(value: object) -> str:
    for kind, hint in _HINTS:
        if isinstance(value, kind):
            return hint
    return "give a str, int, float or bool"
