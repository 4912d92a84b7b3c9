"""Surveys: a tool or a repository asks nodes which policies they hold and in which state, and makes a status of it.

A policy may be published while no repository is connected, and repositories do not know the state of a policy on the
nodes. So the nodes themselves are asked. Each answers after a random delay, so that they do not answer at once.
"""

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from random import Random
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.protocol import ApplicationPort, Fact, Host, Key
from carrycast.errors import UserError
from carrycast.services.policy.catalog import (
    MAX_RECORD_BYTES,
    MalformedError,
    PolicyRecord,
    encode_record,
    record_attributes,
)
from carrycast.services.policy.messages import NOTICE_LEASE_S, TO, decode_message
from carrycast.services.policy.roles import EVERYBODY, MAX_ROLES, Role
from carrycast.services.policy.rule import Name

SURVEY = "policy.survey"
"""The attribute of a survey: the node that asks."""

KIND = "policy.report"

HOLDINGS = "holdings"
"""The value of `policy.report` in an answer."""

MAX_PENDING = 16
"""The most surveys that a node has yet to answer. Further surveys are dropped."""

MAX_WHY = 1024

Part = Literal["decision", "enforcement", "repository"]

State = Literal["stored", "held", "under way", "enforced", "failed", "would enforce", "withdrawn"]


class PolicySurvey(msgspec.Struct, frozen=True, omit_defaults=True):
    """The question to nodes which policies they hold."""

    number: int
    spread_s: Annotated[float, Meta(ge=0, le=3600)]
    """The longest delay of an answer."""
    policies: Annotated[tuple[Name, ...], Meta(max_length=1000)] = ()
    """The ids of the policies asked for; empty for all."""
    records: bool = False
    """Whether answers contain the policies themselves."""
    node: NodeId | None = None
    """The only node that is asked; None for all."""
    publish: bool = False
    """Whether that node publishes the policies again, as they were first published, instead of answering."""


class HeldPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The version and state of one policy on one node."""

    policy: Name
    version: int
    state: State
    why: Annotated[str, Meta(max_length=MAX_WHY)] = ""
    event: EventId | None = None
    """The event by which the policy was first published; unknown to enforcement points."""
    roles: Annotated[tuple[Role, ...], Meta(max_length=MAX_ROLES)] = ()
    """The roles of all versions that the node knows."""
    record: PolicyRecord | None = None


class SurveyAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer, or a part of an answer that is too long for one event."""

    number: int
    node: NodeId
    part: Part
    name: Annotated[str, Meta(max_length=256)] = ""
    roles: Annotated[tuple[Role, ...], Meta(max_length=4096)] = ()
    """The roles of the node."""
    held: Annotated[tuple[HeldPolicy, ...], Meta(max_length=100_000)] = ()


def send_survey(port: ApplicationPort, node: NodeId, survey: PolicySurvey) -> None:
    """Publish a survey."""
    port.publish({SURVEY: node}, msgspec.json.encode(survey), NOTICE_LEASE_S)


def is_survey_answer(event: Event) -> bool:
    """Whether an event for a tool or a repository is the answer to a survey."""
    return event.attributes.get(KIND) == HOLDINGS


def read_survey_answer(event: Event) -> SurveyAnswer:
    """Decode the answer in an event; raises MalformedError if it is not valid or names another node."""
    holdings = decode_message(event, SurveyAnswer)
    if holdings.node != event.source:
        raise MalformedError("a node tells of itself alone")
    return holdings


class SurveyResponder:
    """Answers surveys for one application."""

    def __init__(
        self,
        node: NodeId,
        port: ApplicationPort,
        host: Host,
        rng: Random,
        part: Part,
        roles: Callable[[], Iterable[Role]],
        held: Callable[[float, PolicySurvey], Iterable[HeldPolicy]],
    ) -> None:
        self._node = node
        self._port = port
        self._host = host
        self._rng = rng
        self._part = part
        self._roles = roles
        self._held = held
        self._pending: dict[Key, tuple[NodeId, PolicySurvey]] = {}

    def start(self) -> None:
        """Subscribe to surveys."""
        self._port.subscribe(SURVEY, f'"{SURVEY}" is not null')

    def stop(self) -> None:
        """Cancel the pending answers."""
        for key in self._pending:
            self._port.cancel_timer(key)

    def on_event(self, key: Key, event: Event) -> bool:
        """Handle an event; False if it is not a survey."""
        if key != SURVEY:
            return False
        try:
            survey = decode_message(event, PolicySurvey)
        except MalformedError:
            self._port.note(Fact("drop", event.id, event.source, "malformed_survey"))
            return True
        if survey.node not in (None, self._node):
            return True
        if len(self._pending) >= MAX_PENDING:
            self._port.note(Fact("drop", event.id, event.source, "too_many_surveys"))
            return True
        timer = f"{SURVEY} {event.id}"
        self._pending[timer] = (event.source, survey)
        self._port.set_timer(timer, self._rng.uniform(0.0, survey.spread_s))
        return True

    def on_timer(self, now: float, key: Key) -> bool:
        """Answer a survey after its delay; False if the timer does not belong to a survey."""
        pending = self._pending.pop(key, None)
        if pending is None:
            return False
        asker, survey = pending
        held = [
            one if survey.records or survey.publish else msgspec.structs.replace(one, record=None)
            for one in self._held(now, survey)
            if not survey.policies or one.policy in survey.policies
        ]
        if survey.publish:
            self._publish_again(survey, held)
            return True
        for chunk in _split_into_chunks(held):
            told = SurveyAnswer(survey.number, self._node, self._part, self._host.name, tuple(self._roles()), chunk)
            self._port.publish({TO: asker, KIND: HOLDINGS}, msgspec.json.encode(told), NOTICE_LEASE_S)
        return True

    def _publish_again(self, survey: PolicySurvey, held: list[HeldPolicy]) -> None:
        if survey.node != self._node or not survey.policies:
            self._port.note(Fact("drop", reason="malformed_survey"))
            return
        for one in held:
            if one.record is not None and one.event is not None:
                publish_again(self._port, one.record, one.event)


def publish_again(port: ApplicationPort, record: PolicyRecord, origin: EventId) -> None:
    """Publish a policy again under its original event id, so that nodes that have it ignore it."""
    again = PolicyRecord(record.policy, record.reach, record.withdrawn, origin)
    port.publish(record_attributes(again), encode_record(again))


def _split_into_chunks(held: list[HeldPolicy]) -> Iterator[tuple[HeldPolicy, ...]]:
    """Split an answer into parts that fit into events. An empty answer is one empty part."""
    chunk: list[HeldPolicy] = []
    size_bytes = 0
    for one in held:
        length = len(msgspec.json.encode(one))
        if chunk and size_bytes + length > MAX_RECORD_BYTES:
            yield tuple(chunk)
            chunk, size_bytes = [], 0
        chunk.append(one)
        size_bytes += length
    yield tuple(chunk)


_Place = tuple[NodeId, Part]

NOT_HELD = "not held"


def display_name(node: NodeId, names: dict[NodeId, str]) -> str:
    """The name of a node if it is known, else its number."""
    return names.get(node) or str(node)


def make_status(holdings: list[SurveyAnswer], id: str, node: str, names: dict[NodeId, str]) -> list[dict[str, Any]]:
    """Make the status of each policy (or `id` alone): its newest version, and its state on each node (or `node` alone).
    Raises UserError for a policy or node that no answer mentions."""
    held: dict[_Place, dict[str, HeldPolicy]] = {}
    roles: dict[_Place, set[str]] = {}
    for answer in holdings:
        place = (answer.node, answer.part)
        roles[place] = {EVERYBODY, *answer.roles}
        held.setdefault(place, {}).update({one.policy: one for one in answer.held})
    _check_node(node, {display_name(place[0], names): place[0] for place in held})
    policies = sorted({policy for own in held.values() for policy in own})
    if id and id not in policies:
        raise UserError(f"no node and no repository that answered knows a policy {id}")
    return [_make_status(policy, held, roles, node, names) for policy in policies]


def _check_node(node: str, heard: dict[str, NodeId]) -> None:
    if not node or node in heard or node in map(str, heard.values()):
        return
    near = get_close_matches(node, heard, 1)
    meant = f"did you mean {near[0]}? " if near else ""
    known = ", ".join(sorted(heard)) or "nobody"
    raise UserError(f"a node {node} has not been heard of; {meant}these answered: {known}")


def _make_status(
    policy: str,
    held: dict[_Place, dict[str, HeldPolicy]],
    roles: dict[_Place, set[str]],
    node: str,
    names: dict[NodeId, str],
) -> dict[str, Any]:
    known = [own[policy] for own in held.values() if policy in own]
    newest = max(known, key=lambda one: one.version)
    concerned = {role for one in known for role in one.roles}
    rows = []
    for place, own in held.items():
        if node and node not in (display_name(place[0], names), str(place[0])):
            continue
        one = own.get(policy)
        if one is not None:
            row: dict[str, Any] = {"version": one.version, "state": one.state, "why": one.why}
        elif place[1] == "decision" and concerned & roles[place] and newest.state != "withdrawn":
            row = {"version": None, "state": NOT_HELD, "why": "it has not come to this node yet"}
        else:
            continue
        rows.append({"node": place[0], "name": display_name(place[0], names), "part": place[1], **row})
    rows.sort(key=lambda row: (row["name"], row["part"]))
    withdrawn = newest.state == "withdrawn"
    return {"id": policy, "version": newest.version, "withdrawn": withdrawn, "nodes": rows}
