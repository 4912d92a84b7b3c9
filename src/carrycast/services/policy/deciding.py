"""Deciding: which policies hold for a node now, and which of their actions stand.

Pure functions over what is known; the decision point and its tests call them.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from carrycast.core.model import Scalar
from carrycast.core.model.wall_clock import WallTime
from carrycast.services.policy.notices import Wanted
from carrycast.services.policy.period import holds_any
from carrycast.services.policy.record import Held
from carrycast.services.policy.roles import applies
from carrycast.services.policy.rule import Action, Enabled, Policy, contradict


class Decision(NamedTuple):
    """What a node is to do, and which rules of equal priority wanted opposite things."""

    wanted: tuple[Wanted, ...]
    tied: tuple[tuple[str, str], ...]
    """The id of the rule that stands, and of the one that was overruled."""


def holds(policy: Policy, roles: Iterable[str], attributes: Mapping[str, Scalar], wall: WallTime | None) -> bool:
    """Whether a rule applies to a node with some roles, of which something is known, at a moment.

    A node without a clock takes a rule with periods for one that does not hold: that does the least.
    """
    if policy.enabled is Enabled.DISABLED or not applies(policy.roles, roles):
        return False
    if policy.periods and (wall is None or not holds_any(policy.periods, wall)):
        return False
    return policy.conditions.filter.matches(attributes)


def why_not(policy: Policy, roles: Iterable[str], attributes: Mapping[str, Scalar], wall: WallTime | None) -> str:
    """Why a rule that a node holds is not wanted of it now."""
    if policy.enabled is Enabled.DISABLED:
        return "it is disabled"
    if not applies(policy.roles, roles):
        return "it is for other roles"
    if policy.periods and wall is None:
        return "it has time periods, and the node has no clock"
    if policy.periods and wall is not None and not holds_any(policy.periods, wall):
        return "it is not its time"
    if not policy.conditions.filter.matches(attributes):
        return "its conditions do not hold"
    return "policies of higher priority, or of the same and a lesser name, want otherwise"


def decide(
    known: Iterable[Held], roles: Iterable[str], attributes: Mapping[str, Scalar], wall: WallTime | None
) -> Decision:
    """[RFC 3060 §6.1] Of rules that contradict each other the one with the higher priority stands.

    Of equals the one with the lower id does, so that every decision point says the same; that is told as a tie.
    """
    own = tuple(roles)
    active = [held for held in known if not held.record.withdrawn and holds(held.record.policy, own, attributes, wall)]
    active.sort(key=lambda held: (-held.record.policy.priority, held.record.policy.id))
    standing: dict[str, tuple[Policy, Action]] = {}
    wanted: list[Wanted] = []
    tied: list[tuple[str, str]] = []
    for held in active:
        policy = held.record.policy
        debug = policy.enabled is Enabled.DEBUG
        kept: list[Action] = []
        for action in policy.actions:
            winner = standing.get(action.target)
            if winner is None or not contradict(winner[1], action):
                kept.append(action)
                if not debug:
                    standing.setdefault(action.target, (policy, action))
            elif winner[0].priority == policy.priority:
                tied.append((winner[0].id, policy.id))
        if kept:
            wanted.append(
                Wanted(policy.id, policy.version, held.event.source, tuple(kept), policy.execution, debug=debug)
            )
    return Decision(tuple(wanted), tuple(dict.fromkeys(tied)))


def next_change_s(known: Iterable[Held], wall: WallTime | None) -> float:
    """For how long no period begins or ends."""
    if wall is None:
        return float("inf")
    periods = [period for held in known for period in held.record.policy.periods if not held.record.withdrawn]
    return min((period.change_s(wall) for period in periods), default=float("inf"))
