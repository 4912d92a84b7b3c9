"""Sets of event ids in few bytes: a run-length encoding of the sequence numbers of each source.

A run is three variable-length numbers (LEB128: seven bits to a byte): the difference of its source to the source of the
run before, the gap between its first sequence number and the end of the source's previous run, and how many numbers
follow the first. Sources that number their events consecutively make few runs.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from carrycast.core.model import MAX_NODE_ID, EventId, NodeId

MAX_IDS = 1 << 16
"""Ids in one message: a few bytes may encode very many."""

Run = tuple[int, int]
"""The first number and the one after the last."""
RunsOf = dict[NodeId, tuple[Run, ...]]


class BadRunsError(Exception):
    """Bytes that are no runs: cut short, beyond the largest id, or more than `MAX_IDS` ids."""


def make_runs(ids: Iterable[EventId]) -> RunsOf:
    """Return the runs of each source, ordered by source and number."""
    found: dict[NodeId, list[Run]] = {}
    for source, number in sorted(ids):
        runs = found.setdefault(source, [])
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return {source: tuple(runs) for source, runs in found.items()}


def pack(runs_by_source: Mapping[NodeId, tuple[Run, ...]]) -> bytes:
    """Encode runs; the sources must be in order."""
    packed = bytearray()
    before = 0
    for source, runs in runs_by_source.items():
        end = 0
        for first, after in runs:
            _append_number(packed, source - before)
            _append_number(packed, first - end)
            _append_number(packed, after - first - 1)
            before, end = source, after
    return bytes(packed)


def pack_ids(ids: Iterable[EventId]) -> bytes:
    """Encode ids."""
    return pack(make_runs(ids))


def pack_id(id: EventId) -> bytes:
    """Encode one id: most offers have one."""
    return pack({id.source: ((id.sequence, id.sequence + 1),)})


def unpack(packed: bytes) -> RunsOf:
    """Decode runs from the network; raises `BadRunsError` if the bytes are no runs."""
    found: dict[NodeId, list[Run]] = {}
    source = end = total = 0
    # Bytes without the highest bit are the numbers themselves.
    numbers = packed if packed.isascii() else _decode_numbers(packed)
    if len(numbers) % 3:
        raise BadRunsError("a run is three numbers")
    for at in range(0, len(numbers), 3):
        ahead, skip, more = numbers[at : at + 3]
        source += ahead
        if ahead:
            end = 0
        first, after = end + skip, end + skip + more + 1
        total += more + 1
        if source > MAX_NODE_ID or after > MAX_NODE_ID or total > MAX_IDS:
            raise BadRunsError("beyond the largest id, or too many ids")
        found.setdefault(source, []).append((first, after))
        end = after
    return {source: tuple(runs) for source, runs in found.items()}


def pack_bits(bits: Iterable[bool]) -> bytes:
    """Encode a bitmap, the first bit lowest; empty if no bit is set."""
    number = count = 0
    for count, bit in enumerate(bits, 1):
        number |= bit << (count - 1)
    return number.to_bytes((count + 7) // 8, "little") if number else b""


def select_marked(ids: Sequence[EventId], packed: bytes) -> set[EventId]:
    """The ids whose bits are set; raises `BadRunsError` if the number of bits differs from the number of ids."""
    if not packed:
        return set()
    if len(packed) != (len(ids) + 7) // 8:
        raise BadRunsError("not a bit for each id")
    return {id for at, id in enumerate(ids) if packed[at >> 3] >> (at & 7) & 1}


def iterate_ids(runs_by_source: Mapping[NodeId, tuple[Run, ...]]) -> Iterator[EventId]:
    """Yield every id, ordered by source and number."""
    for source, runs in runs_by_source.items():
        for first, after in runs:
            for number in range(first, after):
                yield EventId(source, number)


def select_range(runs_by_source: RunsOf, low: EventId | None, high: EventId | None) -> RunsOf:
    """Return the ids between two ids, both included; None is no bound. The cost is proportional to the result, because
    a large set is compared part by part."""
    low, high = low or EventId(0, 0), high or EventId(MAX_NODE_ID, MAX_NODE_ID)
    found: RunsOf = {}
    for source, runs in runs_by_source.items():
        if low.source <= source <= high.source:
            first = low.sequence if source == low.source else 0
            after = high.sequence + 1 if source == high.source else MAX_NODE_ID + 1
            begin, end = bisect_right(runs, first, key=itemgetter(1)), bisect_left(runs, after, key=itemgetter(0))
            if begin < end:
                found[source] = tuple((max(a, first), min(b, after)) for a, b in runs[begin:end])
    return found


def find_difference(one: Mapping[NodeId, tuple[Run, ...]], other: Mapping[NodeId, tuple[Run, ...]]) -> list[EventId]:
    """Return the ids in `one` and not in `other`, ordered by source and number. A source with equal runs costs one
    comparison."""
    found: list[EventId] = []
    for source, runs in one.items():
        others = other.get(source, ())
        if runs == others:
            continue
        has = {number for first, after in others for number in range(first, after)}
        found += [
            EventId(source, number) for first, after in runs for number in range(first, after) if number not in has
        ]
    return found


def _append_number(packed: bytearray, number: int) -> None:
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)


def _decode_numbers(packed: bytes) -> list[int]:
    numbers: list[int] = []
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
        else:
            shift += 7
            if shift > 63:
                raise BadRunsError("a number longer than any id")
    if shift:
        raise BadRunsError("cut short")
    return numbers
