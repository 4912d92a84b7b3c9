"""`ingest`, `contacts` and `export`: recorded movement of a fleet, its contacts, and files for other programs."""

import argparse
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.options import (
    Commands,
    add_command,
    add_duration,
    add_json,
    add_master,
    add_range,
    add_renamed,
    console,
    make_folder,
    metric_table,
    print_json,
    print_line,
)
from carrycast.errors import UserError

if TYPE_CHECKING:
    from carrycast.sim.contacts import ContactPlan

MANY_REJECTED = 3
"""The exit status of an ingest that rejected many rows."""


def add_commands(commands: Commands) -> None:
    """Declare `ingest`, `contacts` and `export`."""
    _add_ingest(commands)
    _add_contacts(commands)
    export = add_command(
        commands,
        "export",
        "Write the movement of a fleet for other programs.",
        "The formats are Parquet, CSV, ns-2 movement and ONE movement.",
    )
    export.add_argument("folder", type=Path, metavar="FLEET", help="a folder that `carrycast ingest` made")
    export.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="the output file: .parquet, .csv, .ns_movements or .one",
    )
    export.add_argument(
        "--format", metavar="NAME", help="parquet, csv, ns2 or one (default: by the suffix of the output file)"
    )
    export.set_defaults(command=_export)


def _add_ingest(commands: Commands) -> None:
    ingest = add_command(
        commands,
        "ingest",
        "Make a fleet from GPS logs, recorded movement or lists of contacts.",
        "Spark reads files of any known format, cleans them and writes a folder that a scenario plays. Rejected rows "
        "are kept there with the reason. Exit status: 0, or 3 if the folder is written but more than a tenth of the "
        "rows were wrong.",
    )
    ingest.add_argument("files", nargs="+", type=Path, metavar="FILE", help="CSV, GPX, GeoJSON, Parquet, FCD, ...")
    ingest.add_argument("--out", type=Path, required=True, metavar="DIR", help="the output folder, which must be new")
    ingest.add_argument("--name", dest="fleet", default="fleet", metavar="NAME", help="its name (default: fleet)")
    add_renamed(ingest, "--fleet", "--name")
    _add_format_options(ingest)
    naming = ingest.add_mutually_exclusive_group()
    naming.add_argument("--by-file", action="store_true", help="equal names in different files are different nodes")
    naming.add_argument("--by-track", action="store_true", help="each track of a GPX file is a node of its own")
    naming.add_argument("--merge", action="store_true", help="equal names in several files or tracks are one node")
    ingest.add_argument(
        "--max-speed",
        type=float,
        metavar="MPS",
        help="reject faster jumps, in meters per second (default: 70)",
    )
    ingest.add_argument(
        "--gap",
        type=float,
        metavar="SECONDS",
        help="a node without rows for longer than this is absent (default: 300)",
    )
    ingest.add_argument(
        "--from", dest="from_s", metavar="TIME", help="leave out earlier rows; TIME is a date or seconds"
    )
    ingest.add_argument("--until", dest="until_s", metavar="TIME", help="leave out the rows of this time and later")
    ingest.add_argument(
        "--every", type=float, metavar="SECONDS", help="interpolate one row for each node at this interval"
    )
    add_master(ingest)
    add_json(ingest)
    ingest.set_defaults(command=_ingest)


def _add_format_options(ingest: argparse.ArgumentParser) -> None:
    """Add the options that say how to read the files."""
    ingest.add_argument("--format", metavar="NAME", help="the format of the files (default: detected automatically)")
    ingest.add_argument("--columns", metavar="KEY=COLUMN,...", help="the names of columns, as in node=bus,time=at")
    ingest.add_argument("--header", metavar="COLUMN,...", help="the columns of CSV files that have no header line")
    ingest.add_argument("--time-format", metavar="PATTERN", help="the format of dates, as in dd/MM/yyyy HH:mm:ss")
    ingest.add_argument("--time-unit", choices=("s", "ms", "us", "ns"), help="the unit of times that are numbers")
    ingest.add_argument(
        "--time-zone", metavar="ZONE", help="the time zone of dates that name none, as in Europe/Berlin (default: UTC)"
    )
    ingest.add_argument(
        "--encoding", metavar="NAME", help="the encoding of text files that are not UTF-8, as in latin-1"
    )
    ingest.add_argument("--decimal-comma", action="store_true", help="numbers have a decimal comma")
    ingest.add_argument("--swap", action="store_true", help="the files have longitude and latitude swapped")
    ingest.add_argument("--single", action="store_true", help="a file that names no node is the log of one node")
    ingest.add_argument(
        "--crs",
        metavar="CRS",
        help="the map projection for degrees, as in EPSG:32632 (default: made for the fleet)",
    )


def _add_contacts(commands: Commands) -> None:
    contacts = add_command(
        commands,
        "contacts",
        "Compute which nodes meet, and when.",
        "The exact contacts are computed from a scenario's movement, from a trace file (CSV, ns-2 setdest, ONE "
        "movement or connections, SUMO) or from a fleet's folder, and written as a contact plan. Spark computes those "
        "of a large fleet, or of any fleet with --master.",
    )
    contacts.add_argument(
        "source", type=Path, metavar="TRACE|SCENARIO|FLEET", help="a file, or a folder that `carrycast ingest` made"
    )
    add_range(contacts)
    add_duration(contacts, "all of the movement")
    contacts.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the random seed of a scenario's movement (default: 1)"
    )
    contacts.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the output folder, for contacts.parquet"
    )
    contacts.add_argument("--page", action="store_true", help="also write a page with statistics and figures")
    contacts.add_argument(
        "--from-node", type=int, metavar="N", help="print how early other nodes can receive something from node N"
    )
    contacts.add_argument(
        "--at", type=float, default=0.0, metavar="SECONDS", help="with --from-node: the time of sending (default: 0)"
    )
    contacts.add_argument("--to-node", type=int, metavar="N", help="with --from-node: print only the time of node N")
    add_master(contacts, "the Spark master, for a fleet (default: this machine)")
    add_json(contacts)
    contacts.set_defaults(command=_contacts)


def _ingest(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.fleets import (
        CleaningRules,
        ReadOptions,
        check_time_zone,
        fleet_sentences,
        ingest,
        parse_clock,
        parse_columns,
    )
    from carrycast.analysis.spark import check_spark_installed
    from carrycast.core.settings import parse_settings

    check_spark_installed()
    cleaning = {"max_speed_mps": arguments.max_speed, "gap_s": arguments.gap, "every_s": arguments.every}
    check_time_zone(arguments.time_zone)
    for option, key in (("--from", "from_s"), ("--until", "until_s")):
        text = getattr(arguments, key)
        try:
            cleaning[key] = None if text is None else parse_clock(text, zone=arguments.time_zone)
        except ValueError:
            raise UserError(
                f"{option} {text}: is no date and no number of seconds, or a time that the time zone has twice or never"
            ) from None
    rules = parse_settings(
        {key: value for key, value in cleaning.items() if value is not None}, CleaningRules, "ingest"
    )
    source = ReadOptions(
        format=arguments.format,
        columns=parse_columns(arguments.columns),
        header=tuple(arguments.header.split(",")) if arguments.header else None,
        time_format=arguments.time_format,
        time_unit=arguments.time_unit,
        time_zone=arguments.time_zone,
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
    status = 0 if facts["status"] == "ok" else MANY_REJECTED
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

    absences = write_fleet(arguments.folder, arguments.out, arguments.format)
    if absences:
        print_line(f"{absences:,} absences are left out: the format cannot express them")
    print_line(f"fleet in {arguments.out}")
    return 0


def _contacts(arguments: argparse.Namespace) -> int:
    path = arguments.out / "contacts.parquet"
    if not (arguments.source / "fleet.json").exists() and (arguments.source / "contacts.parquet").is_file():
        # `ingest` made this folder from a list of contacts.
        arguments.source = arguments.source / "contacts.parquet"
    if arguments.source.is_dir():
        plan = _compute_fleet_plan(arguments, path)
    else:
        from carrycast.sim.scenario import read_contact_plan

        if arguments.master is not None:
            raise UserError("--master: is for a fleet's folder; `carrycast ingest` makes one of a file")
        plan = read_contact_plan(arguments.source, arguments.range_m, arguments.duration_s, arguments.seed)
        make_folder(arguments.out, "--out")
        plan.save(path)
    facts: dict[str, object] = {**plan.summary(), **_summarize_arrivals(plan, arguments)}
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


def _compute_fleet_plan(arguments: argparse.Namespace, path: Path) -> "ContactPlan":
    from carrycast.analysis.fleets import save_fleet_plan
    from carrycast.sim.mobility import FleetFacts
    from carrycast.sim.scenario import check_extent

    FleetFacts.read(arguments.source)
    if arguments.range_m is None:
        raise UserError(f"{arguments.source}: holds movement; say within what distance nodes meet, as in --range 250")
    check_extent(arguments.range_m, arguments.duration_s)
    make_folder(arguments.out, "--out")
    return save_fleet_plan(arguments.source, arguments.range_m, arguments.duration_s, path, arguments.master)


def _summarize_arrivals(plan: "ContactPlan", arguments: argparse.Namespace) -> dict[str, object]:
    """Return how early other nodes can receive from `--from-node`; nothing without that option."""
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
    arrivals_s = [float(one) for node, one in enumerate(arrival_s) if isfinite(one) and node != arguments.from_node]
    mean_s = sum(arrivals_s) / len(arrivals_s) if arrivals_s else None
    return {
        "reachable": len(arrivals_s),
        "earliest_arrival_mean_s": mean_s,
        "earliest_arrival_last_s": max(arrivals_s, default=None),
    }
