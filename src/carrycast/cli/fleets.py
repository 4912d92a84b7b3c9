"""`ingest`, `export`: a fleet's own data, made ready to be played, and given to other programs."""

import argparse
from pathlib import Path

from carrycast.cli.options import add_json, add_master, console, print_json, say, table_of
from carrycast.errors import UserError

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
    from carrycast.analysis.fleets.cleaning import CleaningRules
    from carrycast.analysis.fleets.columns import parse_columns
    from carrycast.analysis.fleets.ingest import ingest
    from carrycast.analysis.fleets.inputs import ReadOptions
    from carrycast.analysis.fleets.points import parse_clock
    from carrycast.analysis.fleets.summary import sentences
    from carrycast.analysis.spark.session import check_spark_installed
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
    console().print(table_of({name: facts[name] for name in shown if name in facts}))
    for reason, count in facts["rejected"].items():
        say(f"rejected {count:,}: {reason}")
    for line in sentences(facts):
        say(line)
    say(f"fleet in {arguments.out}")
    return status


def _export(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.fleets.writers import write_fleet

    unsaid = write_fleet(arguments.folder, arguments.out, arguments.format)
    if unsaid:
        say(f"{unsaid:,} absences are not in it: the format has no word for them")
    say(f"fleet in {arguments.out}")
    return 0
