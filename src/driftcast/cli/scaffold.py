"""`new protocol NAME`: a folder with a protocol that works, to start from."""

import argparse
import keyword
import re
from pathlib import Path

from driftcast.cli.options import new_folder, say
from driftcast.errors import UserError

FILES = {
    "__init__.py": "init.txt",
    "protocol.py": "protocol.txt",
    "README.md": "readme.txt",
    "test_{name}.py": "test.txt",
}


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare it."""
    new = commands.add_parser("new", help="start a new protocol")
    kinds = new.add_subparsers(metavar="KIND", required=True)
    protocol = kinds.add_parser(
        "protocol",
        help="a folder with a working protocol",
        description="Make a folder with a protocol that works (each node passes an event on once), its settings, its "
        "README and its test. In a checkout it goes beside the others; elsewhere below --dir.",
    )
    protocol.add_argument("name", metavar="NAME", help="lower case, as in fleet_cast")
    protocol.add_argument("--dir", type=Path, metavar="DIR", help="where to make driftcast/dissemination/NAME")
    protocol.set_defaults(command=_new_protocol)


def _new_protocol(arguments: argparse.Namespace) -> int:
    from importlib import resources

    from driftcast.protocol.registry import protocol_names

    name: str = arguments.name
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name) or keyword.iskeyword(name):
        raise UserError(f"{name!r}: a protocol's name has lower-case letters, digits and underscores, as in fleet_cast")
    if name in protocol_names():
        raise UserError(f"there is a protocol {name!r} already; choose another name")
    root = _root(arguments.dir)
    folder = root / "driftcast" / "dissemination" / name
    if folder.is_dir():
        raise UserError(f"{folder}: exists already")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    templates = resources.files("driftcast.cli") / "template"
    new_folder(folder, "--dir")
    for file, template in FILES.items():
        text = (templates / template).read_text("utf-8").replace("@name@", name).replace("@Name@", class_name)
        (folder / file.format(name=name)).write_text(text, "utf-8")
    say(f"made {folder}")
    prefix = "" if root.resolve() == Path("src").resolve() else f"PYTHONPATH={root} "
    scenario = "examples/quick.toml" if Path("examples/quick.toml").is_file() else "SCENARIO.toml"
    say(f"run it:  {prefix}driftcast run {scenario} --protocol {name}")
    say(f"test it: {prefix}python -m pytest {folder}")
    return 0


def _root(chosen: Path | None) -> Path:
    if chosen is not None:
        return chosen
    return Path("src") if Path("src/driftcast/dissemination").is_dir() else Path()
