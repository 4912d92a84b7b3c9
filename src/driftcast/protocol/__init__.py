"""The waist: the one small contract in which protocols and worlds meet."""

from driftcast.protocol.discovery import Beacon, BeaconDiscovery, BeaconSettings
from driftcast.protocol.effects import BufferedPort, RecordingPort
from driftcast.protocol.host import Capability, DurableStore, GlobalView, Host
from driftcast.protocol.machine import Protocol, Router, Settings, StateMachine, Upward
from driftcast.protocol.optional import (
    Advertises,
    AnswersRequests,
    CountsHolders,
    KeepsEvents,
    RunsProcessors,
    UsesRouter,
)
from driftcast.protocol.plan import StackPlan
from driftcast.protocol.port import Fact, Gap, Interface, Link, Place, Port, TimerKey, Token
from driftcast.protocol.probes import Probe, Snapshot
from driftcast.protocol.stack import Stack

__all__ = [
    "Advertises",
    "AnswersRequests",
    "Beacon",
    "BeaconDiscovery",
    "BeaconSettings",
    "BufferedPort",
    "Capability",
    "DurableStore",
    "Fact",
    "Gap",
    "GlobalView",
    "Host",
    "Interface",
    "CountsHolders",
    "KeepsEvents",
    "Link",
    "Place",
    "Port",
    "Probe",
    "Protocol",
    "RecordingPort",
    "Router",
    "RunsProcessors",
    "Settings",
    "Snapshot",
    "Stack",
    "StackPlan",
    "StateMachine",
    "TimerKey",
    "Token",
    "Upward",
    "UsesRouter",
]
