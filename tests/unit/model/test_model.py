"""Model values reject invalid fields and are immutable."""

import enum
import math

import numpy as np
import pytest

from carrycast.core.model import (
    AdvertisementId,
    Event,
    EventId,
    Request,
    RequestId,
    Scalar,
    Subscription,
    SubscriptionId,
    check_attributes,
)


class Color(enum.IntEnum):
    """A number to Python, something else to an encoder."""

    RED = 1


def test_ids_are_written_as_node_and_number() -> None:
    assert str(EventId(3, 14)) == "3:14"
    assert str(SubscriptionId(3, 14)) == str(AdvertisementId(3, 14)) == str(RequestId(3, 14)) == "3:14"


def test_an_event_knows_its_source_and_a_subscription_its_subscriber() -> None:
    assert Event(EventId(3, 14), {}).source == 3
    assert Subscription(SubscriptionId(4, 0), "true").subscriber == 4


def test_an_event_cannot_be_changed() -> None:
    event = Event(EventId(0, 0), {"a": 1})
    with pytest.raises(AttributeError):
        event.payload = b"other"  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("attributes", "complaint"),
    [
        ({str(n): n for n in range(257)}, "at most 256 attributes, not 257"),
        ({"": 1}, "an attribute name has 1 to 128 characters"),
        ({"x" * 129: 1}, "an attribute name has 1 to 128 characters"),
        ({"a": math.nan}, "attribute 'a' is not a finite number"),
        ({"a": -math.inf}, "attribute 'a' is not a finite number"),
        ({"a": 2**63}, "attribute 'a' does not fit in 64 bits"),
        ({"a": -(2**63) - 1}, "attribute 'a' does not fit in 64 bits"),
        ({"a": "x" * 4097}, "attribute 'a' is longer than 4096 characters"),
        ({"a": None}, "attribute 'a' is a NoneType, not a str, int, float or bool"),
        ({"a": b"x"}, "attribute 'a' is a bytes, not a str, int, float or bool"),
        ({"a": np.float64(1.5)}, "attribute 'a' is a float64, not a str, int, float or bool"),
        ({"a": Color.RED}, "attribute 'a' is a Color, not a str, int, float or bool"),
        ({"a": "\ud800"}, "attribute 'a' has characters that are no Unicode text"),
        ({"\ud800": 1}, r"attribute '\\ud800' has characters in its name that are no Unicode text"),
        ({b"a": 1}, "an attribute name is a str, not a bytes"),
        ({("a", "b"): 1}, "an attribute name is a str, not a tuple"),
    ],
)
def test_attributes_that_could_not_be_matched_everywhere_are_refused(
    attributes: dict[str, Scalar], complaint: str
) -> None:
    with pytest.raises(ValueError, match="^" + complaint + "$"):
        check_attributes(attributes)
    with pytest.raises(ValueError, match="^" + complaint + "$"):
        Event(EventId(0, 0), attributes)
    with pytest.raises(ValueError, match="^" + complaint + "$"):
        Subscription(SubscriptionId(0, 0), "true", attributes=attributes)
    with pytest.raises(ValueError, match="^" + complaint + "$"):
        Request(RequestId(0, 0), "true", attributes=attributes)


def test_the_bounds_themselves_are_allowed() -> None:
    check_attributes({"x" * 128: "y" * 4096, "low": -(2**63), "high": 2**63 - 1, "yes": True, "pi": 3.14, "ünï": "☃ 𝄞"})


@pytest.mark.parametrize("time_s", [math.nan, math.inf, -math.inf])
def test_the_time_of_an_event_is_a_number(time_s: float) -> None:
    with pytest.raises(ValueError, match="an event's time is a finite number"):
        Event(EventId(0, 0), {}, time_s=time_s)


def test_ids_order_by_node_and_then_by_number() -> None:
    assert sorted([EventId(2, 0), EventId(1, 9), EventId(1, 10)]) == [EventId(1, 9), EventId(1, 10), EventId(2, 0)]
