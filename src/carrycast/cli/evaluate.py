"""`compare`, `sweep`, `reproduce`, `report`, `verify`, `tour`: commands that run many simulations, on Spark."""

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.options import (
    Commands,
    add_command,
    add_json,
    add_master,
    add_out,
    add_scenario,
    console,
    parse_overrides,
    print_json,
    print_line,
    print_warnings,
)
from carrycast.cli.progress import announce_resume
from carrycast.cli.tuning import add_tune, tune_comparison, tune_experiments
from carrycast.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from carrycast.analysis.spark import Claim, Experiment, ExperimentReport, ExperimentTour, OpeningRun, VerifiedRun

PAPERS = {"000": "policy", "001": "asp", "002": "overlay", "003": "topic-holders", "004": "adaptive"}
"""The experiments by the number of their paper."""
BAR_WIDTH = 36
"""Characters of a full bar."""


def add_commands(commands: Commands) -> None:
    """Declare the commands."""
    _add_compare(commands)
    _add_sweep(commands)
    _add_reproduce(commands)

    report = add_command(commands, "report", "Write the report of the runs in a folder again.")
    _add_directory(report)
    add_master(report)
    add_json(report)
    report.set_defaults(command=_report)

    verify_runs = add_command(
        commands,
        "verify",
        "Repeat some runs of a report and compare their fingerprints.",
        "Each run is repeated with the simulator's other engine, if that covers it. The fingerprints are equal if this "
        "version of carrycast measures what the report says. Exit status: 1 if a fingerprint differs.",
    )
    _add_directory(verify_runs)
    verify_runs.add_argument(
        "--runs", type=int, default=10, metavar="N", help="the number of runs to repeat (default: 10)"
    )
    verify_runs.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the random seed that selects the runs (default: 1)"
    )
    add_json(verify_runs)
    verify_runs.set_defaults(command=_verify)

    evidence = add_command(
        commands,
        "evidence",
        "Write the page that compares the papers' statements with reports.",
        "One row for each statement of each paper, with its verdict. Exit status: 1 if a statement that is not "
        "reproduced does not say why.",
    )
    evidence.add_argument("directories", nargs="+", type=Path, metavar="REPORT", help="folders of reports")
    evidence.add_argument(
        "--out", type=Path, default=Path("out/evidence.md"), metavar="FILE", help="the page (default: out/evidence.md)"
    )
    evidence.add_argument("--html", type=Path, metavar="FILE", help="also write the page as one HTML file")
    add_json(evidence)
    evidence.set_defaults(command=_evidence)

    tour = add_command(
        commands,
        "tour",
        "Show the main result of each paper, in minutes.",
        "First, two protocols run in a network of islands; then the main figure of each paper is computed.",
    )
    add_out(tour, "out/tour")
    tour.set_defaults(command=_tour)


def _add_compare(commands: Commands) -> None:
    compare = add_command(
        commands,
        "compare",
        "Compare several protocols on one scenario.",
        "All protocols meet the same movement. The result is one table, one figure and a report.",
    )
    add_scenario(compare)
    compare.add_argument(
        "--protocols",
        default="drift,epidemic,flooding",
        metavar="PROTOCOL,...",
        help="the protocols, as in flooding,gossip:p=0.3,epidemic; the first is the reference "
        "(default: drift,epidemic,flooding)",
    )
    compare.add_argument(
        "--runs", type=int, default=10, metavar="N", help="runs of each protocol, with seeds 1 to N (default: 10)"
    )
    compare.add_argument(
        "--discovery", choices=["beacon", "oracle"], help="how nodes find links (default: the scenario's)"
    )
    add_tune(compare)
    add_out(compare, "out/compare-SCENARIO")
    compare.add_argument(
        "--latex",
        action="store_true",
        help="print the table of the comparison in LaTeX (with booktabs), and nothing else on standard output",
    )
    compare.add_argument(
        "--metrics",
        metavar="METRIC,...",
        help="the columns of --latex (default: delivery_ratio,delay_p50_s,total_bytes)",
    )
    compare.set_defaults(command=_compare)


def _add_sweep(commands: Commands) -> None:
    sweep = add_command(
        commands,
        "sweep",
        "Run the simulations of an experiment.",
        "Runs that are already in the output folder are not repeated. `carrycast report DIR` writes the report. "
        "With --vary, the experiment is a scenario and the values of some of its settings.",
    )
    sweep.add_argument(
        "experiment",
        metavar="EXPERIMENT",
        help="a name (see carrycast experiments) or a TOML file; with --vary a scenario",
    )
    sweep.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="KEY=VALUES",
        help="run all combinations, as in --vary radio.range_m=100,200,300 --vary protocol=flooding,epidemic",
    )
    sweep.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="with --vary: replace a setting at every point"
    )
    _add_size(sweep)
    add_out(sweep, "out/sweep")
    sweep.set_defaults(command=_sweep)


def _add_reproduce(commands: Commands) -> None:
    reproduce = add_command(
        commands,
        "reproduce",
        "Run experiments and write their report.",
        "The report has the figures, and says which claims hold.",
    )
    reproduce.add_argument(
        "experiments",
        nargs="*",
        metavar="EXPERIMENT[/FIGURE]",
        help="names, paper numbers or TOML files (default: all experiments)",
    )
    _add_size(reproduce)
    reproduce.add_argument("--require-claims", action="store_true", help="exit with status 1 if a claim fails")
    add_tune(reproduce)
    add_out(reproduce, "out/reproduce")
    reproduce.set_defaults(command=_reproduce)


def _add_size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="do fewer runs and points: minutes instead of hours")
    parser.add_argument("--runs", type=int, metavar="N", help="runs at each point (default: the experiment's)")


def _add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="the output folder of sweep, reproduce, compare or tour"
    )


def _compare(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.spark import compare
    from carrycast.sim.scenario import parse_protocols

    columns = _latex_columns(arguments)
    out = Path(str(arguments.out).replace("SCENARIO", arguments.scenario.stem))
    with announce_resume(out):
        found = compare(
            arguments.scenario,
            tune_comparison(arguments, parse_protocols(arguments.protocols), out),
            out,
            arguments.runs,
            arguments.master,
            None if arguments.discovery is None else {"mode": arguments.discovery},
            quiet=arguments.json or arguments.quiet,
            settings=parse_overrides(arguments),
        )
    _print_reasons(found.report.reasons)
    # Without --json, compare has printed the warnings before the runs.
    print_warnings(found.report.warnings, not arguments.json or arguments.quiet)
    if arguments.json:
        print_json(found.as_row())
    elif found.report.failed == found.report.runs:
        return 1
    elif columns:
        from carrycast.analysis.reports import latex_table

        sys.stdout.write(latex_table([*found.rows(), *found.one_rows()], columns))
    else:
        for table in found.tables(console().width):
            console().print(table)
        print_line(f"picture {found.picture}")
        print_line(f"report  {found.report.page}")
        for line in found.sentences:
            print_line(line)
    return 1 if found.report.failed else 0


def _latex_columns(arguments: argparse.Namespace) -> list[str]:
    """The metrics of the LaTeX table; none if no such table is wanted. They are checked before the runs."""
    from carrycast.analysis.spark import compared_metrics
    from carrycast.api import PAPER_METRICS
    from carrycast.trace import ONE_METRICS

    if not arguments.latex:
        if arguments.metrics is not None:
            raise UserError("--metrics: goes with --latex; every metric is in the table without --latex")
        return []
    if arguments.json:
        raise UserError("--latex: print either the LaTeX table or --json")
    columns = list(PAPER_METRICS) if arguments.metrics is None else arguments.metrics.split(",")
    for metric in columns:
        if metric not in {*compared_metrics(), *ONE_METRICS}:
            raise UserError(f"--metrics: {metric!r} is none of {', '.join(compared_metrics())}")
    return columns


def _sweep(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.spark import failure_lines, read_stored_warnings, sweep_experiment

    experiment, out = _load_experiment(arguments), arguments.out
    with announce_resume(out):
        records = sweep_experiment(experiment, out, arguments.master, arguments.json or arguments.quiet)
    done, failed = len(records), sum(record["error"] is not None for record in records)
    _print_reasons(failure_lines(records))
    warnings = read_stored_warnings(out, experiment)
    print_warnings(warnings, not arguments.json or arguments.quiet)
    if arguments.json:
        print_json({"out": str(arguments.out), "runs": done, "failed": failed, "warnings": warnings})
    else:
        print_line(f"{done} runs in {arguments.out}, {failed} failed")
        print_line(f"next: carrycast report {arguments.out}")
    return 1 if failed else 0


def _load_experiment(arguments: argparse.Namespace) -> "Experiment":
    """Load an experiment by its name or file, or make one from a scenario and `--vary`."""
    from carrycast.analysis.spark import check_reports_installed, load_experiment, vary_scenario

    if not arguments.vary:
        if arguments.set:
            raise UserError("--set: goes with --vary; the settings of an experiment stand in its file")
        experiment = load_experiment(_experiment_name(arguments.experiment), arguments.quick, arguments.runs)
    elif arguments.quick:
        raise UserError("--quick: is for experiments; with --vary say how many runs: --runs N")
    else:
        experiment = vary_scenario(Path(arguments.experiment), arguments.vary, arguments.set, arguments.runs)
    check_reports_installed()
    return experiment


def _reproduce(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.spark import (
        LazySession,
        experiment_names,
        load_experiment,
        reproduce,
        reproduce_experiments,
    )

    names = [_experiment_name(name) for name in arguments.experiments] or experiment_names()
    if not arguments.experiments and not (arguments.quick or arguments.runs or arguments.json or arguments.quiet):
        _print_reasons(
            ["all experiments with all their runs take many hours; --quick takes minutes, Ctrl-C keeps what is done"]
        )
    quiet = arguments.json or arguments.quiet
    with announce_resume(arguments.out):
        if arguments.tune:
            loaded = [load_experiment(name, arguments.quick, arguments.runs) for name in dict.fromkeys(names)]
            tuned = tune_experiments(arguments, loaded)
            found = reproduce_experiments(tuned, arguments.out, LazySession(arguments.master), quiet)
        else:
            found = reproduce(names, arguments.out, arguments.quick, arguments.runs, arguments.master, quiet=quiet)
    print_warnings(found.warnings, not arguments.json or arguments.quiet)
    _print_report(found, arguments.json)
    if found.failed:
        return 1
    return 1 if arguments.require_claims and any(claim.holds is False for claim in found.claims) else 0


def _report(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.spark import report

    if not arguments.directory.is_dir():
        raise UserError(f"{arguments.directory}: there is no such directory")
    found = report(arguments.directory, arguments.master)
    print_warnings(found.warnings, arguments.quiet)
    _print_report(found, arguments.json)
    return 1 if found.failed else 0


def _verify(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.spark import progress, sample_runs, verify_runs

    if not arguments.directory.is_dir():
        raise UserError(f"{arguments.directory}: there is no such directory")
    if arguments.runs < 1:
        raise UserError("--runs: at least 1")
    chosen = sample_runs(arguments.directory, arguments.runs, arguments.seed)
    found: list[VerifiedRun] = []
    with progress("verify", len(chosen), lambda: len(found), arguments.json or arguments.quiet):
        for one in verify_runs(arguments.directory, chosen):
            found.append(one)
    other = [one for one in found if not one.same]
    for one in other:
        why = "another fingerprint" if one.error is None else one.error.strip().splitlines()[-1]
        _print_reasons([f"{one.experiment}: {one.point}, seed {one.seed}: {why}"])
    if arguments.json:
        rows = [
            {
                "experiment": one.experiment,
                "point": one.point,
                "seed": one.seed,
                "engine": one.engine,
                "same": one.same,
            }
            for one in found
        ]
        print_json({"runs": rows, "same": len(found) - len(other)})
    else:
        print_line(f"{len(found) - len(other)} of {len(found)} runs came out the same, to the last byte")
    return 1 if other else 0


def _evidence(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.evidence import (
        evidence_html,
        evidence_markdown,
        join_statements,
        read_claims,
        read_statements,
    )
    from carrycast.analysis.spark import write_atomically

    found = join_statements(read_statements(), read_claims(arguments.directories))
    pages = [(arguments.out, evidence_markdown)] + ([(arguments.html, evidence_html)] if arguments.html else [])
    for path, render in pages:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, render(found).encode())
    unexplained = [(one.paper.paper, statement) for one in found for statement in one.without_cause()]
    _print_reasons(
        [f"{paper}, {one.where}: {one.text}: is not reproduced, and no cause is given" for paper, one in unexplained]
    )
    if arguments.json:
        counts = {one.paper.paper: {verdict.value: count for verdict, count in one.counts().items()} for one in found}
        print_json({"papers": counts, "without_cause": len(unexplained), "page": str(arguments.out)})
    elif not arguments.quiet:
        print_line(f"{sum(len(one.rows) for one in found)} statements: {arguments.out}")
    return 1 if unexplained else 0


def _experiment_name(name: str) -> str:
    """Return the name of an experiment that is given by its name or by the number of its paper."""
    paper, slash, figure = name.partition("/")
    return PAPERS.get(paper, paper) + slash + figure


def _print_reasons(reasons: list[str]) -> None:
    """Print reasons of failures on standard error, also with `--json`."""
    for line in reasons:
        print(f"carrycast: {line}", file=sys.stderr)


def _print_report(found: "ExperimentReport", as_json: bool) -> None:
    from carrycast.analysis.spark import stop_sentence

    _print_reasons(found.reasons)
    if as_json:
        print_json(found.as_row())
        return
    for means in found.means:
        print_line(means.title)
        console().print(means.table())
        print_line(f"{means.rest}\n")
    if found.claims:
        console().print(_claims_table(found.claims))
        print_line("the whole 95 % interval decides; undecided: a part of it agrees, and more runs may tell")
    for name, counted in found.stopping.items():
        print_line(f"runs of {name}: {stop_sentence(counted)}")
    if found.failed:
        console().print(f"[bold red]{found.failed} of {found.runs} runs failed[/bold red]; the report names each")
    print_line(f"report {found.page}")


def _claims_table(claims: "list[Claim]") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    from carrycast.analysis.reports import interval_texts

    table = Table(title="Claims", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("", "claim", "ours", "95 % interval"):
        table.add_column(column, justify="right" if column == "ours" else "left")
    marks = {True: "[green]holds[/green]", False: "[red]fails[/red]", None: "[yellow]undecided[/yellow]"}
    for claim in claims:
        alone = "" if claim.holds is claim.together else " [dim]alone[/dim]"
        mark = "[dim]calibration[/dim]" if claim.calibration else marks[claim.holds] + alone
        ours, low, high = interval_texts(claim.ours, claim.low, claim.high)
        table.add_row(mark, escape(claim.statement), ours, "" if claim.low is None else f"{low} to {high}")
    return table


def _tour(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.spark import check_spark_installed, run_opening, run_tour

    check_spark_installed()
    out: Path = arguments.out
    with announce_resume(out):
        opening = run_opening(out)
        if not arguments.json:
            _print_opening(opening)
        found = run_tour(out, arguments.master, quiet=arguments.json or arguments.quiet)
    _print_reasons(found.report.reasons)
    if arguments.json:
        print_json({**found.report.as_row(), "islands": str(opening.page)})
    else:
        _print_tour(found, opening)
    return 1 if found.report.failed else 0


def _print_opening(opening: "OpeningRun") -> None:
    """Print the first result, before the runs that take minutes."""
    print_line(f"{opening.nodes} nodes that meet and part: the network is always partitioned. Share delivered:\n")
    console().print(_bar_chart(opening))
    print_line(f"\nwatch both protocols on the same movement: {opening.page}")
    print_line("next: the main result of each paper, in a minute or two\n")
    sys.stdout.flush()


def _bar_chart(opening: "OpeningRun") -> "Table":
    from rich.markup import escape
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for protocol, share in opening.shares.items():
        bar = ProgressBar(total=1.0, completed=share, width=BAR_WIDTH)
        table.add_row(f"  {escape(protocol)}", bar, f"{share:.0%} of those interested")
    return table


def _print_tour(found: "ExperimentTour", opening: "OpeningRun") -> None:
    for title, table in found.tables():
        print_line(title)
        console().print(table)
        print_line("")
    claims = [claim.holds for claim in found.report.claims if not claim.calibration]
    if claims:
        counts = f"{claims.count(True)} hold, {claims.count(False)} fail, {claims.count(None)} are undecided"
        print_line(f"claims about these: {counts} with so few runs")
    if found.report.failed:
        print_line(f"{found.report.failed} of {found.report.runs} runs failed; the report names each")
    command = _own_command()
    print_line("next:")
    for what, why in (
        (f"open {opening.page}", "watch islands meet and events spread"),
        (f"open {found.report.page}", "every figure, claim and setting of this tour"),
        (f"{command} new scenario mine", "a scenario of your own, to begin with"),
        (f"{command} compare mine.toml --protocols flooding,epidemic", "who serves it best"),
        (f"{command} reproduce 004 --quick", "one paper, all its figures"),
    ):
        print_line(f"  {what}\n      {why}")


def _own_command() -> str:
    """Return the command that the user can type. `make run` calls carrycast by its path, which PATH may not have."""
    called = Path(sys.argv[0])
    return "carrycast" if called.name != "carrycast" or shutil.which("carrycast") else str(called)
