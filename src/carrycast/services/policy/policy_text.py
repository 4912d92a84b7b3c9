"""The text of policies, and JSON of the same fields: parsing and formatting, each the exact inverse of the other.

# Saves the battery at night.
policy night version 2 priority 10
about 'slow beacons at night'
roles sensor && outdoor, relay
[months oct-dec, jan; weekdays mon-fri; hours 22:00-06:00; local]
if { battery < 0.3; not mode = 'alarm' } or { battery < 0.1 }
then { set discovery.period_s = 5; run led 'off' }
"""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from carrycast.core.matching import FilterError
from carrycast.core.model import Scalar
from carrycast.errors import UserError
from carrycast.services.policy.roles import NAME
from carrycast.services.policy.rule import (
    VARIABLE,
    Action,
    ConditionForm,
    Enabled,
    ExecutionStrategy,
    Policy,
    PolicyCondition,
    PolicyConditions,
    RunCommand,
    SetVariable,
    format_action,
    format_scalar,
)
from carrycast.services.policy.syntax import PolicyError, Scanner, expected_error, syntax_error
from carrycast.services.policy.time_period_text import format_period, parse_period

MAX_TEXT_CHARACTERS = 1 << 18

MAX_POLICIES = 1000
"""In one text."""

T = TypeVar("T")

_CONDITION = re.compile(r"""(?:[^'";{}#]|'[^']*+'|"[^"]*+")+""")

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.])")

_STRING = re.compile(r"'[^'\n]*+(?:''[^'\n]*+)*+'")


def parse_policies(text: str) -> list[Policy]:
    """Every policy of a text; a PolicyError says where it is wrong and what was expected there."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise UserError(f"a text of policies has at most {MAX_TEXT_CHARACTERS} characters")
    scanner = Scanner(text)
    found: dict[str, Policy] = {}
    while not scanner.at_end():
        start = scanner.offset
        policy = _policy(scanner)
        if policy.id in found:
            raise syntax_error(text, start, f"there is another policy {policy.id} above")
        found[policy.id] = policy
        if len(found) > MAX_POLICIES:
            raise syntax_error(text, start, f"a text has at most {MAX_POLICIES} policies")
    return list(found.values())


def _policy(scanner: Scanner) -> Policy:
    start = scanner.offset
    scanner.word("policy", "'policy'")
    fields: dict[str, object] = {"id": scanner.take(NAME, "the name of a policy")}
    _head(scanner, fields)
    scanner.word("roles", "'version', 'priority', 'disabled', 'debug', 'about' or 'roles'")
    fields["roles"] = _roles(scanner)
    periods = []
    while scanner.sees("["):
        periods.append(parse_period(scanner))
    fields["periods"] = tuple(periods)
    if scanner.try_word("if"):
        fields["conditions"] = _conditions(scanner)
    scanner.word("then", "'[', 'if' or 'then'" if "conditions" not in fields else "'or', 'and' or 'then'")
    if scanner.try_word("until"):
        fields["execution"] = (
            ExecutionStrategy.UNTIL_SUCCESS if scanner.try_word("success") else ExecutionStrategy.UNTIL_FAILURE
        )
        if fields["execution"] is ExecutionStrategy.UNTIL_FAILURE:
            scanner.word("failure", "'success' or 'failure'")
    fields["actions"] = tuple(_listed(scanner, _action))
    return checked(lambda: Policy(**fields), scanner.text, start)  # type: ignore[arg-type]


def _head(scanner: Scanner, fields: dict[str, object]) -> None:
    while True:
        start = scanner.offset
        value: object
        if scanner.try_word("version"):
            name, value = "version", _whole(scanner, 1)
        elif scanner.try_word("priority"):
            name, value = "priority", _whole(scanner, 0)
        elif scanner.try_word("disabled"):
            name, value = "enabled", Enabled.DISABLED
        elif scanner.try_word("debug"):
            name, value = "enabled", Enabled.DEBUG
        elif scanner.try_word("about"):
            name, value = "about", _string(scanner)
        else:
            return
        if name in fields:
            raise syntax_error(scanner.text, start, f"{name} is given twice")
        fields[name] = value


def _whole(scanner: Scanner, least: int) -> int:
    start = scanner.offset
    number = int(scanner.take(r"[0-9]{1,10}(?![A-Za-z0-9_.])", "a whole number"))
    if not least <= number <= 2**31:
        raise syntax_error(scanner.text, start, f"expected a whole number from {least} to {2**31}, not {number}")
    return number


def _roles(scanner: Scanner) -> tuple[tuple[str, ...], ...]:
    several = []
    while True:
        roles = [scanner.take(NAME, "a role")]
        while scanner.try_symbol("&&"):
            roles.append(scanner.take(NAME, "a role"))
        several.append(tuple(roles))
        if not scanner.try_symbol(","):
            return tuple(several)


def _conditions(scanner: Scanner) -> PolicyConditions:
    """[RFC 3060 §6.1] `{a; b} or {c}`, and `any {a; b} and {c}`."""
    form = ConditionForm.CNF if scanner.try_word("any") else ConditionForm.DNF
    if form is ConditionForm.DNF:
        scanner.try_word("all")
    groups = [tuple(_listed(scanner, _condition))]
    between = "or" if form is ConditionForm.DNF else "and"
    while not scanner.sees("then"):
        scanner.word(between, f"'{between}' or 'then'")
        groups.append(tuple(_listed(scanner, _condition)))
    return PolicyConditions(tuple(groups), form)


def _condition(scanner: Scanner) -> PolicyCondition:
    scanner.skip()
    start = scanner.offset
    written = scanner.take(_CONDITION, "a condition")
    if scanner.sees("'") or scanner.sees('"'):
        raise syntax_error(
            scanner.text, scanner.offset, f"expected a closing {scanner.text[scanner.offset]}, not the end"
        )
    inner = _negated(written)
    text = written if inner is None else inner
    try:
        return PolicyCondition(text.strip(), inner is not None)
    except FilterError as error:
        # The filter's own position, counted from where its text begins.
        start += written.index(text) + len(text) - len(text.lstrip())
        raise expected_error(scanner.text, min(start + error.position - 1, scanner.offset), error.expected) from None


def _negated(text: str) -> str | None:
    """What stands in `not (...)`; None for any other filter, also one that only begins so."""
    found = re.fullmatch(r"not\s*\((.*)\)\s*", text, re.IGNORECASE | re.DOTALL)
    if found is None:
        return None
    depth = 0
    for mark in re.findall(r"""'[^']*'|"[^"]*"|[()]""", found[1]):
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if depth < 0:
            return None
    return found[1]


def _action(scanner: Scanner) -> Action:
    start = scanner.offset
    if scanner.try_word("set"):
        variable = scanner.take(VARIABLE, "a variable")
        scanner.symbol("=", "'='")
        value = _scalar(scanner)
        return checked(lambda: SetVariable(variable, value), scanner.text, start)
    scanner.word("run", "'set' or 'run'")
    command = scanner.take(NAME, "the name of a command")
    arguments: list[str] = []
    while scanner.sees("'"):
        arguments.append(_string(scanner))
    if len(arguments) > 16:
        raise syntax_error(scanner.text, start, "a command has at most 16 arguments")
    return checked(lambda: RunCommand(command, tuple(arguments)), scanner.text, start)


def _scalar(scanner: Scanner) -> Scalar:
    if scanner.sees("'"):
        return _string(scanner)
    for word, value in (("true", True), ("false", False)):
        if scanner.try_word(word):
            return value
    start = scanner.offset
    number = scanner.take(_NUMBER, "a value: a number, a text in single quotes, true or false")
    whole = re.fullmatch(r"[+-]?[0-9]+", number) is not None
    if whole and len(number) > 20:
        raise syntax_error(scanner.text, start, "a whole number has at most 64 bits")
    return int(number) if whole else float(number)


def _string(scanner: Scanner) -> str:
    return scanner.take(_STRING, "a text in single quotes, on one line")[1:-1].replace("''", "'")


def _listed(scanner: Scanner, decode_message: Callable[[Scanner], T]) -> list[T]:
    """`{ one; two }`; a semicolon may end the list too."""
    scanner.symbol("{", "'{'")
    found = [decode_message(scanner)]
    while scanner.try_symbol(";"):
        if scanner.sees("}"):
            break
        found.append(decode_message(scanner))
    scanner.symbol("}", "';' or '}'")
    return found


def checked(make: Callable[[], T], text: str, start: int) -> T:
    """What is made, or where in the text stands what it cannot be made of."""
    try:
        return make()
    except PolicyError:
        raise
    except (ValueError, UserError) as error:
        raise syntax_error(text, start, str(error)) from None


# The way back.


def format_policy(policy: Policy) -> str:
    """The text of a policy, which is read as an equal one."""
    head = f"policy {policy.id}"
    head += f" version {policy.version}" if policy.version != 1 else ""
    head += f" priority {policy.priority}" if policy.priority else ""
    head += f" {policy.enabled}" if policy.enabled is not Enabled.ENABLED else ""
    lines = [head]
    if policy.about:
        lines.append(f"about {format_scalar(policy.about)}")
    lines.append("roles " + ", ".join(" && ".join(roles) for roles in policy.roles))
    lines += [format_period(period) for period in policy.periods]
    if policy.conditions.groups:
        lines.append(f"if {_conditions_text(policy.conditions)}")
    until = "" if policy.execution is ExecutionStrategy.ALL else f" {policy.execution}"
    lines.append(f"then{until} {{ {'; '.join(format_action(action) for action in policy.actions)} }}")
    return "\n".join(lines) + "\n"


def _conditions_text(conditions: PolicyConditions) -> str:
    between = " or " if conditions.form is ConditionForm.DNF else " and "
    groups = ["{ " + "; ".join(_condition_text(one) for one in group) + " }" for group in conditions.groups]
    return ("" if conditions.form is ConditionForm.DNF else "any ") + between.join(groups)


def _condition_text(condition: PolicyCondition) -> str:
    return f"not ({condition.filter})" if condition.negated else condition.filter


_decode = msgspec.json.Decoder(Policy | tuple[Policy, ...]).decode

_encode = msgspec.json.Encoder().encode


def read_policies(text: str) -> list[Policy]:
    """The policies of a file's content: JSON if it begins as JSON does, one or an array, else the text form."""
    if text.lstrip()[:1] not in ("{", "["):
        return parse_policies(text)
    if len(text) > MAX_TEXT_CHARACTERS:
        raise UserError(f"a text of policies has at most {MAX_TEXT_CHARACTERS} characters")
    try:
        found = _decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UserError(f"not a policy in JSON: {error}") from None
    return [found] if isinstance(found, Policy) else list(found)
