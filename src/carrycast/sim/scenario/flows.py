"""Unicast flows: packets from one node to another at a rate, as `[[flow]]` of a scenario describes them.

Each packet is an event with the attributes `flow`, the number of its flow, and `to`, its destination. The destination
subscribes to its flow. So all protocols carry flows, and all metrics count them.
"""

from collections.abc import Collection, Iterator, Mapping
from random import Random
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.streams import stream
from carrycast.errors import UserError
from carrycast.sim.scenario.draws import Selection, check_selection, resolve_selection

MAX_PACKETS = 2_000_000
"""The most packets of one entry. All are created before the run, at a few hundred bytes each."""
FLOW = "flow"
TARGET = "to"

Time = Annotated[float, Meta(ge=0, le=1e9)]


class FlowEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[flow]]` of a scenario: each selected source sends packets to one destination."""

    source: Selection = msgspec.field(name="from")
    """The sources: all, a number, a share, a list of ids, or a role. Each has one flow."""
    to: Selection = "all"
    """The destinations. Each source draws one of them, never itself."""
    rate_per_s: Annotated[float, Meta(ge=1e-6, le=1e5)]
    """Packets per second of each flow."""
    size_bytes: Annotated[int, Meta(ge=0, le=1 << 16)] = 64
    """The payload of a packet."""
    spacing: Literal["constant", "poisson"] = "constant"
    """The time between two packets: always the same, from a random phase on, or exponentially distributed."""
    from_s: Time = 0.0
    """When the flows begin."""
    to_s: Time | None = None
    """When they end; by default at the end of the run."""
    lease_s: Annotated[float, Meta(gt=0)] = 600.0
    """The lease of each packet."""


class Flow(NamedTuple):
    """One flow, and the times of its packets."""

    number: int
    entry: FlowEntry
    source: int
    target: int
    times_s: list[float]
    payload: Random
    """The stream of its payloads."""

    @property
    def filter(self) -> str:
        """The filter of the destination's subscription."""
        return f"{FLOW} = {self.number}"

    @property
    def attributes(self) -> Mapping[str, int]:
        """The attributes of its packets."""
        return {FLOW: self.number, TARGET: self.target}


def check_flow(entry: FlowEntry, nodes: int, roles: Collection[str], duration_s: float, where: str) -> None:
    """Reject a flow that a run could not play."""
    check_selection(entry.source, nodes, roles, f"{where}.from")
    check_selection(entry.to, nodes, roles, f"{where}.to")
    if isinstance(entry.source, list) and isinstance(entry.to, list) and len(set(entry.to)) == 1:
        alone = set(entry.source) & set(entry.to)
        if alone:
            raise UserError(f"{where}.to: node {alone.pop()} would send to itself; name another destination")
    if entry.from_s > duration_s:
        raise UserError(f"{where}.from_s: is after the end of the run, {duration_s:g} s")
    if entry.to_s is not None and entry.to_s < entry.from_s:
        raise UserError(f"{where}.to_s: must not be before from_s = {entry.from_s}")


def draw_flows(
    entries: Collection[FlowEntry], roles: dict[str, list[int]], nodes: int, duration_s: float, seed: int
) -> list[Flow]:
    """Draw all flows. Each entry has its own random streams, so adding one leaves the others unchanged."""
    found: list[Flow] = []
    for place, entry in enumerate(entries):
        rng = stream(seed, f"flow {place}")
        sources = resolve_selection(entry.source, roles, nodes, rng)
        targets = resolve_selection(entry.to, roles, nodes, rng)
        end_s = duration_s if entry.to_s is None else min(entry.to_s, duration_s)
        packets = len(sources) * max(end_s - entry.from_s, 0.0) * entry.rate_per_s
        if packets > MAX_PACKETS:
            raise UserError(f"flow: that makes {packets:,.0f} packets; an entry has at most {MAX_PACKETS:,}")
        payload = stream(seed, f"flow {place} payload")
        for source in sources:
            others = [node for node in targets if node != source]
            if not others:
                raise UserError(f"flow: node {source} has no destination besides itself; name another in `to`")
            times_s = list(_draw_times(entry, end_s, rng))
            found.append(Flow(len(found), entry, source, others[rng.randrange(len(others))], times_s, payload))
    return found


def _draw_times(entry: FlowEntry, end_s: float, rng: Random) -> Iterator[float]:
    interval_s = 1 / entry.rate_per_s
    if entry.spacing == "poisson":
        time_s = entry.from_s + rng.expovariate(entry.rate_per_s)
        while time_s <= end_s:
            yield time_s
            time_s += rng.expovariate(entry.rate_per_s)
        return
    start_s, count = entry.from_s + rng.random() * interval_s, 0
    while (time_s := start_s + count * interval_s) <= end_s:
        yield time_s
        count += 1
