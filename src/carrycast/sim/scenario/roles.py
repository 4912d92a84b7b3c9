"""Roles of a scenario: named groups of nodes. A role may be a subset of another, or disjoint from others."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.core.streams import stream
from carrycast.errors import UserError
from carrycast.sim.scenario.draws import Selection, check_selection, select_nodes, selection_size

Name = Annotated[str, Meta(min_length=1, max_length=64)]


class Role(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A role whose nodes depend on those of others: `{ nodes = 5, within = "consumers", apart = ["producers"] }`."""

    nodes: Selection = "all"
    """All nodes that remain, a number of them, a share of them, or a list of ids."""
    within: Name | None = None
    """Only nodes that have this role are drawn."""
    apart: list[Name] = []
    """Only nodes that have none of these roles are drawn."""


RoleEntry: TypeAlias = Selection | Role
"""In a scenario: a selection of nodes, or a table that refers to other roles."""


def check_roles(roles: Mapping[str, RoleEntry], nodes: int, where: str) -> None:
    """Reject roles that can never be drawn.

    Whether enough nodes are left may depend on the draw. One draw here finds roles that never fit; a run whose own draw
    does not fit is rejected then.
    """
    for name, entry in roles.items():
        at = f"{where}: roles.{name}"
        check_selection(entry.nodes if isinstance(entry, Role) else entry, nodes, {}, at)
        for other in _find_references(entry):
            if other not in roles:
                raise UserError(f"{at}: there is no role {other!r}; there are {', '.join(roles)}")
    if any(isinstance(entry, Role) for entry in roles.values()):
        draw_roles(roles, nodes, 0, where)


def draw_roles(roles: Mapping[str, RoleEntry], nodes: int, seed: int, where: str) -> dict[str, list[int]]:
    """Draw the nodes of each role, in the order of the roles. Each role has its own random stream."""
    drawn: dict[str, list[int]] = {}
    for name in _sort_roles(roles, where):
        entry, rng = roles[name], stream(seed, f"role {name}")
        if not isinstance(entry, Role):
            drawn[name] = select_nodes(entry, nodes, rng)
            continue
        pool = _find_candidates(entry, drawn, nodes)
        if isinstance(entry.nodes, list):
            misplaced = sorted(set(entry.nodes) - set(pool))
            if misplaced:
                raise UserError(f"{where}: roles.{name}: node {misplaced[0]} is not {_describe_pool(entry)}")
            drawn[name] = sorted(set(entry.nodes))
            continue
        count = selection_size(entry.nodes, len(pool))
        if count > len(pool):
            raise UserError(f"{where}: roles.{name}: {count} nodes, but only {len(pool)} are {_describe_pool(entry)}")
        drawn[name] = sorted(rng.sample(pool, count))
    return {name: drawn[name] for name in roles}


def _sort_roles(roles: Mapping[str, RoleEntry], where: str) -> list[str]:
    """Sort the roles so that each comes after the roles that it refers to."""
    order: dict[str, None] = {}
    while len(order) < len(roles):
        ready = [
            name for name, entry in roles.items() if name not in order and set(_find_references(entry)) <= order.keys()
        ]
        if not ready:
            circle = ", ".join(name for name in roles if name not in order)
            raise UserError(f"{where}: roles: {circle} refer to each other in a circle; let one of them be given alone")
        order |= dict.fromkeys(ready)
    return list(order)


def _find_references(entry: RoleEntry) -> list[str]:
    """Return the roles that an entry refers to."""
    if not isinstance(entry, Role):
        return []
    return entry.apart if entry.within is None else [entry.within, *entry.apart]


def _find_candidates(role: Role, drawn: Mapping[str, list[int]], nodes: int) -> list[int]:
    taken = {node for other in role.apart for node in drawn[other]}
    return [node for node in (range(nodes) if role.within is None else drawn[role.within]) if node not in taken]


def _describe_pool(role: Role) -> str:
    within = "" if role.within is None else f"within {role.within}"
    apart = f"apart from {', '.join(role.apart)}" if role.apart else ""
    return " and ".join(filter(None, (within, apart))) or "there"
