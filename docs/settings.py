"""Writes the tables of settings into the READMEs of protocols and routers, from the code.

`python docs/settings.py` replaces, in the README.md of each folder, what stands between the lines `<!-- settings -->`
and `<!-- end of settings -->`. A test fails while a table differs from the code.
"""

import re
import sys
from pathlib import Path

from carrycast.cli.catalog import settings_of
from carrycast.core.protocol.machine import StateMachine
from carrycast.core.protocol.registry import find_protocol, find_router, protocol_names, router_names

SOURCE = Path(__file__).parents[1] / "src" / "carrycast"
SECTION = re.compile(r"<!-- settings -->\n.*?<!-- end of settings -->", re.DOTALL)


def machines() -> dict[Path, type[StateMachine]]:
    """Every protocol and router of carrycast itself, by its README."""
    found: dict[Path, type[StateMachine]] = {}
    for folder, names, named in (
        ("protocols", protocol_names(), find_protocol),
        ("routers", router_names(), find_router),
    ):
        found |= {
            SOURCE / folder / name / "README.md": named(name) for name in names if (SOURCE / folder / name).is_dir()
        }
    return found


def table(kind: type[StateMachine]) -> str:
    """The settings of a machine as a table."""
    lines = ["| name | default | allowed | meaning |", "|---|---|---|---|"]
    for setting in settings_of(kind.settings_type):
        default = "" if setting["required"] else f"`{_written(setting['default'])}`"
        cells = (f"`{setting['name']}`", default, str(setting["type"]), str(setting["meaning"]))
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    for name, settings in kind.variants.items():
        changed = ", ".join(f"`{key} = {_written(value)}`" for key, value in settings.items())
        lines += ["", f"Variant `{name}`: {changed or 'the defaults'}"]
    return "\n".join(lines)


def renewed(text: str, kind: type[StateMachine]) -> str:
    """A README with the table as the code has it."""
    return SECTION.sub(lambda _: f"<!-- settings -->\n{table(kind)}\n<!-- end of settings -->", text)


def _written(value: object) -> str:
    """As a scenario has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_written(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_written, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def main() -> int:
    """Rewrite them all."""
    for path, kind in machines().items():
        path.write_text(renewed(path.read_text("utf-8"), kind), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
