"""`metrics`, `explain` and `sql`: commands that read the traces of simulated, emulated and live runs."""

import argparse
from pathlib import Path

from carrycast.cli.options import (
    Commands,
    add_command,
    add_json,
    add_master,
    add_renamed,
    console,
    metric_table,
    print_json,
    print_line,
    value_text,
)
from carrycast.errors import UserError


def add_commands(commands: Commands) -> None:
    """Declare `metrics`, `explain` and `sql`."""
    metrics = add_command(
        commands,
        "metrics",
        "Compute the metrics of runs from their traces.",
        "Spark computes them. The traces of all nodes of a live network are one run, whose name is in the "
        "configurations of the nodes.",
    )
    metrics.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="a trace, or a folder with traces")
    metrics.add_argument(
        "--level",
        choices=["deliveries", "full"],
        default="full",
        help="deliveries: only the metrics of deliveries, which traces of that level have (default: full)",
    )
    add_renamed(metrics, "--deliveries", "--level deliveries")
    metrics.add_argument(
        "--metrics-from",
        dest="files",
        action="append",
        default=[],
        type=Path,
        metavar="FILE.py",
        help="also compute the metrics of this file: functions decorated by @carrycast.analysis.spark.metric('name'); "
        "may be given several times",
    )
    add_renamed(metrics, "--from", "--metrics-from")
    metrics.add_argument("--minutes", action="store_true", help="compute them for each minute, as `watch` does")
    add_master(metrics)
    add_json(metrics)
    metrics.set_defaults(command=_metrics)

    explain = add_command(
        commands,
        "explain",
        "Explain why an event reached a node, or did not.",
        "The timeline of the event shows which nodes held it and when, where it could have been forwarded, where the "
        "last copy was lost, and whether any protocol could have delivered it. It needs a trace of level full.",
    )
    explain.add_argument("trace", type=Path, metavar="TRACE", help="a trace, or the folder of a live network's traces")
    explain.add_argument("event", metavar="EVENT", help="the id of the event, as SOURCE:NUMBER")
    explain.add_argument("node", type=int, metavar="NODE", help="the number of the node")
    add_json(explain)
    explain.set_defaults(command=_explain)
    _add_sql(commands)


def _add_sql(commands: Commands) -> None:
    sql = add_command(
        commands,
        "sql",
        "Query runs and traces in SQL.",
        "Spark runs the query over the views runs, trace, events, subscriptions and metrics. docs/traces.md describes "
        "their columns.",
    )
    sql.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="folders from sweep or run --trace")
    sql.add_argument(
        "question", metavar="QUERY", help='the query, such as "select kind, count(*) from trace group by kind"'
    )
    sql.add_argument("--most", type=int, default=1000, metavar="N", help="show at most N rows (default: 1000)")
    add_master(sql)
    add_json(sql)
    sql.set_defaults(command=_sql)


def _metrics(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.spark import load_metrics, metrics_of_traces
    from carrycast.sim.scenario import metric_meanings

    if arguments.minutes:
        return _print_minutes(arguments)
    own = load_metrics(arguments.files)
    found = metrics_of_traces(arguments.traces, arguments.level == "deliveries", arguments.master, own)
    meanings = {**metric_meanings(), **{one.name: one.meaning for one in own}}
    if arguments.json:
        print_json({"runs": [{"run": run, "metrics": metrics} for run, metrics in found.items()]})
        return 0
    for run, metrics in found.items():
        print_line(run)
        console().print(metric_table(metrics, meanings))
    return 0


def _print_minutes(arguments: argparse.Namespace) -> int:
    if arguments.files:
        raise UserError("--metrics-from: metrics of your own are of whole runs; leave --minutes out")
    from carrycast.analysis.telemetry import compute_minutes, minutes_table

    minutes = compute_minutes(arguments.traces, arguments.level == "deliveries", arguments.master)
    if arguments.json:
        print_json({"minutes": minutes})
    else:
        console().print(minutes_table(minutes))
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from carrycast.analysis.explain import event_timeline, timeline_lines

    timeline = event_timeline(arguments.trace, arguments.event, arguments.node)
    if arguments.json:
        print_json({**asdict(timeline), "possible": timeline.possible})
        return 0
    for line in timeline_lines(timeline):
        print_line(line)
    return 0


def _sql(arguments: argparse.Namespace) -> int:
    from rich.markup import escape
    from rich.table import Table

    from carrycast.analysis.spark import fetch_rows, run_query, session

    if arguments.most < 1:
        raise UserError(f"--most {arguments.most}: at least one row is shown")
    found = run_query(arguments.directories, arguments.question, lambda: session("carrycast", arguments.master))
    rows, more = fetch_rows(found, arguments.most)
    if arguments.json:
        print_json({"columns": found.columns, "rows": rows, "more": more})
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in found.columns:
        table.add_column(escape(column))
    for row in rows:
        table.add_row(*(escape(value_text(value)) for value in row))
    console().print(table)
    if more:
        print_line(f"there are more rows than these {arguments.most}: say --most N")
    return 0
