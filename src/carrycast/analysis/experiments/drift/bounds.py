"""Bounds for any protocol: the share of pairs that contacts allow, and the frames of a broadcast tree.

No protocol exceeds the first. The second comes from a greedy algorithm that knows the whole network; an optimal tree
may need slightly fewer frames. These functions are not in `claims.py`, because a report keeps a copy of that file, from
which the scenarios beside this module could not be found.
"""

from collections.abc import Mapping, Set
from functools import lru_cache
from pathlib import Path

from carrycast.analysis.advice import delivery_bound
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.scenario import compute_movement, draw_roles, draw_workload, load_scenario

HERE = Path(__file__).parent
"""The folder of the scenarios."""
Links = Mapping[int, Set[int]]


@lru_cache(maxsize=1024)
def reachable_share(path: Path, seed: int) -> float | None:
    """Return the share of the pairs of a run that contacts and leases allow."""
    return delivery_bound(load_scenario(path), [seed]).delivery


@lru_cache(maxsize=1024)
def count_tree_frames(path: Path, seed: int) -> float | None:
    """Return the number of broadcasts that take every event of a run to all nodes connected to its source."""
    scenario = load_scenario(path)
    plan, _ = compute_movement(scenario, seed)
    roles = draw_roles(scenario.roles, scenario.nodes, seed, scenario.name)
    played = draw_workload(
        scenario.subscribe,
        scenario.resolve_files().publish,
        roles,
        scenario.nodes,
        scenario.duration_s,
        seed,
        scenario.flow,
    )
    if not played.publishes:
        return None
    return float(sum(count_greedy_frames(links_at(plan, one.time_s), one.event.id.source) for one in played.publishes))


def links_at(plan: ContactPlan, time_s: float) -> dict[int, set[int]]:
    """Return the neighbors of each node at a time."""
    links: dict[int, set[int]] = {}
    standing = (plan.start_s <= time_s) & (time_s < plan.end_s)
    for a, b in zip(plan.a[standing].tolist(), plan.b[standing].tolist(), strict=True):
        links.setdefault(a, set()).add(b)
        links.setdefault(b, set()).add(a)
    return links


def count_greedy_frames(links: Links, source: int) -> int:
    """Count the broadcasts of a greedy algorithm: the next sender is the holder with the most neighbors without the
    event."""
    holders, senders, frames = {source}, set[int](), 0
    while True:
        gains = [(len(links.get(node, set()) - holders), -node) for node in holders - senders]
        gain, sender = max(gains, default=(0, 0))
        if not gain:
            return frames
        holders |= links[-sender]
        senders.add(-sender)
        frames += 1
