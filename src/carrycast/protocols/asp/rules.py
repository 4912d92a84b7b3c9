"""The rules of ASP as pure functions: ids, metrics, and the feasibility of another announcer."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from carrycast.core.model import Event, ProcessorId, Scalar
from carrycast.core.parts import COUNTER_BITS

TOLERANCE_S = 1e-9
"""Sums of the same costs in another order differ in their last digits; a path is better only by more than a nanosecond.
"""

MAX_METRIC_S = 1e9
"""Thirty years; in the microseconds of a digest it is still an exact number."""

MAX_NUMBER = 2**63 - 1
"""The largest sequence or counter that fits in a message."""

_EXACT = 2**53


def _hash(*parts: object) -> int:
    """A 63-bit hash, which fits the integer type of SQL, Arrow and Spark. Never 0, which stands for no id."""
    digest = hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 1) or 1


def _canonicalize(value: Scalar, decimals: int) -> Scalar:
    """[001 §4.5] Floats are rounded, so that processors that round differently still agree; 20.0 and 20 are equal."""
    if isinstance(value, float):
        rounded = round(value, decimals)
        return int(rounded) if rounded.is_integer() and abs(rounded) < _EXACT else rounded
    return value


def canonical_content(event: Event, decimals: int) -> bytes:
    """The content of an event without its id, time and lease: equal bytes for equal content."""
    attributes = [(name, _canonicalize(value, decimals)) for name, value in sorted(event.attributes.items())]
    return msgspec.msgpack.encode((attributes, event.payload))


def announcement_id(event: Event, origin: Iterable[int], decimals: int) -> int:
    """[001 §4.2] A hash of the message's content. `origin`: the node of a source or the ids of the announcements that a
    result was made of, or nothing to hash the content alone."""
    return _hash("announcement", list(origin), canonical_content(event, decimals))


def stream_id(node: int, key: Sequence[Scalar | None]) -> int:
    """The id of a local stream: a hash of the node and the values of the stream attributes."""
    return _hash("stream", node, list(key))


def result_stream_id(streams: Iterable[int], processor: ProcessorId, place: int) -> int:
    """The id of the stream of a processor's results: the same wherever this processor runs on the same inputs."""
    return _hash("result", list(streams), processor, place)


def derive_subscriber(subscriber: int, result: int) -> int:
    """The subscriber id under which a subscription to a result is forwarded to the result's inputs.

    Not the original id: one sink may subscribe to a stream and to two results of it, and each needs its own path at the
    source.
    """
    return _hash("subscriber", subscriber, result)


def is_valid_metric(metric_s: float) -> bool:
    """Whether a metric is a sum of times."""
    return 0 <= metric_s <= MAX_METRIC_S


def is_better(metric_s: float, than_s: float) -> bool:
    """[001 §4.2] Whether a metric shows a better path."""
    return metric_s < than_s - TOLERANCE_S


def aggregate_metrics(metrics_s: Sequence[float], how: Literal["sum", "max"]) -> float:
    """[001 §4.5] The metric of all inputs of a processor together."""
    return math.fsum(metrics_s) if how == "sum" else max(metrics_s)


def combine_numbers(numbers: Sequence[int]) -> int:
    """The sequence number or counter of a result of several inputs: it rises with each of them, and is the same
    wherever the same inputs are combined.

    The counters add up behind the largest incarnation. Incarnations have up to 31 bits, so the sum of the whole numbers
    would soon not fit in a message.
    """
    incarnation = max(number >> COUNTER_BITS for number in numbers)
    count = sum(number & ((1 << COUNTER_BITS) - 1) for number in numbers)
    return min((incarnation << COUNTER_BITS) + count, MAX_NUMBER)


def is_feasible(reported_s: float, lowest_s: float) -> bool:
    """Whether an announcer with the metric `reported_s` can be used without causing a loop.

    The source node condition of DUAL [Garcia-Luna-Aceves 1993]: the announcer is nearer to the source than this broker
    has ever been under the same announcement (`lowest_s`). Along such announcers the lowest metrics fall strictly, so
    no broker occurs twice, however paths have changed since.
    """
    return is_better(reported_s, lowest_s)
