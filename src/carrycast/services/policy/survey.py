"""Surveys: a tool or a repository asks nodes which policies they hold, and what has become of them.

A policy may be published while no repository is there, and repositories hear nothing of what nodes do with it. So what
is held is asked for where it is held. Answers are spread over a while, so that many nodes do not answer at once.
"""

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.protocol import Fact, Host
from carrycast.core.protocol.application import ApplicationPort, Key
from carrycast.services.policy.notices import NOTICE_LEASE_S, TO, read
from carrycast.services.policy.record import MAX_RECORD_BYTES, MalformedError, Record, attributes_of, payload_of
from carrycast.services.policy.roles import MAX_ROLES, Role
from carrycast.services.policy.rule import Name

SURVEY = "policy.survey"
"""Which node asks; the attribute of a survey."""
KIND = "policy.report"
HOLDINGS = "holdings"
"""Of an answer, the value of `policy.report`."""
MAX_PENDING = 16
"""Surveys that a node has still to answer; more at a time are a flood, and are dropped."""
MAX_WHY = 1024

Part = Literal["decision", "enforcement", "repository"]
State = Literal["stored", "held", "under way", "enforced", "failed", "would enforce", "withdrawn"]


class Survey(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which policies do you hold?"""

    number: int
    spread_s: Annotated[float, Meta(ge=0, le=3600)]
    """Within which time to answer."""
    policies: Annotated[tuple[Name, ...], Meta(max_length=1000)] = ()
    """Only these; none: all."""
    records: bool = False
    """Whether the policies themselves are wanted."""
    node: NodeId | None = None
    """Who alone is asked."""
    publish: bool = False
    """That node is to publish the policies again, as they were first published, instead of an answer."""


class Holding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One policy at one node."""

    policy: Name
    version: int
    state: State
    why: Annotated[str, Meta(max_length=MAX_WHY)] = ""
    event: EventId | None = None
    """By which it was published; an enforcement point does not know."""
    roles: Annotated[tuple[Role, ...], Meta(max_length=MAX_ROLES)] = ()
    """Of all versions, as far as the node knows."""
    record: Record | None = None


class Holdings(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer, or a part of one that would be too long for one event."""

    number: int
    node: NodeId
    part: Part
    name: Annotated[str, Meta(max_length=256)] = ""
    roles: Annotated[tuple[Role, ...], Meta(max_length=4096)] = ()
    """Of the node."""
    held: Annotated[tuple[Holding, ...], Meta(max_length=100_000)] = ()


def send_survey(port: ApplicationPort, node: NodeId, survey: Survey) -> None:
    """Ask."""
    port.publish({SURVEY: node}, msgspec.json.encode(survey), NOTICE_LEASE_S)


def is_holdings(event: Event) -> bool:
    """Whether an event for a tool or a repository is the answer to a survey."""
    return event.attributes.get(KIND) == HOLDINGS


def holdings_of(event: Event) -> Holdings:
    """The answer in an event; a MalformedError if there is none, or it is in another node's name."""
    holdings = read(event, Holdings)
    if holdings.node != event.source:
        raise MalformedError("a node tells of itself alone")
    return holdings


class SurveyAnswers:
    """How one application answers."""

    def __init__(
        self,
        node: NodeId,
        port: ApplicationPort,
        host: Host,
        rng: Random,
        part: Part,
        roles: Callable[[], Iterable[Role]],
        held: Callable[[float, Survey], Iterable[Holding]],
    ) -> None:
        self._node = node
        self._port = port
        self._host = host
        self._rng = rng
        self._part = part
        self._roles = roles
        self._held = held
        self._pending: dict[Key, tuple[NodeId, Survey]] = {}

    def start(self) -> None:
        """Listen."""
        self._port.subscribe(SURVEY, f'"{SURVEY}" is not null')

    def stop(self) -> None:
        """Answer no more."""
        for key in self._pending:
            self._port.cancel_timer(key)

    def on_event(self, key: Key, event: Event) -> bool:
        """A survey; False if the event is for something else."""
        if key != SURVEY:
            return False
        try:
            survey = read(event, Survey)
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
        """Time to answer; False if the timer is another."""
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
        for chunk in _chunks(held):
            told = Holdings(survey.number, self._node, self._part, self._host.name, tuple(self._roles()), chunk)
            self._port.publish({TO: asker, KIND: HOLDINGS}, msgspec.json.encode(told), NOTICE_LEASE_S)
        return True

    def _publish_again(self, survey: Survey, held: list[Holding]) -> None:
        if survey.node != self._node or not survey.policies:
            self._port.note(Fact("drop", reason="malformed_survey"))
            return
        for one in held:
            if one.record is not None and one.event is not None:
                publish_again(self._port, one.record, one.event)


def publish_again(port: ApplicationPort, record: Record, origin: EventId) -> None:
    """A policy once more, as the one that it was: who has it has nothing new."""
    again = Record(record.policy, record.reach, record.withdrawn, origin)
    port.publish(attributes_of(again), payload_of(again))


def _chunks(held: list[Holding]) -> Iterator[tuple[Holding, ...]]:
    """As many as travel together; one at least, which says that there is nothing."""
    chunk: list[Holding] = []
    size_bytes = 0
    for one in held:
        length = len(msgspec.json.encode(one))
        if chunk and size_bytes + length > MAX_RECORD_BYTES:
            yield tuple(chunk)
            chunk, size_bytes = [], 0
        chunk.append(one)
        size_bytes += length
    yield tuple(chunk)
