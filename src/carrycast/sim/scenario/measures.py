"""The metrics of a run: the built-in ones, and those that a scenario requests in addition."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.errors import UserError
from carrycast.trace import METRICS, more_metrics

METRIC_MEANINGS: Mapping[str, str] = {name: info.meaning for name, info in METRICS.items()}
"""The built-in metrics of every run."""


def metric_meanings() -> dict[str, str]:
    """All metrics: the built-in ones, those of flows, and those of installed packages."""
    return {**METRIC_MEANINGS, **{name: info.meaning for name, info in more_metrics(flows=True).items()}}


Statistic: TypeAlias = Literal["mean", "max", "min", "sum"]
READINGS = ("load", "energy", "free_memory_bytes", "neighbors", "hops")
"""The probes of every network."""
SERIES = "series"
"""The key under which the samples of a run are stored beside its metrics."""
MAX_SAMPLES = 100_000

_PER = {"node_second": " per node and second", "node": " per node", "run": ""}
# The values of `counts` for which each key has an effect. With other values, setting the key is an error.
_ONLY_FOR: Mapping[str, tuple[str, ...]] = {
    "layers": ("bytes",),
    "traffic": ("bytes",),
    "repetitions": ("bytes",),
    "per": ("bytes", "routed"),
    "messages": ("bytes", "routed"),
    "unit": ("routed",),
    "role": ("routed", "values", "probe"),
    "of": ("values", "probe"),
    "across": ("probe",),
    "probe": ("probe",),
    "every_s": ("probe",),
    "against": ("ratio",),
}


def aggregate(values: Sequence[float], statistic: str) -> float | None:
    """Compute a statistic of some values; None if there are none."""
    if not values:
        return None
    if statistic in ("max", "min"):
        return max(values) if statistic == "max" else min(values)
    total = math.fsum(values)
    return total / len(values) if statistic == "mean" else total


class RequestedMetric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An additional metric: one `[[measure.more]]` of a scenario, or one `[[measures]]` of an experiment.

    docs/requested-metrics.md defines each kind of metric (`counts`).
    """

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$", max_length=60)]
    """The name of the metric in tables, figures and claims."""
    counts: Literal[
        "facts",
        "sources",
        "reached",
        "missed",
        "load",
        "reports",
        "forwards",
        "bytes",
        "routed",
        "values",
        "probe",
        "ratio",
        "pairs",
    ]
    """The kind of the metric; docs/requested-metrics.md defines each."""
    fact: str = ""
    """For `facts`, `missed`, `values` and `ratio`: the kind of fact that protocols note."""
    against: str = ""
    """For `ratio`: the kind of fact in the denominator."""
    nodes: list[Annotated[int, Meta(ge=0)]] = []
    """For `sources` and `missed`: the nodes over which the mean is taken."""
    within_s: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """For `sources`: how long after its publication a source message may arrive and be counted."""
    distinct: bool = False
    """For `facts`: count the different events that the facts are about."""
    layers: list[Literal["discovery", "routing", "dissemination"]] = []
    """For `bytes`: only frames of these layers; all by default."""
    traffic: list[Literal["data", "control", "discovery"]] = []
    """For `bytes`: only frames of these traffic classes; all by default."""
    messages: list[str] = []
    """For `bytes` and `routed`: only these message types, by their names in traces; all by default."""
    per: Literal["node_second", "node", "run"] = "node_second"
    """For `bytes` and `routed`: per node and second, per node, or the total of the run."""
    repetitions: bool = False
    """For `bytes`: whether a frame that the radio repeats counts once for each repetition."""
    role: str = ""
    """For `routed`, `values` and `probe`: only nodes of this role; all by default."""
    unit: Literal["bytes", "bits", "messages"] = "bytes"
    """For `routed`: the unit."""
    of: Statistic = "mean"
    """For `values` and `probe`: the statistic over values, or over samples."""
    across: Statistic = "mean"
    """For `probe`: the statistic over nodes that makes one sample."""
    probe: str = ""
    """For `probe`: the built-in probe or the protocol's own probe that is sampled."""
    every_s: Annotated[float, Meta(ge=0.001, le=1e7)] = 10.0
    """For `probe`: the time between two samples."""

    def meaning(self) -> str:
        """The description of the metric in reports."""
        if self.counts == "facts":
            return f"different events about which {self.fact} was noted" if self.distinct else f"notes of {self.fact}"
        if self.counts == "bytes":
            return self._bytes_meaning()
        if self.counts in ("routed", "values", "probe"):
            return self._amount_meaning()
        if self.counts == "ratio":
            return f"notes of {self.fact} for each of {self.against}"
        if self.counts == "pairs":
            return "share of the (event, subscription) pairs that should be served and were"
        where = f"node {' and '.join(map(str, self.nodes))}" + (", on average" if len(self.nodes) > 1 else "")
        if self.counts == "sources":
            late = "" if self.within_s is None else f" within {self.within_s:g} s"
            return f"source messages that reached {where} in some form{late}"
        if self.counts == "missed":
            return f"source messages with a note of {self.fact} that never reached {where} in any form"
        if self.counts == "reached":
            return "source messages that reached any node but their own in some form"
        if self.counts == "reports":
            return "messages without an event in the measured window, once for each node that heard them"
        if self.counts == "forwards":
            return "messages sent in the measured window that carry a counted event"
        return "bytes sent by a node on average, neither discovery nor repetitions by the radio"

    def _amount_meaning(self) -> str:
        by = f" by nodes with the role {self.role}" if self.role else ""
        if self.counts == "routed":
            what = f"{' and '.join(self.messages)}: " if self.messages else ""
            return f"{what}{self.unit} handed to routers{by} in the measured window{_PER[self.per]}"
        if self.counts == "values":
            return f"{self.of} of the values noted with {self.fact}{by} in the measured window"
        across = f"{self.across} over nodes" if self.probe in READINGS else ""
        whose = f" with the role {self.role}" if self.role else ""
        of = f"{self.of} of samples of {self.probe}, one every {self.every_s:g} s"
        return of + (f", each the {across}{whose}" if across else "")

    def _bytes_meaning(self) -> str:
        of = " and ".join(self.traffic)
        said_by = f" of {' and '.join(self.layers)}" if self.layers else ""
        said_by += f" in {' and '.join(self.messages)}" if self.messages else ""
        per = _PER[self.per]
        again = ", repetitions by the radio among them" if self.repetitions else ""
        return f"{of + ' ' if of else ''}bytes{said_by} in the measured window{per}{again}"


def check_requested_metrics(
    asked: list[RequestedMetric], nodes: int, where: str, roles: Collection[str], duration_s: float
) -> None:
    """Reject metrics that cannot be computed."""
    names: set[str] = set()
    known = metric_meanings()
    for place, entry in enumerate(asked):
        at = f"{where}[{place}]"
        if entry.name in known or entry.name in names or entry.name == SERIES:
            raise UserError(f"{at}.name: there is a metric {entry.name!r} already")
        names.add(entry.name)
        _check_keys(entry, at)
        if entry.role and entry.role not in roles:
            raise UserError(f"{at}.role: {entry.role!r} is none of {', '.join(roles) or 'no roles'}")
        if entry.counts == "probe" and not entry.probe:
            raise UserError(f"{at}.probe: is needed: {', '.join(READINGS)}, or one that the protocol offers")
        if entry.counts == "probe" and duration_s / entry.every_s > MAX_SAMPLES:
            raise UserError(f"{at}.every_s: that makes more than {MAX_SAMPLES:,} samples; take fewer")
        if entry.counts in ("facts", "missed", "values", "ratio") and not entry.fact:
            raise UserError(f"{at}.fact: is needed: the name of what protocols note, such as announce")
        if entry.counts == "ratio" and not entry.against:
            raise UserError(f"{at}.against: is needed: what the notes of {entry.fact} are set against")
        if entry.counts in ("sources", "missed") and (not entry.nodes or max(entry.nodes) >= nodes):
            raise UserError(f"{at}.nodes: is needed: a list of nodes from 0 to {nodes - 1}")


def check_probes(asked: list[RequestedMetric], offered: Collection[str], known: Collection[str], where: str) -> None:
    """Reject probes that do not exist. `offered` are the protocol's own, `known` the optional readings of nodes."""
    for place, entry in enumerate(asked):
        at = f"{where}[{place}]"
        if entry.counts != "probe" or entry.probe in offered:
            if entry.counts == "probe" and (entry.role or entry.across != "mean"):
                raise UserError(
                    f"{at}: role and across are for {', '.join(READINGS)}; {entry.probe} knows its own nodes"
                )
            continue
        if entry.probe not in READINGS:
            raise UserError(f"{at}.probe: {entry.probe!r} is none of {', '.join((*READINGS, *offered))}")
        if entry.probe in ("energy", "free_memory_bytes") and entry.probe not in known:
            table = "[energy]" if entry.probe == "energy" else "computer.memory_bytes"
            raise UserError(f"{at}.probe: without {table} there is no {entry.probe} to read")


def _check_keys(entry: RequestedMetric, where: str) -> None:
    unsaid = RequestedMetric(name=entry.name, counts=entry.counts)
    for key, used_by in _ONLY_FOR.items():
        if entry.counts not in used_by and getattr(entry, key) != getattr(unsaid, key):
            counts = " or ".join(repr(one) for one in used_by)
            raise UserError(f"{where}.{key}: is for counts = {counts}; leave it out")
