"""Events and access policies."""

import math
from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.core.model.identity import EventId

Scalar: TypeAlias = str | int | float | bool
Attributes: TypeAlias = Mapping[str, Scalar]

MAX_ATTRIBUTES = 256
MAX_NAME_LENGTH = 128
MAX_TEXT_LENGTH = 4096
MAX_PAYLOAD_BYTES = 1 << 20
FOREVER_S = math.inf

_SCALARS = frozenset({str, int, float, bool})
_LEAST, _MOST = -(2**63), 2**63 - 1


def check_attributes(attributes: Attributes) -> None:
    """Raise ValueError for attributes that cannot be matched or encoded in the same way everywhere."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise ValueError(f"at most {MAX_ATTRIBUTES} attributes, not {len(attributes)}")
    for name, value in attributes.items():
        # A fast path for the usual attributes: every received event is checked.
        if type(name) is str and 0 < len(name) <= MAX_NAME_LENGTH and name.isascii():
            if type(value) is int and _LEAST <= value <= _MOST:
                continue
            if type(value) is str and len(value) <= MAX_TEXT_LENGTH and value.isascii():
                continue
            if type(value) is bool or (type(value) is float and math.isfinite(value)):
                continue
        _check_attribute(name, value)


def _check_attribute(name: str, value: Scalar) -> None:
    # Exact types: a subclass, such as numpy's numbers, is encoded differently or not at all.
    if type(name) is not str:
        raise ValueError(f"an attribute name is a str, not a {type(name).__name__}")
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise ValueError(f"an attribute name has 1 to {MAX_NAME_LENGTH} characters")
    if not _is_encodable(name):
        raise ValueError(f"attribute {name!a} has characters in its name that are no Unicode text")
    if type(value) not in _SCALARS:
        raise ValueError(f"attribute {name!r} is a {type(value).__name__}, not a str, int, float or bool")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"attribute {name!r} is not a finite number")
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        raise ValueError(f"attribute {name!r} does not fit in 64 bits")
    if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
        raise ValueError(f"attribute {name!r} is longer than {MAX_TEXT_LENGTH} characters")
    if isinstance(value, str) and not _is_encodable(value):
        raise ValueError(f"attribute {name!r} has characters that are no Unicode text")


def _is_encodable(text: str) -> bool:
    """Whether a text has no lone surrogate, which UTF-8 cannot encode."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class AccessPolicy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A predicate, in the filter language, on the attributes of the subscriber; carried by the event."""

    condition: Annotated[str, Meta(max_length=MAX_TEXT_LENGTH)]


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A published event.

    `time_s` is the source's clock, for people only: nodes never compare it. `lease_s` is the lifetime of the event from
    its publication; messages carry the remaining lease.

    >>> from carrycast.core.model import EventId
    >>> event = Event(EventId(source=7, sequence=1), {"speed": 31}, payload=b"too fast")
    >>> event.attributes["speed"], event.payload.decode()
    (31, 'too fast')
    """

    id: EventId
    attributes: dict[str, Scalar]
    payload: Annotated[bytes, Meta(max_length=MAX_PAYLOAD_BYTES)] = b""
    time_s: float = 0.0
    lease_s: Annotated[float, Meta(gt=0)] = FOREVER_S
    access: AccessPolicy | None = None
    derived_from: Annotated[tuple[EventId, ...], Meta(max_length=64)] = ()

    def __post_init__(self) -> None:
        check_attributes(self.attributes)
        if not math.isfinite(self.time_s):
            raise ValueError("an event's time is a finite number")

    @property
    def source(self) -> int:
        """The node that published the event."""
        return self.id.source
