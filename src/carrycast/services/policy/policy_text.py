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
from collections.abc import Callable, Mapping
from datetime import datetime, time
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
from carrycast.services.policy.time_period import TimePeriod

MAX_TEXT_CHARACTERS = 1 << 18

MAX_POLICIES = 1000
"""The most policies in one text."""

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

CLAUSES = "'from', 'until', 'months', 'days', 'weekdays', 'hours' or 'local'"

T = TypeVar("T")

_CONDITION = re.compile(r"""(?:[^'";{}#]|'[^']*+'|"[^"]*+")+""")

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.])")

_STRING = re.compile(r"'[^'\n]*+(?:''[^'\n]*+)*+'")


def parse_policies(text: str) -> list[Policy]:
    """Parse all policies of a text; raises a PolicyError with the position and the expected text."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise UserError(f"a text of policies has at most {MAX_TEXT_CHARACTERS} characters")
    scanner = Scanner(text)
    found: dict[str, Policy] = {}
    while not scanner.is_at_end():
        start = scanner.offset
        policy = _parse_policy(scanner)
        if policy.id in found:
            raise syntax_error(text, start, f"there is another policy {policy.id} above")
        found[policy.id] = policy
        if len(found) > MAX_POLICIES:
            raise syntax_error(text, start, f"a text has at most {MAX_POLICIES} policies")
    return list(found.values())


def _parse_policy(scanner: Scanner) -> Policy:
    start = scanner.offset
    scanner.expect_word("policy", "'policy'")
    fields: dict[str, object] = {"id": scanner.take(NAME, "the name of a policy")}
    _parse_head(scanner, fields)
    scanner.expect_word("roles", "'version', 'priority', 'disabled', 'debug', 'about' or 'roles'")
    fields["roles"] = _parse_roles(scanner)
    periods = []
    while scanner.sees("["):
        periods.append(_parse_period(scanner))
    fields["periods"] = tuple(periods)
    if scanner.try_word("if"):
        fields["conditions"] = _parse_conditions(scanner)
    scanner.expect_word("then", "'[', 'if' or 'then'" if "conditions" not in fields else "'or', 'and' or 'then'")
    if scanner.try_word("until"):
        fields["execution"] = (
            ExecutionStrategy.UNTIL_SUCCESS if scanner.try_word("success") else ExecutionStrategy.UNTIL_FAILURE
        )
        if fields["execution"] is ExecutionStrategy.UNTIL_FAILURE:
            scanner.expect_word("failure", "'success' or 'failure'")
    fields["actions"] = tuple(_parse_list(scanner, _parse_action))
    return _construct(lambda: Policy(**fields), scanner.text, start)  # type: ignore[arg-type]


def _parse_head(scanner: Scanner, fields: dict[str, object]) -> None:
    while True:
        start = scanner.offset
        value: object
        if scanner.try_word("version"):
            name, value = "version", _parse_integer(scanner, 1)
        elif scanner.try_word("priority"):
            name, value = "priority", _parse_integer(scanner, 0)
        elif scanner.try_word("disabled"):
            name, value = "enabled", Enabled.DISABLED
        elif scanner.try_word("debug"):
            name, value = "enabled", Enabled.DEBUG
        elif scanner.try_word("about"):
            name, value = "about", _parse_string(scanner)
        else:
            return
        if name in fields:
            raise syntax_error(scanner.text, start, f"{name} is given twice")
        fields[name] = value


def _parse_integer(scanner: Scanner, least: int) -> int:
    start = scanner.offset
    number = int(scanner.take(r"[0-9]{1,10}(?![A-Za-z0-9_.])", "a whole number"))
    if not least <= number <= 2**31:
        raise syntax_error(scanner.text, start, f"expected a whole number from {least} to {2**31}, not {number}")
    return number


def _parse_roles(scanner: Scanner) -> tuple[tuple[str, ...], ...]:
    several = []
    while True:
        roles = [scanner.take(NAME, "a role")]
        while scanner.try_symbol("&&"):
            roles.append(scanner.take(NAME, "a role"))
        several.append(tuple(roles))
        if not scanner.try_symbol(","):
            return tuple(several)


def _parse_conditions(scanner: Scanner) -> PolicyConditions:
    """[RFC 3060 §6.1] `{a; b} or {c}`, and `any {a; b} and {c}`."""
    form = ConditionForm.CNF if scanner.try_word("any") else ConditionForm.DNF
    if form is ConditionForm.DNF:
        scanner.try_word("all")
    groups = [tuple(_parse_list(scanner, _parse_condition))]
    between = "or" if form is ConditionForm.DNF else "and"
    while not scanner.sees("then"):
        scanner.expect_word(between, f"'{between}' or 'then'")
        groups.append(tuple(_parse_list(scanner, _parse_condition)))
    return PolicyConditions(tuple(groups), form)


def _parse_condition(scanner: Scanner) -> PolicyCondition:
    scanner.skip()
    start = scanner.offset
    written = scanner.take(_CONDITION, "a condition")
    if scanner.sees("'") or scanner.sees('"'):
        raise syntax_error(
            scanner.text, scanner.offset, f"expected a closing {scanner.text[scanner.offset]}, not the end"
        )
    inner = _strip_negation(written)
    text = written if inner is None else inner
    try:
        return PolicyCondition(text.strip(), inner is not None)
    except FilterError as error:
        # The position in the filter is relative to the start of the filter.
        start += written.index(text) + len(text) - len(text.lstrip())
        offset = min(start + error.position - 1, scanner.offset)
        if str(error).startswith("filter: expected "):
            raise expected_error(scanner.text, offset, error.expected) from None
        raise syntax_error(scanner.text, offset, error.expected) from None


def _strip_negation(text: str) -> str | None:
    """Return the content of `not (...)`; None for any other filter, such as `not (a) or (b)`."""
    found = re.fullmatch(r"not\s*\((.*)\)\s*", text, re.IGNORECASE | re.DOTALL)
    if found is None:
        return None
    depth = 0
    for mark in re.findall(r"""'[^']*'|"[^"]*"|[()]""", found[1]):
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if depth < 0:
            return None
    return found[1]


def _parse_action(scanner: Scanner) -> Action:
    start = scanner.offset
    if scanner.try_word("set"):
        variable = scanner.take(VARIABLE, "a variable")
        scanner.expect_symbol("=", "'='")
        value = _parse_scalar(scanner)
        return _construct(lambda: SetVariable(variable, value), scanner.text, start)
    scanner.expect_word("run", "'set' or 'run'")
    command = scanner.take(NAME, "the name of a command")
    arguments: list[str] = []
    while scanner.sees("'"):
        arguments.append(_parse_string(scanner))
    if len(arguments) > 16:
        raise syntax_error(scanner.text, start, "a command has at most 16 arguments")
    return _construct(lambda: RunCommand(command, tuple(arguments)), scanner.text, start)


def _parse_scalar(scanner: Scanner) -> Scalar:
    if scanner.sees("'"):
        return _parse_string(scanner)
    for word, value in (("true", True), ("false", False)):
        if scanner.try_word(word):
            return value
    start = scanner.offset
    number = scanner.take(_NUMBER, "a value: a number, a text in single quotes, true or false")
    whole = re.fullmatch(r"[+-]?[0-9]+", number) is not None
    if whole and len(number) > 20:
        raise syntax_error(scanner.text, start, "a whole number has at most 64 bits")
    return int(number) if whole else float(number)


def _parse_string(scanner: Scanner) -> str:
    return scanner.take(_STRING, "a text in single quotes, on one line")[1:-1].replace("''", "'")


def _parse_list(scanner: Scanner, parse_item: Callable[[Scanner], T]) -> list[T]:
    """Parse `{ one; two }`. A semicolon may end the list."""
    scanner.expect_symbol("{", "'{'")
    found = [parse_item(scanner)]
    while scanner.try_symbol(";"):
        if scanner.sees("}"):
            break
        found.append(parse_item(scanner))
    scanner.expect_symbol("}", "';' or '}'")
    return found


def _construct(make: Callable[[], T], text: str, start: int) -> T:
    """Call a constructor; its error becomes a PolicyError with the position in the text."""
    try:
        return make()
    except PolicyError:
        raise
    except (ValueError, UserError) as error:
        raise syntax_error(text, start, str(error)) from None


def _parse_period(scanner: Scanner) -> TimePeriod:
    """Parse a period in brackets. Its clauses are in any order, each at most once."""
    start = scanner.offset
    scanner.expect_symbol("[", "'['")
    fields: dict[str, object] = {}
    while not scanner.sees("]"):
        at = scanner.offset
        name = next((clause for clause in _CLAUSE_PARSERS if scanner.try_word(clause)), None)
        if name is None:
            raise expected_error(scanner.text, at, CLAUSES)
        if name in fields:
            raise syntax_error(scanner.text, at, f"{name} is given twice")
        fields[name] = _CLAUSE_PARSERS[name](scanner)
        if not scanner.try_symbol(";"):
            break
    scanner.expect_symbol("]", "';' or ']'")
    if "from" in fields:
        fields["from_"] = fields.pop("from")
    try:
        return TimePeriod(**fields)  # type: ignore[arg-type]
    except ValueError as error:
        raise syntax_error(scanner.text, start, str(error)) from None


def _parse_moment(scanner: Scanner) -> datetime:
    at = scanner.offset
    text = scanner.take(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?)?(?![\w:-])", "a moment, as 2026-03-01T08:00")
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise syntax_error(scanner.text, at, f"there is no such moment: {error}") from None


def _parse_hour(scanner: Scanner) -> time:
    at = scanner.offset
    text = scanner.take(r"\d\d:\d\d(?::\d\d)?(?![\w:])", "a time of day, as 22:00")
    try:
        return time(0) if text in ("24:00", "24:00:00") else time.fromisoformat(text)
    except ValueError as error:
        raise syntax_error(scanner.text, at, f"there is no such time: {error}") from None


def _parse_hours(scanner: Scanner) -> tuple[time, time]:
    first = _parse_hour(scanner)
    scanner.expect_symbol("-", "'-'")
    return first, _parse_hour(scanner)


def _make_name_parser(names: tuple[str, ...], what: str) -> Callable[[Scanner], tuple[int, ...]]:
    """Make a parser of `jan-mar, dec`. A range may wrap around, as in `sat-mon`."""

    def parse_name(scanner: Scanner) -> int:
        at = scanner.offset
        word = scanner.take(r"[A-Za-z]{3}(?![A-Za-z])", what).lower()
        if word not in names:
            raise expected_error(scanner.text, at, what)
        return names.index(word)

    def parse_names(scanner: Scanner) -> tuple[int, ...]:
        found: list[int] = []
        while True:
            low = parse_name(scanner)
            high = parse_name(scanner) if scanner.try_symbol("-") else low
            found += [at % len(names) + 1 for at in range(low, high + 1 if high >= low else high + len(names) + 1)]
            if not scanner.try_symbol(","):
                return tuple(found)

    return parse_names


def _parse_days(scanner: Scanner) -> tuple[int, ...]:
    found: list[int] = []
    while True:
        low = _parse_day(scanner)
        high = _parse_day(scanner) if scanner.try_symbol("-") else low
        if high < low or (low < 0) is not (high < 0):
            raise syntax_error(scanner.text, scanner.offset, f"days {low}-{high} are no range")
        found += range(low, high + 1)
        if not scanner.try_symbol(","):
            return tuple(found)


def _parse_day(scanner: Scanner) -> int:
    at = scanner.offset
    day = int(scanner.take(r"-?\d{1,2}(?![\w.])", "a day of the month, 1 to 31, or -1 for the last"))
    if not 1 <= abs(day) <= 31:
        raise syntax_error(scanner.text, at, f"a month has no day {day}")
    return day


_CLAUSE_PARSERS: Mapping[str, Callable[[Scanner], object]] = {
    "from": _parse_moment,
    "until": _parse_moment,
    "months": _make_name_parser(MONTHS, "a month, as jan"),
    "days": _parse_days,
    "weekdays": _make_name_parser(WEEKDAYS, "a day of the week, as mon"),
    "hours": _parse_hours,
    "local": lambda scanner: True,
}


def format_policy(policy: Policy) -> str:
    """Format a policy. Parsing the text gives an equal policy."""
    head = f"policy {policy.id}"
    head += f" version {policy.version}" if policy.version != 1 else ""
    head += f" priority {policy.priority}" if policy.priority else ""
    head += f" {policy.enabled}" if policy.enabled is not Enabled.ENABLED else ""
    lines = [head]
    if policy.about:
        lines.append(f"about {format_scalar(policy.about)}")
    lines.append("roles " + ", ".join(" && ".join(roles) for roles in policy.roles))
    lines += [_format_period(period) for period in policy.periods]
    if policy.conditions.groups:
        lines.append(f"if {_format_conditions(policy.conditions)}")
    until = "" if policy.execution is ExecutionStrategy.ALL else f" {policy.execution}"
    lines.append(f"then{until} {{ {'; '.join(format_action(action) for action in policy.actions)} }}")
    return "\n".join(lines) + "\n"


def _format_conditions(conditions: PolicyConditions) -> str:
    between = " or " if conditions.form is ConditionForm.DNF else " and "
    groups = ["{ " + "; ".join(_format_condition(one) for one in group) + " }" for group in conditions.groups]
    return ("" if conditions.form is ConditionForm.DNF else "any ") + between.join(groups)


def _format_condition(condition: PolicyCondition) -> str:
    return f"not ({condition.filter})" if condition.negated else condition.filter


def _format_period(period: TimePeriod) -> str:
    """Format a period. Parsing the text gives an equal period."""
    clauses = []
    if period.from_ is not None:
        clauses.append(f"from {period.from_.isoformat()}")
    if period.until is not None:
        clauses.append(f"until {period.until.isoformat()}")
    if period.months:
        clauses.append("months " + ", ".join(MONTHS[month - 1] for month in period.months))
    if period.days:
        clauses.append("days " + ", ".join(str(day) for day in period.days))
    if period.weekdays:
        clauses.append("weekdays " + ", ".join(WEEKDAYS[day - 1] for day in period.weekdays))
    if period.hours is not None:
        clauses.append("hours " + "-".join(hour.isoformat() for hour in period.hours))
    if period.local:
        clauses.append("local")
    return f"[{'; '.join(clauses)}]"


_decode = msgspec.json.Decoder(Policy | tuple[Policy, ...]).decode

_encode = msgspec.json.Encoder().encode


def read_policies(text: str) -> list[Policy]:
    """Parse the content of a file: JSON (one policy or an array) if it starts with { or [, else the text form."""
    if text.lstrip()[:1] not in ("{", "["):
        return parse_policies(text)
    if len(text) > MAX_TEXT_CHARACTERS:
        raise UserError(f"a text of policies has at most {MAX_TEXT_CHARACTERS} characters")
    try:
        found = _decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UserError(f"not a policy in JSON: {error}") from None
    return [found] if isinstance(found, Policy) else list(found)
