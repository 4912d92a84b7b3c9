"""Which folds there are: the built-in ones, and those of plug-ins."""

from collections.abc import Iterable, Mapping

from carrycast.trace.folds.buffers import BufferFold
from carrycast.trace.folds.delivery import DeliveryFold
from carrycast.trace.folds.duplicates import DuplicateFold
from carrycast.trace.folds.fold import MergeableFold, MetricInfo, Metrics
from carrycast.trace.folds.traffic import TrafficFold

BUILT_IN: tuple[type[MergeableFold], ...] = (DeliveryFold, TrafficFold, DuplicateFold, BufferFold)
_MEANINGS = {name: info for fold in BUILT_IN for name, info in fold.metrics.items()}
_ORDER = (
    *DeliveryFold.metrics,
    *("transmissions", "control_transmissions", "receptions", "forwards", "duplicates"),
    *("data_bytes", "control_bytes", "discovery_bytes", "total_bytes", "airtime_us", "buffer_peak"),
)

METRICS: Mapping[str, MetricInfo] = {name: _MEANINGS[name] for name in _ORDER}
"""The metrics of every run, in the order in which tables and files have them."""


def usual_metrics(folds: Iterable[MergeableFold]) -> Metrics:
    """The metrics of every run, from the built-in folds."""
    found: Metrics = {}
    for fold in folds:
        found |= fold.result()
    return {name: found[name] for name in METRICS}
