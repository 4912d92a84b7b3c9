"""The delivery bound: the best delivery ratio and delay that the contacts permit any protocol."""

import json
from collections.abc import Sequence
from math import fsum, inf, isinf
from typing import NamedTuple

from carrycast.analysis.explain import ContactIndex
from carrycast.sim.scenario import Scenario, compute_movement, draw_roles, draw_workload
from carrycast.trace import find_eligible_pairs


class DeliveryBound(NamedTuple):
    """The bound over some seeds: no protocol delivers more, or has a lower median delay at that delivery."""

    delivery: float | None
    delay_p50_s: float | None


def delivery_bound(scenario: Scenario, seeds: Sequence[int]) -> DeliveryBound:
    """Compute the bound from the earliest arrival of every event at its eligible subscribers."""
    shares: list[float] = []
    delays_s: list[float] = []
    for seed in seeds:
        found, total = _find_earliest_delays(scenario, seed)
        delays_s += found
        if total:
            shares.append(len(found) / total)
    if not shares:
        return DeliveryBound(None, None)
    delays_s.sort()
    # The mean over seeds, as for measured ratios: no seed exceeds its bound, so no mean exceeds this one.
    return DeliveryBound(fsum(shares) / len(shares), delays_s[len(delays_s) // 2] if delays_s else None)


def _find_earliest_delays(scenario: Scenario, seed: int) -> tuple[list[float], int]:
    """Return the delays of the pairs that can be served in time, and the number of all pairs."""
    plan, _ = compute_movement(scenario, seed)
    wires = [pair for wire in scenario.wires for pair in wire.pairs(scenario.nodes)]
    meetings = ContactIndex.of(plan, wires)
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
    to_s = scenario.duration_s if scenario.measure.to_s is None else scenario.measure.to_s
    counted = [one for one in played.publishes if scenario.measure.from_s <= one.time_s <= to_s]
    events = {
        str(one.event.id): {
            "run": "",
            "event": str(one.event.id),
            "source": one.event.id.source,
            "time_s": one.time_s,
            "attributes": json.dumps(dict(one.event.attributes)),
            "access": None if one.event.access is None else one.event.access.condition,
            "processor": None,
        }
        for one in counted
    }
    wanting = [
        {
            "subscription": str(one.subscription.id),
            "node": one.subscription.id.subscriber,
            "filter": one.subscription.filter,
            "attributes": json.dumps(dict(one.subscription.attributes)),
            "from_s": one.time_s,
            "to_s": one.until_s,
            "processor": one.subscription.processor,
        }
        for one in played.subscribes
    ]
    leases_s = {str(one.event.id): one.event.lease_s for one in counted}
    wanted: dict[str, list[int]] = {}
    for _, event, node, _, _ in find_eligible_pairs(events.values(), wanting):
        wanted.setdefault(event, []).append(node)
    delays_s: list[float] = []
    for event, nodes in wanted.items():
        row = events[event]
        time_s = float(str(row["time_s"]))
        ends_s = min(time_s + leases_s[event], scenario.duration_s)
        arrivals = meetings.earliest_arrivals(int(str(row["source"])), time_s, inf if isinf(ends_s) else ends_s)
        delays_s += [arrivals[node].time_s - time_s for node in nodes if node in arrivals]
    return delays_s, sum(map(len, wanted.values()))
