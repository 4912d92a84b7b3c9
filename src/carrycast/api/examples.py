"""The example scenarios, logs and configurations that are installed with carrycast."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

from carrycast.errors import UserError

_PACKAGE = Path(__file__).parents[1]


class ExampleFile(NamedTuple):
    """An example scenario or notebook, with the name by which `example` finds it."""

    name: str
    summary: str


def examples_folder() -> Path:
    """The folder of the examples: within an installed package, or in the checkout that it is run from."""
    for folder in (_PACKAGE / "examples", _PACKAGE.parents[1] / "examples"):
        if folder.is_dir():
            return folder
    raise UserError("this installation of carrycast has no examples; install it from its wheel")


def example(name: str) -> Path:
    """Find an example by its name: `"quick"` for the scenario quick.toml, or a path such as `"fleet/gps.csv"`.

    >>> import carrycast
    >>> carrycast.example("quick").name
    'quick.toml'
    """
    folder = examples_folder()
    for path in (folder / name, folder / f"{name}.toml"):
        if path.exists():
            return path
    names = ", ".join(sorted(path.stem for path in folder.glob("*.toml")))
    raise UserError(f"there is no example {name!r}; the scenarios are {names}")


def list_examples() -> list[ExampleFile]:
    """The scenarios among the examples with their descriptions, then the notebooks with their titles."""
    import tomllib

    folder = examples_folder()
    found: list[ExampleFile] = []
    for path in sorted(folder.rglob("*.toml")):
        table = tomllib.loads(path.read_text("utf-8"))
        # Node configurations and experiments stand beside the scenarios.
        if "duration_s" in table:
            name = str(path.relative_to(folder).with_suffix(""))
            found.append(ExampleFile(name, str(table.get("description", ""))))
    found.sort(key=lambda one: ("/" in one.name, one.name))
    for path in sorted(folder.rglob("*.ipynb")):
        title = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"]).splitlines()[0]
        found.append(ExampleFile(str(path.relative_to(folder)), title.lstrip("# ")))
    return found


def copy_examples(target: Path) -> Path:
    """Copy all examples into a new folder, or into an empty one."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(f"{target}: exists already; name a new folder")
    ignored = shutil.ignore_patterns("__pycache__", "run")
    try:
        shutil.copytree(examples_folder(), target, ignore=ignored, dirs_exist_ok=True)
    except OSError as error:
        raise UserError(f"{target}: the examples cannot be copied there: {error.strerror or error}") from None
    return target
