"""GPSR that hears packets meant for others, in the simulator: tables are as fresh as the traffic around."""

import pytest

from carrycast.core.stacks import make_stack_plan
from carrycast.errors import UserError
from carrycast.routers.gpsr.router import Gpsr
from tests.routing.networks import placed

# 0 and 1 write to each other; 2 is in reach of both, and nobody writes to it.
TRIANGLE = [(0.0, 0.0), (100.0, 0.0), (50.0, 80.0)]
RADIOS: list[dict[str, object]] = [
    {"model": "disk"},
    {"model": "disk", "rate_bps": 1e6, "loss": 0.3},
    {"model": "csma", "preset": "ns2"},
]
# After the first beacons there are none for long, so that what is known later was overheard.
RARELY: dict[str, object] = {"beacon_s": 20.0, "beacon_jitter": 0.0, "expiry": 1.5}


def known_to_the_third(radio: dict[str, object], overhear: bool, loss: float = 0.0) -> set[int]:
    tables = {"radio": radio, "faults": [{"kind": "loss", "probability": loss}] if loss else []}
    net = placed("gpsr", TRIANGLE, 120.0, 1, tables, overhear=overhear, **RARELY)
    net.run(20.5)
    net.crash(2)
    net.restart(2)
    for step in range(20):
        net.publish(step % 2, {"to": 1 - step % 2, "x": TRIANGLE[1 - step % 2][0], "y": 0.0})
        net.run(0.01)
    router = net.machine(2).stack.router
    assert isinstance(router, Gpsr)
    return set(router.table)


@pytest.mark.parametrize("radio", RADIOS, ids=str)
def test_who_is_written_to_by_nobody_learns_from_packets_for_others(radio: dict[str, object]) -> None:
    assert known_to_the_third(radio, overhear=True) == {0, 1}
    assert known_to_the_third(radio, overhear=False) == set()


def test_faults_lose_what_is_overheard_too() -> None:
    assert known_to_the_third({"model": "disk"}, overhear=True, loss=1.0) == set()


def test_a_world_that_lets_nobody_overhear_says_so() -> None:
    router = {"name": "gpsr", "overhear": True}
    with pytest.raises(UserError, match="gpsr needs overhearing"):
        make_stack_plan({"name": "courier"}, router, None, frozenset({"position"}), "a node")  # type: ignore[arg-type]
