"""carrycast: content-based publish/subscribe for mobile networks.

The names of this module are the public API (docs/stability.md). `carrycast.core` is the API of protocol authors.
"""

from pkgutil import extend_path
from typing import TYPE_CHECKING

from carrycast.version import VERSION

if TYPE_CHECKING:
    from carrycast.api import (
        AdviceResult,
        ComparisonResult,
        ConnectionLostError,
        Contacts,
        Event,
        Explanation,
        Filter,
        FilterError,
        Fleet,
        MetricValues,
        Node,
        NotAuthorizedError,
        SimulationResult,
        SweepResult,
        UserError,
        WorkError,
        advise,
        compare,
        connect,
        connect_async,
        example,
        explain,
        show,
        simulate,
        sweep,
    )

# The package is open, so that a folder `carrycast/protocols/<name>/` elsewhere on the module search path is found.
__path__ = extend_path(__path__, __name__)

__version__ = VERSION

__all__ = [
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
    "__version__",
    "advise",
    "compare",
    "connect",
    "connect_async",
    "example",
    "explain",
    "show",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: a worker process on a small device needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'carrycast' has no attribute {name!r}")
    from carrycast import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
