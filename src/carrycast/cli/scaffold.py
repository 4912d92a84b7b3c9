"""`carrycast new`: plug-ins of every kind, scenarios and experiments that work, to start from.

A protocol is a folder, to be placed beside the built-in ones or on the search path. A plug-in of another kind is a
small Python package: a module, its test, and a `pyproject.toml` with the entry point by which carrycast finds it.
"""

import argparse
import keyword
import re
from collections.abc import Mapping
from pathlib import Path

from carrycast.cli.options import make_folder, print_line
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
"""What `carrycast new` makes as a package: the word on the command line, and the kind of plug-in."""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare it."""
    new = commands.add_parser("new", help="start a new plug-in, scenario or experiment")
    kinds = new.add_subparsers(metavar="KIND", required=True)
    protocol = kinds.add_parser(
        "protocol",
        help="a folder with a working protocol",
        description="Make a folder with a protocol that works (each node passes an event on once), its settings, its "
        "README and its test. In a checkout it goes beside the others; elsewhere below --dir.",
    )
    protocol.add_argument("name", metavar="NAME", help="lower case, as in fleet_cast")
    protocol.add_argument("--dir", type=Path, metavar="DIR", help="where to make carrycast/protocols/NAME")
    protocol.set_defaults(command=_new_protocol)
    for kind in PACKAGED:
        words = kind.replace("-", " ")
        plugin = kinds.add_parser(
            kind,
            help=f"a package with a working {words}",
            description=f"Make a Python package with a {words} that works, its test, and the entry point by which "
            "carrycast finds it once the package is installed.",
        )
        plugin.add_argument("name", metavar="NAME", help="lower case, as in long_range")
        plugin.add_argument("--dir", type=Path, default=Path(), metavar="DIR", help="where (default: here)")
        plugin.set_defaults(command=_new_package, kind=kind)
    for kind, makes, command in (
        ("scenario", "NAME.toml, a scenario that runs", _new_scenario),
        ("experiment", "NAME/ with an experiment and its scenario", _new_experiment),
    ):
        other = kinds.add_parser(kind, help=makes, description=f"Make {makes}, with a word on each part of it.")
        other.add_argument("name", metavar="NAME", help="lower case, as in night_bus")
        other.add_argument("--dir", type=Path, default=Path(), metavar="DIR", help="where (default: here)")
        other.set_defaults(command=command)


def _new_protocol(arguments: argparse.Namespace) -> int:
    from carrycast.core.protocol import protocol_names

    name = _checked_name(arguments.name, "a protocol's", "fleet_cast")
    if name in protocol_names():
        raise UserError(f"there is a protocol {name!r} already; choose another name")
    root = _root(arguments.dir)
    folder = root / "carrycast" / "protocols" / name
    if folder.is_dir():
        raise UserError(f"{folder}: exists already")
    make_folder(folder, "--dir")
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
    name = _checked_name(arguments.name, f"a {kind.noun}'s", "long_range")
    if name in plugin_names(kind.name):
        raise UserError(f"there is a {kind.noun} {name!r} already; choose another name")
    folder: Path = arguments.dir / f"carrycast_{name}"
    if folder.is_dir():
        raise UserError(f"{folder}: exists already")
    make_folder(folder, "--dir")
    template = arguments.kind.replace("-", "_")
    blanks = {"dashed": name.replace("_", "-"), "noun": kind.noun, "group": kind.group}
    _write(folder / "pyproject.toml", "package.txt", name, **blanks)
    _write(folder / f"carrycast_{name}.py", f"{template}.txt", name)
    _write(folder / f"test_{name}.py", f"{template}_test.txt", name)
    print_line(f"made {folder}")
    # A bare name would be a distribution to download.
    place = folder if folder.is_absolute() else f"./{folder}"
    print_line(f"install it: pip install --editable {place}")
    print_line(f"test it:    python -m pytest {folder}")
    return 0


def _new_scenario(arguments: argparse.Namespace) -> int:
    name = _checked_name(arguments.name, "a scenario's", "night_bus")
    make_folder(arguments.dir, "--dir")
    path: Path = arguments.dir / f"{name}.toml"
    _write(path, "scenario.txt", name)
    print_line(f"made {path}")
    print_line(f"run it:     carrycast run {path}")
    print_line(f"compare it: carrycast compare {path} --protocols flooding,epidemic")
    return 0


def _new_experiment(arguments: argparse.Namespace) -> int:
    name = _checked_name(arguments.name, "an experiment's", "night_bus")
    folder: Path = arguments.dir / name
    make_folder(folder, "--dir")
    _write(folder / "experiment.toml", "experiment.txt", name)
    _write(folder / "scenario.toml", "scenario.txt", name)
    print_line(f"made {folder}")
    print_line(f"run it: carrycast reproduce {folder / 'experiment.toml'} --quick --out out/{name}")
    return 0


def _checked_name(name: str, whose: str, example: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name) or keyword.iskeyword(name):
        raise UserError(f"{name!r}: {whose} name has lower-case letters, digits and underscores, as in {example}")
    return name


def _write(path: Path, template: str, name: str, **blanks: str) -> None:
    """Write a new file from a template. A file that exists already stays as it is."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_filled(template, {"name": name, "Name": _class_name(name), **blanks}))
    except FileExistsError:
        raise UserError(f"{path}: exists already") from None


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _filled(template: str, blanks: Mapping[str, str]) -> str:
    """The text of a template in which each `@blank@` has its value."""
    from importlib import resources

    text = (resources.files("carrycast.cli") / "template" / template).read_text("utf-8")
    for blank, value in blanks.items():
        text = text.replace(f"@{blank}@", value)
    return text


def _root(chosen: Path | None) -> Path:
    if chosen is not None:
        return chosen
    return Path("src") if Path("src/carrycast/protocols").is_dir() else Path()
