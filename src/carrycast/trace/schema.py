"""The trace schema of all environments."""

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Level(enum.StrEnum):
    """How much of a run is kept. The fingerprint and the metrics are the same at every level."""

    METRICS = "metrics"
    """Nothing but the metrics."""
    DELIVERIES = "deliveries"
    """Who published, subscribed and received what, and when."""
    FULL = "full"
    """Every transmission, reception, drop and link as well."""


class Kind(enum.StrEnum):
    """What a row of the trace tells. A protocol may note kinds of its own."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    DELIVER = "deliver"
    REQUEST = "request"
    ANSWER = "answer"
    CLOSE = "close"
    SEND = "send"
    RETRY = "retry"
    RECEIVE = "receive"
    DROP = "drop"
    STORE = "store"
    EVICT = "evict"
    LINK_UP = "link_up"
    LINK_DOWN = "link_down"
    LINK_CHANGED = "link_changed"
    PROCESSOR_ERROR = "processor_error"
    START = "start"
    STOP = "stop"
    CRASH = "crash"


class Row(NamedTuple):
    """One row, with ids as text and absent values as None."""

    time_s: float
    node: int
    layer: str
    kind: str
    message: str | None = None
    traffic: str | None = None
    event: str | None = None
    subscription: str | None = None
    peer: int | None = None
    interface: str | None = None
    size_bytes: int | None = None
    hops: int | None = None
    reason: str | None = None
    value: float | None = None


TRACE_COLUMNS = (
    ("run", "string"),
    ("time_s", "double"),
    ("node", "int64"),
    ("layer", "string"),
    ("kind", "string"),
    ("message", "string"),
    ("class", "string"),
    ("event", "string"),
    ("subscription", "string"),
    ("peer", "int64"),
    ("interface", "string"),
    ("size_bytes", "int64"),
    ("hops", "int32"),
    ("reason", "string"),
    ("value", "double"),
)

EVENT_COLUMNS = (
    ("run", "string"),
    ("event", "string"),
    ("source", "int64"),
    ("time_s", "double"),
    ("attributes", "string"),
    ("size_bytes", "int64"),
    ("lease_s", "double"),
    ("access", "string"),
    ("derived_from", "string"),
    ("counted", "bool"),
    ("processor", "string"),
)
"""`attributes` is a JSON object; `derived_from` ids joined by blanks, of what `processor` made the event of; `counted`:
published in the measured window."""

SUBSCRIPTION_COLUMNS = (
    ("run", "string"),
    ("subscription", "string"),
    ("node", "int64"),
    ("filter", "string"),
    ("attributes", "string"),
    ("from_s", "double"),
    ("to_s", "double"),
    ("processor", "string"),
)
"""`processor`: what the filter selects passes through it, and what that makes is delivered."""


VERSION = 2
"""Of the three tables; another meaning of a column is another version. Written into every file, with the level. A file
of an older version is read, with nulls in the columns that it does not have; one of a newer version is refused. A
column more, which may be null, is no new version."""
ADDED_COLUMNS = frozenset({"processor"})
"""Columns that traces of version 1 do not have."""
VERSION_KEY = b"carrycast.trace"
LEVEL_KEY = b"carrycast.level"


def arrow_schema(columns: tuple[tuple[str, str], ...]) -> "pa.Schema":
    """The Arrow schema of a table."""
    import pyarrow as pa

    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in columns])
