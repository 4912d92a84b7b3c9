"""Named faults of a scenario, with their times and nodes drawn from the seed of the run."""

from collections.abc import Collection
from random import Random
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.core.streams import stream
from carrycast.errors import UserError
from carrycast.sim.scenario.draws import Selection, check_selection, resolve_selection, selection_size

Probability = Annotated[float, Meta(ge=0, le=1)]
Time = Annotated[float, Meta(ge=0, le=1e9)]
Duration = Annotated[float, Meta(ge=1e-6, le=1e9)]

MAX_STRIKES = 1_000_000
"""The most occurrences of one fault in a run, so that a tiny `every_s` does not make the run endless."""


class _Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """One `[[faults]]` of a scenario."""


class Crash(_Fault, frozen=True, tag="crash"):
    """Nodes lose everything but their durable store, and restart after `down_s`."""

    nodes: Selection
    """The nodes that crash: "all", a role, a share such as "20%", a number of nodes, or a list of nodes."""
    at_s: Time | None = None
    """Time of a single crash of each node. Give either `at_s` or `every_s`."""
    every_s: Duration | None = None
    """Mean time from a start of a node to its next crash; the times are random."""
    down_s: Duration = 10.0
    """Time from a crash to the restart."""


class LinkCut(_Fault, frozen=True, tag="link_cut"):
    """Two nodes cannot hear each other for a while, however near they are."""

    between: tuple[int, int]
    """The two nodes."""
    at_s: Time
    """Time of the cut."""
    for_s: Duration
    """Duration of the cut."""


class LinkCuts(_Fault, frozen=True, kw_only=True, tag="link_cuts"):
    """Cuts random links again and again. Each strike draws from the links that exist then, over all interfaces."""

    every_s: Duration
    """Time from one strike to the next; the first strike comes one interval after `from_s`."""
    exponential: bool = False
    """Draw the intervals from an exponential distribution with the mean `every_s`."""
    for_s: Duration
    """Duration of each cut."""
    at_once: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    """A strike cuts links until this many are cut; fewer if there are no more links."""
    from_s: Time = 0.0
    """Start of the time in which strikes may happen."""
    to_s: Time | None = None
    """End of the time in which strikes may happen; the end of the run if absent."""


class CutOff(_Fault, frozen=True, kw_only=True, tag="cut_off"):
    """Nodes neither hear other nodes nor are heard for a while. They do not crash and keep their state."""

    nodes: Selection
    """The nodes that are cut off: "all", a role, a share such as "20%", a number of nodes, or a list of nodes."""
    at_s: Time | None = None
    """Time of a single cut of each node. Give either `at_s` or `every_s`."""
    every_s: Duration | None = None
    """Mean time from the end of one cut of a node to its next one; the times are random."""
    for_s: Duration = 10.0
    """Duration of each cut."""


class LinkSlow(_Fault, frozen=True, tag="link_slow"):
    """Messages between two nodes arrive `delay_s` later for a while, and the cost of their link rises as much."""

    between: tuple[int, int]
    """The two nodes."""
    delay_s: Annotated[float, Meta(ge=1e-6, le=3600)]
    """Additional delay of each message."""
    at_s: Time
    """Time at which the link becomes slow."""
    for_s: Duration
    """Time until the link recovers."""


class Loss(_Fault, frozen=True, tag="loss"):
    """Receptions fail at random, in addition to the losses of the radio itself."""

    probability: Probability
    """Probability that a reception fails."""


class Duplication(_Fault, frozen=True, tag="duplication"):
    """Receptions happen twice at random."""

    probability: Probability
    """Probability that a reception happens twice."""


class Corruption(_Fault, frozen=True, tag="corruption"):
    """Bits of frames flip at random. The receiver tries to decode the frame, which is then dropped."""

    probability: Probability
    """Probability that a reception is corrupted."""


class ClockSkew(_Fault, frozen=True, tag="clock_skew"):
    """The clocks of nodes are off and run too fast or too slow."""

    nodes: Selection = "all"
    """The nodes with a wrong clock: "all", a role, a share such as "20%", a number of nodes, or a list of nodes."""
    offset_s: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """Largest offset of a clock; each node draws its own, uniformly from minus to plus this."""
    drift: Annotated[float, Meta(ge=0, lt=0.5)] = 0.0
    """Largest relative error of a clock's rate; 0.001 is a millisecond per second, in either direction."""


class GpsError(_Fault, frozen=True, kw_only=True, tag="gps_error"):
    """The position that a node reads is off by up to `error_m`. The error changes slowly."""

    nodes: Selection = "all"
    """The nodes with wrong positions: "all", a role, a share such as "20%", a number of nodes, or a list of nodes."""
    error_m: Annotated[float, Meta(gt=0, le=1e6)]
    """Largest distance between the position that a node reads and the true one."""
    # What falsifies a position, the ionosphere above all, stays about the same for a minute or so.
    change_s: Annotated[float, Meta(ge=0.001)] = 60.0
    """Time after which an error is independent of its earlier value; inf for an error that stays."""


Fault: TypeAlias = (
    Crash | LinkCut | LinkCuts | CutOff | LinkSlow | Loss | Duplication | Corruption | ClockSkew | GpsError
)


class PositionError:
    """The error of one node's position: an offset that wanders, never farther than `error_m`.

    At every multiple of `change_s` the offset is drawn again, uniformly from the disk of radius `error_m`. In between
    it moves in a straight line from one drawn offset to the next. It depends only on the seed, the fault, the node and
    the time, so it is the same however often it is read.
    """

    __slots__ = ("_change_s", "_error_m", "_from", "_node", "_purpose", "_seed", "_step", "_to")

    def __init__(self, seed: int, purpose: str, node: int, error_m: float, change_s: float) -> None:
        self._seed = seed
        self._purpose = purpose
        self._node = node
        self._error_m = error_m
        self._change_s = change_s
        self._step = -1
        self._from = self._to = (0.0, 0.0)

    def at(self, time_s: float) -> tuple[float, float]:
        """The offset to the east and to the north at a time, in meters."""
        steps = time_s / self._change_s
        step = int(steps)
        if step != self._step:
            # The time usually advances by one step, so the start of this step is the end of the last one.
            self._from = self._to if step == self._step + 1 and step > 0 else self._draw_offset(step)
            self._to = self._draw_offset(step + 1)
            self._step = step
        share = steps - step
        (x_m, y_m), (to_x_m, to_y_m) = self._from, self._to
        return x_m + (to_x_m - x_m) * share, y_m + (to_y_m - y_m) * share

    def _draw_offset(self, step: int) -> tuple[float, float]:
        x, y = _draw_from_disk(stream(self._seed, f"{self._purpose} step {step}", self._node))
        return x * self._error_m, y * self._error_m


def _draw_from_disk(rng: Random) -> tuple[float, float]:
    """Draw a point of the unit disk by rejection: sine and cosine are not rounded alike on every machine."""
    while True:
        x, y = rng.uniform(-1.0, 1.0), rng.uniform(-1.0, 1.0)
        if x * x + y * y <= 1.0:
            return x, y


class Outage(NamedTuple):
    """A node is down from `at_s` to `until_s`."""

    node: int
    at_s: float
    until_s: float


class Clock(NamedTuple):
    """A node's own time: `offset_s + (1 + drift) * true time`."""

    offset_s: float
    drift: float


class FaultPlan(NamedTuple):
    """The faults of one run."""

    outages: list[Outage]
    cuts: list[LinkCut]
    drawn_cuts: list[tuple[str, LinkCuts]]
    """Each with the name of its stream."""
    absences: list[Outage]
    """Who is cut off when."""
    slow: list[LinkSlow]
    clocks: dict[int, Clock]
    positions: dict[int, list[PositionError]]
    """The errors of nodes' positions; several add up."""
    loss: float
    duplication: float
    corruption: float

    @property
    def disturbs_frames(self) -> bool:
        """Whether each reception must be checked for loss, duplication and corruption."""
        return self.loss > 0 or self.duplication > 0 or self.corruption > 0

    @property
    def worst_drift(self) -> float:
        """The largest drift of all clocks, fast or slow."""
        return max((abs(clock.drift) for clock in self.clocks.values()), default=0.0)


def check_fault(fault: Fault, nodes: int, roles: Collection[str], duration_s: float, where: str) -> None:
    """Reject a fault that could not happen, or that would happen too often."""
    if isinstance(fault, Crash | CutOff | ClockSkew | GpsError):
        check_selection(fault.nodes, nodes, roles, f"{where}.nodes")
    if isinstance(fault, Crash | CutOff) and (fault.at_s is None) == (fault.every_s is None):
        what = "a crash" if isinstance(fault, Crash) else "a cut_off"
        raise UserError(f"{where}: {what} needs either at_s or every_s")
    if isinstance(fault, LinkCut | LinkSlow):
        check_selection(list(fault.between), nodes, roles, f"{where}.between")
        if fault.between[0] == fault.between[1]:
            raise UserError(f"{where}.between: names two different nodes")
    strikes = _estimate_count(fault, nodes, duration_s)
    if strikes > MAX_STRIKES:
        raise UserError(f"{where}.every_s: that makes some {strikes:,.0f} faults; a run has at most {MAX_STRIKES:,}")


def _estimate_count(fault: Fault, nodes: int, duration_s: float) -> float:
    """Estimate how often a repeated fault occurs; 0 for other faults. For a role, a lower bound: one node."""
    if isinstance(fault, LinkCuts):
        return duration_s / fault.every_s
    if not isinstance(fault, Crash | CutOff) or fault.every_s is None:
        return 0.0
    down_s = fault.down_s if isinstance(fault, Crash) else fault.for_s
    some = fault.nodes
    of_role = isinstance(some, str) and some != "all" and not some.endswith("%")
    struck = len(some) if isinstance(some, list) else 1 if of_role else selection_size(some, nodes)
    return struck * duration_s / (fault.every_s + down_s)


def draw_faults(
    faults: list[Fault], roles: dict[str, list[int]], nodes: int, duration_s: float, seed: int
) -> FaultPlan:
    """Draw the times and nodes of all faults. Each fault has its own random stream."""
    outages: list[Outage] = []
    cuts: list[LinkCut] = []
    drawn_cuts: list[tuple[str, LinkCuts]] = []
    absences: list[Outage] = []
    slow: list[LinkSlow] = []
    clocks: dict[int, Clock] = {}
    positions: dict[int, list[PositionError]] = {}
    keep = {"loss": 1.0, "duplication": 1.0, "corruption": 1.0}
    for place, fault in enumerate(faults):
        rng = stream(seed, f"fault {place}")
        if isinstance(fault, Crash):
            outages += _draw_outages(
                fault, fault.down_s, resolve_selection(fault.nodes, roles, nodes, rng), duration_s, rng
            )
        elif isinstance(fault, CutOff):
            absences += _draw_outages(
                fault, fault.for_s, resolve_selection(fault.nodes, roles, nodes, rng), duration_s, rng
            )
        elif isinstance(fault, LinkCut):
            cuts.append(fault)
        elif isinstance(fault, LinkCuts):
            drawn_cuts.append((f"fault {place}", fault))
        elif isinstance(fault, LinkSlow):
            slow.append(fault)
        elif isinstance(fault, ClockSkew):
            for node in resolve_selection(fault.nodes, roles, nodes, rng):
                if node in clocks:
                    raise UserError(f"faults[{place}]: node {node} has a skewed clock already; give one fault for both")
                offset_s = rng.uniform(-fault.offset_s, fault.offset_s)
                clocks[node] = Clock(offset_s, rng.uniform(-fault.drift, fault.drift))
        elif isinstance(fault, GpsError):
            for node in resolve_selection(fault.nodes, roles, nodes, rng):
                wandering = PositionError(seed, f"fault {place}", node, fault.error_m, fault.change_s)
                positions.setdefault(node, []).append(wandering)
        else:
            # Two faults of one kind strike independently.
            keep[str(fault.__struct_config__.tag)] *= 1 - fault.probability
    outages.sort(key=lambda outage: (outage.at_s, outage.node))
    absences.sort(key=lambda outage: (outage.at_s, outage.node))
    failing = (1 - keep[kind] for kind in ("loss", "duplication", "corruption"))
    return FaultPlan(
        _merge_overlapping(outages), cuts, drawn_cuts, _merge_overlapping(absences), slow, clocks, positions, *failing
    )


def _draw_outages(
    fault: Crash | CutOff, down_s: float, nodes: list[int], duration_s: float, rng: Random
) -> list[Outage]:
    if fault.at_s is not None:
        return [Outage(node, fault.at_s, fault.at_s + down_s) for node in nodes]
    assert fault.every_s is not None
    outages = []
    for node in nodes:
        time_s = rng.expovariate(1 / fault.every_s)
        while time_s < duration_s:
            outages.append(Outage(node, time_s, time_s + down_s))
            time_s += down_s + rng.expovariate(1 / fault.every_s)
    return outages


def _merge_overlapping(outages: list[Outage]) -> list[Outage]:
    """Merge overlapping outages of a node into one, since a node that is down cannot crash."""
    last: dict[int, int] = {}
    kept: list[Outage] = []
    for outage in outages:
        place = last.get(outage.node)
        if place is None or outage.at_s >= kept[place].until_s:
            last[outage.node] = len(kept)
            kept.append(outage)
        else:
            kept[place] = kept[place]._replace(until_s=max(kept[place].until_s, outage.until_s))
    return kept
