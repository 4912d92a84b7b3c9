"""The scenario language: parse and check what a user writes, and draw its random parts from the seed. Runs nothing."""

from carrycast.sim.scenario.applications import ApplicationCommand, PlacedApplication, draw_commands, place_applications
from carrycast.sim.scenario.draws import resolve_selection
from carrycast.sim.scenario.faults import (
    ClockSkew,
    CutOff,
    Fault,
    FaultPlan,
    LinkCut,
    LinkCuts,
    LinkSlow,
    Outage,
    draw_faults,
)
from carrycast.sim.scenario.inputs import input_digest, input_files, used_plugins
from carrycast.sim.scenario.measures import METRIC_MEANINGS, SERIES, RequestedMetric, aggregate, metric_meanings
from carrycast.sim.scenario.movement import check_extent, check_files, compute_movement, read_contact_plan
from carrycast.sim.scenario.overrides import (
    apply_overrides,
    parse_assignment,
    parse_protocol,
    parse_protocols,
    parse_value,
    protocol_label,
    resolve_scenario,
)
from carrycast.sim.scenario.resources import ComputerSettings, EnergySettings, ServiceSettings
from carrycast.sim.scenario.roles import draw_roles
from carrycast.sim.scenario.scenario import (
    DEFAULT_AREA_M,
    BeaconMode,
    OracleDiscovery,
    ProcessorEntry,
    Scenario,
    check_scenario,
    load_scenario,
    parse_scenario,
)
from carrycast.sim.scenario.warnings import MOST_NODE_SECONDS, find_warnings, merge_warnings
from carrycast.sim.scenario.workload import (
    TimedAdvertisement,
    TimedPublication,
    TimedRequest,
    TimedSubscription,
    Workload,
    draw_advertisements,
    draw_requests,
    draw_workload,
)

__all__ = [
    "ApplicationCommand",
    "BeaconMode",
    "ComputerSettings",
    "ClockSkew",
    "CutOff",
    "DEFAULT_AREA_M",
    "EnergySettings",
    "Fault",
    "FaultPlan",
    "LinkCut",
    "LinkCuts",
    "LinkSlow",
    "METRIC_MEANINGS",
    "MOST_NODE_SECONDS",
    "OracleDiscovery",
    "Outage",
    "PlacedApplication",
    "ProcessorEntry",
    "RequestedMetric",
    "SERIES",
    "Scenario",
    "ServiceSettings",
    "TimedAdvertisement",
    "TimedPublication",
    "TimedRequest",
    "TimedSubscription",
    "Workload",
    "aggregate",
    "apply_overrides",
    "check_extent",
    "check_files",
    "check_scenario",
    "compute_movement",
    "draw_advertisements",
    "draw_commands",
    "draw_faults",
    "draw_requests",
    "draw_roles",
    "draw_workload",
    "find_warnings",
    "input_digest",
    "input_files",
    "load_scenario",
    "merge_warnings",
    "metric_meanings",
    "parse_assignment",
    "parse_protocol",
    "parse_protocols",
    "parse_scenario",
    "parse_value",
    "place_applications",
    "protocol_label",
    "read_contact_plan",
    "resolve_scenario",
    "resolve_selection",
    "used_plugins",
]
