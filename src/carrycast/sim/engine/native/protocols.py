"""The protocols that are also in C++, and for which runs. The Python classes are the specification.

A native protocol runs where every node keeps one stack of one layer for the whole run: oracle discovery, one radio, no
faults, no applications, processors or requests. Each protocol adds conditions on its settings and the workload, so that
no bound of the Python class is reached that the C++ class does not have. Anything else runs the Python classes on the
native core.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from carrycast import _native
from carrycast.core.model import FOREVER_S, NodeId
from carrycast.core.protocol import StackPlan
from carrycast.core.streams import stream
from carrycast.core.wire import Layer
from carrycast.sim.engine.context import RunContext
from carrycast.sim.scenario import OracleDiscovery, Scenario, TimedSubscription, Workload

MAX_RECEPTIONS = 1 << 27
"""Events times nodes. Flooding keeps the time of each first reception, in 8 bytes: 1 GiB."""
UNCOUNTED_S = 0.002
"""`UNCOUNTED_S` of flooding."""
MAX_REQUESTED = 256
"""`BATCH` of epidemic's transfers: so many events go to one neighbor at a time."""

Values = Mapping[str, float]


class NativeProtocol(NamedTuple):
    """A protocol in C++: its name there, and the values that it needs for given settings; None if it does not cover
    them with so many events and nodes."""

    name: str
    values: Callable[[Mapping[str, float], int, int], Values | None]


def _flood_values(settings: Mapping[str, float], events: int, nodes: int, names: tuple[str, ...] = ()) -> Values | None:
    if events * nodes > MAX_RECEPTIONS:
        return None
    # As `Relay` and `FloodSettings` compute them.
    computed = {
        "remembered_s": settings["seen_s"] + settings["max_hops"] * UNCOUNTED_S,
        "flood_s": settings["seen_s"] / 2,
        "forever_s": FOREVER_S,
    }
    return {name: float(settings[name]) for name in ("max_hops", "jitter_s", *names)} | computed


def _epidemic_values(settings: Mapping[str, float], events: int, nodes: int) -> Values | None:
    most = min(MAX_REQUESTED, settings["buffer"], settings["window"])
    if events > most or settings["durable"]:
        return None
    names = ("max_lease_s", "seen_grace_s", "ask_again_s", "tell_again_s", "asks")
    return {name: float(settings[name]) for name in names}


PROTOCOLS: Mapping[str, NativeProtocol] = {
    "carrycast.protocols.flooding.protocol.Flooding": NativeProtocol("flooding", _flood_values),
    "carrycast.protocols.gossip.protocol.Gossip": NativeProtocol(
        "gossip", partial(_flood_values, names=("p", "sure_hops"))
    ),
    "carrycast.protocols.epidemic.protocol.Epidemic": NativeProtocol("epidemic", _epidemic_values),
}
"""By the name of the Python class."""


def find_values(scenario: Scenario, stack: StackPlan, workload: Workload) -> Values | None:
    """The values for the native protocol of a run; None if the run needs the Python class."""
    protocol = PROTOCOLS.get(f"{stack.protocol.__module__}.{stack.protocol.__qualname__}")
    plain = (
        isinstance(scenario.discovery, OracleDiscovery)
        and stack.router is None
        and not scenario.has_no_radio
        and not (scenario.wires or scenario.faults or scenario.applications or scenario.processors)
        and not (scenario.request or scenario.command or scenario.service)
        and not any(entry.counts == "probe" for entry in scenario.measure.more)
    )
    if protocol is None or not plain or not all(map(_is_plain, workload.subscribes)):
        return None
    if not all(type(entry.event.lease_s) is float for entry in workload.publishes):
        # Another type of number has another length in messages.
        return None
    return protocol.values(msgspec.structs.asdict(stack.settings), len(workload.publishes), scenario.nodes)


def _is_plain(entry: TimedSubscription) -> bool:
    subscription = entry.subscription
    return not subscription.history and subscription.processor is None


def start_protocol(core: _native.Core, context: RunContext, values: Values) -> None:
    """Make the native protocol of a run in its core."""
    kind = context.stack.protocol
    native = PROTOCOLS[f"{kind.__module__}.{kind.__qualname__}"]

    def make_rng(node: NodeId) -> object:
        return stream(context.seed, Layer.DISSEMINATION.name.lower(), node)

    core.set_protocol(native.name, dict(values), make_rng, kind.messages)
