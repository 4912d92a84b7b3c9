"""Policies survive formatting and parsing as text and JSON, and errors have the position."""

from datetime import datetime, time

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from carrycast.core.matching import Filter
from carrycast.errors import UserError
from carrycast.services.policy.policy_text import (
    format_policy,
    parse_policies,
    read_policies,
)
from carrycast.services.policy.roles import ANY_POLICY, matches_roles, role_attributes, role_filters
from carrycast.services.policy.rule import (
    Action,
    ConditionForm,
    Enabled,
    ExecutionStrategy,
    Policy,
    PolicyCondition,
    PolicyConditions,
    RunCommand,
    SetVariable,
)
from carrycast.services.policy.syntax import PolicyError
from carrycast.services.policy.tests.bus import parse_policy, policy_json
from carrycast.services.policy.time_period import TimePeriod

NIGHT = """
# Saves the battery at night.
policy night version 2 priority 10 debug
about 'slow beacons, it''s night'
roles sensor && outdoor, relay
[months oct-dec, jan; weekdays sat-mon; hours 22:00-06:00; local]
[from 2026-03-01; until 2026-04-01T08:30; days 1-3, -1]
if { battery < 0.3; not (mode = 'alarm' and x = 2) } or { "a;b" = 'x;}' }
then until success { set discovery.period_s = 5; set on = true; run led 'off' 'it''s'; }
"""


def test_a_policy_says_what_its_text_says() -> None:
    assert parse_policy(NIGHT) == Policy(
        id="night",
        version=2,
        priority=10,
        enabled=Enabled.DEBUG,
        about="slow beacons, it's night",
        roles=(("outdoor", "sensor"), ("relay",)),
        periods=(
            TimePeriod(months=(10, 11, 12, 1), weekdays=(6, 7, 1), hours=(time(22), time(6)), local=True),
            TimePeriod(from_=datetime(2026, 3, 1), until=datetime(2026, 4, 1, 8, 30), days=(1, 2, 3, -1)),
        ),
        conditions=PolicyConditions(
            (
                (PolicyCondition("battery < 0.3"), PolicyCondition("mode = 'alarm' and x = 2", negated=True)),
                (PolicyCondition("\"a;b\" = 'x;}'"),),
            )
        ),
        execution=ExecutionStrategy.UNTIL_SUCCESS,
        actions=(SetVariable("discovery.period_s", 5), SetVariable("on", True), RunCommand("led", ("off", "it's"))),
    )


def test_a_filter_that_only_begins_with_not_is_one_filter() -> None:
    policy = parse_policy("policy a roles b if { not (x = 1) or (y = 2) } then { run c }")
    assert policy.conditions.groups == ((PolicyCondition("x <> 1 or y = 2"),),)


def test_groups_are_joined_in_both_normal_forms() -> None:
    """[RFC 3060 §6.1]"""
    dnf = parse_policy("policy a roles b if { x = 1; y = 1 } or { z = 1 } then { run c }").conditions
    cnf = parse_policy("policy a roles b if any { x = 1; y = 1 } and { z = 1 } then { run c }").conditions
    assert (dnf.form, cnf.form) == (ConditionForm.DNF, ConditionForm.CNF)
    assert dnf.filter == Filter("x = 1 and y = 1 or z = 1")
    assert cnf.filter == Filter("(x = 1 or y = 1) and z = 1")


def test_a_negated_condition_on_what_is_not_known_does_not_hold() -> None:
    negated = PolicyConditions(((PolicyCondition("x = 1", negated=True),),)).filter
    assert negated.matches({"x": 2})
    assert not negated.matches({})


names = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_-]{0,5}\Z")
printable = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=8)
scalars = (
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | printable
)
moments = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0, fold=0)
)
hours = st.tuples(st.times(), st.times()).map(lambda two: tuple(one.replace(microsecond=0, fold=0) for one in two))
conditions = st.sampled_from(["x = 1", "x < 2 or y = 'a'", "z like 'a%'", "not (a is null and b)", "w in (1, 'b')"])
groups = st.lists(
    st.lists(st.builds(PolicyCondition, conditions, st.booleans()), min_size=1, max_size=3).map(tuple), max_size=3
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Any policy."""
    edges = sorted(draw(st.lists(moments, max_size=2, unique=True)))
    when = draw(st.none() | hours.filter(lambda two: two[0] != two[1]))
    period = TimePeriod(
        from_=edges[0] if edges else None,
        until=edges[1] if len(edges) == 2 else None,
        months=tuple(draw(st.lists(st.integers(1, 12), max_size=3))),
        days=tuple(draw(st.lists(st.integers(-31, 31).filter(bool), max_size=3))),
        weekdays=tuple(draw(st.lists(st.integers(1, 7), max_size=3))),
        hours=when,  # type: ignore[arg-type]
        local=draw(st.booleans()),
    )
    set_actions = st.dictionaries(st.from_regex(r"\A[a-z][a-z.]{0,4}\Z"), scalars, max_size=3)
    runs = draw(st.lists(st.builds(RunCommand, names, st.lists(printable, max_size=2).map(tuple)), max_size=1))
    actions: list[Action] = [*(SetVariable(name, value) for name, value in draw(set_actions).items()), *runs]
    return Policy(
        id=draw(names),
        version=draw(st.integers(1, 2**31)),
        priority=draw(st.integers(0, 2**31)),
        enabled=draw(st.sampled_from(Enabled)),
        about=draw(printable),
        roles=tuple(draw(st.lists(st.lists(names, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3))),
        periods=draw(st.sampled_from([(), (period,), (period, TimePeriod(days=(1,)))])),
        conditions=PolicyConditions(tuple(draw(groups)), draw(st.sampled_from(ConditionForm))),
        execution=draw(st.sampled_from(ExecutionStrategy)),
        actions=tuple(actions) or (RunCommand("nothing"),),
    )


@settings(max_examples=150, deadline=None)
@given(policies())
def test_text_and_json_are_read_as_they_were_written(policy: Policy) -> None:
    text = format_policy(policy)
    parsed = parse_policy(text)
    # The form of no conditions at all is not written: it means nothing.
    same = policy if policy.conditions.groups else msgspec.structs.replace(policy, conditions=PolicyConditions())
    assert parsed == same
    assert repr(parsed) == repr(same), "True is not 1, nor 1 1.0"
    assert format_policy(parsed) == text
    assert [repr(one) for one in read_policies(policy_json(policy))] == [repr(policy)]


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("polizy a", 1, 1, "expected 'policy', not 'polizy'"),
        ("policy 1", 1, 8, "expected the name of a policy, not '1'"),
        ("policy a priority x", 1, 19, "expected a whole number, not 'x'"),
        ("policy a version 0 roles b", 1, 18, "expected a whole number from 1 to"),
        ("policy a debug disabled roles b", 1, 16, "enabled is given twice"),
        ("policy a\nthen { run c }", 2, 1, "expected 'version', 'priority', 'disabled', 'debug', 'about' or 'roles'"),
        ("policy a roles b &&\n", 2, 1, "expected a role, not the end"),
        ("policy a roles b\n[months foo]", 2, 9, "expected a month, as jan, not 'foo]'"),
        ("policy a roles b [hours 22:00]", 1, 30, "expected '-', not ']'"),
        ("policy a roles b [hours 25:00-26:00]", 1, 25, "there is no such time"),
        ("policy a roles b [from 2026-02-30]", 1, 24, "there is no such moment"),
        ("policy a roles b [from 2026-02-03; until 2026-02-01]", 1, 18, "until: must be after from"),
        ("policy a roles b [days 0]", 1, 24, "a month has no day 0"),
        ("policy a roles b\nif { x = 3;\n   y < } then { run c }", 3, 8, "expected a value, not '}'"),
        ("policy a roles b if { x >< 3 } then { run c }", 1, 26, "expected a value, not '<'"),
        ("policy a roles b if { not (x = ) } then { run c }", 1, 32, "expected a value"),
        ("policy a roles b if { x == 3 } then { run c }", 1, 25, ": write = for equality"),
        ("policy a roles b\nif { x = 3 && y = 2 } then { run c }", 2, 12, ": write and"),
        ("policy a roles b if { !x } then { run c }", 1, 23, ": write not"),
        ('policy a roles b if { x = "a" } then { run c }', 1, 27, ": write text in single quotes"),
        ("policy a roles b if { x = 'a } then { run c }", 1, 27, "expected a closing ', not the end"),
        ("policy a roles b if { x = 3 } and { y = 2 } then", 1, 31, "expected 'or' or 'then', not 'and'"),
        ("policy a roles b if { } then { run c }", 1, 23, "expected a condition, not '}'"),
        ("policy a roles b then { set x }", 1, 31, "expected '=', not '}'"),
        ("policy a roles b then { set x = y }", 1, 33, "expected a value: a number, a text in single quotes"),
        ("policy a roles b then { set x = 99999999999999999999999 }", 1, 33, "at most 64 bits"),
        ("policy a roles b then { stop }", 1, 25, "expected 'set' or 'run', not 'stop'"),
        ("policy a roles b then { run c", 1, 30, "expected ';' or '}', not the end"),
        ("policy a roles b\nthen { set x = 1; set x = 2 }", 1, 1, "set x = 1 and set x = 2 contradict each other"),
        ("policy a roles b then { run c }\npolicy a roles b then { run c }", 2, 1, "there is another policy a above"),
    ],
)
def test_a_mistake_gets_its_line_and_column_and_what_was_expected(text: str, line: int, column: int, says: str) -> None:
    with pytest.raises(PolicyError) as found:
        parse_policies(text)
    assert (found.value.line, found.value.column) == (line, column)
    assert says in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "text",
    ['{"id": "a"}', '{"id": "a", "roles": [["b"]], "actions": [], "x": 1}', "[1]", "{", '[{"id": "a b"}]', "[" * 3000],
)
def test_json_that_is_no_policy_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match="not a policy in JSON"):
        read_policies(text)


def test_a_text_without_end_is_refused() -> None:
    with pytest.raises(UserError, match="at most"):
        read_policies("#" * (1 << 20))


# Roles.


def test_a_node_needs_every_role_of_one_combination() -> None:
    """[RFC 3060 §6.2]"""
    assert matches_roles([("outdoor", "sensor"), ("relay",)], ["sensor", "outdoor", "x"])
    assert matches_roles([("outdoor", "sensor"), ("relay",)], ["relay"])
    assert not matches_roles([("outdoor", "sensor")], ["sensor"])
    assert matches_roles([("all",)], [])


roles = st.sets(st.sampled_from("abcdef"), min_size=1, max_size=4)


@given(roles, roles, st.lists(roles, min_size=1, max_size=3))
def test_filters_of_roles_cover_exactly_and_miss_no_policy(
    one: set[str], two: set[str], combined: list[set[str]]
) -> None:
    (wide,), (narrow,) = role_filters(one), role_filters(two)
    assert Filter(wide).covers(Filter(narrow)) is (one >= two)
    assert Filter(ANY_POLICY).covers(Filter(wide))
    policy = Policy(id="p", roles=tuple(tuple(sorted(each)) for each in combined), actions=(RunCommand("c"),))
    attributes = {"policy.id": "p", **role_attributes({role for each in policy.roles for role in each})}
    if matches_roles(policy.roles, one):
        assert Filter(wide).matches(attributes)


def test_roles_too_many_for_one_filter_are_asked_for_by_several_and_far_too_many_refused() -> None:
    names = [f"role-{'x' * 55}{number:03}" for number in range(150)]
    several = role_filters(names)
    assert len(several) == 4
    assert all(Filter(text).covers(Filter(text)) and Filter(text).boxes is not None for text in several)
    for name in names:
        assert any(Filter(text).matches({"policy.id": "p", **role_attributes([name])}) for text in several)
    with pytest.raises(UserError, match="at most 2560 roles"):
        role_filters(str(number) for number in range(5000))
