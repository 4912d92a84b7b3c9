"""Lists (`protocols`, `routers`, `applications`, `mobility`, `radios`, `experiments`, `plugins`) and details of one."""

import argparse
import enum
import typing
from collections.abc import Callable, Iterable
from pathlib import Path

from carrycast.cli.options import Commands, add_command, add_json, console, print_json, print_line
from carrycast.errors import UserError

if typing.TYPE_CHECKING:
    import msgspec

    from carrycast.core.protocol import StateMachine


def add_commands(commands: Commands) -> None:
    """Declare the commands."""
    for name, metavar, summary, command in (
        ("protocols", "PROTOCOL", "List the protocols, or show the settings of one.", _protocols),
        ("routers", "ROUTER", "List the routers, or show the settings of one.", _routers),
        ("applications", "APPLICATION", "List the applications, or show the settings of one.", _applications),
        ("mobility", "MODEL", "List the movement models, or show the settings of one.", _mobility),
        ("radios", "RADIO", "List the radio models, or show the settings of one.", _radios),
        ("experiments", "EXPERIMENT", "List the experiments, or show the figures of one.", _experiments),
    ):
        listing = add_command(commands, name, summary)
        listing.add_argument("name", nargs="?", metavar=metavar, help="show only this one, in detail")
        add_json(listing)
        listing.set_defaults(command=command)
    plugins = add_command(commands, "plugins", "List the plug-ins of every kind, and the package of each.")
    add_json(plugins)
    plugins.set_defaults(command=_plugins)
    examples = add_command(commands, "examples", "List the examples, or copy them into a folder.")
    examples.add_argument(
        "directory", nargs="?", type=Path, metavar="DIR", help="copy all examples into this new folder"
    )
    add_json(examples)
    examples.set_defaults(command=_examples)


def settings_of(kind: "type[msgspec.Struct]") -> list[dict[str, object]]:
    """Return the name, type, default and meaning of each setting."""
    import msgspec

    rows: list[dict[str, object]] = []
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        default: object = None if field.required else field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        hint = hints[field.name]
        rows.append(
            {
                "name": field.encode_name,
                "type": _type_text(hint),
                "default": msgspec.to_builtins(default),
                "required": field.required,
                "meaning": next((text for text in _descriptions(hint) if text), ""),
            }
        )
    return rows


def _descriptions(hint: object) -> Iterable[str]:
    import msgspec

    for meta in getattr(hint, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and meta.description:
            yield meta.description
    for part in typing.get_args(hint):
        yield from _descriptions(part)


def _type_text(hint: object) -> str:
    import msgspec

    if hasattr(hint, "__metadata__"):
        meta = [item for item in hint.__metadata__ if isinstance(item, msgspec.Meta)]
        bounds = [_bounds(item) for item in meta]
        return " ".join([_type_text(typing.get_args(hint)[0]), *filter(None, bounds)])
    arguments = [part for part in typing.get_args(hint) if part is not type(None)]
    origin = typing.get_origin(hint)
    if origin in (list, tuple) and arguments[1:] in ([], [Ellipsis]):
        element = _type_text(arguments[0])
        return "list of tables" if element == "table" else f"list of {element}"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return "table"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return " or ".join(repr(one.value) for one in hint)
    if origin is dict:
        return "table" if arguments[-1] is object else f"table of {_type_text(arguments[-1])}"
    if origin is tuple:
        return f"[{', '.join(map(_type_text, arguments))}]"
    if arguments and not isinstance(hint, type) and origin is not typing.Literal:
        return " or ".join(dict.fromkeys(map(_type_text, arguments)))
    if origin is typing.Literal:
        return " or ".join(repr(part) for part in arguments)
    names: dict[object, str] = {float: "number", int: "whole number", str: "text", bool: "true or false"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _bounds(meta: "msgspec.Meta") -> str:
    parts = [(">=", meta.ge), (">", meta.gt), ("<=", meta.le), ("<", meta.lt)]
    return ", ".join(f"{sign} {value:g}" for sign, value in parts if value is not None)


def _protocols(arguments: argparse.Namespace) -> int:
    from carrycast.core.protocol import INTERFACES, find_protocol, protocol_names

    def row(name: str) -> dict[str, object]:
        kind = find_protocol(name)
        also = [interface.__name__ for interface in INTERFACES if issubclass(kind, interface)]
        return {**_describe_machine(kind), "also": also, "router": getattr(kind, "router", None) or None}

    rows = _collect_rows(arguments.name, protocol_names, row)
    return _print_rows(arguments, "protocols", rows, "settings: carrycast protocols PROTOCOL")


def _collect_rows(
    wanted: str | None, names: Callable[[], list[str]], row: Callable[[str], dict[str, object]]
) -> list[dict[str, object]]:
    """Return the row of one plug-in, or of all. A broken plug-in has a row with the reason."""
    from carrycast.core.plugins import BrokenPluginError

    if wanted is not None:
        return [row(wanted)]
    rows: list[dict[str, object]] = []
    for name in names():
        try:
            rows.append(row(name))
        except BrokenPluginError as error:
            rows.append({"name": name, "summary": "cannot be used", "broken": str(error)})
    return rows


def _routers(arguments: argparse.Namespace) -> int:
    from carrycast.core.protocol import find_router, router_names

    rows = _collect_rows(arguments.name, router_names, lambda name: _describe_machine(find_router(name)))
    return _print_rows(
        arguments, "routers", rows, "settings: carrycast routers ROUTER; a scenario names one in its table `router`"
    )


def _applications(arguments: argparse.Namespace) -> int:
    from carrycast.core.protocol import applications, find_application

    kinds = [find_application(arguments.name)] if arguments.name else list(applications().values())
    rows: list[dict[str, object]] = []
    for kind in kinds:
        settings = settings_of(kind.settings_type)
        rows.append({"name": kind.name, "summary": kind.summary, "needs": sorted(kind.needs), "settings": settings})
    hint = (
        "settings: carrycast applications APPLICATION; scenarios and configs name them in their tables `applications`"
    )
    return _print_rows(arguments, "applications", rows, hint)


def _describe_machine(kind: "type[StateMachine]") -> dict[str, object]:
    """Return the columns that protocols and routers share."""
    return {
        "name": kind.name,
        "summary": kind.summary,
        "variants": {variant: dict(settings) for variant, settings in kind.variants.items()},
        "needs": sorted(kind.needs),
        "roles": sorted(kind.needs_roles | kind.settings_type().needs_roles()),
        "offers": sorted(getattr(kind, "offers", ())),
        "may change while it runs": sorted(kind.retunable),
        "settings": settings_of(kind.settings_type),
    }


def _mobility(arguments: argparse.Namespace) -> int:
    from carrycast.sim.mobility import find_movement_model, movement_models

    kinds = movement_models() if arguments.name is None else {arguments.name: find_movement_model(arguments.name)}
    rows = [{"name": name, "summary": kind.summary, "settings": settings_of(kind)} for name, kind in kinds.items()]
    return _print_rows(arguments, "mobility", rows, "settings: carrycast mobility MODEL")


def _radios(arguments: argparse.Namespace) -> int:
    from carrycast.sim.radio import radio_named, radio_names

    def row(name: str) -> dict[str, object]:
        kind = radio_named(name)
        return {"name": name, "summary": kind.summary, "settings": settings_of(kind)}

    rows = _collect_rows(arguments.name, radio_names, row)
    return _print_rows(
        arguments, "radios", rows, "settings: carrycast radios RADIO; a scenario names one in its table `radio`"
    )


def _plugins(arguments: argparse.Namespace) -> int:
    from carrycast.core.plugins import KINDS, plugin_names, plugin_source

    rows = [
        {"kind": kind, "name": name, "source": plugin_source(kind, name)}
        for kind in KINDS
        for name in plugin_names(kind)
    ]
    if arguments.json:
        print_json({"plugins": rows})
        return 0
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        console().print(f"[bold]{kind}[/bold]: " + ", ".join(row["name"] for row in own if row["source"] == "built in"))
        for row in own:
            if row["source"] != "built in":
                console().print(f"  {row['name']} [dim]from {row['source']}[/dim]")
    return 0


def _experiments(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.spark import experiment_names, load_experiment

    rows: list[dict[str, object]] = []
    for experiment in map(load_experiment, experiment_names() if arguments.name is None else [arguments.name]):
        definition = experiment.definition
        rows.append(
            {
                "name": experiment.name,
                "summary": definition.title,
                "runs": sum(len(experiment.seeds_at(point)) for point in experiment.points),
                "points": len(experiment.points),
                "paper": definition.paper,
                "description": definition.description.strip(),
                "figures": [{"name": figure.name, "title": figure.title} for figure in definition.figures],
            }
        )
    return _print_rows(
        arguments,
        "experiments",
        rows,
        "more of one: carrycast experiments EXPERIMENT; run it: carrycast reproduce EXPERIMENT",
        _print_experiment,
    )


def _examples(arguments: argparse.Namespace) -> int:
    from carrycast.api import copy_examples, list_examples

    if arguments.directory is None:
        rows: list[dict[str, object]] = [one._asdict() for one in list_examples()]
        if arguments.json:
            print_json({"examples": rows})
        else:
            _print_list(rows, "copy all into a new folder: carrycast examples DIR")
        return 0
    folder = copy_examples(arguments.directory)
    if arguments.json:
        print_json({"copied": str(folder)})
        return 0
    print_line(f"copied the examples to {folder}")
    print_line(f"run one: carrycast run {folder / 'quick.toml'}")
    return 0


def _print_rows(
    arguments: argparse.Namespace,
    what: str,
    rows: list[dict[str, object]],
    hint: str,
    print_one: Callable[[dict[str, object]], None] | None = None,
) -> int:
    """Print all rows as a list, or the one that was asked for in detail."""
    if arguments.json:
        print_json({what: rows})
    elif arguments.name is None:
        _print_list(rows, hint)
    else:
        (print_one or _print_settings)(rows[0])
    return 0


def _print_experiment(row: dict[str, object]) -> None:
    from rich.table import Table

    console().print(f"[bold]{row['name']}[/bold]: {row['summary']}")
    if row["paper"]:
        console().print(f"[dim]{row['paper']}[/dim]")
    for paragraph in str(row["description"]).split("\n\n"):
        console().print("\n" + " ".join(paragraph.split()), highlight=False)
    console().print(f"\n{row['runs']} runs at {row['points']} points, and these figures:")
    table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
    figures = row["figures"]
    assert isinstance(figures, list)
    for figure in figures:
        table.add_row(f"[bold]{figure['name']}[/bold]", figure["title"])
    console().print(table)
    run = f"carrycast reproduce {row['name']}"
    console().print(f"[dim]run all: {run}; one: {run}/FIGURE[/dim]")


def _print_list(rows: list[dict[str, object]], hint: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for row in rows:
        if "broken" in row:
            continue
        variants = row.get("variants")
        named = f"[dim]({', '.join(variants)})[/dim]" if isinstance(variants, dict) and variants else ""
        table.add_row(f"[bold]{row['name']}[/bold]", f"{escape(str(row['summary']))} {named}")
    console().print(table)
    for row in rows:
        if "broken" in row:
            print_line(f"{row['name']}: {row['broken']}")
    console().print(f"[dim]{hint}[/dim]")


def _print_settings(row: dict[str, object]) -> None:
    from rich.table import Table

    console().print(f"[bold]{row['name']}[/bold]: {row['summary']}")
    for key in ("needs", "roles", "offers", "also", "may change while it runs"):
        values = row.get(key)
        if isinstance(values, list) and values:
            console().print(f"{key}: {', '.join(values)}")
    if row.get("router") is not None:
        console().print(f"router: {row['router']}, unless a variant or a scenario names another")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("setting", "default", "type", "meaning"):
        table.add_column(column, no_wrap=column == "setting")
    settings = row["settings"]
    if not isinstance(settings, list):
        raise UserError(f"{row['name']} has no settings")
    for setting in settings:
        default = "(needed)" if setting["required"] else str(setting["default"])
        table.add_row(f"[bold]{setting['name']}[/bold]", default, setting["type"], setting["meaning"])
    console().print(table)
