"""Statistics of a contact plan: distributions, degrees, islands, link churn and earliest arrivals."""

import heapq
from math import erfc, inf, sqrt
from typing import NamedTuple

import numpy as np

from carrycast.errors import UserError
from carrycast.sim.contacts.plan import ContactPlan
from carrycast.sim.mobility import Floats, Integers

# Fewer values than this fit any distribution.
LEAST_VALUES = 50
# The significance level: with a higher p-value neither distribution is called the better one.
DECIDED_BELOW = 0.1


def ccdf(values: Floats) -> tuple[Floats, Floats]:
    """The complementary cumulative distribution: the distinct values, and the share of all values above each."""
    ordered = np.sort(values)
    last = np.flatnonzero(np.append(np.diff(ordered) > 0, True)[: len(ordered)])
    return ordered[last], 1.0 - (last + 1) / max(len(ordered), 1)


class DistributionFit(NamedTuple):
    """The tail of a distribution, from `least` on, as a power law and as an exponential one."""

    least: float
    values: int
    exponent: float
    """P(X > x) = (x / least) ** -exponent."""
    rate: float
    """P(X > x) = exp(-rate (x - least))."""
    ratio: float
    """The difference of both log-likelihoods: above 0 for the power law."""
    p: float
    """The p-value of Vuong's test."""

    @property
    def better(self) -> str | None:
        """The distribution that fits better; None if the difference is not significant."""
        if not self.p < DECIDED_BELOW:
            return None
        return "power law" if self.ratio > 0 else "exponential"


def fit_distribution(values: Floats) -> DistributionFit | None:
    """Fit both distributions to the tail by maximum likelihood; None for too few values, or if all are equal.

    The tail begins where the power law fits best, by the Kolmogorov-Smirnov distance (Clauset, Shalizi and Newman,
    2009). Both distributions are compared on the same tail.
    """
    values = np.sort(values[values > 0])
    if len(values) < LEAST_VALUES or values[0] == values[-1]:
        return None
    candidates = np.unique(np.quantile(values, np.linspace(0.0, 0.9, 50), method="lower"))
    tails = [values[np.searchsorted(values, least) :] for least in candidates]
    tails = [tail for tail in tails if len(tail) >= LEAST_VALUES and tail[-1] > tail[0]]
    tail = min(tails, key=_distance)
    least, n = float(tail[0]), len(tail)
    exponent, rate = n / float(np.log(tail / least).sum()), n / float((tail - least).sum())
    power = np.log(exponent / least) - (exponent + 1) * np.log(tail / least)
    exponential = np.log(rate) - rate * (tail - least)
    each = power - exponential
    ratio, spread = float(each.sum()), float(each.std())
    p = erfc(abs(ratio) / (sqrt(2 * n) * spread)) if spread > 0 else 1.0
    return DistributionFit(least, n, exponent, rate, ratio, p)


def _distance(tail: Floats) -> float:
    """The Kolmogorov-Smirnov distance of a sorted tail from the power law that fits it."""
    logs = np.log(tail / tail[0])
    above = np.exp(-logs * (len(tail) / logs.sum()))
    place = np.arange(len(tail)) / len(tail)
    return float(np.maximum(np.abs(1 - place - above), np.abs(1 - place - 1 / len(tail) - above)).max())


class Islands(NamedTuple):
    """The number of islands of two or more nodes at some times, and the share of nodes in the largest island."""

    time_s: Floats
    islands: Integers
    largest: Floats


def islands_over_time(plan: ContactPlan, samples: int = 200) -> Islands:
    """Count islands in the middle of evenly spaced slices of the run."""
    time_s = (np.arange(samples) + 0.5) * plan.duration_s / samples
    counts, largest = np.zeros(samples, dtype=np.int64), np.zeros(samples)
    for k, now_s in enumerate(time_s):
        linked = np.flatnonzero((plan.start_s <= now_s) & (now_s < plan.end_s))
        sizes = island_sizes(plan.nodes, plan.a[linked], plan.b[linked])
        counts[k], largest[k] = int((sizes > 1).sum()), int(sizes.max(initial=0)) / max(plan.nodes, 1)
    return Islands(time_s, counts, largest)


def island_sizes(nodes: int, a: Integers, b: Integers) -> Integers:
    """The number of nodes in each island. A node without links is an island of its own."""
    label = np.arange(nodes)
    while True:
        low = np.minimum(label[a], label[b])
        before = label.copy()
        np.minimum.at(label, a, low)
        np.minimum.at(label, b, low)
        label = label[label]
        if np.array_equal(before, label):
            sizes: Integers = np.unique(label, return_counts=True)[1]
            return sizes


def node_degrees(plan: ContactPlan) -> Floats:
    """The neighbors of each node, averaged over time."""
    total = np.zeros(plan.nodes)
    lasting_s = plan.durations_s()
    np.add.at(total, plan.a, lasting_s)
    np.add.at(total, plan.b, lasting_s)
    return total / plan.duration_s


def link_churn(plan: ContactPlan, slices: int = 200) -> tuple[Floats, Floats]:
    """The middles of slices of the run, and the link changes in each, per node and second."""
    changes = plan.changes(plan.duration_s)
    # Links that exist from the start are not changes.
    time_s = changes.time_s[changes.time_s > 0]
    counts, edges_s = np.histogram(time_s, bins=slices, range=(0.0, plan.duration_s))
    return (edges_s[1:] + edges_s[:-1]) / 2, 2 * counts / (max(plan.nodes, 1) * plan.duration_s / slices)


def earliest_arrivals(plan: ContactPlan, source: int, start_s: float = 0.0) -> Floats:
    """The earliest times at which a message that `source` has from `start_s` on can reach each node; inf if never.

    Links are assumed to have no delay and unlimited capacity, so the result is a lower bound for every protocol.
    """
    if not 0 <= source < plan.nodes:
        raise UserError(f"there is no node {source}; they are 0 to {plan.nodes - 1}")
    one, other = np.concatenate((plan.a, plan.b)), np.concatenate((plan.b, plan.a))
    order = np.argsort(one, kind="stable")
    first = np.searchsorted(one[order], np.arange(plan.nodes + 1))
    other = other[order]
    begin_s, end_s = np.tile(plan.start_s, 2)[order], np.tile(plan.end_s, 2)[order]
    arrival_s = np.full(plan.nodes, inf)
    arrival_s[source] = start_s
    done = np.zeros(plan.nodes, dtype=np.bool_)
    ahead = [(start_s, source)]
    while ahead:
        now_s, node = heapq.heappop(ahead)
        if done[node]:
            continue
        done[node] = True
        mine = slice(first[node], first[node + 1])
        there, at_s = other[mine], np.maximum(begin_s[mine], now_s)
        open_ = (end_s[mine] >= now_s) & (at_s < arrival_s[there])
        reached = np.unique(there[open_])
        np.minimum.at(arrival_s, there[open_], at_s[open_])
        for neighbor in reached.tolist():
            heapq.heappush(ahead, (float(arrival_s[neighbor]), neighbor))
    return arrival_s
