"""A policy rule with the semantics of PCIM (RFC 3060): roles, time periods, conditions and actions.

[000 §III] `Roles [TimePeriod] if {conditions} then {actions}`.
"""

import enum
import math
from functools import cached_property
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.core.matching import Filter
from carrycast.core.model import FilterText, Scalar
from carrycast.services.policy.roles import MAX_ROLES, NAME, Combination, normalize_combinations, roles_in
from carrycast.services.policy.time_period import TimePeriod

Name = Annotated[str, Meta(pattern=f"^{NAME}$")]
VARIABLE = r"[A-Za-z_][A-Za-z0-9_.-]{0,127}"
Variable = Annotated[str, Meta(pattern=f"^{VARIABLE}$")]
Text = Annotated[str, Meta(max_length=1024)]


MAX_VERSION = 2**31


class Enabled(enum.StrEnum):
    """[RFC 3060 §6.1] The administrative state of a rule."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    DEBUG = "debug"
    """Conditions are evaluated and reported, but no action is performed."""


class ConditionForm(enum.StrEnum):
    """[RFC 3060 §6.1] The form in which groups of conditions are combined (ConditionListType)."""

    DNF = "dnf"
    """Disjunctive normal form: all conditions of at least one group."""
    CNF = "cnf"
    """Conjunctive normal form: at least one condition of every group."""


class ExecutionStrategy(enum.StrEnum):
    """[RFC 3460 §5.2] The point at which the execution of a list of actions stops. Actions run in order."""

    ALL = "all"
    UNTIL_SUCCESS = "until success"
    UNTIL_FAILURE = "until failure"


class PolicyCondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A filter over the attributes of a node, or its negation. The text is canonical."""

    filter: FilterText
    negated: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "filter", Filter(self.filter).text)


class PolicyConditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """Groups of conditions. Without any group they always hold."""

    groups: Annotated[
        tuple[Annotated[tuple[PolicyCondition, ...], Meta(min_length=1, max_length=32)], ...], Meta(max_length=32)
    ] = ()
    form: ConditionForm = ConditionForm.DNF

    @cached_property
    def filter(self) -> Filter:
        """All groups as one filter; raises FilterError if it would be too long."""
        if not self.groups:
            return Filter("true")
        inside, between = (" and ", " or ") if self.form is ConditionForm.DNF else (" or ", " and ")
        groups = (inside.join(_format_condition(condition) for condition in group) for group in self.groups)
        return Filter(between.join(f"({group})" for group in groups))


def _format_condition(condition: PolicyCondition) -> str:
    return f"not ({condition.filter})" if condition.negated else f"({condition.filter})"


class SetVariable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="set"):
    """[RFC 3460 §5.8] Set a variable of the node to a value."""

    variable: Variable
    value: Scalar

    def __post_init__(self) -> None:
        _check_scalar(self.value)

    @property
    def target(self) -> str:
        """The variable or command that the action concerns; only actions with the same target can contradict."""
        return self.variable


class RunCommand(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="do", tag="run"
):
    """Run a command of the node by its name. The same command with other arguments contradicts it."""

    command: Name
    arguments: Annotated[tuple[Text, ...], Meta(max_length=16)] = ()

    def __post_init__(self) -> None:
        for argument in self.arguments:
            _check_scalar(argument)

    @property
    def target(self) -> str:
        """The variable or command that the action concerns; only actions with the same target can contradict."""
        return f"run {self.command}"


Action: TypeAlias = SetVariable | RunCommand


def _check_scalar(value: Scalar) -> None:
    if isinstance(value, str):
        if len(value) > 1024:
            raise ValueError("a text has at most 1024 characters")
        if not value.isprintable():
            raise ValueError("a text has no line breaks or other control characters")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a value is a finite number")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number has at most 64 bits")


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A policy rule. Equal rules have the same text and the same JSON."""

    id: Name
    version: Annotated[int, Meta(ge=1, le=MAX_VERSION)] = 1
    priority: Annotated[int, Meta(ge=0, le=2**31)] = 0
    """Of two rules that contradict each other, the one with the higher priority wins."""
    enabled: Enabled = Enabled.ENABLED
    about: Text = ""
    roles: Annotated[tuple[Annotated[Combination, Meta(min_length=1, max_length=16)], ...], Meta(min_length=1)]
    periods: Annotated[tuple[TimePeriod, ...], Meta(max_length=16)] = ()
    conditions: PolicyConditions = PolicyConditions()
    execution: ExecutionStrategy = ExecutionStrategy.ALL
    actions: Annotated[tuple[Action, ...], Meta(min_length=1, max_length=64)]

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "roles", normalize_combinations(self.roles))
        _check_scalar(self.about)
        if len(roles_in(self.roles)) > MAX_ROLES:
            raise ValueError(f"roles: a policy mentions at most {MAX_ROLES}")
        # Conditions that do not fit in one filter cannot be compared with those of other policies.
        _ = self.conditions.filter
        said: dict[str, Action] = {}
        for action in self.actions:
            before = said.setdefault(action.target, action)
            if contradicts(before, action):
                raise ValueError(f"actions: {format_action(before)} and {format_action(action)} contradict each other")


def contradicts(one: Action, two: Action) -> bool:
    """Whether two actions have the same target and different effects. True and 1 are different, as in filters."""
    if one.target != two.target:
        return False
    if isinstance(one, SetVariable) and isinstance(two, SetVariable):
        if isinstance(one.value, bool) is not isinstance(two.value, bool):
            return True
        return one.value != two.value
    return one != two


def format_action(action: Action) -> str:
    """Format an action as in the text of a policy."""
    if isinstance(action, SetVariable):
        return f"set {action.variable} = {format_scalar(action.value)}"
    return " ".join(["run", action.command, *(format_scalar(argument) for argument in action.arguments)])


def format_scalar(value: Scalar) -> str:
    """Format a value as in the text of policies and filters."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else repr(value)
