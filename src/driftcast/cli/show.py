"""`show`: a run as a page that moves."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from driftcast.cli.options import add_json, print_json, say
from driftcast.errors import UserError, WorkError

if TYPE_CHECKING:
    from driftcast.scenario.scenario import Scenario


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare it."""
    show = commands.add_parser(
        "show",
        help="watch a run: one HTML page on which nodes move",
        description="Simulate a scenario, or take a trace, and write one HTML file that plays it: nodes, links, "
        "islands, and each event on its way. The file needs no network; open it in any browser.",
    )
    show.add_argument("source", type=Path, metavar="SCENARIO|TRACE", help="a scenario file (TOML), or a trace's folder")
    show.add_argument(
        "--protocol",
        metavar="P[,P2]",
        help="instead of the scenario's; two stand side by side on the same movement",
    )
    show.add_argument("--seed", type=int, metavar="N", help="of the run (default 1)")
    show.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="replace a setting of a scenario")
    show.add_argument("--out", type=Path, metavar="FILE", help="where the page goes (default out/show-NAME.html)")
    add_json(show)
    show.set_defaults(command=_show)


def _show(arguments: argparse.Namespace) -> int:
    from driftcast.player import player_of_scenario, player_of_trace

    source: Path = arguments.source
    out: Path = arguments.out or Path("out") / f"show-{source.resolve().stem}.html"
    if out.is_dir():
        raise UserError(f"--out {out}: is a folder; give the name of a file, such as {out / 'player.html'}")
    if source.suffix == ".toml":
        text = player_of_scenario(_scenarios(arguments), 1 if arguments.seed is None else arguments.seed)
    else:
        if arguments.protocol is not None or arguments.seed is not None or arguments.set:
            raise UserError(f"{source}: a trace is shown as it was; --protocol, --seed and --set are for scenarios")
        text = player_of_trace(source)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WorkError(f"{out}: the page cannot be written: {error.strerror or error}") from None
    if arguments.json:
        print_json({"page": str(out), "size_bytes": len(text.encode())})
    else:
        say(f"page {out} ({len(text) / 1e6:.1f} MB); open it in a browser")
    return 0


def _scenarios(arguments: argparse.Namespace) -> "dict[str, Scenario]":
    """The scenario under each protocol, by the protocol's label."""
    from driftcast.scenario.overrides import apply, chosen_scenario, parse_assignment
    from driftcast.scenario.protocol_text import parse_protocols, protocol_label
    from driftcast.scenario.scenario import load

    settings = dict(parse_assignment(text) for text in arguments.set)
    if arguments.protocol is None:
        scenario = chosen_scenario(arguments.source, None, settings)
        return {protocol_label(scenario.protocol): scenario}
    protocols = parse_protocols(arguments.protocol, "--protocol")
    if len(protocols) > 2:
        raise UserError(f"--protocol: the page shows at most two protocols, not {len(protocols)}")
    scenario = load(arguments.source)
    return {
        protocol_label(protocol): apply(apply(scenario, {"protocol": protocol}, "--protocol"), settings)
        for protocol in protocols
    }
