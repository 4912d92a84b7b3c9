"""Random texts and messages are either valid policies or rejected in one line."""

import contextlib

from hypothesis import given, settings, strategies as st

from carrycast.core.model import Event, EventId
from carrycast.errors import UserError
from carrycast.services.policy.catalog import (
    MalformedError,
    PolicyRecord,
    encode_record,
    read_record,
    record_attributes,
)
from carrycast.services.policy.policy_text import (
    format_policy,
    parse_policies,
    read_policies,
)
from carrycast.services.policy.rule import Policy
from carrycast.services.policy.tests.bus import parse_policy, policy_json

TEXT = """policy night version 2 priority 10 debug about 'it''s' roles sensor && outdoor, relay
[from 2026-03-01T00:00; until 2026-04-01; months jan-mar, dec; days 1-5, -1; weekdays sat-mon; hours 22:00-06:00; local]
if any { battery < 0.3; not (mode = 'alarm' and x in (1, 'b')) } and { "a;b" like 'x%' }
then until success { set discovery.period_s = 5; set on = true; run led 'off' }
"""
PARTS = [
    "policy",
    "roles",
    "[",
    "]",
    "{",
    "}",
    ";",
    "'",
    '"',
    "(",
    ")",
    "not",
    "&&",
    ",",
    "-",
    "#",
    "\n",
    "\0",
    "9" * 30,
]
PARTS += [
    "9" * 30,
    "if",
    "then",
    "until",
    "٣",
    "é",
    "set",
    "=",
    "1e999",
    "0001-01-01",
    "24:00",
    "-1",
    "(" * 500,
    "not " * 200,
]
RECORD = PolicyRecord(parse_policy(TEXT), ("relay",))

edits = st.lists(st.tuples(st.integers(0, len(TEXT)), st.integers(0, 12), st.sampled_from(PARTS)), max_size=4)


def edited(text: str, changes: list[tuple[int, int, str]]) -> str:
    for at, length, new in changes:
        text = text[:at] + new + text[at + length :]
    return text


@settings(max_examples=400, deadline=None)
@given(edits)
def test_a_text_with_any_mistake_is_read_or_refused_in_one_line(changes: list[tuple[int, int, str]]) -> None:
    found: list[Policy] = []
    refusal = ""
    try:
        found = parse_policies(edited(TEXT, changes))
    except UserError as error:
        refusal = str(error)
    assert "\n" not in refusal
    assert len(refusal) < 600
    for policy in found:
        assert parse_policy(format_policy(policy)) == policy


@settings(max_examples=300, deadline=None)
@given(edits)
def test_json_with_any_mistake_is_read_or_refused(changes: list[tuple[int, int, str]]) -> None:
    payload = edited(encode_record(RECORD).decode(), changes)
    with contextlib.suppress(UserError):
        for policy in read_policies(edited(policy_json(RECORD.policy), changes)):
            assert read_policies(policy_json(policy)) == [policy]
    with contextlib.suppress(MalformedError):
        read_record(Event(EventId(1, 1), record_attributes(RECORD), payload.encode()))


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_no_policy(payload: bytes) -> None:
    try:
        read_record(Event(EventId(1, 1), record_attributes(RECORD), payload))
    except MalformedError:
        return
    raise AssertionError("random bytes made a policy")
