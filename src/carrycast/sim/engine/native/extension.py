"""Creates native cores, and gives them the Python objects that they need by name."""

from typing import cast

import msgspec

from carrycast import _native
from carrycast.core.matching import serves
from carrycast.core.model import Event, EventId, Failure
from carrycast.core.parts import LocalSubscriptions
from carrycast.core.protocol import Fact, Link, StackPlan
from carrycast.core.wire import (
    HEADER_BYTES,
    LEASE_EXPIRED,
    EventMessage,
    Layer,
    Message,
    Parcel,
    ParcelMessage,
    Traffic,
)
from carrycast.sim.engine.kernel import Kernel
from carrycast.sim.engine.native.routers import use_native_router
from carrycast.sim.engine.observers import fingerprint as codes
from carrycast.sim.engine.observers.recorder import FACT_CODES
from carrycast.sim.radio import Reach
from carrycast.sim.scenario import ClockSkew, OracleDiscovery, Scenario
from carrycast.trace import BROADCAST_US, BYTE_US, OVERHEAD_BYTES, RATE_MBPS, UNICAST_US

_configured = False


def make_core(scenario: Scenario, stack: StackPlan) -> _native.Core:
    """The core of a run, without its media."""
    _configure()
    core = _native.Core(scenario.nodes, isinstance(scenario.discovery, OracleDiscovery))
    # The handlers of a router in the core read the true time, not the wrong clock of their node.
    if not any(isinstance(fault, ClockSkew) for fault in scenario.faults):
        use_native_router(stack)
    for layer, codec in stack.codecs.items():
        core.set_codec(layer, codec.header, codec.encode_body)
    return core


def as_kernel(core: _native.Core) -> Kernel:
    """The core as the kernel of a run: it has the clock and the methods of one."""
    return cast(Kernel, core)


def core_of(kernel: Kernel) -> _native.Core:
    """The core that `as_kernel` returned."""
    return cast(_native.Core, kernel)


def _configure() -> None:
    """Tell the extension the classes and constants that it shares with Python code. Once per process."""
    global _configured
    if _configured:
        return
    _native.configure(
        {
            "event_message": EventMessage,
            "parcel_message": ParcelMessage,
            "message": Message,
            "parcel": Parcel,
            "event": Event,
            "event_id": EventId,
            "fact": Fact,
            "link": Link,
            "reach": Reach,
            "layers": tuple(Layer),
            "traffics": tuple(Traffic),
            "unreachable": Failure.UNREACHABLE,
            "out_of_reach": Failure.OUT_OF_REACH,
            "queue_full": Failure.QUEUE_FULL,
            "restarted": Failure.RESTARTED,
            "silent": Failure.SILENT,
            "lease_expired": LEASE_EXPIRED,
            "serves": serves,
            "local_subscriptions": LocalSubscriptions,
            "pack": msgspec.msgpack.Encoder().encode,
            "fact_codes": FACT_CODES,
            "code_frame": codes.FRAME,
            "code_drop": codes.DROP,
            "code_miss": codes.MISS,
            "code_link_up": codes.LINK_UP,
            "code_link_down": codes.LINK_DOWN,
            "code_deliver": codes.DELIVER,
            "code_note": codes.NOTE,
            "code_store": codes.STORE,
            "code_evict": codes.EVICT,
            "header_bytes": HEADER_BYTES,
            "broadcast_us": BROADCAST_US,
            "unicast_us": UNICAST_US,
            "overhead_bytes": OVERHEAD_BYTES,
            "byte_us": BYTE_US,
            "rate_mbps": RATE_MBPS,
        }
    )
    _configured = True
