"""`ingest`, `export`: a fleet's own data, made ready to be played, and given to other programs."""

import argparse
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.options import add_json, add_master, console, make_folder, metric_table, print_json, print_line
from carrycast.errors import UserError

if TYPE_CHECKING:
    from carrycast.sim.contacts import ContactPlan

DOUBTFUL = 3
"""The exit status of an ingest that rejected many rows."""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare them."""
    ingest = commands.add_parser(
        "ingest",
        help="make a fleet of GPS logs, simulators' movement or contact lists",
        description="Read files of any known format, clean them, and write a folder that a scenario plays. What is "
        "rejected is kept there, with the reason. On Spark. Exit status: 0, or 3 if the folder is written but more "
        "than a tenth of the rows were wrong.",
    )
    ingest.add_argument("files", nargs="+", type=Path, metavar="FILE", help="CSV, GPX, GeoJSON, Parquet, FCD, ...")
    ingest.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    ingest.add_argument("--format", metavar="NAME", help="of the files (default: by their content)")
    ingest.add_argument("--columns", metavar="K=C,...", help="which column is which, as in node=bus,time=at")
    ingest.add_argument("--header", metavar="C,...", help="the columns of CSV files that have no first line of names")
    ingest.add_argument("--time-format", metavar="F", help="of dates, as in dd/MM/yyyy HH:mm:ss")
    ingest.add_argument("--time-unit", choices=("s", "ms", "us", "ns"), help="of times that are numbers")
    ingest.add_argument("--encoding", metavar="NAME", help="of text files that are not UTF-8, as in latin-1")
    ingest.add_argument("--decimal-comma", action="store_true", help="meters and times have commas before decimals")
    ingest.add_argument("--swap", action="store_true", help="the files have longitude and latitude swapped")
    ingest.add_argument("--single", action="store_true", help="a file that names no node is the log of one")
    ingest.add_argument("--crs", metavar="MAP", help="the map for degrees, as in EPSG:32632 (default: one made for it)")
    ingest.add_argument("--fleet", metavar="NAME", default="fleet", help="its name (default fleet)")
    both = ingest.add_mutually_exclusive_group()
    both.add_argument("--by-file", action="store_true", help="each file is a fleet: equal names are different nodes")
    both.add_argument("--by-track", action="store_true", help="each track of a GPX file is a node of its own")
    both.add_argument("--merge", action="store_true", help="equal names in several files or tracks are one node")
    ingest.add_argument("--max-speed", type=float, metavar="MPS", help="faster is a jump (default 70)")
    ingest.add_argument("--gap", type=float, metavar="S", help="silent for longer is absent (default 300)")
    ingest.add_argument("--from", dest="from_s", metavar="T", help="leave out what is earlier: a date or seconds")
    ingest.add_argument("--until", dest="until_s", metavar="T", help="leave out what is later, and this time itself")
    ingest.add_argument("--every", type=float, metavar="S", help="one row for each node so often, in between by line")
    add_master(ingest)
    add_json(ingest)
    ingest.set_defaults(command=_ingest)

    export = commands.add_parser(
        "export",
        help="write a fleet for other programs",
        description="Write the positions of a fleet's folder as Parquet, CSV, ns-2 movement or ONE movement.",
    )
    export.add_argument("folder", type=Path, metavar="FLEET", help="a folder that `carrycast ingest` made")
    export.add_argument("--out", type=Path, required=True, metavar="FILE", help=".parquet, .csv, .ns_movements or .one")
    export.add_argument("--format", metavar="NAME", help="parquet, csv, ns2 or one (default: by the name of the file)")
    export.set_defaults(command=_export)


def _ingest(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.fleets import (
        CleaningRules,
        ReadOptions,
        fleet_sentences,
        ingest,
        parse_clock,
        parse_columns,
    )
    from carrycast.analysis.spark import check_spark_installed
    from carrycast.core.settings import parse_settings

    check_spark_installed()
    given = {"max_speed_mps": arguments.max_speed, "gap_s": arguments.gap, "every_s": arguments.every}
    for option, key in (("--from", "from_s"), ("--until", "until_s")):
        try:
            given[key] = None if getattr(arguments, key) is None else parse_clock(getattr(arguments, key))
        except ValueError:
            raise UserError(f"{option} {getattr(arguments, key)}: is no date and no number of seconds") from None
    rules = parse_settings({key: value for key, value in given.items() if value is not None}, CleaningRules, "ingest")
    source = ReadOptions(
        format=arguments.format,
        columns=parse_columns(arguments.columns),
        header=tuple(arguments.header.split(",")) if arguments.header else None,
        time_format=arguments.time_format,
        time_unit=arguments.time_unit,
        encoding=arguments.encoding,
        decimal_comma=arguments.decimal_comma,
        swap=arguments.swap,
        single=arguments.single,
        by_track=arguments.by_track,
        crs=arguments.crs,
        fleet=arguments.fleet,
        by_file=arguments.by_file,
        merge=arguments.merge,
    )
    facts = ingest(arguments.files, arguments.out, source, rules, arguments.master)
    status = 0 if facts["status"] == "ok" else DOUBTFUL
    if arguments.json:
        print_json({"out": str(arguments.out), **facts})
        return status
    shown = ("rows", "positions", "nodes", "duration_s", "contacts", "legs", "area_m")
    console().print(metric_table({name: facts[name] for name in shown if name in facts}))
    for reason, count in facts["rejected"].items():
        print_line(f"rejected {count:,}: {reason}")
    for line in fleet_sentences(facts):
        print_line(line)
    print_line(f"fleet in {arguments.out}")
    return status


def _export(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.fleets import write_fleet

    unsaid = write_fleet(arguments.folder, arguments.out, arguments.format)
    if unsaid:
        print_line(f"{unsaid:,} absences are not in it: the format has no word for them")
    print_line(f"fleet in {arguments.out}")
    return 0


def add_contacts(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
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
        from carrycast.sim.scenario import read_contact_plan

        if arguments.master is not None:
            raise UserError("--master: is for a fleet's folder; `carrycast ingest` makes one of a file")
        plan = read_contact_plan(arguments.source, arguments.range_m, arguments.duration_s, arguments.seed)
        make_folder(arguments.out, "--out")
        plan.save(path)
    facts: dict[str, object] = {**plan.summary(), **_earliest(plan, arguments)}
    if arguments.page:
        from carrycast.analysis.fleets import write_contact_page

        fits = write_contact_page(plan, arguments.out)
    if arguments.json:
        print_json({"plan": str(path), **facts, **({"fits": fits} if arguments.page else {})})
        return 0
    print_line(str(arguments.source))
    console().print(metric_table(facts))
    print_line(f"contact plan in {path}")
    print_line(f'a scenario plays it with contacts = "{path}", relative to its folder, instead of [mobility]')
    return 0


def _of_fleet(arguments: argparse.Namespace, path: Path) -> "ContactPlan":
    from carrycast.analysis.fleets import save_fleet_plan
    from carrycast.sim.mobility import FleetFacts
    from carrycast.sim.scenario import check_extent

    FleetFacts.read(arguments.source)
    if arguments.range_m is None:
        raise UserError(f"{arguments.source}: holds movement; say within what distance nodes meet, as in --range 250")
    check_extent(arguments.range_m, arguments.duration_s)
    make_folder(arguments.out, "--out")
    return save_fleet_plan(arguments.source, arguments.range_m, arguments.duration_s, path, arguments.master)


def _earliest(plan: "ContactPlan", arguments: argparse.Namespace) -> dict[str, object]:
    """How early others can hear from a node, if that was asked."""
    from carrycast.sim.contacts import earliest_arrivals

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
