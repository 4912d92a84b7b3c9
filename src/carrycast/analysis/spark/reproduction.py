"""Run experiments and write their report: warnings, sweep, metrics, claims, figures and page."""

import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING

import msgspec

from carrycast.analysis.reports import ReportSection, Summary, csv_text, draw_figure, report_page
from carrycast.analysis.spark.claims import Claim, evaluate_claims
from carrycast.analysis.spark.code import code_digest
from carrycast.analysis.spark.definition import Definition
from carrycast.analysis.spark.experiment import HOOK, Experiment, Point, add_own_metrics, load_experiment
from carrycast.analysis.spark.master import is_local_session
from carrycast.analysis.spark.output import RUNS_FILE, TRACES_FOLDER, lock_folder, write_atomically
from carrycast.analysis.spark.own_metrics import compute_values
from carrycast.analysis.spark.plan import movement_key, plugin_modules
from carrycast.analysis.spark.player_pages import find_player, make_players
from carrycast.analysis.spark.records import MORE, Record, failure_lines, json_text, json_value, record_table
from carrycast.analysis.spark.results import Results
from carrycast.analysis.spark.spark_session import LazySession, as_lazy, check_reports_installed
from carrycast.analysis.spark.statistics import Interval
from carrycast.analysis.spark.stopping import PointRuns, begin, count_runs, extend
from carrycast.analysis.spark.summary import (
    ExperimentMeans,
    comparison_sentences,
    finding_sentences,
    reference_pairs,
    summarize,
    summarize_differences,
    summarize_record_differences,
    summarize_records,
)
from carrycast.analysis.spark.sweep import read_runs, read_runs_table, run_missing, write_runs
from carrycast.analysis.spark.trace_tables import read_tables
from carrycast.core.settings import parse_settings
from carrycast.errors import UserError
from carrycast.sim.scenario import MOST_NODE_SECONDS, find_warnings, merge_warnings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

WARNINGS_FILE = "warnings.json"
MOST_MOVEMENTS = 4
"""The number of different movements of a sweep that are checked for warnings. Each takes seconds at most."""


def experiment_warnings(experiment: Experiment) -> list[str]:
    """Return the warnings about the points of an experiment, each once."""
    keys = [movement_key(point.scenario) for point in experiment.points]
    looked_at = set(list(dict.fromkeys(keys))[:MOST_MOVEMENTS])
    found = {}
    # Points with the same movement follow each other, so that the movement is computed once.
    for key, point in sorted(zip(keys, experiment.points, strict=True), key=lambda one: one[0]):
        small = point.scenario.nodes * point.scenario.duration_s <= MOST_NODE_SECONDS
        try:
            found[point.name] = find_warnings(point.scenario, experiment.seeds[0], moving=key in looked_at and small)
        except UserError:
            # The runs of this point will fail and record the error.
            found[point.name] = []
    return merge_warnings([(point.name, found[point.name]) for point in experiment.points])


def print_warnings(warnings: Sequence[str]) -> None:
    """Print warnings to standard error, one line each."""
    for text in warnings:
        print(f"carrycast: warning: {text}", file=sys.stderr)


def write_warnings(warnings: Sequence[str], folder: Path) -> None:
    """Store warnings beside the experiment's definition: they cannot be computed again if the input files are gone."""
    write_atomically(folder / WARNINGS_FILE, msgspec.json.format(msgspec.json.encode(list(warnings)), indent=1))


def read_warnings(folder: Path) -> list[str]:
    """Read the stored warnings; an empty list if there are none."""
    try:
        return msgspec.json.decode((folder / WARNINGS_FILE).read_bytes(), type=list[str])
    except (OSError, msgspec.MsgspecError):
        return []


DEFINITIONS = "experiments"
Summaries = Mapping[tuple[str, str, str], Interval]
"""(experiment, point, metric) -> mean or difference, and its interval."""


@dataclass(frozen=True)
class ExperimentReport:
    """The result of a reproduction."""

    out: Path
    runs: int
    failed: int
    claims: list[Claim]
    reasons: list[str] = field(default_factory=list)
    """The reasons why runs failed."""
    means: list[ExperimentMeans] = field(default_factory=list)
    differences: Summaries = field(default_factory=dict)
    """The differences to the reference points, paired by seed, for experiments with a reference."""
    warnings: list[str] = field(default_factory=list)
    """Reasons why the runs may be less meaningful than they seem."""
    stopping: dict[str, list[PointRuns]] = field(default_factory=dict)
    """For experiments whose points stop when their claims are decided: the runs of each point, and why no more."""

    @property
    def page(self) -> Path:
        """The path of the report's page."""
        return self.out / "index.html"

    def as_row(self) -> dict[str, object]:
        """Return the report as `--json` prints it."""
        return {
            "report": str(self.page),
            "runs": self.runs,
            "failed": self.failed,
            "warnings": self.warnings,
            "stopping": {name: [one.as_row() for one in counted] for name, counted in self.stopping.items()},
            "claims": [claim.as_row() for claim in self.claims],
            "means": [means.as_row() for means in self.means],
        }


class StoredExperiment(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment as stored in a report directory, with the settings of every point."""

    definition: Definition
    points: list[Point]
    seeds: list[int]
    used: dict[str, int] = {}


def reproduce(
    names: Sequence[str],
    out: Path,
    quick: bool = False,
    runs: int | None = None,
    master: str | None = None,
    quiet: bool = False,
) -> ExperimentReport:
    """Run experiments, evaluate their claims, draw their figures, and write everything into one directory."""
    experiments = [load_experiment(name, quick, runs) for name in names]
    twice = {experiment.name for experiment in experiments}
    if len(twice) != len(experiments):
        raise UserError("an experiment is named twice; name each once")
    return reproduce_experiments(experiments, out, LazySession(master), quiet)


def reproduce_experiments(
    experiments: Sequence[Experiment],
    out: Path,
    spark: "SparkSession | LazySession",
    quiet: bool = False,
    watch: bool = False,
) -> ExperimentReport:
    """Reproduce loaded experiments. The report also shows other experiments of the directory.

    With `watch`, the page that plays the first runs is made at once, even if that takes a while.
    """
    check_reports_installed()
    names = {experiment.name for experiment in experiments}
    source = as_lazy(spark)
    with lock_folder(out):
        _, experiments = _sweep(experiments, out, source, quiet)
        if watch:
            make_players(experiments, read_runs(out), out, at_once=True)
        return _write_report(out, source, names)


def sweep_experiment(experiment: Experiment, out: Path, master: str | None = None, quiet: bool = False) -> list[Record]:
    """Execute the runs of an experiment, for `report` to evaluate later; return the runs and their errors.

    Spark is not started if few runs are left to execute.
    """
    spark = LazySession(master)
    with lock_folder(out):
        rows, _ = _sweep([experiment], out, spark, quiet)
    runs: list[Record] = rows.select(["experiment", "point", "seed", "error"]).to_pylist()
    return runs


def _sweep(
    experiments: Sequence[Experiment], out: Path, spark: LazySession, quiet: bool
) -> "tuple[pa.Table, list[Experiment]]":
    """Print warnings, execute the runs, and store the inputs of the report.

    Return the rows, and the experiments with the runs that their claims needed.
    """
    warnings = {experiment.name: experiment_warnings(experiment) for experiment in experiments}
    if not quiet:
        for found in warnings.values():
            print_warnings(found)
    planned = [begin(experiment) for experiment in experiments]
    while True:
        rows = run_missing(planned, out, spark, quiet=quiet)
        if not any(experiment.looks for experiment in planned):
            break
        _update_own_metrics([experiment for experiment in planned if experiment.looks], out, spark)
        records = read_runs(out)
        extended = [extend(experiment, _results(experiment, records, out, spark)) for experiment in planned]
        if not any(extended):
            break
        planned = [longer or experiment for longer, experiment in zip(extended, planned, strict=True)]
    _store(planned, out)
    for name, found in warnings.items():
        write_warnings(found, out / DEFINITIONS / name)
    return rows, planned


def _results(experiment: Experiment, records: Sequence[Record], out: Path, spark: LazySession) -> Results:
    mine = [record for record in records if record["experiment"] == experiment.name]
    return Results(experiment, mine, out, spark)


def read_stored_warnings(out: Path, experiment: Experiment) -> list[str]:
    """Read the warnings that a sweep stored for an experiment."""
    return read_warnings(out / DEFINITIONS / experiment.name)


def report(out: Path, master: str | None = None) -> ExperimentReport:
    """Write claims, figures, tables and page again, from the runs in a directory."""
    read_runs(out)
    read_stored_experiments(out)
    spark = LazySession(master)
    with lock_folder(out):
        return _write_report(out, spark)


def read_stored_experiments(out: Path, names: Collection[str] | None = None) -> list[Experiment]:
    """Read the experiments of a report directory. If `names` are given, other unreadable ones are skipped with a
    message."""
    found = []
    for path in sorted((out / DEFINITIONS).glob("*/definition.json")):
        with _skip_unreadable(path.parent.name, names):
            found.append(_read_stored(path))
    if not found:
        raise UserError(f"{out}: has no experiments/*/definition.json; give a directory that sweep or reproduce wrote")
    return sorted(found, key=lambda experiment: experiment.definition.order)


def _read_stored(path: Path) -> Experiment:
    try:
        table = json_value(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    stored = parse_settings(table, StoredExperiment, str(path))
    hook = path.parent / HOOK
    found = Experiment(
        stored.definition, stored.points, stored.seeds, hook if hook.is_file() else None, used=stored.used
    )
    return add_own_metrics(found, path.parent)


@contextmanager
def _skip_unreadable(name: str, names: Collection[str] | None) -> Iterator[None]:
    """Skip an experiment that cannot be read, such as one of another version, unless it is one of `names`."""
    try:
        yield
    except UserError as error:
        if names is None or name in names:
            raise
        print(f"carrycast: {error}; {name} is left out of the report", file=sys.stderr)


def _store(experiments: Sequence[Experiment], out: Path) -> None:
    """Store the definitions of experiments beside those of others."""
    for experiment in experiments:
        folder = out / DEFINITIONS / experiment.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        files = [file.name for file in experiment.own_files]
        definition = msgspec.structs.replace(experiment.definition, metrics_from=files)
        stored = StoredExperiment(
            definition=definition, points=experiment.points, seeds=experiment.seeds, used=dict(experiment.used)
        )
        if experiment.hook is not None:
            shutil.copy(experiment.hook, folder / HOOK)
        for file in experiment.own_files:
            shutil.copy(file, folder / file.name)
        write_atomically(folder / "definition.json", json_text(stored, indent=1).encode())


def _write_report(out: Path, spark: LazySession, names: Collection[str] | None = None) -> ExperimentReport:
    """Write the report of all experiments in a directory; return the part about the named experiments, or all."""
    experiments = read_stored_experiments(out, names)
    _update_own_metrics(experiments, out, spark)
    records = read_runs(out)
    make_players(experiments, records, out)
    metrics = list(dict.fromkeys(metric for experiment in experiments for metric in experiment.metrics))
    summaries = read_summaries(out, spark, metrics)
    differences = _compute_differences(experiments, out, spark, metrics)
    sections = []
    for experiment in experiments:
        with _skip_unreadable(experiment.name, names):
            sections.append(_make_section(experiment, records, summaries, differences, out, spark))
    claims = [claim for section in sections for claim in section.claims]
    for section in sections:
        name = section.experiment.name
        for found in section.figures:
            write_atomically(out / "figures" / f"{name}-{found.figure.name}.png", found.png)
            write_atomically(out / "figures" / f"{name}-{found.figure.name}.svg", found.svg)
            write_atomically(out / "tables" / f"{name}-{found.figure.name}.csv", csv_text(found.rows).encode())
        write_atomically(out / "tables" / f"{name}-means.csv", csv_text(_mean_rows(section, section.summary)).encode())
        if section.differences is not None:
            write_atomically(
                out / "tables" / f"{name}-differences.csv", csv_text(_mean_rows(section, section.differences)).encode()
            )
    rows = [claim.as_row() for claim in claims]
    write_atomically(out / "claims.csv", csv_text(rows).encode())
    write_atomically(out / "claims.json", msgspec.json.format(msgspec.json.encode(rows), indent=1))
    title = sections[0].experiment.definition.title if len(sections) == 1 else f"Results of {len(sections)} experiments"
    write_atomically(
        out / "index.html", report_page(title or sections[0].experiment.name, sections, versions(experiments)).encode()
    )
    mine = [record for record in records if names is None or record["experiment"] in names]
    failed = sum(record["error"] is not None for record in mine)
    evaluated = [claim for claim in claims if names is None or claim.experiment in names]
    means = [
        ExperimentMeans(section.experiment, section.summary)
        for section in sections
        if names is None or section.experiment.name in names
    ]
    shown = [section for section in sections if names is None or section.experiment.name in names]
    warnings = [
        text if len(shown) == 1 else f"{section.experiment.name}: {text}"
        for section in shown
        for text in section.warnings
    ]
    stopping = {section.experiment.name: list(section.counted) for section in shown if section.counted}
    return ExperimentReport(
        out, len(mine), failed, evaluated, failure_lines(mine), means, differences, warnings, stopping
    )


def _update_own_metrics(experiments: Sequence[Experiment], out: Path, spark: LazySession) -> None:
    """Compute the users' own metrics of finished runs from traces, and add them to runs.parquet.

    They are computed each time, because the functions may have changed.
    """
    with_own = {experiment.name: experiment for experiment in experiments if experiment.own}
    if not with_own:
        return
    records = read_runs(out)
    for name, experiment in with_own.items():
        finished = {
            str(record["key"]): record for record in records if record["experiment"] == name and record["error"] is None
        }
        folders = [out / TRACES_FOLDER / key for key in finished]
        gone = [folder for folder in folders if not folder.is_dir()]
        if gone:
            raise UserError(f"{gone[0]}: the trace is gone, and {experiment.own[0].name} needs it; sweep again")
        if not folders:
            continue
        tables = read_tables(spark(), folders)
        found = {own.name: compute_values(own, *tables) for own in experiment.own}
        for record in finished.values():
            written = record[MORE]
            more = msgspec.json.decode(written, type=dict[str, object]) if isinstance(written, str) else {}
            more |= {name: values.get(str(record["run"])) for name, values in found.items()}
            record[MORE] = msgspec.json.encode(more).decode()
    write_runs(record_table(records), out)


def _make_section(
    experiment: Experiment,
    records: Sequence[Record],
    summaries: Summaries,
    differences: Summaries,
    out: Path,
    spark: LazySession,
) -> ReportSection:
    results = _results(experiment, records, out, spark)
    drawn = [found for figure in experiment.definition.figures if (found := draw_figure(figure, results)) is not None]
    known = _select_experiment(experiment, summaries)
    compared = _select_experiment(experiment, differences) if experiment.definition.reference else None
    said = finding_sentences(experiment, known)
    said += comparison_sentences(experiment, known, compared) if compared is not None else []
    player = find_player(experiment.name, out)
    warnings = read_stored_warnings(out, experiment)
    claims = evaluate_claims(results)
    counted = count_runs(experiment, claims)
    mine = results.records
    return ReportSection(experiment, mine, known, drawn, claims, player, compared, said, warnings, counted)


def _select_experiment(experiment: Experiment, found: Summaries) -> dict[tuple[str, str], Interval]:
    return {key[1:]: one for key, one in found.items() if key[0] == experiment.name}


def read_summaries(
    out: Path, spark: "SparkSession | LazySession", metrics: Sequence[str]
) -> dict[tuple[str, str, str], Interval]:
    """Compute the means of all metrics from runs.parquet: (experiment, point, metric) -> mean and interval."""
    source, records = as_lazy(spark), read_runs(out)
    if source.is_needed(len(records)):
        found = summarize(_read_rows(out, source()), metrics)
    else:
        found = summarize_records(records, metrics)
    return {(one.experiment, one.point, one.metric): one.interval for one in found}


def _read_rows(out: Path, spark: "SparkSession") -> "DataFrame":
    """Return runs.parquet as a DataFrame. On a cluster the driver sends the rows, because executors may not see the
    file."""
    if is_local_session(spark):
        return spark.read.parquet(str((out / RUNS_FILE).resolve()))
    return spark.createDataFrame(read_runs_table(out))


def _compute_differences(
    experiments: Sequence[Experiment], out: Path, spark: LazySession, metrics: Sequence[str]
) -> Summaries:
    """Compute the paired differences of points to their references, for experiments with a reference."""
    pairs = [(experiment.name, *pair) for experiment in experiments for pair in reference_pairs(experiment)]
    if not pairs:
        return {}
    records = read_runs(out)
    if spark.is_needed(len(records)):
        wanted = spark().createDataFrame(pairs, "experiment string, point string, reference string")
        found = summarize_differences(_read_rows(out, spark()), wanted, metrics)
    else:
        found = summarize_record_differences(records, pairs, metrics)
    return {(one.experiment, one.point, one.metric): one.interval for one in found}


def _mean_rows(section: ReportSection, summary: Summary) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for point in section.experiment.points:
        for metric in section.experiment.metrics:
            found = summary.get((point.name, metric), Interval(0, None, None, None))
            rows.append({**point.labels, "metric": metric, **found.as_row()})
    return rows


def versions(experiments: Sequence[Experiment]) -> dict[str, str]:
    """Return the versions of the software on which the numbers depend."""
    found = {"Python": python_version()}
    for package in ("carrycast", "numpy", "msgspec", "pyspark", "pyarrow"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "(source)"
    used = {
        machine
        for experiment in experiments
        for point in experiment.points
        for machine in plugin_modules(point.scenario)
    }
    found["code"] = code_digest(*sorted(used))
    return found
