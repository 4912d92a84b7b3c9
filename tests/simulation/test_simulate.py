"""`carrycast.simulate`: what the files give, for Python programs."""

from typing import Any

import pytest

from carrycast import simulate
from carrycast.errors import UserError

APART: dict[str, Any] = {
    "name": "apart",
    "duration_s": 20.0,
    "nodes": 3,
    "wires": [{"between": [[0, 1]]}],
    "discovery": {"mode": "oracle"},
    "protocol": {"name": "flooding"},
    "subscribe": [{"nodes": [1, 2], "filter": "kind = 'a'"}, {"nodes": [0], "filter": "kind = 'b'"}],
    "publish": [{"nodes": [0], "attributes": {"kind": "a"}, "interval_s": 5, "from_s": 1, "to_s": 6}],
}
"""Node 2 is linked with nobody."""


def test_who_missed_what_is_told_with_the_last_that_is_known() -> None:
    outcome = simulate(APART, level="full")
    assert outcome.events.num_rows == 2
    assert outcome.subscriptions.num_rows == 3
    missed = outcome.missed()
    assert [(one.node, one.event, one.published_s) for one in missed] == [(2, "0:0", 1.0), (2, "0:1", 6.0)]
    # What happened last, anywhere: node 1 passed it on, and nobody but node 0 heard it.
    assert all("by node" in one.last or "to node" in one.last for one in missed)
    assert outcome.metrics["delivery_ratio"] == 0.5


def test_what_was_missed_is_what_the_ratio_lacks() -> None:
    scenario = APART | {
        "faults": [{"kind": "loss", "probability": 0.5}],
        "publish": [{"nodes": "all", "attributes": {"kind": {"choice": ["a", "b"]}}, "count": 40}],
    }
    outcome = simulate(scenario, seed=3)
    eligible, ratio = outcome.metrics["eligible"], outcome.metrics["delivery_ratio"]
    assert eligible is not None
    assert ratio is not None
    assert len(outcome.missed()) == round(eligible * (1 - ratio)) > 0


def test_an_outcome_is_short_to_look_at() -> None:
    outcome = simulate(APART, seed=7)
    assert repr(outcome) == f"<Simulation apart, flooding, seed 7: delivery_ratio 0.5, {outcome.trace.num_rows} rows>"


def test_without_a_trace_nobody_knows_who_missed_what() -> None:
    with pytest.raises(UserError, match="level"):
        simulate(APART, level="metrics").missed()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"level": "everything"}, "level: 'everything' is none of 'metrics', 'deliveries', 'full'"),
        ({"seed": 1.5}, "seed: a whole number from 0 to"),
        ({"seed": -1}, "seed: a whole number from 0 to"),
        ({"seed": 2**63}, "seed: a whole number from 0 to"),
        ({"seed": "one"}, "seed: a whole number from 0 to"),
        ({"protocol": 7}, "protocol: a text"),
        ({"protocol": "floding"}, "did you mean 'flooding'"),
        ({"settings": [1]}, "settings: a dict"),
        ({"settings": {"weather": 1}}, "a scenario has no 'weather'"),
        ({"scenario": 3}, "scenario: a file's path"),
        ({"wings": 2}, "unknown key 'wings'"),
    ],
)
def test_bad_arguments_are_told_with_what_is_possible(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        simulate(**({"scenario": APART} | arguments))
    assert "\n" not in str(caught.value)
