"""The reference pages of the site, generated from the code: `docs/hooks.py` adds them when the site is built.

A page that lists commands, keys, metrics or columns is never written by hand, so it cannot be wrong.
"""

import argparse
import ast
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping

import msgspec

from carrycast.analysis.spark.definition import Definition
from carrycast.cli import parser
from carrycast.cli.catalog import settings_of
from carrycast.core.plugins import find_plugin, plugin_names
from carrycast.core.protocol import applications
from carrycast.node.config_file import NodeFile
from carrycast.node.gateways.mqtt.config import MqttSection
from carrycast.node.link import LinkSettings
from carrycast.node.link.config import InterfaceSection
from carrycast.node.link.udp import UdpSettings
from carrycast.sim.mobility import movement_models
from carrycast.sim.radio.dot11 import PRESETS, Dot11
from carrycast.sim.radio.wifi_settings import PRESETS as WIFI_PRESETS, WifiPhy
from carrycast.sim.scenario import Scenario
from carrycast.trace import (
    COLUMN_MEANINGS,
    EVENT_COLUMNS,
    KIND_MEANINGS,
    METRICS,
    ONE_METRICS,
    SUBSCRIPTION_COLUMNS,
    TRACE_COLUMNS,
    Kind,
)

SQL_TYPES = {"string": "string", "double": "double", "int64": "bigint", "int32": "int", "bool": "boolean"}
"""The types of columns, as Spark names them."""


def cli_page() -> str:
    """Every command with its options."""
    lines = [
        "# Command line",
        "",
        "Every command of `carrycast`, with its arguments and options. `carrycast COMMAND --help` prints the same.",
        "",
        "The exit status is 0 if the work is done, 1 if it failed, and 2 for wrong use.",
        "With `--json` a command prints one object on standard output and nothing else.",
    ]
    for name, command in parser().subcommands.items():
        lines += _command_section(f"carrycast {name}", command, 2)
    return "\n".join(lines) + "\n"


def _command_section(title: str, command: argparse.ArgumentParser, level: int) -> Iterator[str]:
    below = next((one for one in command._actions if isinstance(one, argparse._SubParsersAction)), None)
    usage = " ".join(command.format_usage().removeprefix("usage: ").split())
    yield from ("", f"{'#' * level} {title}", "", command.description or "", "", "```sh", usage, "```")
    hidden = (argparse._HelpAction, argparse._SubParsersAction)
    options = [one for one in command._actions if not isinstance(one, hidden) and one.help is not argparse.SUPPRESS]
    if options:
        yield from ("", "| argument | meaning |", "|---|---|")
    for one in options:
        name = ", ".join(f"`{option}`" for option in one.option_strings) or f"`{one.metavar or one.dest}`"
        value = one.metavar if one.option_strings and one.nargs != 0 else None
        chosen = "{" + ",".join(map(str, one.choices)) + "}" if one.choices is not None else value
        shown = f"{name} `{chosen}`" if chosen and one.option_strings and one.nargs != 0 else name
        formatter = command._get_formatter()
        text = formatter._expand_help(one) if one.help else ""
        yield f"| {_cell(shown)} | {_cell(' '.join(text.split()))} |"
    for name, nested in below.choices.items() if below is not None else ():
        yield from _command_section(f"{title} {name}", nested, level + 1)


def scenario_page() -> str:
    """Every key of a scenario."""
    intro = (
        "# Scenario keys\n\n"
        "Every key of a scenario file, with its type, its default and what it means.\n"
        "[Write a scenario](scenarios.md) shows a complete one. The keys of `[mobility]` and `[radio]` depend on the\n"
        "model, those of `[protocol]` and `[router]` on the name: see\n"
        "[movement models and radios](reference-models.md) and [protocols](reference-protocols.md).\n"
    )
    return intro + _struct_pages(Scenario, "The file", hidden=("base",))


def experiment_page() -> str:
    """Every key of an experiment."""
    intro = (
        "# Experiment keys\n\n"
        "Every key of an experiment file, with its type, its default and what it means.\n"
        "[Write an experiment](experiment-file.md) shows examples.\n"
    )
    return intro + _struct_pages(Definition, "The file")


def configuration_page() -> str:
    """Every key of a node's configuration."""
    intro = (
        "# Node configuration keys\n\n"
        "Every key of the configuration of a live node, with its type, its default and what it means.\n"
        "[Configure a node](live-configuration.md) explains how to write one. The keys of `[protocol]` and `[router]`\n"
        "depend on the name: see [protocols](reference-protocols.md).\n"
    )
    udp = (
        "",
        "## `[listen]` and `[[interfaces]]` (kind = 'udp')",
        "",
        "The keys of the link adapter `udp`, in `[listen]` or in each of the `[[interfaces]]`. A node with `[listen]`",
        "has its `group` in `[discovery]`. Other adapters have keys of their own.",
        "",
        _settings_table(UdpSettings),
        "",
        "## `[[interfaces]]`",
        "",
        "Each has the keys of `[link]`, those of its link adapter, and:",
        "",
        _settings_table(InterfaceSection, hidden=LinkSettings.__struct_fields__),
        "",
    )
    return intro + _struct_pages(NodeFile, "The file") + "\n".join(udp) + _struct_pages(MqttSection, "`[mqtt]`")


def protocols_page() -> str:
    """The settings of every protocol, router and application."""
    lines = [
        "# Protocols, routers and applications",
        "",
        "The settings of every built-in protocol, router and application, with their defaults.",
        "",
    ]
    for name in plugin_names("protocols"):
        kind = find_plugin("protocols", name)
        lines += [f"## Protocol `{name}`", "", _summary(kind), "", _settings_table(kind.settings_type)]
        for variant, settings in kind.variants.items():
            changed = ", ".join(f"`{key} = {toml_text(value)}`" for key, value in settings.items())
            lines += ["", f"Variant `{variant}`: {changed or 'the defaults'}."]
        lines += [""]
    for name in plugin_names("routers"):
        router = find_plugin("routers", name)
        lines += [f"## Router `{name}`", "", _summary(router), "", _settings_table(router.settings_type), ""]
    for name, application in applications().items():
        lines += [
            f"## Application `{name}`",
            "",
            _summary(application),
            "",
            _settings_table(application.settings_type),
            "",
        ]
    return "\n".join(lines)


def models_page() -> str:
    """The settings of every movement model and radio."""
    lines = ["# Movement models and radios", "", "The settings of every built-in movement model and radio.", ""]
    radios = {name: find_plugin("radios", name) for name in plugin_names("radios")}
    for title, kinds in (("Movement model", movement_models()), ("Radio", radios)):
        for name, kind in kinds.items():
            lines += [f"## {title} `{name}`", "", _summary(kind), "", _settings_table(kind), ""]
    lines += [
        "## Presets of `csma`",
        "",
        "The values of the settings that a scenario does not give, for each `preset`.",
        "",
        _presets_table(PRESETS, Dot11),
        "",
        "## Presets of `wifi`",
        "",
        "The parameters of the standards. [Radio standards](radio-standards.md) explains them.",
        "",
        _presets_table(WIFI_PRESETS, WifiPhy),
        "",
    ]
    return "\n".join(lines)


def _presets_table(presets: Mapping[str, msgspec.Struct], kind: type[msgspec.Struct]) -> str:
    names = list(presets)
    lines = [f"| key | {' | '.join(f'`{name}`' for name in names)} |", "|---" * (len(names) + 1) + "|"]
    for key in kind.__struct_fields__:
        values = [getattr(presets[name], key) for name in names]
        shown = ("computed" if value is None else f"`{toml_text(value)}`" for value in values)
        lines.append(f"| `{key}` | {' | '.join(shown)} |")
    return "\n".join(lines)


def metrics_page() -> str:
    """Every metric, and the names of the ONE."""
    lines = [
        "# Metric names",
        "",
        "The names of all built-in metrics, the same in `run --json`, `runs.parquet`, tables, figures and claims.",
        "[What the metrics mean](metrics.md) defines them.",
        "",
        "| name | meaning |",
        "|---|---|",
        *(f"| `{name}` | {_cell(info.meaning)} |" for name, info in METRICS.items()),
        "",
        "## Names of the ONE",
        "",
        "Users of the ONE simulator know these names from its `MessageStatsReport`. In Python,",
        '`simulate(...).metrics["delivery_prob"]` understands them. A message of the ONE has one destination. An event',
        "may have many subscribers, so carrycast counts pairs of event and subscriber.",
        "",
        "| the ONE | carrycast |",
        "|---|---|",
        *(f"| `{name}` | {one.formula} |" for name, one in ONE_METRICS.items()),
        "",
        "`started`, `aborted`, `dropped`, `removed`, `buffertime_*` and `rtt_*` have no equal. Transfers are frames,",
        "drops are counted by reason in the trace, and requests are measured apart.",
    ]
    return "\n".join(lines) + "\n"


def trace_page() -> str:
    """The columns of the three tables of a trace."""
    lines = [
        "# Trace columns",
        "",
        "The tables of a trace, the same in every environment. A value that a row does not have is null.",
        "[Traces](traces.md) explains how to record and query them.",
    ]
    for name, columns in (
        ("trace", TRACE_COLUMNS),
        ("events", EVENT_COLUMNS),
        ("subscriptions", SUBSCRIPTION_COLUMNS),
    ):
        lines += ["", f"## Table `{name}`", "", "| column | type | meaning |", "|---|---|---|"]
        lines += [
            f"| `{column}` | {SQL_TYPES[kind]} | {_cell(COLUMN_MEANINGS[name][column])} |" for column, kind in columns
        ]
    lines += ["", "## Kinds of rows", "", "The column `kind` has one of these values, or a kind that a protocol notes."]
    lines += ["", "| kind | what happened |", "|---|---|"]
    lines += [f"| `{kind.value}` | {_cell(KIND_MEANINGS[kind])} |" for kind in Kind]
    return "\n".join(lines) + "\n"


def python_page() -> str:
    """The public Python API, by mkdocstrings."""
    import carrycast

    lines = [
        "# Python API",
        "",
        "Everything that `import carrycast` offers. [Stability](stability.md) says what may change in which release.",
        "",
    ]
    for name in sorted(set(carrycast.__all__) - {"__version__"}, key=str.lower):
        found = getattr(carrycast, name)
        module = found.__module__
        lines += [f"::: {module}.{name}", ""]
    for name in ("Client", "Deliveries", "AsyncClient", "AsyncDeliveries"):
        module = "carrycast.node.api.async_client" if name.startswith("Async") else "carrycast.node.api.client"
        lines += [f"::: {module}.{name}", ""]
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {
    "reference-cli.md": cli_page,
    "reference-python.md": python_page,
    "reference-scenario.md": scenario_page,
    "reference-experiment.md": experiment_page,
    "reference-configuration.md": configuration_page,
    "reference-protocols.md": protocols_page,
    "reference-models.md": models_page,
    "reference-metrics.md": metrics_page,
    "reference-trace.md": trace_page,
}
"""The generated pages by the names that other pages link to."""


def _struct_pages(root: type[msgspec.Struct], title: str, hidden: tuple[str, ...] = ()) -> str:
    """A table for a struct and, below it, one for each struct that its fields have."""
    sections: list[str] = []
    seen: set[type[msgspec.Struct]] = set()
    waiting: list[tuple[str, type[msgspec.Struct]]] = [(title, root)]
    while waiting:
        heading, kind = waiting.pop(0)
        if kind in seen:
            continue
        seen.add(kind)
        sections += ["", f"## {heading}", "", _summary(kind), "", _settings_table(kind, hidden)]
        for field, hint in typing.get_type_hints(kind, include_extras=True).items():
            for nested in _structs_in(hint):
                path = field if heading == title == "The file" else f"{heading.strip('`[]')}.{field}"
                if typing.get_origin(hint) is dict:
                    path += ".NAME"
                tag = nested.__struct_config__.tag
                said = f" ({nested.__struct_config__.tag_field} = {tag!r})" if tag is not None else ""
                listed = typing.get_origin(hint) in (list, tuple)
                waiting.append((f"`[[{path}]]`{said}" if listed else f"`[{path}]`{said}", nested))
    return "\n".join(sections) + "\n"


def _structs_in(hint: object) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    elif not isinstance(hint, types.GenericAlias) or typing.get_origin(hint) in (list, tuple, dict):
        for part in typing.get_args(hint):
            yield from _structs_in(part)


def _settings_table(kind: type[msgspec.Struct], hidden: tuple[str, ...] = ()) -> str:
    rows = [row for row in settings_of(kind) if row["name"] not in hidden]
    if not rows:
        return "It has no settings."
    meanings = _field_docs(kind)
    lines = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    for row in rows:
        default = "required" if row["required"] else _default_text(kind, row)
        meaning = str(row["meaning"]) or meanings.get(str(row["name"]), "")
        cells = (f"`{row['name']}`", default, str(row["type"]), meaning)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _default_text(kind: type[msgspec.Struct], row: dict[str, object]) -> str:
    """The default as a file has it; nothing for a table that has a section of its own."""
    field = next(one for one in msgspec.structs.fields(kind) if one.encode_name == row["name"])
    if row["default"] is None or isinstance(field.default, msgspec.Struct):
        return ""
    return f"`{toml_text(row['default'])}`"


def _field_docs(kind: type) -> dict[str, str]:
    """The texts below the fields of a class, from its source."""
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        try:
            source = inspect.getsource(cls)
        except (OSError, TypeError):
            continue
        (parsed,) = ast.parse(textwrap.dedent(source)).body
        assert isinstance(parsed, ast.ClassDef)
        for field, text in itertools.pairwise(parsed.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return found


def _summary(kind: type) -> str:
    """The first paragraph of a class's text."""
    return _linked(" ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split()))


def _cell(text: str) -> str:
    return _linked(text.replace("|", "\\|"))


def _linked(text: str) -> str:
    """A text of the code, in which the names of pages become links."""
    return re.sub(r"\bdocs/([\w-]+\.md)\b", r"[\1](\1)", text)


def toml_text(value: object) -> str:
    """A value as a TOML file has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        items = [f"{key} = {toml_text(item)}" for key, item in value.items() if item is not None]
        return "{ " + ", ".join(items) + " }" if items else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_text, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
