"""`show`: a page that plays a run, or shows a live network."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.options import Commands, add_command, add_json, add_set, parse_overrides, print_json, print_line
from carrycast.cli.progress import show_progress
from carrycast.errors import UserError, WorkError

if TYPE_CHECKING:
    from carrycast.sim.scenario import Scenario


def add_commands(commands: Commands) -> None:
    """Declare `show`."""
    show = add_command(
        commands,
        "show",
        "Write an HTML page that plays a run.",
        "The page shows nodes, links, islands and the path of each event. The run is a simulated scenario or a trace. "
        "The page needs no network; open it in any browser. With --live it shows a live network.",
    )
    show.add_argument(
        "source",
        nargs="?",
        type=Path,
        metavar="SCENARIO|TRACE|REPORT",
        help="a scenario (TOML), or the folder of a trace or a report",
    )
    show.add_argument(
        "--live",
        nargs="+",
        metavar="ADDRESS",
        help="show a live network, by the control channels of its nodes: serve a local page until Ctrl-C",
    )
    show.add_argument("--port", type=int, metavar="N", help="with --live: the port of the page (default: a free one)")
    show.add_argument(
        "--protocol",
        metavar="PROTOCOL[,PROTOCOL]",
        help="run this protocol instead of the scenario's; two are shown side by side on the same movement",
    )
    show.add_argument("--experiment", metavar="NAME", help="the experiment to show, of a report that has several")
    show.add_argument("--seed", type=int, metavar="N", help="the random seed; equal seeds give equal runs (default: 1)")
    add_set(show)
    show.add_argument("--out", type=Path, metavar="FILE", help="the output file (default: out/show-NAME.html)")
    add_json(show)
    show.set_defaults(command=_show)


def _show(arguments: argparse.Namespace) -> int:
    if arguments.live is not None:
        return _show_live(arguments)
    if arguments.source is None:
        raise UserError("show: name a scenario or a trace, or the control channels of live nodes with --live")
    if arguments.port is not None:
        raise UserError("--port: is for --live; a scenario or a trace becomes a file")
    from carrycast.analysis.player import player_of_scenario, player_of_trace

    source: Path = arguments.source
    out: Path = arguments.out or Path("out") / f"show-{source.resolve().stem}.html"
    if out.is_dir():
        raise UserError(f"--out {out}: is a folder; give the name of a file, such as {out / 'player.html'}")
    if arguments.experiment is not None or (source / "experiments").is_dir():
        return _show_report(arguments)
    if source.suffix == ".toml":
        quiet = arguments.json or arguments.quiet
        text = player_of_scenario(
            _resolve_scenarios(arguments),
            1 if arguments.seed is None else arguments.seed,
            lambda scenario: show_progress(scenario.duration_s, quiet),
        )
    else:
        if arguments.protocol is not None or arguments.seed is not None or arguments.set:
            raise UserError(f"{source}: a trace is shown as it was; --protocol, --seed and --set are for scenarios")
        text = player_of_trace(source)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WorkError(f"{out}: the page cannot be written: {error.strerror or error}") from None
    _print_page(out, arguments.json)
    return 0


def _print_page(page: Path, as_json: bool) -> None:
    size_bytes = page.stat().st_size
    if as_json:
        print_json({"page": str(page), "size_bytes": size_bytes})
    else:
        size = f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.0f} kB"
        print_line(f"page {page} ({size}); open it in a browser")


def _show_report(arguments: argparse.Namespace) -> int:
    """Write the page of a report's experiment."""
    from carrycast.analysis.spark import make_player, read_runs, read_stored_experiments

    source: Path = arguments.source
    given = (arguments.protocol, arguments.seed, arguments.out)
    if arguments.set or any(one is not None for one in given):
        raise UserError(f"{source}: of a report its own runs are shown; --protocol, --seed, --set and --out are no use")
    found = {experiment.name: experiment for experiment in read_stored_experiments(source)}
    name = arguments.experiment if arguments.experiment is not None or len(found) > 1 else next(iter(found))
    if name not in found:
        raise UserError(f"--experiment: name one of {', '.join(sorted(found))}")
    _print_page(make_player(found[name], read_runs(source), source), arguments.json)
    return 0


def _show_live(arguments: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    given = (arguments.source, arguments.protocol, arguments.seed, arguments.out, arguments.experiment)
    if arguments.set or any(one is not None for one in given):
        raise UserError("--live: takes control channels and --port, and nothing of a scenario or a trace")
    if arguments.port is not None and not 0 <= arguments.port <= 65535:
        raise UserError(f"--port: 0 to 65535, not {arguments.port}")
    from carrycast.analysis.live_page import PageServer, Watchers

    watchers = Watchers(arguments.live)
    with PageServer(watchers, _title(arguments.live), arguments.port or 0) as server:
        watchers.start()
        try:
            if arguments.json:
                print_json({"page": server.address})
            else:
                print_line(f"page {server.address}; open it in a browser; Ctrl-C ends it")
            sys.stdout.flush()
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
        finally:
            watchers.stop()
    return 0


def _title(addresses: list[str]) -> str:
    return f"{len(addresses)} live nodes" if len(addresses) > 1 else f"the live node at {addresses[0]}"


def _resolve_scenarios(arguments: argparse.Namespace) -> "dict[str, Scenario]":
    """Return the scenario with each of the protocols, by the protocol's label."""
    from carrycast.sim.scenario import (
        apply_overrides,
        load_scenario,
        parse_protocols,
        protocol_label,
        resolve_scenario,
    )

    settings = parse_overrides(arguments)
    if arguments.protocol is None:
        scenario = resolve_scenario(arguments.source, None, settings)
        return {protocol_label(scenario.protocol): scenario}
    protocols = parse_protocols(arguments.protocol, "--protocol")
    if len(protocols) > 2:
        raise UserError(f"--protocol: the page shows at most two protocols, not {len(protocols)}")
    scenario = load_scenario(arguments.source)
    return {
        protocol_label(protocol): apply_overrides(
            apply_overrides(scenario, {"protocol": protocol}, "--protocol"), settings
        )
        for protocol in protocols
    }
