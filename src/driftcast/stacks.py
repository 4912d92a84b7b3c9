"""A node's stack from the tables that people write, the same in scenarios and in the configurations of live nodes.

`[protocol]` has `name`, perhaps `variant`, and settings of the protocol's own; `[router]` likewise.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from driftcast.errors import UserError
from driftcast.protocol import BeaconSettings, Capability, Settings, StackPlan, UsesRouter
from driftcast.protocol.machine import Protocol, Router, StateMachine
from driftcast.protocol.registry import protocol_named, router_named
from driftcast.settings import typed, unknown_key

M = TypeVar("M", bound=StateMachine)


def stack_plan(
    protocol: Mapping[str, object],
    router: Mapping[str, object] | None,
    beacons: BeaconSettings | None,
    offers: frozenset[Capability],
    where: str,
) -> StackPlan:
    """The machines of every node; whatever is wrong with them is named with its place."""
    kind, settings = chosen_protocol(protocol, where)
    uses = issubclass(kind, UsesRouter)
    if uses and router is None:
        raise UserError(f"{where}: router: {kind.name} sends through a router; name one")
    if not uses and router is not None:
        raise UserError(f"{where}: router: {kind.name} uses no router; leave it out")
    _check_needs(kind, settings, offers, f"{where}: protocol")
    if router is None:
        return StackPlan(kind, settings, beacons=beacons)
    router_kind, router_settings = chosen_router(router, where)
    _check_needs(router_kind, router_settings, offers, f"{where}: router")
    return StackPlan(kind, settings, router_kind, router_settings, beacons)


def chosen_protocol(table: Mapping[str, object], where: str) -> tuple[type[Protocol], Settings]:
    """A protocol and its settings."""
    return _machine(table, "protocol", protocol_named, where)


def chosen_router(table: Mapping[str, object], where: str) -> tuple[type[Router], Settings]:
    """A router and its settings."""
    return _machine(table, "router", router_named, where)


def _machine(
    table: Mapping[str, object], place: str, find: Callable[[str], type[M]], where: str
) -> tuple[type[M], Settings]:
    settings = dict(table)
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise UserError(f"{where}: {place}.name: is needed, as a text; `driftcast {place}s` lists what there is")
    try:
        kind = find(name)
    except UserError as error:
        raise UserError(f"{where}: {place}.name: {error}") from None
    variant = settings.pop("variant", None)
    if variant is not None:
        if variant not in kind.variants:
            raise UserError(f"{where}: {place}.variant: {unknown_key(str(variant), list(kind.variants))}")
        settings = {**kind.variants[str(variant)], **settings}
    return kind, typed(settings, kind.settings_type, where, place)


def _check_needs(machine: type[StateMachine], settings: Settings, offers: frozenset[Capability], where: str) -> None:
    always, also = machine.needs - offers, settings.needs() - offers
    if always or also:
        needed = ", ".join(sorted(always | also))
        because = "" if always else " with these settings"
        offered = ", ".join(sorted(offers)) or "nothing"
        raise UserError(f"{where}: {machine.name} needs {needed}{because}; what is offered is {offered}")
