"""`metrics`, `explain`, `sql`: they read traces of every environment."""

import argparse
from pathlib import Path

from carrycast.cli.options import add_json, add_master, console, metric_table, print_json, print_line, value_text
from carrycast.errors import UserError


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare them."""
    metrics = commands.add_parser(
        "metrics",
        help="judge traces, simulated or live",
        description="Compute the metrics of every run in some traces, on Spark. The traces that the nodes of one live "
        "network wrote are one run, by the name that their configurations give it.",
    )
    metrics.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="a trace, or a folder with traces")
    metrics.add_argument(
        "--deliveries", action="store_true", help="only what deliveries tell; enough for traces of that level"
    )
    metrics.add_argument(
        "--from",
        dest="files",
        action="append",
        default=[],
        type=Path,
        metavar="FILE.py",
        help="metrics of your own besides: functions with @carrycast.analysis.spark.metric('name') above them",
    )
    metrics.add_argument("--minutes", action="store_true", help="minute by minute, as `carrycast watch` has it")
    add_master(metrics)
    add_json(metrics)
    metrics.set_defaults(command=_metrics)

    explain = commands.add_parser(
        "explain",
        help="why an event came to a node, or did not",
        description="Tell the story of one event for one node: who held it when, where it could have gone, where the "
        "last copy ended, and whether any protocol could have delivered it. Wants a trace of level full.",
    )
    explain.add_argument("trace", type=Path, metavar="TRACE", help="a trace, or the folder of a live network's traces")
    explain.add_argument("event", metavar="EVENT", help="the event, as SOURCE:NUMBER")
    explain.add_argument("node", type=int, metavar="NODE", help="the number of the node")
    add_json(explain)
    explain.set_defaults(command=_explain)

    sql = commands.add_parser(
        "sql",
        help="ask what runs and traces hold, in SQL",
        description="Ask in SQL what folders hold, on Spark: the views runs, trace, events and subscriptions. "
        "docs/traces.md describes them.",
    )
    sql.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="what sweep, or run --trace, wrote")
    sql.add_argument("question", metavar="QUESTION", help='such as "select kind, count(*) from trace group by kind"')
    sql.add_argument("--most", type=int, default=1000, metavar="N", help="rows that are shown (default 1000)")
    add_master(sql)
    add_json(sql)
    sql.set_defaults(command=_sql)


def _metrics(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.spark import load_metrics, metrics_of_traces
    from carrycast.sim.scenario import metric_meanings

    if arguments.minutes:
        return _minutes(arguments)
    own = load_metrics(arguments.files)
    found = metrics_of_traces(arguments.traces, arguments.deliveries, arguments.master, own)
    meanings = {**metric_meanings(), **{one.name: one.meaning for one in own}}
    if arguments.json:
        print_json({"runs": [{"run": run, "metrics": metrics} for run, metrics in found.items()]})
        return 0
    for run, metrics in found.items():
        print_line(run)
        console().print(metric_table(metrics, meanings))
    return 0


def _minutes(arguments: argparse.Namespace) -> int:
    if arguments.files:
        raise UserError("--from: metrics of your own are of whole runs; leave --minutes out")
    from carrycast.analysis.telemetry import compute_minutes, minutes_table

    minutes = compute_minutes(arguments.traces, arguments.deliveries, arguments.master)
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
