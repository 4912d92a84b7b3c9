"""Small scenarios, and protocols that exist only in a test."""

import sys
from collections.abc import Mapping
from types import ModuleType

import pytest

from carrycast.core.protocol import Protocol
from carrycast.sim.scenario.scenario import Scenario, parse_scenario

LINE: Mapping[str, object] = {
    "name": "line",
    "duration_s": 10.0,
    "nodes": 3,
    "mobility": {"model": "line", "spacing_m": 100.0},
    "radio": {"model": "disk", "range_m": 120.0, "delay_s": 0.001},
    "discovery": {"mode": "oracle"},
    "protocol": {"name": "flooding"},
}


def line(**tables: object) -> Scenario:
    """Three nodes in a row, each 100 m from the next, that hear 120 m far."""
    return parse_scenario({**LINE, **tables}, "line.toml")


def register(monkeypatch: pytest.MonkeyPatch, protocol: type[Protocol]) -> None:
    """Let the registry find a class as if it had a folder of its own."""
    module = ModuleType(f"carrycast.protocols.{protocol.name}")
    vars(module)["PROTOCOL"] = protocol
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("carrycast.core.plugins.folders_of", lambda package: [protocol.name])
