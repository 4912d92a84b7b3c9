"""Roles (RFC 3060): the nodes to which a policy applies, and their encoding as attributes and filters.

[000 §III] Nodes subscribe to policies by their roles. Attributes are scalars, so a set of roles is encoded as one
attribute for each role: a policy whose combinations mention `sensor` and `outdoor` carries `policy.role.sensor = true`
and `policy.role.outdoor = true`. A node subscribes to any of its roles:

    policy.id is not null and (policy.role.sensor = true or policy.role.relay = true)

Covering stays exact: one such filter covers another if and only if it names all its roles, and the filter of everything
(`policy.id is not null`) covers them all. A node with only some roles of a combination receives the policy too and
ignores it (`matches_roles`): a filter for each combination would need as many filters as the set has subsets.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta

from carrycast.core.model import Scalar
from carrycast.errors import UserError

NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
Role = Annotated[str, Meta(pattern=f"^{NAME}$")]

EVERYBODY = "all"
"""The role that every node has."""

POLICY_ID = "policy.id"
ANY_POLICY = f"{POLICY_ID} is not null"
ROLE_PREFIX = "policy.role."

MAX_ROLES = 200
"""The most roles of one policy over all its versions: an event has at most 256 attributes."""
ROLES_OF_A_FILTER = 40
"""Filters are compared exactly up to 64 alternatives and 4096 characters; 40 of the longest roles stay within both."""
MAX_FILTERS = 64
"""The most filters of one node. Together they have more than 2500 roles, which no node needs."""

# [RFC 3060 §6.2] A role combination: roles that a node must have all of.
Combination = tuple[Role, ...]


def normalize_combination(roles: Iterable[str]) -> Combination:
    """Sort the roles and remove duplicates. `all` is redundant beside another role."""
    unique = sorted(set(roles))
    return tuple(role for role in unique if role != EVERYBODY) or (EVERYBODY,)


def normalize_combinations(several: Iterable[Iterable[str]]) -> tuple[Combination, ...]:
    """Normalize several combinations, sort them and remove duplicates."""
    return tuple(sorted({normalize_combination(roles) for roles in several}))


def roles_in(several: Iterable[Combination]) -> tuple[Role, ...]:
    """Every role in some combinations."""
    return tuple(sorted({role for roles in several for role in roles}))


def matches_roles(several: Iterable[Combination], roles: Iterable[str]) -> bool:
    """[RFC 3060 §6.2] Whether a node with these roles has all roles of one combination."""
    held = {EVERYBODY, *roles}
    return any(held.issuperset(needed) for needed in several)


def find_common_roles(
    ones: Iterable[Combination], twos: Iterable[Combination], nodes: Sequence[frozenset[str]] | None = None
) -> Combination | None:
    """Find the roles of a node to which two policies may both apply; None if there is no such node.

    Exact if the roles of all nodes are known. Otherwise combinations overlap if they have a role in common or one is
    `all`. A node may have any roles, but if all policies overlapped, too many would be refused.
    """
    others = list(twos)
    for one in ones:
        for two in others:
            joined = normalize_combination((*one, *two))
            if nodes is not None:
                if any(matches_roles([joined], held) for held in nodes):
                    return joined
            elif EVERYBODY in (*one, *two) or set(one) & set(two):
                return joined
    return None


def role_attributes(roles: Iterable[str]) -> dict[str, Scalar]:
    """The attributes of a policy that mentions these roles."""
    return {f"{ROLE_PREFIX}{role}": True for role in roles}


def role_filters(roles: Iterable[str]) -> list[str]:
    """The filters, as few as possible, of all policies that mention any of these roles or `all`."""
    wanted = [EVERYBODY, *sorted(set(roles) - {EVERYBODY})]
    if len(wanted) > MAX_FILTERS * ROLES_OF_A_FILTER:
        raise UserError(f"a node can ask for at most {MAX_FILTERS * ROLES_OF_A_FILTER} roles, not {len(wanted)}")
    parts = [wanted[at : at + ROLES_OF_A_FILTER] for at in range(0, len(wanted), ROLES_OF_A_FILTER)]
    return [f"{ANY_POLICY} and ({' or '.join(_role_condition(role) for role in part)})" for part in parts]


def _role_condition(role: str) -> str:
    return f'"{ROLE_PREFIX}{role}" = true'


def overlap_filters(several: Iterable[Combination]) -> list[str]:
    """The filters of all policies whose roles may overlap with these combinations."""
    roles = roles_in(several)
    return [ANY_POLICY] if EVERYBODY in roles else role_filters(roles)
