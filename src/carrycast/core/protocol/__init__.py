"""The protocol interface: the small contract between protocols and the environments that run them."""

from carrycast.core.protocol.discovery import Beacon, BeaconDiscovery, BeaconSettings
from carrycast.core.protocol.effects import BufferedPort, RecordingPort
from carrycast.core.protocol.host import Capability, DurableStore, GlobalView, Host
from carrycast.core.protocol.machine import Probe, Protocol, Router, RouterUpcalls, Settings, Snapshot, StateMachine
from carrycast.core.protocol.optional import (
    AcknowledgesReplicas,
    Advertises,
    AnswersRequests,
    KeepsEvents,
    RunsProcessors,
    UsesRouter,
)
from carrycast.core.protocol.port import Fact, Gap, Interface, Link, Place, Port, TimerKey, Token
from carrycast.core.protocol.stack import Stack, StackPlan

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
    "AcknowledgesReplicas",
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
    "RouterUpcalls",
    "UsesRouter",
]
