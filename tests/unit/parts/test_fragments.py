"""Fragmentation and reassembly of messages."""

from random import Random

import pytest
from hypothesis import given, strategies as st

from carrycast.core.parts.fragments import Assembly, split


@given(st.binary(max_size=200), st.integers(1, 50), st.randoms(use_true_random=False))
def test_what_was_split_is_put_together_in_any_order(body: bytes, size: int, rng: Random) -> None:
    pieces = split(body, size)
    assert all(len(piece) <= size for piece in pieces)
    order = list(enumerate(pieces)) * 2
    rng.shuffle(order)
    assembly = Assembly(len(pieces))
    taken = [assembly.add(index, len(pieces), piece) for index, piece in order]
    assert sum(taken) == len(pieces)
    assert assembly.complete
    assert assembly.body() == body


def test_an_empty_message_is_one_fragment() -> None:
    assert split(b"", 10) == [b""]


def test_it_knows_what_is_here_and_what_is_missing() -> None:
    assembly = Assembly(4)
    assembly.add(2, 4, b"c")
    assembly.add(0, 4, b"a")
    assert assembly.list_received() == [0, 2]
    assert assembly.list_missing() == [1, 3]
    assert (assembly.piece(2), assembly.piece(1)) == (b"c", None)
    assert not assembly.complete


@pytest.mark.parametrize(("index", "count"), [(4, 4), (-1, 4), (0, 5)])
def test_a_fragment_of_another_message_is_refused(index: int, count: int) -> None:
    assert not Assembly(4).add(index, count, b"")


def test_a_complete_one_has_every_piece() -> None:
    assembly = Assembly.of([b"a", b"b"])
    assert assembly.complete
    assert assembly.list_received() == [0, 1]
