"""The metrics of the ONE simulator (Keranen et al., SIMUTools 2009) by the names that its `MessageStatsReport` prints.

A message of the ONE has one destination; an event may have many subscribers. So where the ONE counts messages that
reached their destination, carrycast counts pairs of event and subscriber.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

Values: TypeAlias = Mapping[str, float | int | None]


class OneMetric(NamedTuple):
    """How a metric of the ONE is computed from carrycast's."""

    formula: str
    compute: Callable[[Values], float | int | None]


def _same(name: str) -> OneMetric:
    return OneMetric(f"`{name}`", lambda values: values.get(name))


def _overhead(values: Values) -> float | None:
    forwards, delivered = values.get("forwards"), values.get("delivered")
    return None if forwards is None or not delivered else (forwards - delivered) / delivered


ONE_METRICS: Mapping[str, OneMetric] = {
    "created": _same("published"),
    "relayed": _same("forwards"),
    "delivered": _same("delivered"),
    "delivery_prob": _same("delivery_ratio"),
    "overhead_ratio": OneMetric("(`forwards` - `delivered`) / `delivered`", _overhead),
    "latency_avg": _same("delay_mean_s"),
    "latency_med": _same("delay_p50_s"),
    "hopcount_avg": _same("hops_mean"),
}
"""By the ONE's name. Its `started`, `aborted`, `dropped`, `removed`, `buffertime_*` and `rtt_*` have no equal here:
transfers are frames, drops are counted by reason in the trace, and requests are measured apart."""


def one_metric(name: str, values: Values) -> float | int | None:
    """A metric by the ONE's name; None if it does not exist in the run."""
    return ONE_METRICS[name].compute(values)
