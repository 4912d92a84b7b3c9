"""The registry of folds: the built-in ones, and those of installed packages (the plug-in kind `metrics`)."""

from collections.abc import Iterable, Mapping

from carrycast.core.plugins import find_plugin, plugin_names
from carrycast.errors import UserError
from carrycast.trace.folds.buffers import BufferFold
from carrycast.trace.folds.delivery import DeliveryFold
from carrycast.trace.folds.duplicates import DuplicateFold
from carrycast.trace.folds.flows import FlowCostFold, FlowFold
from carrycast.trace.folds.fold import MergeableFold, MetricInfo, Metrics
from carrycast.trace.folds.traffic import TrafficFold

BUILT_IN: tuple[type[MergeableFold], ...] = (DeliveryFold, TrafficFold, DuplicateFold, BufferFold)
FLOW_FOLDS: tuple[type[MergeableFold], ...] = (FlowFold, FlowCostFold)
"""The folds of runs with unicast flows."""
FOLDS: Mapping[str, str] = {
    "delivery": "carrycast.trace.folds.delivery:DeliveryFold",
    "traffic": "carrycast.trace.folds.traffic:TrafficFold",
    "duplicates": "carrycast.trace.folds.duplicates:DuplicateFold",
    "buffers": "carrycast.trace.folds.buffers:BufferFold",
    "drops": "carrycast.trace.folds.drops:DropFold",
    "flows": "carrycast.trace.folds.flows:FlowFold",
    "flow_costs": "carrycast.trace.folds.flows:FlowCostFold",
}
"""The built-in folds by name."""
_MEANINGS = {name: info for fold in BUILT_IN for name, info in fold.metrics.items()}
_ORDER = (
    *DeliveryFold.metrics,
    *("transmissions", "control_transmissions", "receptions", "forwards", "duplicates"),
    *("data_bytes", "control_bytes", "discovery_bytes", "total_bytes", "airtime_us", "buffer_peak"),
)

METRICS: Mapping[str, MetricInfo] = {name: _MEANINGS[name] for name in _ORDER}
"""The metrics of every run, in the order of tables and files."""


def usual_metrics(folds: Iterable[MergeableFold]) -> Metrics:
    """The metrics of every run, from the built-in folds."""
    found: Metrics = {}
    for fold in folds:
        found |= fold.result()
    return {name: found[name] for name in METRICS}


def more_folds(flows: bool) -> list[type[MergeableFold]]:
    """The folds of a run besides the built-in ones: those of flows, if the run has any, and of installed packages."""
    return [*(FLOW_FOLDS if flows else ()), *installed_folds()]


def more_metrics(flows: bool) -> dict[str, MetricInfo]:
    """The metrics of `more_folds`, by name."""
    return {name: info for fold in more_folds(flows) for name, info in fold.metrics.items()}


def installed_folds() -> list[type[MergeableFold]]:
    """The folds of installed packages, which add metrics to every run. A UserError if two metrics share a name."""
    found: list[type[MergeableFold]] = []
    built_in = (*METRICS, *(name for fold in FLOW_FOLDS for name in fold.metrics))
    taken = dict.fromkeys(built_in, "carrycast")
    for name in plugin_names("metrics"):
        if name in FOLDS:
            continue
        fold = find_plugin("metrics", name)
        for metric in fold.metrics:
            if metric in taken:
                raise UserError(
                    f"the plug-in {name!r} has a metric {metric!r}, and so has {taken[metric]!r}; rename it"
                )
            taken[metric] = name
        found.append(fold)
    return found
