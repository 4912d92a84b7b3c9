"""The public Python API: simulate, compare, advise, look at fleets and runs, and talk to live nodes.

`import carrycast` offers all of these names. docs/stability.md says what changes when.
"""

from typing import TYPE_CHECKING

from carrycast.api.examples import copy_examples, example, list_examples
from carrycast.api.fleet import Fleet
from carrycast.api.functions import (
    advise,
    compare,
    connect,
    connect_async,
    explain,
    show,
    simulate,
    sweep,
)
from carrycast.api.results import (
    PAPER_METRICS,
    AdviceResult,
    ComparisonResult,
    Contacts,
    Explanation,
    MetricValues,
    SimulationResult,
    SweepResult,
)
from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Event
from carrycast.errors import ConnectionLostError, NotAuthorizedError, UserError, WorkError

if TYPE_CHECKING:
    from carrycast.node import Node

__all__ = [
    "PAPER_METRICS",
    "AdviceResult",
    "ComparisonResult",
    "ConnectionLostError",
    "Contacts",
    "Event",
    "Explanation",
    "Filter",
    "FilterError",
    "Fleet",
    "MetricValues",
    "Node",
    "NotAuthorizedError",
    "SimulationResult",
    "SweepResult",
    "UserError",
    "WorkError",
    "advise",
    "compare",
    "connect",
    "connect_async",
    "copy_examples",
    "example",
    "explain",
    "list_examples",
    "show",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> object:
    """`Node` needs asyncio, which programs that only simulate do without."""
    if name == "Node":
        from carrycast.node import Node

        return Node
    raise AttributeError(f"module 'carrycast.api' has no attribute {name!r}")
