"""Brokers that have too many clients."""

import pytest

from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import parse_scenario


@pytest.mark.parametrize("brokers", [[0], [0, 1]])
def test_rejected_clients_search_again_after_a_while(brokers: list[int]) -> None:
    """A broker's own applications are its clients too: their messages take no time, and neither does a rejection."""
    table = {
        "duration_s": 30.0,
        "nodes": 5,
        "area_m": [100.0, 100.0],
        "mobility": {"model": "random_static"},
        "radio": {"model": "disk", "range_m": 200.0},
        "roles": {"broker": brokers},
        "protocol": {"name": "overlay", "max_clients": 1},
        "subscribe": [{}],
        "publish": [{"nodes": "all", "every_s": 5.0}],
        "trace": "full",
    }
    outcome = run(parse_scenario(table, "full"), 1)
    rows = outcome.trace.table().to_pylist()
    refused = [row for row in rows if row["kind"] == "drop" and row["reason"] == "clients_full"]
    # At most one of each client a second.
    assert 0 < len(refused) <= 5 * 30
    assert outcome.metrics["delivered"] is not None
