"""`new`: make a working plug-in, scenario, workload, experiment or node configuration from a template.

A protocol is a folder, to be placed beside the built-in ones or on the search path. A plug-in of another kind is a
small Python package: a module, its test, and a `pyproject.toml` with the entry point by which carrycast finds it.
"""

import argparse
import keyword
import os
import re
from collections.abc import Mapping
from pathlib import Path

from carrycast.cli.options import Commands, add_command, add_renamed, make_folder, print_line
from carrycast.errors import UserError

FILES = {
    "__init__.py": "init.txt",
    "protocol.py": "protocol.txt",
    "README.md": "readme.txt",
    "test_{name}.py": "test.txt",
}


PACKAGED = {
    "router": "routers",
    "service": "services",
    "movement-model": "movement_models",
    "radio": "radios",
    "metric": "metrics",
    "link-adapter": "link_adapters",
    "gateway": "gateways",
    "file-format": "file_formats",
}
"""The kinds of plug-ins that are made as packages: the word on the command line, and the name of the kind."""

RANGE_M = 250.0
"""The radio range of a scenario that plays recorded movement: vehicles with 802.11, as in docs/fleets.md."""
LONGEST_S = 3600.0
"""The duration of a scenario that plays a recording: the first hour of a longer one, so that the first run is quick."""


def add_commands(commands: Commands) -> None:
    """Declare `new` and its kinds."""
    new = add_command(commands, "new", "Make a working plug-in, scenario, workload or node to start from.")
    kinds = new.add_subparsers(title="kinds", metavar="KIND", required=True)
    protocol = add_command(
        kinds,
        "protocol",
        "Make a folder with a working protocol.",
        "Each node of this protocol forwards an event once. The folder has the settings, a README and a test. In a "
        "checkout it is made beside the built-in protocols.",
    )
    protocol.add_argument("name", metavar="NAME", help="a name in lower case, as in fleet_cast")
    protocol.add_argument(
        "--out", type=Path, metavar="DIR", help="the folder for carrycast/protocols/NAME (default: here)"
    )
    add_renamed(protocol, "--dir", "--out")
    protocol.set_defaults(command=_new_protocol)
    for kind in PACKAGED:
        words = kind.replace("-", " ")
        plugin = add_command(
            kinds,
            kind,
            f"Make a Python package with a working {words}.",
            "It has a test, and the entry point by which carrycast finds the package once it is installed.",
        )
        _add_place(plugin, "long_range")
        plugin.set_defaults(command=_new_package, kind=kind)
    for kind, summary, command in (
        ("scenario", "Make NAME.toml, a scenario that runs, with comments.", _new_scenario),
        ("workload", "Make NAME.toml, a workload for `carrycast advise`, with comments.", _new_workload),
        ("experiment", "Make the folder NAME with an experiment and its scenario.", _new_experiment),
        ("node", "Make NAME.toml, the configuration of a node, with comments.", _new_node),
    ):
        other = add_command(kinds, kind, summary)
        _add_place(other, "car-1" if kind == "node" else "night_bus")
        other.set_defaults(command=command)
        if kind == "scenario":
            _add_recording(other)
        elif kind == "node":
            other.add_argument("--port", type=int, default=7401, metavar="N", help="the UDP port (default: 7401)")


def _add_recording(scenario: argparse.ArgumentParser) -> None:
    scenario.add_argument(
        "--from",
        type=Path,
        dest="recording",
        metavar="TRACE",
        help="play this recording: a movement file (csv, ns2, one, sumo, bonnmotion), a contact plan (.parquet), or a "
        "folder that `carrycast ingest` made",
    )
    scenario.add_argument(
        "--range",
        type=float,
        dest="range_m",
        metavar="M",
        help=f"with --from: the radio range in meters (default: {RANGE_M:g})",
    )


def _add_place(parser: argparse.ArgumentParser, example: str) -> None:
    parser.add_argument("name", metavar="NAME", help=f"a name in lower case, as in {example}")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="the output folder (default: here)")
    add_renamed(parser, "--dir", "--out")


def _new_protocol(arguments: argparse.Namespace) -> int:
    from carrycast.core.protocol import protocol_names

    name = _check_name(arguments.name, "a protocol's", "fleet_cast")
    if name in protocol_names():
        raise UserError(f"there is a protocol {name!r} already; choose another name")
    root = _source_folder(arguments.out)
    folder = root / "carrycast" / "protocols" / name
    if folder.is_dir():
        raise UserError(f"{folder}: exists already")
    make_folder(folder, "--out")
    for file, template in FILES.items():
        _write(folder / file.format(name=name), template, name)
    print_line(f"made {folder}")
    prefix = "" if root.resolve() == Path("src").resolve() else f"PYTHONPATH={root} "
    scenario = "examples/quick.toml" if Path("examples/quick.toml").is_file() else "SCENARIO.toml"
    print_line(f"run it:  {prefix}carrycast run {scenario} --protocol {name}")
    print_line(f"test it: {prefix}python -m pytest {folder}")
    return 0


def _new_package(arguments: argparse.Namespace) -> int:
    from carrycast.core.plugins import KINDS, plugin_names

    kind = KINDS[PACKAGED[arguments.kind]]
    name = _check_name(arguments.name, f"a {kind.noun}'s", "long_range")
    if name in plugin_names(kind.name):
        raise UserError(f"there is a {kind.noun} {name!r} already; choose another name")
    # With hyphens, so that Python never takes the folder for the module where a command runs beside it.
    folder: Path = arguments.out / f"carrycast-{name.replace('_', '-')}"
    if folder.is_dir():
        raise UserError(f"{folder}: exists already")
    make_folder(folder, "--out")
    template = arguments.kind.replace("-", "_")
    blanks = {"dashed": name.replace("_", "-"), "noun": kind.noun, "group": kind.group}
    _write(folder / "pyproject.toml", "package.txt", name, **blanks)
    _write(folder / f"carrycast_{name}.py", f"{template}.txt", name)
    _write(folder / f"test_{name}.py", f"{template}_test.txt", name)
    print_line(f"made {folder}")
    # pip would download a distribution of this name if it were not a path.
    place = folder if folder.is_absolute() else f"./{folder}"
    print_line(f"install it: pip install --editable {place}")
    print_line(f"test it:    python -m pytest {folder}")
    return 0


def _new_scenario(arguments: argparse.Namespace) -> int:
    name = _check_name(arguments.name, "a scenario's", "night_bus")
    path: Path = arguments.out / f"{name}.toml"
    if arguments.recording is not None:
        blanks = _recording_blanks(arguments.recording, arguments.out, arguments.range_m)
        make_folder(arguments.out, "--out")
        _write(path, "recorded_scenario.txt", name, **blanks)
    elif arguments.range_m is not None:
        raise UserError("--range: goes with --from; in other scenarios the file says radio.range_m")
    else:
        make_folder(arguments.out, "--out")
        _write(path, "scenario.txt", name)
    print_line(f"made {path}")
    print_line(f"run it:     carrycast run {path}")
    print_line(f"compare it: carrycast compare {path} --protocols flooding,epidemic")
    return 0


def _recording_blanks(recording: Path, folder: Path, range_m: float | None) -> dict[str, str]:
    """What the template of a scenario needs to know of the recording that it plays."""
    import json

    from carrycast.analysis.advice import recording_tables

    try:
        tables = recording_tables(recording, RANGE_M if range_m is None else range_m, None)
    except UserError as error:
        if not recording.is_file() or "carrycast ingest" in str(error):
            raise
        raise UserError(f"{error}; `carrycast ingest {recording} --out DIR` reads logs of other kinds") from None
    lasts_s, nodes = float(str(tables["duration_s"])), int(str(tables["nodes"]))
    duration_s = min(round(lasts_s, 3), LONGEST_S)
    # The scenario and its recording may move together to another machine.
    shown = json.dumps(os.path.relpath(recording.resolve(), folder.resolve()), ensure_ascii=False)
    if isinstance(tables.get("contacts"), str):
        plan = Path(str(tables["contacts"]))
        if range_m is not None:
            raise UserError(f"--range: {recording} holds contacts, whose range is fixed; leave out the option")
        shown = json.dumps(os.path.relpath(plan, folder.resolve()), ensure_ascii=False)
        movement = f"# The times at which two nodes are in contact.\ncontacts = {shown}\n"
    else:
        model = tables["mobility"]
        assert isinstance(model, dict)
        key = "file" if "file" in model else "folder"
        movement = (
            "\n# Recorded movement; the path is relative to the folder of this file.\n"
            f'[mobility]\nmodel = "{model["model"]}"\n{key} = {shown}\n'
            "\n# Two nodes within this distance hear each other.\n"
            f'[radio]\nmodel = "disk"\nrange_m = {RANGE_M if range_m is None else range_m!r}\n'
        )
    return {
        "description": f"{nodes} recorded nodes; one of them publishes, all subscribe",
        "lasts_s": f"{lasts_s:g}",
        "duration_s": repr(duration_s),
        "nodes": str(nodes),
        "movement": movement,
        # About forty events, whatever the duration.
        "interval_s": repr(max(round(duration_s / 60, 1), 0.1)),
        "to_s": repr(round(duration_s * 2 / 3, 3)),
    }


def _new_workload(arguments: argparse.Namespace) -> int:
    name = _check_name(arguments.name, "a workload's", "night_bus")
    make_folder(arguments.out, "--out")
    path: Path = arguments.out / f"{name}.toml"
    _write(path, "workload.txt", name)
    print_line(f"made {path}")
    print_line(f"use it: carrycast advise FLEET --workload {path}")
    return 0


def _new_node(arguments: argparse.Namespace) -> int:
    name = arguments.name
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,40}", name):
        raise UserError(f"{name!r}: a node's name has lower-case letters, digits, - and _, as in car-1")
    if not 1 <= arguments.port <= 65_535:
        raise UserError(f"--port {arguments.port}: a port is from 1 to 65535")
    make_folder(arguments.out, "--out")
    path: Path = arguments.out / f"{name}.toml"
    _write(path, "node.txt", name, port=str(arguments.port))
    print_line(f"made {path}")
    print_line(f"run it:    carrycast node {path}")
    print_line(f'listen:    carrycast sub "speed > 30" --node {path.with_suffix(".sock")}')
    print_line(f"publish:   carrycast pub speed=31 --node {path.with_suffix('.sock')}")
    return 0


def _new_experiment(arguments: argparse.Namespace) -> int:
    name = _check_name(arguments.name, "an experiment's", "night_bus")
    folder: Path = arguments.out / name
    make_folder(folder, "--out")
    _write(folder / "experiment.toml", "experiment.txt", name)
    _write(folder / "scenario.toml", "scenario.txt", name)
    print_line(f"made {folder}")
    print_line(f"run it: carrycast reproduce {folder / 'experiment.toml'} --quick --out out/{name}")
    return 0


def _check_name(name: str, whose: str, example: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name) or keyword.iskeyword(name):
        raise UserError(f"{name!r}: {whose} name has lower-case letters, digits and underscores, as in {example}")
    return name


def _write(path: Path, template: str, name: str, **blanks: str) -> None:
    """Write a new file from a template. Raises UserError if the file exists."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_fill_template(template, {"name": name, "Name": _class_name(name), **blanks}))
    except FileExistsError:
        raise UserError(f"{path}: exists already") from None


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _fill_template(template: str, blanks: Mapping[str, str]) -> str:
    """Return the text of a template in which each `@blank@` is replaced by its value."""
    from importlib import resources

    text = (resources.files("carrycast.cli") / "template" / template).read_text("utf-8")
    for blank, value in blanks.items():
        text = text.replace(f"@{blank}@", value)
    return text


def _source_folder(chosen: Path | None) -> Path:
    """Return the folder for a new protocol: the chosen one, that of a checkout, or the current one."""
    if chosen is not None:
        return chosen
    return Path("src") if Path("src/carrycast/protocols").is_dir() else Path()
