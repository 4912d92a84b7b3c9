"""The applications of a scenario: the nodes that run them, the commands they get, and the calendar at the start."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.protocol import Application, Capability, Settings, find_application
from carrycast.core.settings import InputFile, parse_settings
from carrycast.core.streams import stream
from carrycast.errors import UserError
from carrycast.sim.scenario.draws import Selection, check_selection, resolve_selection

Time = Annotated[float, Meta(ge=0, le=1e9)]


class ApplicationEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[applications]]` of a scenario: the selected nodes run an application."""

    name: str
    """The application; `carrycast applications` lists them."""
    nodes: Selection = "all"
    """The nodes that run it: all, a number, a share, a list of ids, or a role."""
    settings: dict[str, object] = {}
    """The application's settings; `carrycast applications NAME` lists them."""


class CommandEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[command]]` of a scenario: a user of the selected nodes gives an application a command."""

    application: str
    """The application that receives the command."""
    verb: str
    """The command, by the name that the application has for it."""
    nodes: Selection = "all"
    """The nodes whose application receives it: all, a number, a share, a list of ids, or a role."""
    at_s: Time = 0.0
    """When the command is given."""
    body: dict[str, object] = {}
    """The arguments of the command, as the application defines them."""
    file: InputFile | None = None
    """A file whose content becomes the argument `text`."""


class Calendar(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[calendar]` of a scenario: the date and time at time 0. A node with a skewed clock has a skewed calendar."""

    start: Annotated[datetime, Meta(tz=False)] = datetime(2000, 1, 1)
    """The date and time at time 0, in UTC."""
    ahead_s: Annotated[int, Meta(ge=-50_400, le=50_400)] = 0
    """How far local time is ahead of UTC."""

    @property
    def start_s(self) -> float:
        """`start` in seconds since 1970."""
        return (self.start - datetime(1970, 1, 1)).total_seconds()


class PlacedApplication(NamedTuple):
    """An application of one node."""

    kind: type[Application]
    settings: Settings


class ApplicationCommand(NamedTuple):
    """A command to an application of one node, at a time."""

    time_s: float
    node: NodeId
    application: str
    verb: str
    body: bytes


def check_applications(
    applications: list[ApplicationEntry],
    commands: list[CommandEntry],
    nodes: int,
    roles: Mapping[str, object],
    offers: frozenset[Capability],
    where: str,
) -> None:
    """Reject applications and commands that could not run."""
    for place, entry in enumerate(applications):
        at = f"{where}: applications[{place}]"
        check_selection(entry.nodes, nodes, roles, f"{at}.nodes")
        placed = _parse_application(entry, at)
        lacking = (placed.kind.needs | placed.settings.needs()) - offers
        if lacking:
            raise UserError(f"{at}: {entry.name} needs {', '.join(sorted(lacking))}, which this scenario has not")
    names = {entry.name for entry in applications}
    for place, command in enumerate(commands):
        at = f"{where}: command[{place}]"
        check_selection(command.nodes, nodes, roles, f"{at}.nodes")
        if command.application not in names:
            raise UserError(f"{at}.application: nobody runs {command.application!r} here")


def _parse_application(entry: ApplicationEntry, where: str) -> PlacedApplication:
    try:
        kind = find_application(entry.name)
    except UserError as error:
        raise UserError(f"{where}.name: {error}") from None
    return PlacedApplication(kind, parse_settings(entry.settings, kind.settings_type, where, "settings"))


def place_applications(
    entries: list[ApplicationEntry], roles: dict[str, list[int]], nodes: int, seed: int, where: str
) -> dict[NodeId, list[PlacedApplication]]:
    """Return the applications of each node, in the order of the scenario."""
    found: dict[NodeId, list[PlacedApplication]] = {}
    for place, entry in enumerate(entries):
        at = f"{where}: applications[{place}]"
        one = _parse_application(entry, at)
        for node in resolve_selection(entry.nodes, roles, nodes, stream(seed, f"application {place}")):
            if any(other.kind.name == one.kind.name for other in found.get(node, ())):
                raise UserError(f"{at}.name: node {node} runs {entry.name} already")
            found.setdefault(node, []).append(one)
    return found


def draw_commands(
    entries: list[CommandEntry], roles: dict[str, list[int]], nodes: int, seed: int, where: str
) -> list[ApplicationCommand]:
    """Return all commands, sorted by time. File names in `entries` must be resolved (`Scenario.resolve_files`)."""
    found: list[ApplicationCommand] = []
    for place, entry in enumerate(entries):
        body = dict(entry.body)
        if entry.file is not None:
            try:
                body["text"] = Path(entry.file).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"{where}: command[{place}].file: cannot be read: {error}") from None
        told = msgspec.json.encode(body)
        for node in resolve_selection(entry.nodes, roles, nodes, stream(seed, f"command {place}")):
            found.append(ApplicationCommand(entry.at_s, node, entry.application, entry.verb, told))
    return sorted(found, key=lambda command: command.time_s)
