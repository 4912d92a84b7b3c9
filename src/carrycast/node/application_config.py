"""What a node's configuration says of applications, and of what policies may do to the node."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.protocol import Capability
from carrycast.core.protocol.application import application_named
from carrycast.core.settings import parse_settings
from carrycast.errors import UserError
from carrycast.node.link.config import Name, Section
from carrycast.node.runtime.actions import AllowedActions, AllowedCommand
from carrycast.node.runtime.application_host import ApplicationConfig


class ApplicationSection(Section, frozen=True):
    """One `[[applications]]`: an application that the node runs."""

    name: Name
    settings: dict[str, object] = msgspec.field(default_factory=dict)


class CommandSection(Section, frozen=True):
    """One `[enforcement.commands.NAME]`: a program, and every list of arguments that a policy may give it."""

    run: Annotated[tuple[str, ...], Meta(min_length=1)]
    arguments: tuple[tuple[str, ...], ...] = ((),)


class EnforcementSection(Section, frozen=True):
    """`[enforcement]`: what policies may do to the node. Commands are off unless they are listed."""

    settings: bool = True
    commands: dict[Name, CommandSection] = msgspec.field(default_factory=dict)

    def allowed(self) -> AllowedActions:
        """The same, for the host."""
        commands = {name: AllowedCommand(one.run, one.arguments) for name, one in self.commands.items()}
        return AllowedActions(self.settings, commands)


def configured(
    sections: tuple[ApplicationSection, ...], offers: frozenset[Capability], path: Path
) -> tuple[ApplicationConfig, ...]:
    """The applications of a node, checked; a UserError says what is wrong."""
    found: dict[str, ApplicationConfig] = {}
    for place, section in enumerate(sections):
        at = f"{path}: applications[{place}]"
        try:
            kind = application_named(section.name)
        except UserError as error:
            raise UserError(f"{at}.name: {error}") from None
        if section.name in found:
            raise UserError(f"{at}.name: {section.name} stands there already")
        settings = parse_settings(section.settings, kind.settings_type, at, "settings")
        lacking = (kind.needs | settings.needs()) - offers
        if lacking:
            raise UserError(f"{at}: {section.name} needs {', '.join(sorted(lacking))}, which this node has not")
        found[section.name] = ApplicationConfig(kind, settings)
    return tuple(found.values())
