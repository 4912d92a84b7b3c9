"""The trace schema of all environments."""

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Level(enum.StrEnum):
    """How much of a run is recorded. The fingerprint and the metrics are the same at every level."""

    METRICS = "metrics"
    """Only the metrics."""
    DELIVERIES = "deliveries"
    """Publications, subscriptions and deliveries."""
    FULL = "full"
    """Also every transmission, reception, drop and link."""


class Kind(enum.StrEnum):
    """The kind of a row. A protocol may note further kinds."""

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
    """One row of the table `trace`, with ids as text and missing values as None."""

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
"""`attributes` is a JSON object. `derived_from` has the ids of the events from which `processor` produced this one,
separated by blanks. `counted` is true if the event was published in the measured window."""

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
"""`processor`: events that match the filter go to it, and its output is delivered."""


VERSION = 2
"""The version of the three tables, written into every file with the level. It changes when the meaning of a column
does; an additional nullable column is no new version. Files of an older version are read, with nulls in the columns
that they lack. Files of a newer version are refused."""
ADDED_COLUMNS = frozenset({"processor"})
"""Columns that traces of version 1 do not have."""
VERSION_KEY = b"carrycast.trace"
LEVEL_KEY = b"carrycast.level"


def arrow_schema(columns: tuple[tuple[str, str], ...]) -> "pa.Schema":
    """The Arrow schema of a table."""
    import pyarrow as pa

    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in columns])
