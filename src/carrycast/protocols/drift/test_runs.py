"""The run-length encoding of event ids, and malformed bytes."""

import pytest
from hypothesis import given, strategies as st

from carrycast.core.model import EventId
from carrycast.core.model.identity import MAX_NODE_ID
from carrycast.protocols.drift.runs import BadRunsError, find_difference, iterate_ids, make_runs, pack_ids, unpack

NUMBERS = st.integers(0, 40) | st.integers(0, MAX_NODE_ID - 1)
IDS = st.sets(st.builds(EventId, NUMBERS, NUMBERS), max_size=40)


def test_a_stream_is_three_bytes_however_long_it_is() -> None:
    assert pack_ids(EventId(5, number) for number in range(3, 103)) == bytes([5, 3, 99])
    # The second run begins two after the end of the first: 3 to 5, then 8.
    assert pack_ids([EventId(5, number) for number in (3, 4, 5, 8)]) == bytes([5, 3, 2, 0, 2, 0])


@given(ids=IDS)
def test_unpacking_restores_the_ids(ids: set[EventId]) -> None:
    assert list(iterate_ids(unpack(pack_ids(ids)))) == sorted(ids)


@given(one=IDS, other=IDS)
def test_differences_are_those_of_sets(one: set[EventId], other: set[EventId]) -> None:
    assert find_difference(make_runs(one), make_runs(other)) == sorted(one - other)


@given(packed=st.binary(max_size=60))
def test_any_bytes_are_runs_or_are_rejected(packed: bytes) -> None:
    try:
        runs = unpack(packed)
    except BadRunsError:
        return
    assert sum(after - first for each in runs.values() for first, after in each) <= 1 << 16


@pytest.mark.parametrize(
    "packed",
    [
        b"\x05",
        b"\x05\x03",
        b"\x05\x03\x80",
        b"\xff" * 12,
        b"\x00\x00\xff\xff\x04",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00",
    ],
    ids=["one number", "two numbers", "cut short", "endless number", "too many ids", "beyond any source"],
)
def test_bytes_that_are_no_runs_are_rejected(packed: bytes) -> None:
    with pytest.raises(BadRunsError):
        unpack(packed)
