"""The rules of ASP that only compute: ids, metrics, and which announcer may take another's place."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from carrycast.core.model import Event, ProcessorId, Scalar
from carrycast.core.parts.horizon import COUNTER_BITS

TOLERANCE_S = 1e-9
"""Sums of the same costs in another order differ in their last digits; a nanosecond is no better path."""

MAX_METRIC_S = 1e9
"""No path takes thirty years; and in the microseconds of a digest it is still an exact number."""

MAX_NUMBER = 2**63 - 1
"""The largest sequence or counter that fits in a message."""

_EXACT = 2**53


def _hashed(*parts: object) -> int:
    """63 bits: what SQL, Arrow and Spark keep in their plain integer type. Never 0, which stands for no id."""
    digest = hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 1) or 1


def _canonical(value: Scalar, decimals: int) -> Scalar:
    """[001 §4.5] Floats are rounded, so that processors that round differently still agree; 20.0 and 20 are alike."""
    if isinstance(value, float):
        rounded = round(value, decimals)
        return int(rounded) if rounded.is_integer() and abs(rounded) < _EXACT else rounded
    return value


def canonical_content(event: Event, decimals: int) -> bytes:
    """What an event says, apart from its id, its time and its lease: equal bytes for equal content."""
    attributes = [(name, _canonical(value, decimals)) for name, value in sorted(event.attributes.items())]
    return msgspec.msgpack.encode((attributes, event.payload))


def announcement_id(event: Event, origin: Iterable[int], decimals: int) -> int:
    """[001 §4.2] A hash of the message's content. `origin`: the node of a source or the ids of the announcements that a
    result was made of, or nothing to hash the content alone."""
    return _hashed("announcement", list(origin), canonical_content(event, decimals))


def stream_id(node: int, key: Sequence[Scalar | None]) -> int:
    """The stream of a source application: its node and the values that tell its streams apart."""
    return _hashed("stream", node, list(key))


def result_stream(streams: Iterable[int], processor: ProcessorId, place: int) -> int:
    """The stream of a processor's results: the same wherever the processor of that name runs on the same inputs."""
    return _hashed("result", list(streams), processor, place)


def derived_subscriber(subscriber: int, result: int) -> int:
    """Under which subscriber id a subscription to a result goes on to the result's inputs.

    Not under its own: one sink may want a stream and two results of it, and each is a path of its own at the source.
    """
    return _hashed("subscriber", subscriber, result)


def valid_metric(metric_s: float) -> bool:
    """A metric is a time that paths add up."""
    return 0 <= metric_s <= MAX_METRIC_S


def better(metric_s: float, than_s: float) -> bool:
    """[001 §4.2] Whether an announcement shows a better path."""
    return metric_s < than_s - TOLERANCE_S


def aggregated_metric(metrics_s: Sequence[float], how: Literal["sum", "max"]) -> float:
    """[001 §4.5] What it takes to have all inputs of a processor."""
    return math.fsum(metrics_s) if how == "sum" else max(metrics_s)


def combined_number(numbers: Sequence[int]) -> int:
    """One sequence or counter for what was made of several: it rises with each of them, and is the same wherever the
    same things are combined.

    The counts add up behind the largest incarnation. Incarnations are up to 31 bits long, so that the sum of whole
    numbers would soon not fit in a message.
    """
    incarnation = max(number >> COUNTER_BITS for number in numbers)
    count = sum(number & ((1 << COUNTER_BITS) - 1) for number in numbers)
    return min((incarnation << COUNTER_BITS) + count, MAX_NUMBER)


def feasible(reported_s: float, lowest_s: float) -> bool:
    """Whether an announcer that itself has the metric `reported_s` can be used without making a loop.

    The source node condition of DUAL [Garcia-Luna-Aceves 1993]: it is nearer to the source than this broker has ever
    been under the same announcement (`lowest_s`). Along such announcers the lowest metrics fall strictly, so no broker
    comes twice, however paths have changed since.
    """
    return better(reported_s, lowest_s)
