"""Conflicts: a table of cases with the explanation each gives, and random rules against all nodes, hours and values."""

from datetime import datetime, time, timedelta
from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from carrycast.core.matching import Filter
from carrycast.core.matching.satisfiability import Satisfiability, check_satisfiability, find_example
from carrycast.core.model import Scalar
from carrycast.core.model.wall_clock import WallTime
from carrycast.services.policy.conflict import explain_inapplicable, find_conflict, find_conflicts
from carrycast.services.policy.roles import matches_roles
from carrycast.services.policy.rule import Policy, SetVariable
from carrycast.services.policy.tests.bus import parse_policy
from carrycast.services.policy.time_period import TimePeriod, any_period_includes, find_overlap

SLOW = "policy slow roles sensor if { battery < 0.3 } then { set period_s = 5 }"
ADVICE = "give one of them the higher priority, or change one"
WHO = "slow (version 1) and b (version 1) both apply to a node that is sensor"


@pytest.mark.parametrize(
    ("one", "two", "says"),
    [
        (
            SLOW,
            "policy b roles sensor then { set period_s = 1 }",
            f"{WHO}, when (battery < 0.3), as with battery = 0: set period_s = 5 against set period_s = 1; {ADVICE}",
        ),
        (
            SLOW,
            "policy b roles sensor && outdoor if { battery between 0.2 and 0.5 } then { set period_s = 1 }",
            "slow (version 1) and b (version 1) both apply to a node that is outdoor and sensor, when (battery < 0.3) "
            "and (battery between 0.2 and 0.5), as with battery = 0.2: set period_s = 5 against set period_s = 1; "
            f"{ADVICE}",
        ),
        (
            "policy slow roles all [hours 22:00-06:00] then { set a = true }",
            "policy b priority 3 roles relay [from 2026-05-01T06:00; weekdays fri; hours 05:00-07:00] "
            "then { set a = 1 }",
            "slow (version 1) and b (version 1) both apply to a node that is relay, at 2026-05-08 05:00:00 UTC: "
            "set a = true against set a = 1; b (version 1) wins by its priority of 3",
        ),
        (
            "policy slow roles all [hours 22:00-06:00] then { run led 'on' }",
            "policy b roles all [hours 22:00-23:00; local] then { run led 'off'; run horn }",
            "slow (version 1) and b (version 1) both apply to every node, at times that depend on where it is, one "
            f"being in local time and the other in UTC: run led 'on' against run led 'off'; {ADVICE}",
        ),
        (
            SLOW,
            "policy b roles sensor if any { battery > 0.1; mode = 'idle' } and { armed } then { set period_s = 1 }",
            f"{WHO}, when (battery < 0.3) and ((battery > 0.1 or mode = 'idle') and armed = true), as with "
            f"armed = true, battery = 0.2: set period_s = 5 against set period_s = 1; {ADVICE}",
        ),
    ],
)
def test_rules_that_clash_are_explained(one: str, two: str, says: str) -> None:
    found = find_conflict(parse_policy(one), parse_policy(two))
    assert found is not None
    assert found.explain() == says


@pytest.mark.parametrize(
    ("why", "other"),
    [
        ("other roles", "policy b roles relay then { set period_s = 1 }"),
        ("conditions that exclude each other", "policy b roles sensor if { battery > 0.5 } then { set period_s = 1 }"),
        ("another kind of value", "policy b roles sensor if { battery = 'low' } then { set period_s = 1 }"),
        ("the same value", "policy b roles sensor then { set period_s = 5 }"),
        ("another variable", "policy b roles sensor then { set power = 1 }"),
        ("out of force", "policy b disabled roles sensor then { set period_s = 1 }"),
        ("only for debugging", "policy b debug roles sensor then { set period_s = 1 }"),
        ("another version of the same", "policy slow version 2 roles sensor then { set period_s = 1 }"),
    ],
)
def test_rules_that_differ_in_one_respect_do_not_clash(why: str, other: str) -> None:
    assert find_conflict(parse_policy(SLOW), parse_policy(other)) is None, why


@pytest.mark.parametrize(
    ("one", "two", "meeting"),
    [
        ("hours 08:00-12:00", "hours 12:00-18:00", None),
        ("hours 22:00-06:00", "hours 05:59-06:30", datetime(2000, 1, 1, 5, 59)),
        ("weekdays mon", "weekdays tue", None),
        ("days -1", "months feb; days 29; weekdays sun", datetime(2004, 2, 29)),
        ("days 1", "days -1", None),
        ("days 1", "days -31", datetime(2000, 1, 1)),
        ("months feb; days 30", "local", None),
        ("until 1990-01-01", "months dec", datetime(1590, 12, 1)),
        ("from 2026-01-01; until 2026-01-02", "from 2026-01-02; until 2026-01-03", None),
        ("from 2026-01-01T23:00; until 2026-01-02T01:00", "hours 00:30-23:00", datetime(2026, 1, 2, 0, 30)),
    ],
)
def test_periods_meet_at_a_moment_or_never(one: str, two: str, meeting: datetime | None) -> None:
    first, second = (parse_policy(f"policy a roles b [{text}] then {{ run c }}").periods for text in (one, two))
    if "local" in two:
        second = ()
    found = find_overlap(first, second)
    assert (None if found is None else found.moment) == meeting


def test_local_and_utc_periods_a_day_apart_never_meet_wherever_the_node_is() -> None:
    before = (TimePeriod(until=datetime(2026, 1, 1), local=True),)
    assert find_overlap(before, (TimePeriod(from_=datetime(2026, 1, 2)),)) is None
    assert find_overlap(before, (TimePeriod(from_=datetime(2026, 1, 1)),)) is not None


def test_with_the_roles_of_all_nodes_known_overlap_is_exact() -> None:
    sensor, relay = (parse_policy(f"policy {role} roles {role} then {{ set x = '{role}' }}") for role in ("s", "r"))
    assert find_conflict(sensor, relay, [frozenset("s"), frozenset("r")]) is None
    assert find_conflict(sensor, relay, [frozenset("sr")]) is not None
    assert find_conflict(sensor, relay) is None


def test_priority_resolves_what_would_be_refused() -> None:
    known = [
        parse_policy(f"policy p{number} priority {number} roles a then {{ set x = {number} }}") for number in (1, 2)
    ]
    new = parse_policy("policy new priority 2 roles a then { set x = 9 }")
    refused, resolved = find_conflicts(new, known)
    assert [one.two.id for one in refused] == ["p2"]
    assert [one.two.id for one in resolved] == ["p1"]
    assert resolved[0].winner == new


def test_a_rule_that_never_applies_is_told() -> None:
    assert "cannot hold together" in explain_inapplicable(
        parse_policy("policy a roles b if { x < 1; x > 2 } then { run c }")
    )
    assert "no moment" in explain_inapplicable(parse_policy("policy a roles b [months feb; days 30] then { run c }"))
    assert explain_inapplicable(parse_policy("policy a roles b [days 31] if { x < 1 } then { run c }")) == ""


def test_many_alternatives_are_still_decided_and_hopeless_ones_count_as_a_clash() -> None:
    wide = " and ".join(f"(a{n} = 1 or b{n} = 1)" for n in range(12))
    assert Filter(wide).boxes is None
    assert check_satisfiability([Filter(wide).node, Filter("a3 = 2 and b3 = 2").node]).answer is Satisfiability.NO
    assert check_satisfiability([Filter(wide).node, Filter("a3 = 2 and b3 <> 2").node]).answer is Satisfiability.YES
    # Each of many keys has one of few holes: no search of this kind ends soon.
    keys = " and ".join("(" + " or ".join(f"hole{h} = {key}" for h in range(8)) + ")" for key in range(9))
    assert check_satisfiability([Filter(keys).node]).answer is Satisfiability.PERHAPS


VALUES: tuple[Scalar | None, ...] = (None, -1, 0, 0.5, 1, 1.5, 2, 3, "", "a", "aa", "b", "c", True, False)
ATOMS = ["x < 1", "x >= 1", "x = 0", "x <> 1", "x between 1 and 2", "x in (0, 'a')", "x is null", "x is not null"]
ATOMS += ["x = 'a'", "x < 'b'", "x like 'a%'", "x", "not x", "x > 2", "x not in ('a', 'b')"]
atoms = st.sampled_from(ATOMS) | st.sampled_from(ATOMS).map(lambda atom: atom.replace("x", "y"))
expressions = st.recursive(
    atoms,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | inner.map(lambda text: f"not ({text})")
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(expressions, expressions)
def test_whether_conditions_can_hold_together_is_what_trying_all_values_says(one: str, two: str) -> None:
    ones, twos = Filter(one), Filter(two)
    events = [
        {name: value for name, value in zip("xy", pair, strict=True) if value is not None}
        for pair in product(VALUES, VALUES)
    ]
    expected = any(ones.matches(event) and twos.matches(event) for event in events)
    found = check_satisfiability([ones.node, twos.node])
    assert found.answer is (Satisfiability.YES if expected else Satisfiability.NO)
    values = find_example(found.box) if expected else None
    if values is not None:
        assert ones.matches(values)
        assert twos.matches(values)


hours = st.sampled_from([None, (time(0), time(12)), (time(18), time(6)), (time(6), time(7)), (time(12), time(0))])
periods = st.lists(
    st.builds(
        lambda hours, weekdays, days, span: TimePeriod(
            hours=hours,
            weekdays=tuple(weekdays),
            days=tuple(days),
            from_=datetime(2026, 2, 25) + timedelta(hours=6 * span[0]),
            until=datetime(2026, 2, 25) + timedelta(hours=6 * (span[0] + span[1])),
        ),
        hours,
        st.lists(st.integers(1, 7), max_size=2),
        st.lists(st.sampled_from([1, 2, 3, 26, 27, 28, -1, -2]), max_size=2),
        st.tuples(st.integers(0, 20), st.integers(1, 12)),
    ),
    max_size=2,
)
role_sets = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=2).map(tuple), min_size=1, max_size=2)
NODES = [frozenset(roles) for roles in ("", "a", "b", "c", "ab", "bc")]
HOURS = [datetime(2026, 2, 24) + timedelta(hours=hour) for hour in range(24 * 9)]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_two_rules_clash_exactly_if_some_node_at_some_hour_would_be_told_both(data: st.DataObject) -> None:
    one, two = (data.draw(_rule(id)) for id in ("one", "two"))
    values = [{"x": x, "y": y} for x in (0, 1, 1.5, 2, 3) for y in (True, False)]
    role_filters = [rule.conditions.filter for rule in (one, two)]
    at_once = (
        repr(one.actions) != repr(two.actions)
        and any(matches_roles(one.roles, node) and matches_roles(two.roles, node) for node in NODES)
        and any(all(any_period_includes(rule.periods, _wall(hour)) for rule in (one, two)) for hour in HOURS)
        and any(all(condition.matches(event) for condition in role_filters) for event in values)
    )
    assert (find_conflict(one, two, NODES) is not None) is at_once


def _rule(id: str) -> st.SearchStrategy[Policy]:
    return st.tuples(role_sets, periods, st.sampled_from(["true", "x < 1", "x >= 1 or y", "not x = 2"])).flatmap(
        lambda parts: st.sampled_from([1, 2, True]).map(
            lambda value: Policy(
                id=id,
                roles=tuple(parts[0]),
                periods=tuple(parts[1]),
                conditions=parse_policy(f"policy a roles b if {{ {parts[2]} }} then {{ run c }}").conditions,
                actions=(SetVariable("v", value),),
            )
        )
    )


def _wall(moment: datetime) -> WallTime:
    return WallTime((moment - datetime(1970, 1, 1)).total_seconds())


@settings(max_examples=100, deadline=None)
@given(periods, st.sampled_from(HOURS))
def test_a_period_stays_as_it_is_until_it_says_it_may_change(several: list[TimePeriod], moment: datetime) -> None:
    for period in several:
        wall = _wall(moment)
        change_s = period.next_change_s(wall)
        assert change_s > 0
        for part in (0.25, 0.5, 0.99):
            assert period.includes(WallTime(wall.utc_s + int(change_s * part))) is period.includes(wall)
