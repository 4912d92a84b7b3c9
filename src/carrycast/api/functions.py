"""The functions of the public API: simulate, compare, advise, explain and show runs, and connect to live nodes.

Heavy libraries are imported by the functions that need them.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from carrycast.api.fleet import Fleet
from carrycast.api.results import (
    AdviceResult,
    ComparisonResult,
    Explanation,
    MetricValues,
    SimulationResult,
    SweepResult,
)
from carrycast.errors import UserError, WorkError

if TYPE_CHECKING:
    from carrycast.node.api import AddressLike, AsyncClient, Client
    from carrycast.sim.scenario import Scenario

PathLike: TypeAlias = str | Path
Protocols: TypeAlias = str | Sequence[str]


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

    >>> import carrycast
    >>> carrycast.simulate(carrycast.example("quick"), protocol="gossip:p=0.7", seed=3)
    <Simulation quick, gossip, seed 3: delivery_ratio 0.7, 93 rows>
    """
    from carrycast.sim.engine import run
    from carrycast.sim.scenario import find_warnings
    from carrycast.trace import Level

    levels = [one.value for one in Level]
    if level not in levels:
        raise UserError(f"level: {level!r} is none of {', '.join(map(repr, levels))}")
    changes = {**_settings(settings), **{f"protocol.{key}": value for key, value in protocol_settings.items()}}
    chosen = _scenario(scenario, protocol, changes)
    outcome = run(chosen, seed, Level(level))
    trace = outcome.trace
    return SimulationResult(
        MetricValues(outcome.metrics),
        trace.table(),
        outcome.fingerprint,
        trace.events(),
        trace.subscriptions(),
        outcome.scenario,
        outcome.protocol,
        outcome.seed,
        str(level),
        find_warnings(chosen, seed, moving=True),
        chosen,
    )


def compare(
    scenario: PathLike,
    protocols: Protocols = "drift,epidemic,flooding",
    runs: int = 10,
    *,
    out: PathLike | None = None,
    settings: Mapping[str, object] | None = None,
    master: str | None = None,
    tune: int = 0,
) -> ComparisonResult:
    """Run several protocols on one scenario with the same movement; the first one is the reference.

    `protocols` is a text such as `"flooding,gossip:p=0.3"` or a list of such names. The runs and the report are kept
    in `out`, by default a new temporary folder. With `tune`, the main settings of all protocols but the first are tuned
    on so many training seeds before, and both rows are shown.

    >>> import carrycast
    >>> result = carrycast.compare(carrycast.example("quick"), ["flooding", "gossip:p=0.3"], runs=2, out=tmp_path / "c")
    >>> result
    <Comparison quick: flooding, gossip p=0.3; report ...>
    >>> result.plot(tmp_path / "figure.pdf", width="column")
    <PaperFigure ...>
    >>> print(result.to_latex(["delivery_prob"]))
    \\begin{tabular}{lr}
    ...
    """
    from carrycast.analysis.advice import add_tuned_rivals
    from carrycast.analysis.spark import compare as run_comparison
    from carrycast.sim.scenario import apply_overrides, load_scenario, parse_protocols

    tables = parse_protocols(protocols if isinstance(protocols, str) else ",".join(protocols), "protocols")
    folder = _folder(out, "compare")
    if tune:
        chosen = _settings(settings)
        loaded = load_scenario(Path(scenario))
        loaded = apply_overrides(loaded, chosen) if chosen else loaded
        tables = add_tuned_rivals(loaded, tables, folder / "tuning", tune, master)
    found = run_comparison(
        Path(scenario),
        tables,
        folder,
        runs,
        master,
        quiet=True,
        settings=_settings(settings),
    )
    report = found.report
    return ComparisonResult(
        found.scenario,
        found.protocols,
        found.rows(),
        found.sentences,
        report.warnings,
        report.page,
        report.failed,
        found.one_rows(),
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

    >>> import carrycast
    >>> result = carrycast.sweep(
    ...     carrycast.example("quick"), vary={"radio.range_m": [50, 100]}, runs=2, out=tmp_path / "sweep"
    ... )
    >>> len(result.means("delivery_ratio"))
    2
    """
    from carrycast.analysis.spark import (
        load_experiment,
        read_runs,
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
    sweep_experiment(loaded, folder, master, quiet=True)
    # The folder may hold the runs of other experiments too.
    records = [record for record in read_runs(folder) if record["experiment"] == loaded.name]
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
    protocols: Protocols | None = None,
    out: PathLike | None = None,
    master: str | None = None,
) -> AdviceResult:
    """Recommend the protocol that serves a fleet best, judged on time or seeds that were held out.

    `fleet` is a `Fleet`, its folder, a scenario, a contact plan or recorded movement. `protocols` are the candidates,
    by default all.

    >>> import carrycast
    >>> advice = carrycast.advise(
    ...     carrycast.example("quick"), objective="delivery >= 0.1, least bytes", protocols="flooding,gossip",
    ...     runs=2, out=tmp_path / "advice",
    ... )
    >>> advice
    <Advice ...; page ...index.html>
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
    names = protocols if protocols is None or isinstance(protocols, str) else ",".join(protocols)
    found = find_advice(scenario, parse_objective(objective, "objective"), folder, runs, train, names, master)
    page = write_advice_page(found, folder)
    write_node_configurations(scenario, found.chosen.candidate, folder / "nodes")
    return AdviceResult(
        found.chosen.candidate.label,
        found.keeps_limits(found.chosen),
        advice_sentences(found),
        page,
        folder / "nodes",
        [
            {"protocol": one.candidate.label, "metric": metric, "mean": mean.mean, "low": mean.low, "high": mean.high}
            for one in found.evaluated
            for metric, mean in one.means.items()
        ],
    )


def explain(trace: PathLike | SimulationResult, event: str, node: int) -> Explanation:
    """Explain why an event (`"SOURCE:NUMBER"`) was delivered to a node, or was not.

    `trace` is the folder of a trace, or a simulation, of level "full".

    >>> import carrycast
    >>> result = carrycast.simulate(carrycast.example("quick"), level="full")
    >>> print(carrycast.explain(result, "0:0", 3))  # doctest: +ELLIPSIS
    Event 0:0 for node 3, in ...
    """
    from carrycast.analysis.explain import event_timeline, timeline_lines

    if isinstance(trace, SimulationResult):
        if trace.level != "full":
            raise UserError('explain() needs every transmission; simulate with level="full"')
        with tempfile.TemporaryDirectory(prefix="carrycast-") as scratch:
            trace.save(scratch)
            found = event_timeline(Path(scratch), event, node)
    else:
        found = event_timeline(Path(trace), event, node)
    return Explanation(found.event, found.node, found.delivered_s, found.possible, "\n".join(timeline_lines(found)))


def show(
    source: PathLike,
    out: PathLike | None = None,
    *,
    protocol: str | None = None,
    seed: int = 1,
    settings: Mapping[str, object] | None = None,
) -> Path:
    """Write one HTML page that plays a scenario or a trace, and return its path. It needs no network.

    >>> import carrycast
    >>> carrycast.show(carrycast.example("quick"), tmp_path / "quick.html").name
    'quick.html'
    """
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


def connect(address: "AddressLike", patience_s: float = 0.0) -> "Client":
    """Connect to the live node whose control channel is at `address`: its socket's path, or `127.0.0.1:port`.

    A node that was just started needs a moment; the client tries to connect for `patience_s`.
    """
    from carrycast.node.api import connect as connect_to

    return connect_to(address, patience_s)


def connect_async(address: "AddressLike", patience_s: float = 30.0) -> "AsyncClient":
    """Connect to a live node from asyncio: `async with connect_async(address) as client`.

    The client connects again whenever the connection was lost; a request waits for the node for up to `patience_s`.
    """
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
