"""Objectives: their meaning, and the errors for invalid ones."""

import math

import pytest

from carrycast.analysis.advice.objective import Limit, parse_objective
from carrycast.errors import UserError


def test_limits_and_a_goal() -> None:
    found = parse_objective("delivery >= 0.95, least bytes")
    assert found.limits == (Limit("delivery_ratio", at_least=True, value=0.95),)
    assert (found.goal, found.least) == ("total_bytes", True)
    assert found.text == "delivery_ratio >= 0.95, least total_bytes"
    assert parse_objective(found.text) == found
    other = parse_objective("delay_p95_s<=60 ,bytes<=2e6, most delivery")
    assert [limit.text for limit in other.limits] == ["delay_p95_s <= 60", "total_bytes <= 2e+06"]
    assert other.metrics == ["delay_p95_s", "total_bytes", "delivery_ratio"]
    assert other.cost(0.5) == -0.5
    assert parse_objective("most delivery").limits == ()


def test_how_far_a_limit_is_missed() -> None:
    found = parse_objective("delivery >= 0.8, delay <= 10, least bytes")
    assert found.excess({"delivery_ratio": 0.8, "delay_p50_s": 10.0}) == 0.0
    assert found.excess({"delivery_ratio": 0.4, "delay_p50_s": 15.0}) == pytest.approx(1.0)
    assert found.excess({"delivery_ratio": 0.9, "delay_p50_s": None}) == math.inf
    assert found.cost(None) == math.inf


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is neither a limit nor a goal"),
        ("delivery >= 0.9", "has no goals, and needs one"),
        ("least bytes, least delay", "has 2 goals, and needs one"),
        ("delivery > 0.9, least bytes", "a limit says >= or <="),
        ("delivery >= much, least bytes", "'much' is not a number"),
        ("delivery >= nan, least bytes", "a limit is a finite number"),
        ("delivery >= 95, least bytes", "a delivery ratio lies between 0 and 1"),
        ("delivery >= 0.9, delivery >= 0.8, least bytes", "limits delivery_ratio twice"),
        ("least byte", "there is no metric 'byte'; did you mean 'bytes'?"),
        ("cheapest bytes", "'cheapest bytes' is neither a limit nor a goal"),
    ],
)
def test_what_means_nothing_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_objective(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
