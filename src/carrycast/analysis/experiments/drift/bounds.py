"""What anybody could do: whom the contacts let be reached, and how few frames a tree takes that is made with the whole
network in view. The first nobody exceeds; the second is what greed finds, and the best tree may be a little smaller."""

from collections.abc import Mapping, Set
from functools import lru_cache
from pathlib import Path

from carrycast.analysis.advice import delivery_bound
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.scenario import compute_movement, draw_roles, draw_workload, load_scenario

HERE = Path(__file__).parent
"""Where the networks are; a report keeps a copy of the claims alone."""
Links = Mapping[int, Set[int]]


@lru_cache(maxsize=1024)
def reachable_share(path: Path, seed: int) -> float | None:
    """Of all pairs of a run, the share that contacts and leases allow."""
    return delivery_bound(load_scenario(path), [seed]).delivery


@lru_cache(maxsize=1024)
def count_tree_frames(path: Path, seed: int) -> float | None:
    """How many broadcasts reach everybody who is linked with the source when an event is published, of all of a run."""
    scenario = load_scenario(path)
    plan, _ = compute_movement(scenario, seed)
    roles = draw_roles(scenario.roles, scenario.nodes, seed, scenario.name)
    played = draw_workload(
        scenario.subscribe, scenario.resolved().publish, roles, scenario.nodes, scenario.duration_s, seed
    )
    if not played.publishes:
        return None
    return float(sum(count_greedy_frames(links_at(plan, one.time_s), one.event.id.source) for one in played.publishes))


def links_at(plan: ContactPlan, time_s: float) -> dict[int, set[int]]:
    """Who is linked with whom at a time."""
    links: dict[int, set[int]] = {}
    standing = (plan.start_s <= time_s) & (time_s < plan.end_s)
    for a, b in zip(plan.a[standing].tolist(), plan.b[standing].tolist(), strict=True):
        links.setdefault(a, set()).add(b)
        links.setdefault(b, set()).add(a)
    return links


def count_greedy_frames(links: Links, source: int) -> int:
    """Of those that have it, whoever reaches the most that have it not speaks, until nobody is left."""
    has, spoken, frames = {source}, set[int](), 0
    while True:
        gains = [(len(links.get(node, set()) - has), -node) for node in has - spoken]
        gain, speaker = max(gains, default=(0, 0))
        if not gain:
            return frames
        has |= links[-speaker]
        spoken.add(-speaker)
        frames += 1
