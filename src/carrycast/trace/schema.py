"""The trace schema of all environments."""

import enum
from collections.abc import Mapping
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
    airtime_us: int | None = None


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
    ("airtime_us", "int64"),
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

COLUMN_MEANINGS: Mapping[str, Mapping[str, str]] = {
    "trace": {
        "run": "the name of the run; the same in all tables",
        "time_s": "seconds since the start of a simulated run, or since 1970 for a live one, in whole microseconds",
        "node": "the node at which it happened",
        "layer": "`dissemination`, `routing`, `discovery`, or `link` for the layer below them",
        "kind": "the kind of fact; a protocol may note kinds of its own",
        "message": "of a frame: the type of its message",
        "class": "of a frame: `data`, `control` or `discovery`",
        "event": "the event that the row is about",
        "subscription": "the subscription, or the request, that the row is about",
        "peer": "of a sent frame: the receiver, null for a broadcast; of a received frame: the sender; "
        "of a link: the neighbor",
        "interface": "of a frame or a link: the interface",
        "size_bytes": "of a frame: its bytes on the wire; of `publish`: those of the event alone",
        "hops": "how many hops the event has made",
        "reason": "of a drop or a lost link: the reason",
        "value": "a number that belongs to the fact, such as the cost of a link",
        "airtime_us": "of a sent frame: its time on the air, with its acknowledgement; null if the radio has no rate",
    },
    "events": {
        "run": "the name of the run",
        "event": "the id of the event",
        "source": "the node that published it",
        "time_s": "when it was published",
        "attributes": "its attributes, as a JSON object",
        "size_bytes": "the size of the event alone",
        "lease_s": "its lease",
        "access": "its access policy: a filter over the attributes of subscriptions",
        "derived_from": "the ids of the events from which a processor derived it, separated by blanks",
        "counted": "whether it was published in the measured window",
        "processor": "the processor that derived it",
    },
    "subscriptions": {
        "run": "the name of the run",
        "subscription": "the id of the subscription",
        "node": "the subscriber",
        "filter": "its filter",
        "attributes": "the attributes that access policies test, as a JSON object",
        "from_s": "when it began",
        "to_s": "when it ended; it does not stand at this time any more; null: it stood to the end of the run",
        "processor": "the processor that transforms the events that the filter selects",
    },
}
"""The meaning of each column, for the reference."""

KIND_MEANINGS: Mapping[Kind, str] = {
    Kind.PUBLISH: "an application published an event, or a processor derived one",
    Kind.SUBSCRIBE: "a subscription began",
    Kind.UNSUBSCRIBE: "a subscription ended",
    Kind.DELIVER: "an event was delivered to an application",
    Kind.REQUEST: "an application requested stored events",
    Kind.ANSWER: "an application received one stored event",
    Kind.CLOSE: "a request was closed; the value is 1 if the answer was complete",
    Kind.SEND: "a frame was transmitted for the first time",
    Kind.RETRY: "a frame was transmitted again",
    Kind.RECEIVE: "a node received a frame",
    Kind.DROP: "something was dropped; the column `reason` says why",
    Kind.STORE: "a copy of an event was put into the buffer of a node",
    Kind.EVICT: "a copy of an event left the buffer of a node",
    Kind.LINK_UP: "a node learned of a link",
    Kind.LINK_DOWN: "a node learned of the loss of a link",
    Kind.LINK_CHANGED: "a node learned of a new cost of a link",
    Kind.PROCESSOR_ERROR: "a call of a processor failed",
    Kind.START: "a node started",
    Kind.STOP: "a node stopped",
    Kind.CRASH: "a node crashed",
}
"""The meaning of each kind of row, for the reference."""


VERSION = 2
"""The version of the three tables, written into every file with the level. It changes when the meaning of a column
does; an additional nullable column is no new version. Files of an older version are read, with nulls in the columns
that they lack. Files of a newer version are refused."""
ADDED_COLUMNS = frozenset({"processor", "airtime_us"})
"""Columns that older traces do not have."""
VERSION_KEY = b"carrycast.trace"
LEVEL_KEY = b"carrycast.level"


def arrow_schema(columns: tuple[tuple[str, str], ...]) -> "pa.Schema":
    """The Arrow schema of a table."""
    import pyarrow as pa

    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in columns])
