"""Conflicts: two rules that can apply to one node at one moment and want opposite things.

[000 §III] Before a policy is published, those it might conflict with are asked for and compared. Two rules conflict if
their roles overlap, their periods do, their conditions can hold together, and their actions contradict each other. Of
two with different priorities the higher one wins, and that is no conflict but an order.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from carrycast.core.matching import Satisfiability, check_satisfiability, find_example
from carrycast.services.policy.roles import EVERYBODY, Combination, common_roles
from carrycast.services.policy.rule import Action, Enabled, Policy, contradicts, format_action, format_scalar
from carrycast.services.policy.time_period import PeriodOverlap, find_overlap


class PolicyConflict(NamedTuple):
    """Two rules that contradict each other, and when they would."""

    one: Policy
    two: Policy
    roles: Combination
    """Of a node that would be told both."""
    meeting: PeriodOverlap
    conditions: str
    """What then holds; empty if both always do."""
    certain: bool
    """False if the conditions were too many to be decided."""
    actions: tuple[tuple[Action, Action], ...]
    """Those that contradict each other, in pairs."""

    @property
    def winner(self) -> Policy | None:
        """The rule that priority lets stand; None if they have the same."""
        if self.one.priority == self.two.priority:
            return None
        return max(self.one, self.two, key=lambda policy: policy.priority)

    def explain(self) -> str:
        """One line: which rules, to whom, when, about what, and what is to be done."""
        who = "every node" if self.roles == (EVERYBODY,) else f"a node that is {' and '.join(self.roles)}"
        said = [f"{_named(self.one)} and {_named(self.two)} both {'apply' if self.certain else 'may apply'} to {who}"]
        if self.meeting.moment is not None:
            clock = "local time" if self.meeting.local else "UTC"
            said.append(f"at {self.meeting.moment.isoformat(sep=' ')} {clock}")
        elif self.one.periods and self.two.periods:
            said.append("at times that depend on where it is, one being in local time and the other in UTC")
        if self.conditions:
            said.append(f"when {self.conditions}")
        pairs = " and ".join(f"{format_action(one)} against {format_action(two)}" for one, two in self.actions)
        winner = self.winner
        ending = (
            "give one of them the higher priority, or change one"
            if winner is None
            else f"{_named(winner)} wins by its priority of {winner.priority}"
        )
        return f"{', '.join(said)}: {pairs}; {ending}"


def _named(policy: Policy) -> str:
    return f"{policy.id} (version {policy.version})"


def find_conflict(one: Policy, two: Policy, nodes: Sequence[frozenset[str]] | None = None) -> PolicyConflict | None:
    """How two rules contradict each other; None if they cannot. `nodes`: the roles of each node, where all are known.

    What is cheap is asked first; what cannot be decided counts as a clash.
    """
    if one.id == two.id or Enabled.ENABLED is not one.enabled or Enabled.ENABLED is not two.enabled:
        # A version replaces another, and what does nothing contradicts nobody.
        return None
    actions = tuple((a, b) for a in one.actions for b in two.actions if contradicts(a, b))
    if not actions:
        return None
    roles = common_roles(one.roles, two.roles, nodes)
    if roles is None:
        return None
    meeting = find_overlap(one.periods, two.periods)
    if meeting is None:
        return None
    first, second = one.conditions.filter, two.conditions.filter
    found = check_satisfiability([first.node, second.node])
    if found.answer is Satisfiability.NO:
        return None
    conditions = " and ".join(f"({text})" for text in dict.fromkeys((first.text, second.text)) if text != "true")
    values = find_example(found.box) if found.answer is Satisfiability.YES else None
    # An example must be one: numbers have gaps that the search does not know of.
    if values and first.matches(values) and second.matches(values):
        conditions += f", as with {', '.join(f'{name} = {format_scalar(value)}' for name, value in values.items())}"
    return PolicyConflict(one, two, roles, meeting, conditions, found.answer is Satisfiability.YES, actions)


def find_conflicts(
    new: Policy, known: Iterable[Policy], nodes: Sequence[frozenset[str]] | None = None
) -> tuple[list[PolicyConflict], list[PolicyConflict]]:
    """What is to be refused, and what priority decides."""
    found = [one for policy in known if (one := find_conflict(new, policy, nodes)) is not None]
    refused = [one for one in found if one.winner is None]
    return refused, [one for one in found if one.winner is not None]


def never(policy: Policy) -> str:
    """Why a rule can never apply; empty if it can. No mistake that hurts, but hardly meant."""
    if check_satisfiability([policy.conditions.filter.node]).answer is Satisfiability.NO:
        return f"{_named(policy)} never applies: its conditions cannot hold together"
    if policy.periods and find_overlap(policy.periods, policy.periods) is None:
        return f"{_named(policy)} never applies: no moment lies in its periods"
    return ""
