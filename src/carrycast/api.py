"""What Python programs use: simulate a scenario, match a filter, connect to a live node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.core.matching import Filter
from carrycast.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from carrycast.node.api.aio import AsyncClient
    from carrycast.node.api.client import Client
    from carrycast.node.api.values import AddressLike
    from carrycast.sim.engine.missed import Missed

__all__ = ["Filter", "Simulated", "connect", "connect_async", "simulate"]


@dataclass(frozen=True, slots=True, repr=False)
class Simulated:
    """What came out of a simulation: its metrics, and its three tables as `run --trace` writes them."""

    metrics: Mapping[str, float | int | None]
    trace: "pa.Table"
    fingerprint: str
    events: "pa.Table"
    subscriptions: "pa.Table"
    scenario: str = ""
    protocol: str = ""
    seed: int = 1
    level: str = "deliveries"
    warnings: Sequence[str] = ()
    """Why the run says less than it seems to, as `carrycast check` tells it."""

    def __repr__(self) -> str:
        ratio = self.metrics.get("delivery_ratio")
        share = "nothing to deliver" if ratio is None else f"delivery_ratio {ratio:.4g}"
        return f"<Simulated {self.scenario}, {self.protocol}, seed {self.seed}: {share}, {self.trace.num_rows} rows>"

    def missed(self) -> "list[Missed]":
        """Which subscriptions missed which events, and the last that the trace tells of each."""
        from carrycast.sim.engine.missed import missed

        if self.level == "metrics":
            raise UserError('missed() reads the trace; simulate with level="deliveries", or "full" to know more')
        return missed(self.trace, self.events, self.subscriptions)


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
    others by their dotted keys (`{"radio.range_m": 100}`). The tables are kept at the given level: "metrics" (empty),
    "deliveries" or "full".
    """
    from carrycast.sim.engine.run import run
    from carrycast.sim.scenario.overrides import chosen_scenario
    from carrycast.sim.scenario.warnings import warnings_of
    from carrycast.trace import Level

    if not isinstance(scenario, str | Path | Mapping):
        raise UserError(f"scenario: a file's path or its tables as a dict, not {scenario!r}")
    if protocol is not None and not isinstance(protocol, str):
        raise UserError(f"protocol: a text such as 'gossip:p=0.3', not {protocol!r}")
    if settings is not None and not isinstance(settings, Mapping):
        raise UserError(f"settings: a dict by dotted keys such as 'radio.range_m', not {settings!r}")
    levels = [one.value for one in Level]
    if level not in levels:
        raise UserError(f"level: {level!r} is none of {', '.join(map(repr, levels))}")
    changes = {**(settings or {}), **{f"protocol.{key}": value for key, value in protocol_settings.items()}}
    chosen = chosen_scenario(scenario, protocol, changes, ("protocol", "settings"))
    outcome = run(chosen, seed, Level(level))
    trace = outcome.trace
    return Simulated(
        outcome.metrics,
        trace.table(),
        outcome.fingerprint,
        trace.events(),
        trace.subscriptions(),
        outcome.scenario,
        outcome.protocol,
        outcome.seed,
        str(level),
        warnings_of(chosen, seed, moving=True),
    )


def connect(address: "AddressLike") -> "Client":
    """A client of the live node whose control channel is at `address`: its socket's path, or `127.0.0.1:port`."""
    from carrycast.node.api.client import connect as connect_to

    return connect_to(address)


def connect_async(address: "AddressLike", patience_s: float = 30.0) -> "AsyncClient":
    """The same for asyncio, as in `async with connect_async(address) as client`. It connects again whenever the node
    was away; a question waits for the node for up to `patience_s`."""
    from carrycast.node.api.aio import AsyncClient

    return AsyncClient(address, patience_s)
