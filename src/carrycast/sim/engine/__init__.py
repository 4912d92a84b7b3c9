"""The engine: an event queue, nodes, and the media between them."""

from carrycast.sim.engine.context import DerivedEventsError
from carrycast.sim.engine.debugging import debug_run
from carrycast.sim.engine.engines import AUTO, ENGINES, NATIVE, PYTHON, select_engine
from carrycast.sim.engine.failure import describe_error
from carrycast.sim.engine.fault_schedule import (
    FaultSchedule,
    FaultyLinks,
    FaultyNetwork,
    LinkFaultSchedule,
    linked_pairs,
)
from carrycast.sim.engine.host import MemoryStore
from carrycast.sim.engine.interfaces import RADIO
from carrycast.sim.engine.kernel import Kernel, microseconds
from carrycast.sim.engine.missed_events import MissedEvent, find_missed_events
from carrycast.sim.engine.network import radio_stream
from carrycast.sim.engine.node import SimNode
from carrycast.sim.engine.observers.checkers import ViolationError
from carrycast.sim.engine.observers.fingerprint import VERSION, version_of
from carrycast.sim.engine.observers.recorder import Window
from carrycast.sim.engine.observers.requested import RequestedMetrics
from carrycast.sim.engine.simulation import RunResult, Simulation, check_run, run

__all__ = [
    "AUTO",
    "DerivedEventsError",
    "ENGINES",
    "FaultSchedule",
    "FaultyLinks",
    "FaultyNetwork",
    "Kernel",
    "LinkFaultSchedule",
    "MemoryStore",
    "MissedEvent",
    "NATIVE",
    "PYTHON",
    "RADIO",
    "RequestedMetrics",
    "RunResult",
    "SimNode",
    "Simulation",
    "VERSION",
    "ViolationError",
    "Window",
    "check_run",
    "debug_run",
    "describe_error",
    "find_missed_events",
    "linked_pairs",
    "microseconds",
    "radio_stream",
    "run",
    "select_engine",
    "version_of",
]
