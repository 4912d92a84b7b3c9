"""The statistics of contacts, against distributions and networks that are known."""

import networkx as nx
import numpy as np
import pytest

from carrycast.errors import UserError
from carrycast.sim.contacts.plan import ContactPlan
from carrycast.sim.contacts.statistics import (
    ccdf,
    earliest_arrivals,
    fit_distribution,
    island_sizes,
    islands_over_time,
    link_churn,
    node_degrees,
)


def plan_of(nodes: int, duration_s: float, *rows: tuple[int, int, float, float]) -> ContactPlan:
    a, b, start_s, end_s = (np.array(column) for column in zip(*rows, strict=True))
    return ContactPlan.of(nodes, duration_s, a, b, start_s, end_s)


CHAIN = plan_of(
    5, 100.0, (0, 1, 10.0, 20.0), (1, 2, 5.0, 15.0), (2, 3, 0.0, 12.0), (2, 3, 50.0, 60.0), (0, 3, 70.0, 80.0)
)


def test_a_ccdf_says_what_share_is_above() -> None:
    x, above = ccdf(np.array([3.0, 1.0, 1.0, 2.0]))
    assert (x.tolist(), above.tolist()) == ([1.0, 2.0, 3.0], [0.5, 0.25, 0.0])
    assert len(ccdf(np.zeros(0))[0]) == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_law_that_values_were_drawn_from_fits_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    power = fit_distribution(10.0 * (1 + rng.pareto(1.5, size=4000)))
    assert power is not None
    assert power.better == "power law"
    assert power.exponent == pytest.approx(1.5, abs=0.15)
    exponential = fit_distribution(rng.exponential(50.0, size=4000))
    assert exponential is not None
    assert exponential.better == "exponential"
    assert exponential.rate == pytest.approx(1 / 50.0, rel=0.15)


def test_few_values_and_equal_values_fit_nothing() -> None:
    assert fit_distribution(np.arange(1.0, 40.0)) is None
    assert fit_distribution(np.full(500, 7.0)) is None
    assert fit_distribution(np.zeros(0)) is None
    few = fit_distribution(np.random.default_rng(1).lognormal(size=60))
    assert few is not None
    assert 0 <= few.p <= 1


@pytest.mark.parametrize("seed", range(5))
def test_islands_agree_with_networkx(seed: int) -> None:
    graph = nx.gnm_random_graph(60, 45, seed=seed)
    edges = np.array(graph.edges, dtype=np.int64)
    mine = sorted(island_sizes(60, edges[:, 0], edges[:, 1]).tolist())
    assert mine == sorted(len(island) for island in nx.connected_components(graph))


def test_islands_degree_and_churn_of_a_network_worked_by_hand() -> None:
    found = islands_over_time(CHAIN, samples=10)
    assert found.time_s.tolist() == [5.0, 15.0, 25.0, 35.0, 45.0, 55.0, 65.0, 75.0, 85.0, 95.0]
    # At 5 s nodes 1, 2, 3 are one island; at 15 s, when 1 and 2 have just parted, 0 and 1 are.
    assert found.islands.tolist() == [1, 1, 0, 0, 0, 1, 0, 1, 0, 0]
    assert found.largest.tolist() == [0.6, 0.4, 0.2, 0.2, 0.2, 0.4, 0.2, 0.4, 0.2, 0.2]
    assert node_degrees(CHAIN).tolist() == pytest.approx([0.2, 0.2, 0.32, 0.32, 0.0])
    middle_s, rate = link_churn(CHAIN, slices=2)
    assert middle_s.tolist() == [25.0, 75.0]
    # Up at 5 and 10, down at 12, 15 and 20 in the first half; up at 50 and 70, down at 60 and 80 in the second.
    assert rate.tolist() == pytest.approx([2 * 5 / (5 * 50), 2 * 4 / (5 * 50)])


def test_the_earliest_arrival_waits_for_contacts_and_uses_each_in_time() -> None:
    assert earliest_arrivals(CHAIN, 0).tolist() == [0.0, 10.0, 10.0, 10.0, np.inf]
    # At 13 s the meeting of 2 and 3 is over: it waits for the next.
    assert earliest_arrivals(CHAIN, 0, 13.0).tolist() == [13.0, 13.0, 13.0, 50.0, np.inf]
    assert earliest_arrivals(CHAIN, 3, 61.0).tolist() == [70.0, np.inf, np.inf, 61.0, np.inf]
    with pytest.raises(UserError, match="no node 5"):
        earliest_arrivals(CHAIN, 5)


@pytest.mark.parametrize("seed", range(4))
def test_earliest_arrivals_agree_with_a_relaxation_of_every_contact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 11, size=60)
    b = a + rng.integers(1, 12 - a)
    start_s = np.round(rng.uniform(0, 90, size=60), 3)
    plan = ContactPlan.of(12, 100.0, a, b, start_s, start_s + np.round(rng.uniform(0.1, 9, size=60), 3))
    best = dict.fromkeys(range(12), np.inf) | {0: 0.0}
    for _ in range(12):
        for one, other, begin_s, end_s in zip(plan.a, plan.b, plan.start_s, plan.end_s, strict=True):
            for here, there in ((int(one), int(other)), (int(other), int(one))):
                if best[here] <= end_s:
                    best[there] = min(best[there], max(best[here], begin_s))
    assert earliest_arrivals(plan, 0).tolist() == pytest.approx(list(best.values()))
