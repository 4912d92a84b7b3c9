"""The durations in messages and parcels shrink while they wait, until the message expires."""

from math import inf, nan

import pytest

from carrycast.core.model import Event, EventId
from carrycast.core.wire import EventMessage, Message, Parcel, ParcelMessage, Traffic

EVENT = Event(EventId(1, 2), {"topic": 1})
PARCEL = Parcel(b"body", Traffic.DATA, EVENT.id)


class Carrier(EventMessage, frozen=True, gc=False, tag=1):
    """Carries an event."""


class Report(Message, frozen=True, gc=False, tag=2):
    """Good for two different times."""

    durations = ("short_s", "long_s")

    short_s: float
    long_s: float
    period_s: float


class Routed(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=3):
    """A router's message, good for a while itself."""

    durations = ("valid_s",)

    valid_s: float = inf


def test_what_has_not_waited_is_the_same_object() -> None:
    for message in (Carrier(EVENT, 1, 5.0), Routed(parcel=PARCEL)):
        assert message.age_by(0.0) is message


def test_what_is_good_for_ever_stays_so() -> None:
    assert Carrier(EVENT, 1, inf).age_by(1e9) == Carrier(EVENT, 1, inf)


def test_durations_shrink_and_all_else_stays() -> None:
    assert Carrier(EVENT, 3, 5.0).age_by(1.5) == Carrier(EVENT, 3, 3.5)
    assert Report(2.0, 9.0, 1.0).age_by(1.5) == Report(0.5, 7.5, 1.0)


@pytest.mark.parametrize("waited_s", [5.0, 5.1, inf, nan])
def test_nothing_is_left_when_one_duration_is_over(waited_s: float) -> None:
    assert Carrier(EVENT, 1, 5.0).age_by(waited_s) is None
    assert Report(5.0, 9.0, 1.0).age_by(waited_s) is None


def test_an_endless_wait_ends_even_what_is_good_for_ever() -> None:
    assert Carrier(EVENT, 1, inf).age_by(inf) is None


def test_a_parcel_adds_its_waits_up_and_outlives_what_it_cannot_see() -> None:
    once = Routed(parcel=PARCEL).age_by(2.0)
    assert once is not None
    twice = once.age_by(3.0)
    assert twice == Routed(parcel=Parcel(b"body", Traffic.DATA, EVENT.id, 5.0))
    assert Routed(parcel=PARCEL, valid_s=1.0).age_by(2.0) is None
