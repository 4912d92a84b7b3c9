"""A management policy: roles, time periods, conditions, actions, with the semantics of PCIM.

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
    """[RFC 3060 §6.1] Whether a rule is in force."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    DEBUG = "debug"
    """Conditions are looked at and reported, but nothing is done."""


class ConditionForm(enum.StrEnum):
    """[RFC 3060 §6.1] How groups of conditions are joined."""

    DNF = "dnf"
    """All of one group, any group."""
    CNF = "cnf"
    """Any of each group, every group."""


class ExecutionStrategy(enum.StrEnum):
    """[RFC 3460 §5.2] How far a list of actions is gone through. Their order is always kept."""

    ALL = "all"
    UNTIL_SUCCESS = "until success"
    UNTIL_FAILURE = "until failure"


class PolicyCondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A filter over what is known of the node, or its opposite. The text is canonical."""

    filter: FilterText
    negated: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "filter", Filter(self.filter).text)


class PolicyConditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """Groups of conditions; none at all always hold."""

    groups: Annotated[
        tuple[Annotated[tuple[PolicyCondition, ...], Meta(min_length=1, max_length=32)], ...], Meta(max_length=32)
    ] = ()
    form: ConditionForm = ConditionForm.DNF

    @cached_property
    def filter(self) -> Filter:
        """All of it as one filter; a FilterError if it is too long to be one."""
        if not self.groups:
            return Filter("true")
        inside, between = (" and ", " or ") if self.form is ConditionForm.DNF else (" or ", " and ")
        groups = (inside.join(_written(condition) for condition in group) for group in self.groups)
        return Filter(between.join(f"({group})" for group in groups))


def _written(condition: PolicyCondition) -> str:
    return f"not ({condition.filter})" if condition.negated else f"({condition.filter})"


class SetVariable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="set"):
    """[RFC 3460 §5.8] Give a variable of the node a value."""

    variable: Variable
    value: Scalar

    def __post_init__(self) -> None:
        _check_scalar(self.value)

    @property
    def target(self) -> str:
        """What two actions can contradict each other about."""
        return self.variable


class RunCommand(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="do", tag="run"
):
    """Run a command that the node knows by name. The same with other arguments contradicts it."""

    command: Name
    arguments: Annotated[tuple[Text, ...], Meta(max_length=16)] = ()

    def __post_init__(self) -> None:
        for argument in self.arguments:
            _check_scalar(argument)

    @property
    def target(self) -> str:
        """What two actions can contradict each other about."""
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
    """One rule. Equal policies have the same text and the same JSON."""

    id: Name
    version: Annotated[int, Meta(ge=1, le=MAX_VERSION)] = 1
    priority: Annotated[int, Meta(ge=0, le=2**31)] = 0
    """Higher wins."""
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
        # What cannot be one filter cannot be compared with others either.
        _ = self.conditions.filter
        said: dict[str, Action] = {}
        for action in self.actions:
            before = said.setdefault(action.target, action)
            if contradicts(before, action):
                raise ValueError(f"actions: {format_action(before)} and {format_action(action)} contradict each other")


def contradicts(one: Action, two: Action) -> bool:
    """Whether two actions are about the same and want it otherwise. True and 1 are two values, as in filters."""
    if one.target != two.target:
        return False
    if isinstance(one, SetVariable) and isinstance(two, SetVariable):
        if isinstance(one.value, bool) is not isinstance(two.value, bool):
            return True
        return one.value != two.value
    return one != two


def format_action(action: Action) -> str:
    """As it is written in a policy."""
    if isinstance(action, SetVariable):
        return f"set {action.variable} = {format_scalar(action.value)}"
    return " ".join(["run", action.command, *(format_scalar(argument) for argument in action.arguments)])


def format_scalar(value: Scalar) -> str:
    """A value as policies and filters write it."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else repr(value)
