"""Makes the stack of a node from its settings tables, which are the same in scenarios and node configurations.

`[protocol]` has `name`, optionally `variant`, and the protocol's settings; `[router]` has the same. A protocol that
uses a router has a default router; `router` in its table, or `[router]`, selects another.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from carrycast.core.protocol import (
    BeaconSettings,
    Capability,
    Protocol,
    Router,
    Settings,
    StackPlan,
    StateMachine,
    UsesRouter,
    find_protocol,
    find_router,
)
from carrycast.core.settings import parse_settings, unknown_key
from carrycast.errors import UserError

M = TypeVar("M", bound=StateMachine)


class _Choice(NamedTuple):
    """The content of a `[protocol]` table: the protocol, its settings, the router in the table and the default one."""

    kind: type[Protocol]
    settings: Settings
    router: object
    default_router: object


DEFAULT_PROTOCOL = "drift"
"""The protocol of scenarios and nodes that do not name one."""


def make_stack_plan(
    protocol: Mapping[str, object],
    router: Mapping[str, object] | None,
    beacons: BeaconSettings | None,
    offers: frozenset[Capability],
    where: str,
    roles: Collection[str] | None = None,
) -> StackPlan:
    """Make the plan of every node's stack. Errors name the place of the problem.

    `roles` are the roles of all nodes; None if they are not known.
    """
    choice = _choose_protocol(protocol, where)
    if roles is not None:
        _check_roles(choice.kind, choice.settings, roles, where)
    # The table is checked even if the protocol uses no router, so that errors are found early.
    stated = None if router is None else _parse_machine(router, "router", find_router, where)
    if not issubclass(choice.kind, UsesRouter):
        _check_needs(choice.kind, choice.settings, offers, f"{where}: protocol")
        return StackPlan(choice.kind, choice.settings, beacons=beacons)
    if choice.router is not None or stated is None:
        named = choice.default_router if choice.router is None else choice.router
        if not named:
            raise UserError(f"{where}: router: {choice.kind.name} sends through a router; name one")
        stated = _parse_machine(_router_table(named, where), "protocol.router", find_router, where)
    router_kind, router_settings = stated
    _check_needs(router_kind, router_settings, offers, f"{where}: router")
    _check_needs(choice.kind, choice.settings, offers | router_kind.offers, f"{where}: protocol", router_kind.name)
    return StackPlan(choice.kind, choice.settings, router_kind, router_settings, beacons)


def needed_roles(machine: type[StateMachine], settings: Settings) -> frozenset[str]:
    """The roles that a machine needs."""
    return machine.needs_roles | settings.needs_roles()


def needs_beacons(plan: StackPlan) -> bool:
    """Whether the stack needs link notifications: not if the router discovers neighbors itself and the protocol does
    not handle links."""
    if plan.router is None or not plan.router.finds_neighbors:
        return True
    return plan.protocol.on_link_up is not StateMachine.on_link_up


def select_protocol(table: Mapping[str, object], where: str) -> tuple[type[Protocol], Settings]:
    """A protocol and its settings."""
    choice = _choose_protocol(table, where)
    return choice.kind, choice.settings


def select_router(table: Mapping[str, object], where: str) -> tuple[type[Router], Settings]:
    """A router and its settings."""
    return _parse_machine(table, "router", find_router, where)


def _choose_protocol(table: Mapping[str, object], where: str) -> _Choice:
    kind, settings = _find_machine(table, "protocol", find_protocol, where)
    if not issubclass(kind, UsesRouter):
        if "router" in table:
            raise UserError(f"{where}: protocol.router: {kind.name} uses no router; leave it out")
        return _Choice(kind, parse_settings(settings, kind.settings_type, where, "protocol"), None, None)
    named = settings.pop("router", kind.router)
    return _Choice(kind, parse_settings(settings, kind.settings_type, where, "protocol"), table.get("router"), named)


def _router_table(named: object, where: str) -> Mapping[str, object]:
    """Return the table of a router given as `name`, `name/variant` or a table."""
    if isinstance(named, Mapping):
        return named
    if not isinstance(named, str):
        raise UserError(f"{where}: protocol.router: write a name, 'name/variant' or a table, not {named!r}")
    name, slash, variant = named.partition("/")
    return {"name": name, "variant": variant} if slash else {"name": name}


def _parse_machine(
    table: Mapping[str, object], place: str, find: Callable[[str], type[M]], where: str
) -> tuple[type[M], Settings]:
    kind, settings = _find_machine(table, place, find, where)
    return kind, parse_settings(settings, kind.settings_type, where, place)


def _find_machine(
    table: Mapping[str, object], place: str, find: Callable[[str], type[M]], where: str
) -> tuple[type[M], dict[str, object]]:
    """Return the machine that a table names, and its settings including those of the variant."""
    settings = dict(table)
    name = settings.pop("name", None)
    if not isinstance(name, str):
        kinds = f"{place.rpartition('.')[2]}s"
        raise UserError(f"{where}: {place}.name: is needed, as a text; `carrycast {kinds}` lists what there is")
    try:
        kind = find(name)
    except UserError as error:
        raise UserError(f"{where}: {place}.name: {error}") from None
    variant = settings.pop("variant", None)
    if variant is not None:
        if not isinstance(variant, str) or variant not in kind.variants:
            raise UserError(f"{where}: {place}.variant: {unknown_key(str(variant), list(kind.variants))}")
        settings = {**kind.variants[variant], **settings}
    return kind, settings


def _check_roles(machine: type[StateMachine], settings: Settings, roles: Collection[str], where: str) -> None:
    missing = needed_roles(machine, settings) - set(roles)
    if missing:
        wanted, there = " and ".join(sorted(missing)), ", ".join(roles) or "none"
        raise UserError(f"{where}: roles: {machine.name} needs nodes with the role {wanted}; there are {there}")


def _check_needs(
    machine: type[StateMachine], settings: Settings, offers: frozenset[Capability], where: str, router: str = ""
) -> None:
    always, also = machine.needs - offers, settings.needs() - offers
    if always or also:
        needed = ", ".join(sorted(always | also))
        because = "" if always else " with these settings"
        offered = ", ".join(sorted(offers)) or "nothing"
        over = f", over the router {router}," if router else ""
        raise UserError(f"{where}: {machine.name} needs {needed}{because}; what is offered{over} is {offered}")
