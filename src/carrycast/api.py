"""The public Python API: simulate, compare, advise, look at fleets and runs, and talk to live nodes.

Every name here is offered by `import carrycast` as well, and is covered by the stability promise (docs/stability.md).
Heavy libraries are imported by the functions that need them.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Event
from carrycast.errors import ConnectionLostError, NotAuthorizedError, UserError, WorkError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from carrycast.analysis.explain import Timeline
    from carrycast.node import Node
    from carrycast.node.api import AddressLike, AsyncClient, Client
    from carrycast.sim.contacts import ContactPlan
    from carrycast.sim.engine import MissedEvent
    from carrycast.sim.scenario import Scenario

__all__ = [
    "AdviceResult",
    "ComparisonResult",
    "ConnectionLostError",
    "Event",
    "Filter",
    "FilterError",
    "Fleet",
    "Node",
    "NotAuthorizedError",
    "SimulationResult",
    "SweepResult",
    "UserError",
    "WorkError",
    "advise",
    "compare",
    "connect",
    "connect_async",
    "explain",
    "show",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> object:
    """`Node` needs asyncio, which programs that only simulate do without."""
    if name == "Node":
        from carrycast.node import Node

        return Node
    raise AttributeError(f"module 'carrycast.api' has no attribute {name!r}")


PathLike: TypeAlias = str | Path
Protocols: TypeAlias = str | Sequence[str]


class Tabular(ABC):
    """A result that is a table: `to_arrow()` and `to_pandas()` give it to other libraries."""

    @abstractmethod
    def to_arrow(self) -> "pa.Table":
        """The table for Arrow."""

    def to_pandas(self) -> "pd.DataFrame":
        """The table for pandas."""
        try:
            frame: pd.DataFrame = self.to_arrow().to_pandas()
        except ImportError:
            raise UserError("to_pandas() needs pandas: `pip install 'carrycast[pipeline]'`") from None
        return frame

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        html: str = self.to_pandas().to_html()
        return html


@dataclass(frozen=True, slots=True, repr=False)
class SimulationResult(Tabular):
    """The result of one simulation: its metrics, and its three tables as `carrycast run --trace` writes them."""

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
    """Reasons why the metrics may be meaningless, as `carrycast check` prints them."""

    def __repr__(self) -> str:
        ratio = self.metrics.get("delivery_ratio")
        share = "nothing to deliver" if ratio is None else f"delivery_ratio {ratio:.4g}"
        return f"<Simulation {self.scenario}, {self.protocol}, seed {self.seed}: {share}, {self.trace.num_rows} rows>"

    def missed(self) -> "list[MissedEvent]":
        """The subscriptions that missed an event, with the last trace row of each missed event."""
        from carrycast.sim.engine import find_missed_events

        if self.level == "metrics":
            raise UserError('missed() reads the trace; simulate with level="deliveries", or "full" to know more')
        return find_missed_events(self.trace, self.events, self.subscriptions)

    def to_arrow(self) -> "pa.Table":
        """The metrics, one row for each."""
        import pyarrow as pa

        values = [None if value is None else float(value) for value in self.metrics.values()]
        return pa.table({"metric": list(self.metrics), "value": pa.array(values, pa.float64())})


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonResult(Tabular):
    """The result of a comparison: for each protocol and metric a mean with its 95 % confidence interval."""

    scenario: str
    protocols: Sequence[str]
    rows: Sequence[Mapping[str, object]] = field(repr=False)
    """One for each protocol and metric: protocol, metric, mean, low, high, runs."""
    advice_sentences: Sequence[str]
    """How each protocol differs from the first, in words."""
    warnings: Sequence[str]
    report: Path
    """The page of the report."""
    failed: int = 0
    """How many runs failed."""

    def __repr__(self) -> str:
        return f"<Comparison {self.scenario}: {', '.join(self.protocols)}; report {self.report}>"

    def to_arrow(self) -> "pa.Table":
        """One row for each protocol and metric."""
        import pyarrow as pa

        return pa.Table.from_pylist([dict(row) for row in self.rows])


@dataclass(frozen=True, slots=True, repr=False)
class SweepResult(Tabular):
    """The result of a sweep: every run with its point, seed and metrics."""

    out: Path
    """The folder of the runs; `carrycast report` makes a report of it."""
    table: "pa.Table"
    failed: int
    warnings: Sequence[str]

    def __repr__(self) -> str:
        return f"<Sweep of {self.table.num_rows} runs, {self.failed} failed, in {self.out}>"

    def to_arrow(self) -> "pa.Table":
        """One row for each run."""
        return self.table


@dataclass(frozen=True, slots=True, repr=False)
class AdviceResult:
    """The recommended protocol for a fleet, with its evidence and node configurations."""

    protocol: str
    keeps_limits: bool | None
    """Whether it keeps the limits of the objective on held-out data; None if the intervals do not decide."""
    advice_sentences: Sequence[str]
    page: Path
    nodes: Path
    """The folder of the node configurations."""

    def __repr__(self) -> str:
        return f"<Advice {self.protocol}; page {self.page}>"


class Fleet:
    """Recorded movement: the folder that `Fleet.ingest` (or `carrycast ingest`) made.

    >>> fleet = Fleet.ingest("buses.csv", out="buses")  # doctest: +SKIP
    >>> fleet.contacts(range_m=250)  # doctest: +SKIP
    """

    def __init__(self, folder: PathLike) -> None:
        """Open a fleet's folder; a `UserError` says why it is not one."""
        from carrycast.sim.mobility import FleetFacts

        self.folder = Path(folder)
        facts = FleetFacts.read(self.folder)
        self.nodes, self.duration_s = facts.nodes, facts.duration_s

    @classmethod
    def open(cls, folder: PathLike) -> "Fleet":
        """Open a fleet's folder."""
        return cls(folder)

    @classmethod
    def ingest(
        cls,
        files: PathLike | Sequence[PathLike],
        out: PathLike,
        *,
        master: str | None = None,
        max_speed_mps: float | None = None,
        gap_s: float | None = None,
        every_s: float | None = None,
        **options: Any,
    ) -> "Fleet":
        """Read files of any known format, clean them and write a fleet's folder.

        `options` are those of `carrycast ingest` that say how files are read: `format`, `columns` (a dict), `crs`, ...
        """
        from carrycast.analysis.fleets import CleaningRules, ReadOptions, ingest
        from carrycast.core.settings import parse_settings

        given = {"max_speed_mps": max_speed_mps, "gap_s": gap_s, "every_s": every_s}
        rules = parse_settings(
            {key: value for key, value in given.items() if value is not None}, CleaningRules, "ingest"
        )
        try:
            source = ReadOptions(**options)
        except TypeError as error:
            raise UserError(f"ingest: {error}") from None
        paths = [files] if isinstance(files, str | Path) else files
        ingest([Path(path) for path in paths], Path(out), source, rules, master)
        return cls(out)

    def contacts(self, range_m: float, duration_s: float | None = None, master: str | None = None) -> "ContactPlan":
        """The exact times at which two nodes come within range of each other and part again."""
        from carrycast.analysis.fleets import save_fleet_plan

        with tempfile.TemporaryDirectory(prefix="carrycast-") as scratch:
            return save_fleet_plan(self.folder, range_m, duration_s, Path(scratch) / "contacts.parquet", master)

    def plot(self, out: PathLike) -> Path:
        """Write the picture of the fleet's tracks that its page shows, and return its path."""
        import shutil

        picture = self.folder / "fleet.png"
        if not picture.is_file():
            raise UserError(f"{self.folder}: has no picture; ingest it again")
        return Path(shutil.copyfile(picture, out))

    def __repr__(self) -> str:
        return f"<Fleet {self.folder}: {self.nodes} nodes, {self.duration_s:g} s>"


def simulate(
    scenario: PathLike | Mapping[str, object],
    protocol: str | None = None,
    seed: int = 1,
    level: str = "deliveries",
    settings: Mapping[str, object] | None = None,
    **protocol_settings: object,
) -> SimulationResult:
    """Simulate a scenario: a file's path, or its tables as a dict.

    `protocol` replaces the scenario's (`"gossip:p=0.3"`), and further keywords are settings of it; `settings` replaces
    others by their dotted keys (`{"radio.range_m": 100}`). The tables are kept at the given level: "metrics" (empty),
    "deliveries" or "full".
    """
    from carrycast.sim.engine import run
    from carrycast.sim.scenario import warnings_of
    from carrycast.trace import Level

    levels = [one.value for one in Level]
    if level not in levels:
        raise UserError(f"level: {level!r} is none of {', '.join(map(repr, levels))}")
    changes = {**_settings(settings), **{f"protocol.{key}": value for key, value in protocol_settings.items()}}
    chosen = _scenario(scenario, protocol, changes)
    outcome = run(chosen, seed, Level(level))
    trace = outcome.trace
    return SimulationResult(
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


def compare(
    scenario: PathLike,
    protocols: Protocols = "drift,epidemic,flooding",
    runs: int = 10,
    *,
    out: PathLike | None = None,
    settings: Mapping[str, object] | None = None,
    master: str | None = None,
) -> ComparisonResult:
    """Run several protocols on one scenario with the same movement; the first one is the reference.

    `protocols` is a text such as `"flooding,gossip:p=0.3"` or a list of such names. The runs and the report are kept
    in `out`, by default a new temporary folder.
    """
    from carrycast.analysis.spark import COMPARED_METRICS, NO_INTERVAL, compare as run_comparison
    from carrycast.sim.scenario import parse_protocols

    found = run_comparison(
        Path(scenario),
        parse_protocols(protocols if isinstance(protocols, str) else ",".join(protocols), "protocols"),
        _folder(out, "compare"),
        runs,
        master,
        quiet=True,
        settings=_settings(settings),
    )
    rows = [
        {"protocol": protocol, "metric": metric, "mean": one.mean, "low": one.low, "high": one.high, "runs": one.n}
        for protocol in found.protocols
        for metric in COMPARED_METRICS
        for one in [found.means.get((protocol, metric), NO_INTERVAL)]
    ]
    report = found.report
    return ComparisonResult(
        found.scenario, found.protocols, rows, found.sentences, report.warnings, report.page, report.failed
    )


def sweep(
    experiment: PathLike,
    vary: Mapping[str, Sequence[object]] | None = None,
    runs: int | None = None,
    *,
    out: PathLike | None = None,
    quick: bool = False,
    master: str | None = None,
) -> SweepResult:
    """Run the simulations of an experiment (a name or a TOML file); runs that are in `out` already are not run again.

    With `vary`, `experiment` is a scenario and `vary` its axes: `{"radio.range_m": [100, 200]}`, in all combinations.
    """
    from carrycast.analysis.spark import (
        load_experiment,
        read_stored_warnings,
        record_table,
        sweep_experiment,
        vary_scenario,
    )

    if vary is None:
        loaded = load_experiment(str(experiment), quick, runs)
    else:
        axes = [f"{key}={','.join(map(_value_text, values))}" for key, values in vary.items()]
        loaded = vary_scenario(Path(experiment), axes, (), runs, "vary")
    folder = _folder(out, "sweep")
    records = sweep_experiment(loaded, folder, master, quiet=True)
    failed = sum(record["error"] is not None for record in records)
    return SweepResult(folder, record_table(records), failed, read_stored_warnings(folder, loaded))


def advise(
    fleet: PathLike | Fleet,
    workload: PathLike | None = None,
    objective: str = "delivery >= 0.95, least bytes",
    *,
    range_m: float | None = None,
    duration_s: float | None = None,
    train: float = 0.6,
    runs: int = 10,
    candidates: Protocols | None = None,
    out: PathLike | None = None,
    master: str | None = None,
) -> AdviceResult:
    """Recommend the protocol that serves a fleet best, judged on time or seeds that were held out.

    `fleet` is a `Fleet`, its folder, a scenario, a contact plan or recorded movement.
    """
    from carrycast.analysis.advice import (
        advice_sentences,
        advise as find_advice,
        parse_objective,
        read_fleet,
        write_advice_page,
        write_node_configurations,
    )

    path = fleet.folder if isinstance(fleet, Fleet) else Path(fleet)
    scenario = read_fleet(path, None if workload is None else Path(workload), range_m, duration_s)
    folder = _folder(out, "advice")
    names = candidates if candidates is None or isinstance(candidates, str) else ",".join(candidates)
    found = find_advice(scenario, parse_objective(objective, "objective"), folder, runs, train, names, master)
    page = write_advice_page(found, folder)
    write_node_configurations(scenario, found.chosen.candidate, folder / "nodes")
    return AdviceResult(
        found.chosen.candidate.label, found.keeps_limits(found.chosen), advice_sentences(found), page, folder / "nodes"
    )


def explain(trace: PathLike, event: str, node: int) -> "Timeline":
    """Why an event (`"SOURCE:NUMBER"`) came to a node, or did not; `trace` is a folder of level full."""
    from carrycast.analysis.explain import event_timeline

    return event_timeline(Path(trace), event, node)


def show(
    source: PathLike,
    out: PathLike | None = None,
    *,
    protocol: str | None = None,
    seed: int = 1,
    settings: Mapping[str, object] | None = None,
) -> Path:
    """Write one HTML page that plays a scenario or a trace, and return its path. It needs no network."""
    from carrycast.analysis.player import player_of_scenario, player_of_trace
    from carrycast.sim.scenario import protocol_label

    path = Path(source)
    if path.suffix == ".toml":
        scenario = _scenario(path, protocol, _settings(settings))
        text = player_of_scenario({protocol_label(scenario.protocol): scenario}, seed)
    elif protocol is not None or settings:
        raise UserError(f"{path}: a trace is shown as it was recorded; protocol and settings are for scenarios")
    else:
        text = player_of_trace(path)
    page = Path(f"show-{path.resolve().stem}.html") if out is None else Path(out)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WorkError(f"{page}: the page cannot be written: {error.strerror or error}") from None
    return page


def connect(address: "AddressLike") -> "Client":
    """A client of the live node whose control channel is at `address`: its socket's path, or `127.0.0.1:port`."""
    from carrycast.node.api import connect as connect_to

    return connect_to(address)


def connect_async(address: "AddressLike", patience_s: float = 30.0) -> "AsyncClient":
    """The same for asyncio, as in `async with connect_async(address) as client`. It connects again whenever the node
    was away; a question waits for the node for up to `patience_s`."""
    from carrycast.node.api import AsyncClient

    return AsyncClient(address, patience_s)


def _scenario(
    scenario: PathLike | Mapping[str, object], protocol: str | None, changes: Mapping[str, object]
) -> "Scenario":
    """A scenario as callers give it, with its protocol and settings replaced."""
    from carrycast.sim.scenario import resolve_scenario

    if not isinstance(scenario, str | Path | Mapping):
        raise UserError(f"scenario: a file's path or its tables as a dict, not {scenario!r}")
    if protocol is not None and not isinstance(protocol, str):
        raise UserError(f"protocol: a text such as 'gossip:p=0.3', not {protocol!r}")
    return resolve_scenario(scenario, protocol, changes, ("protocol", "settings"))


def _settings(settings: Mapping[str, object] | None) -> Mapping[str, object]:
    if settings is not None and not isinstance(settings, Mapping):
        raise UserError(f"settings: a dict by dotted keys such as 'radio.range_m', not {settings!r}")
    return settings or {}


def _folder(out: PathLike | None, purpose: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"carrycast-{purpose}-")) if out is None else Path(out)


def _value_text(value: object) -> str:
    """A value of an axis as `--vary` takes it."""
    import json

    return value if isinstance(value, str) else json.dumps(value)
