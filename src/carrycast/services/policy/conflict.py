"""Policy conflicts (RFC 3198): two rules that can apply to one node at the same time with contradicting actions.

[000 §III] Before a policy is published, the policies that it might conflict with are retrieved and compared. Two rules
conflict if their roles and time periods overlap, their conditions can hold together, and their actions contradict each
other. If their priorities differ, the rule with the higher priority wins and the conflict is resolved.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from carrycast.core.matching import Satisfiability, check_satisfiability, find_example
from carrycast.services.policy.roles import EVERYBODY, Combination, find_common_roles
from carrycast.services.policy.rule import Action, Enabled, Policy, contradicts, format_action, format_scalar
from carrycast.services.policy.time_period import PeriodOverlap, find_overlap


class PolicyConflict(NamedTuple):
    """Two rules that contradict each other, and the circumstances."""

    one: Policy
    two: Policy
    roles: Combination
    """The roles of a node to which both rules apply."""
    overlap: PeriodOverlap
    conditions: str
    """The conditions under which both apply; empty if there are none."""
    certain: bool
    """False if the search was aborted, so that the conditions may be unsatisfiable."""
    actions: tuple[tuple[Action, Action], ...]
    """The pairs of actions that contradict each other."""

    @property
    def winner(self) -> Policy | None:
        """The rule with the higher priority; None if the priorities are equal."""
        if self.one.priority == self.two.priority:
            return None
        return max(self.one, self.two, key=lambda policy: policy.priority)

    def explain(self) -> str:
        """Describe the conflict in one line: the rules, nodes, time, conditions, actions, and the resolution."""
        verb = "apply" if self.certain else "may apply"
        who = "every node" if self.roles == (EVERYBODY,) else f"a node that is {' and '.join(self.roles)}"
        said = [f"{_format_name(self.one)} and {_format_name(self.two)} both {verb} to {who}"]
        if self.overlap.moment is not None:
            clock = "local time" if self.overlap.local else "UTC"
            said.append(f"at {self.overlap.moment.isoformat(sep=' ')} {clock}")
        elif self.one.periods and self.two.periods:
            said.append("at times that depend on where it is, one being in local time and the other in UTC")
        if self.conditions:
            said.append(f"when {self.conditions}")
        pairs = " and ".join(f"{format_action(one)} against {format_action(two)}" for one, two in self.actions)
        winner = self.winner
        ending = (
            "give one of them the higher priority, or change one"
            if winner is None
            else f"{_format_name(winner)} wins by its priority of {winner.priority}"
        )
        return f"{', '.join(said)}: {pairs}; {ending}"


def _format_name(policy: Policy) -> str:
    return f"{policy.id} (version {policy.version})"


def find_conflict(one: Policy, two: Policy, nodes: Sequence[frozenset[str]] | None = None) -> PolicyConflict | None:
    """Find the conflict of two rules, or None. `nodes` are the roles of each node, if all are known.

    The cheapest tests come first. If the conditions cannot be decided, the rules conflict.
    """
    if one.id == two.id or Enabled.ENABLED is not one.enabled or Enabled.ENABLED is not two.enabled:
        # Versions of one policy replace each other, and a rule that is not enabled performs no action.
        return None
    actions = tuple((a, b) for a in one.actions for b in two.actions if contradicts(a, b))
    if not actions:
        return None
    roles = find_common_roles(one.roles, two.roles, nodes)
    if roles is None:
        return None
    overlap = find_overlap(one.periods, two.periods)
    if overlap is None:
        return None
    first, second = one.conditions.filter, two.conditions.filter
    found = check_satisfiability([first.node, second.node])
    if found.answer is Satisfiability.NO:
        return None
    conditions = " and ".join(f"({text})" for text in dict.fromkeys((first.text, second.text)) if text != "true")
    values = find_example(found.box) if found.answer is Satisfiability.YES else None
    # The example is verified, because the search takes numbers as reals.
    if values and first.matches(values) and second.matches(values):
        conditions += f", as with {', '.join(f'{name} = {format_scalar(value)}' for name, value in values.items())}"
    return PolicyConflict(one, two, roles, overlap, conditions, found.answer is Satisfiability.YES, actions)


def find_conflicts(
    new: Policy, known: Iterable[Policy], nodes: Sequence[frozenset[str]] | None = None
) -> tuple[list[PolicyConflict], list[PolicyConflict]]:
    """Return the unresolved conflicts of a new policy, and those that priority resolves."""
    found = [one for policy in known if (one := find_conflict(new, policy, nodes)) is not None]
    refused = [one for one in found if one.winner is None]
    return refused, [one for one in found if one.winner is not None]


def explain_inapplicable(policy: Policy) -> str:
    """Explain why a rule can never apply; empty if it can. Such a rule does no harm, but is probably a mistake."""
    if check_satisfiability([policy.conditions.filter.node]).answer is Satisfiability.NO:
        return f"{_format_name(policy)} never applies: its conditions cannot hold together"
    if policy.periods and find_overlap(policy.periods, policy.periods) is None:
        return f"{_format_name(policy)} never applies: no moment lies in its periods"
    return ""
