"""What Python programs use: simulate a scenario, match a filter, connect to a live node."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from driftcast.matching import Filter

if TYPE_CHECKING:
    import pyarrow as pa

    from driftcast.live.door.client import Client

__all__ = ["Filter", "Simulated", "connect", "simulate"]


@dataclass(frozen=True, slots=True)
class Simulated:
    """What came out of a simulation."""

    metrics: Mapping[str, float | int | None]
    trace: "pa.Table"
    fingerprint: str


def simulate(
    scenario: str | Path | Mapping[str, object],
    protocol: str | None = None,
    seed: int = 1,
    level: str = "deliveries",
    settings: Mapping[str, object] | None = None,
    **protocol_settings: object,
) -> Simulated:
    """Simulate a scenario: a file's path, or its tables as a dict.

    `protocol` replaces the scenario's (`"gossip:p=0.3"`), and further keywords are settings of it; `settings` replaces
    others by their dotted keys (`{"radio.range_m": 100}`). The trace is an Arrow table at the given level: "metrics"
    (empty), "deliveries" or "full".
    """
    from driftcast.scenario.overrides import chosen_scenario
    from driftcast.simulation.run import run
    from driftcast.trace import Level

    changes = {**(settings or {}), **{f"protocol.{key}": value for key, value in protocol_settings.items()}}
    outcome = run(chosen_scenario(scenario, protocol, changes, ("protocol", "settings")), seed, Level(level))
    return Simulated(outcome.metrics, outcome.trace.table(), outcome.fingerprint)


def connect(address: str) -> "Client":
    """A client of the live node whose control channel is at `address`: its socket's path, or `127.0.0.1:port`."""
    from driftcast.live.door.client import connect as connect_to

    return connect_to(address)
