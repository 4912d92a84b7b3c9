"""GPSR where the link layer doubles frames: packets do not multiply, and each is handed over once."""

from collections import Counter
from random import Random

from hypothesis import HealthCheck, given, settings, strategies as st

from carrycast.sim.testing import Net
from tests.routing.networks import arrived, placed

NODES = 25
RANGE_M = 250.0
LETTERS = 30


def sparse(seed: int) -> list[tuple[float, float]]:
    """About five neighbors each, so that many ways go around voids."""
    rng, side_m = Random(seed), (NODES * 3.14 * RANGE_M**2 / 5.5) ** 0.5
    return [(rng.uniform(0, side_m), rng.uniform(0, side_m)) for _ in range(NODES)]


def letters(seed: int, duplication: float, **router: object) -> tuple[Net, Counter[tuple[int, int]]]:
    """Letters for places, which tour the faces around them; how often each came."""
    faults = [{"kind": "duplication", "probability": duplication}] if duplication else []
    net = placed("gpsr", sparse(seed), RANGE_M, seed, {"faults": faults}, **router)
    net.run(4.0)
    rng = Random(seed)
    for _ in range(LETTERS):
        net.publish(rng.randrange(NODES), {"x": rng.uniform(0, 1000), "y": rng.uniform(0, 1000)})
        net.run(0.2)
    net.run(2.0)
    return net, Counter((came.origin, came.number) for node in range(NODES) for came in arrived(net, node))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), duplication=st.sampled_from([0.05, 0.3, 1.0]), stop_loops=st.booleans())
def test_packets_do_not_multiply_and_each_arrives_once(seed: int, duplication: float, stop_loops: bool) -> None:
    plain, came = letters(seed, 0.0, stop_loops=stop_loops)
    doubled, came_too = letters(seed, duplication, stop_loops=stop_loops)
    assert came_too == came
    assert set(came.values()) == {1}
    # Nobody moves and nothing is lost, so they go the same ways; what comes twice is not sent on.
    assert doubled.count_sent("GeoPacket") == plain.count_sent("GeoPacket")
    assert doubled.count_dropped("repeated") > 0
