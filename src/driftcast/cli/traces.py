"""`metrics` and `explain`: what traces tell, whatever world they come from."""

import argparse
from pathlib import Path

from driftcast.cli.options import add_json, console, print_json, say, table_of


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
    metrics.add_argument("--master", metavar="URL", help="a Spark master (default: this machine)")
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


def _metrics(arguments: argparse.Namespace) -> int:
    from driftcast.pipeline.traces import judged
    from driftcast.scenario.measures import METRIC_MEANINGS

    found = judged(arguments.traces, arguments.deliveries, arguments.master)
    if arguments.json:
        print_json({"runs": [{"run": run, "metrics": metrics} for run, metrics in found.items()]})
        return 0
    for run, metrics in found.items():
        say(run)
        console().print(table_of(metrics, METRIC_MEANINGS))
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from driftcast.explain.tale import explained
    from driftcast.explain.words import told

    tale = explained(arguments.trace, arguments.event, arguments.node)
    if arguments.json:
        print_json({**asdict(tale), "possible": tale.possible})
        return 0
    for line in told(tale):
        say(line)
    return 0
