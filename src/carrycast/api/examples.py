"""The example scenarios, logs and configurations that are installed with carrycast."""

import shutil
from pathlib import Path

from carrycast.errors import UserError

_PACKAGE = Path(__file__).parents[1]


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


def copy_examples(target: Path) -> Path:
    """Copy all examples into a new folder."""
    if target.exists():
        raise UserError(f"{target}: exists already; name a new folder")
    shutil.copytree(examples_folder(), target, ignore=shutil.ignore_patterns("__pycache__", "run"))
    return target
