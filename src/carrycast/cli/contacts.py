"""`contacts`: who meets whom when, and what that says of the network."""

import argparse
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.options import add_json, add_master, console, new_folder, print_json, say, table_of
from carrycast.errors import UserError

if TYPE_CHECKING:
    from carrycast.sim.contacts.plan import ContactPlan


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare it."""
    contacts = commands.add_parser(
        "contacts",
        help="who meets whom when, from a scenario, a movement trace or a fleet",
        description="Compute exact contacts from a scenario's movement, from a trace file (CSV, ns-2 setdest, ONE "
        "movement or connections, SUMO) or from a fleet's folder, and write them as a contact plan. A large fleet, or "
        "one with --master, is computed on Spark.",
    )
    contacts.add_argument("source", type=Path, metavar="TRACE|SCENARIO|FLEET")
    contacts.add_argument("--range", type=float, dest="range_m", metavar="M", help="meters within which nodes meet")
    contacts.add_argument("--duration", type=float, dest="duration_s", metavar="S", help="seconds (default: all)")
    contacts.add_argument("--seed", type=int, default=1, metavar="N", help="for a scenario's movement (default 1)")
    contacts.add_argument("--out", type=Path, required=True, metavar="DIR", help="writes contacts.parquet there")
    contacts.add_argument("--page", action="store_true", help="write statistics with pictures there, too")
    contacts.add_argument("--from-node", type=int, metavar="N", help="say how early all others can hear from this node")
    contacts.add_argument("--at", type=float, default=0.0, metavar="S", help="what it has from then on (default 0)")
    contacts.add_argument("--to-node", type=int, metavar="N", help="only this one")
    add_master(contacts, "a Spark master, for a fleet")
    add_json(contacts)
    contacts.set_defaults(command=_contacts)


def _contacts(arguments: argparse.Namespace) -> int:
    path = arguments.out / "contacts.parquet"
    if not (arguments.source / "fleet.json").exists() and (arguments.source / "contacts.parquet").is_file():
        # The folder that an ingest made of a list of contacts.
        arguments.source = arguments.source / "contacts.parquet"
    if arguments.source.is_dir():
        plan = _of_fleet(arguments, path)
    else:
        from carrycast.sim.scenario.movement import read_contact_plan

        if arguments.master is not None:
            raise UserError("--master: is for a fleet's folder; `carrycast ingest` makes one of a file")
        plan = read_contact_plan(arguments.source, arguments.range_m, arguments.duration_s, arguments.seed)
        new_folder(arguments.out, "--out")
        plan.save(path)
    facts: dict[str, object] = {**plan.summary(), **_earliest(plan, arguments)}
    if arguments.page:
        from carrycast.analysis.fleets.page import write_contact_page

        fits = write_contact_page(plan, arguments.out)
    if arguments.json:
        print_json({"plan": str(path), **facts, **({"fits": fits} if arguments.page else {})})
        return 0
    say(str(arguments.source))
    console().print(table_of(facts))
    say(f"contact plan in {path}")
    say(f'a scenario plays it with contacts = "{path}", relative to its folder, instead of [mobility]')
    return 0


def _of_fleet(arguments: argparse.Namespace, path: Path) -> "ContactPlan":
    from carrycast.analysis.fleets.contacts import save_fleet_plan
    from carrycast.sim.mobility.fleet import FleetFacts
    from carrycast.sim.scenario.movement import check_extent

    FleetFacts.read(arguments.source)
    if arguments.range_m is None:
        raise UserError(f"{arguments.source}: holds movement; say within what distance nodes meet, as in --range 250")
    check_extent(arguments.range_m, arguments.duration_s)
    new_folder(arguments.out, "--out")
    return save_fleet_plan(arguments.source, arguments.range_m, arguments.duration_s, path, arguments.master)


def _earliest(plan: "ContactPlan", arguments: argparse.Namespace) -> dict[str, object]:
    """How early others can hear from a node, if that was asked."""
    from carrycast.sim.contacts.statistics import earliest_arrivals

    if arguments.from_node is None:
        if arguments.to_node is not None:
            raise UserError("--to-node: give --from-node, too")
        return {}
    arrival_s = earliest_arrivals(plan, arguments.from_node, arguments.at)
    if arguments.to_node is not None:
        if not 0 <= arguments.to_node < plan.nodes:
            raise UserError(f"there is no node {arguments.to_node}; they are 0 to {plan.nodes - 1}")
        found = float(arrival_s[arguments.to_node])
        return {"earliest_arrival_s": found if isfinite(found) else None}
    there = [float(one) for node, one in enumerate(arrival_s) if isfinite(one) and node != arguments.from_node]
    mean_s = sum(there) / len(there) if there else None
    return {
        "reachable": len(there),
        "earliest_arrival_mean_s": mean_s,
        "earliest_arrival_last_s": max(there, default=None),
    }
