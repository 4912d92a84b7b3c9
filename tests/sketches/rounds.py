"""Counters that go on growing when their node starts anew."""

from typing import Annotated, NamedTuple

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**32)]


class Round(NamedTuple):
    """Any round of a later incarnation is newer than every round of an earlier one: tuples compare so."""

    incarnation: Count
    number: Count

    def next(self) -> "Round":
        """The round after this one, in the same incarnation."""
        return Round(self.incarnation, self.number + 1)
