"""The messages of policy management besides policies: events with a short lease and a JSON payload."""

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, NodeId, Scalar
from carrycast.core.protocol import ApplicationPort
from carrycast.errors import UserError
from carrycast.services.policy.catalog import MalformedError
from carrycast.services.policy.roles import Role
from carrycast.services.policy.rule import Action, ExecutionStrategy, Name

TO = "policy.to"
"""To which tool a report goes, by its node."""

ENROLL = "policy.enroll"
"""To which decision point an enforcement point gives its roles, by its name or number."""

ENFORCE = "policy.enforce"
"""Which enforcement point is told what to enforce."""

CONTEXT = "policy.context"
"""Of which node, by its name or number, an event tells the attributes that conditions ask about."""

NOTICE_LEASE_S = 120.0
"""A report that has not arrived by then is of no use: tools wait seconds, and enrollments are renewed."""

N = TypeVar("N", bound=msgspec.Struct)


class PolicyReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """To the tool that published a policy: what became of it."""

    what: Literal["stored", "clash", "enforced", "failed", "ended", "would enforce"]
    policy: Name
    version: int
    node: NodeId
    """Who says so."""
    told: Annotated[str, Meta(max_length=8192)] = ""
    utc_s: float | None = None
    """What its clock shows, if it has one: periods are only as right as that."""
    name: Annotated[str, Meta(max_length=256)] = ""
    """What people call that node."""


class DesiredPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one policy wants of one node now: those of its actions that no other policy overrules."""

    policy: Name
    version: int
    tool: NodeId
    """Who is told of the outcome."""
    actions: Annotated[tuple[Action, ...], Meta(max_length=64)]
    execution: ExecutionStrategy = ExecutionStrategy.ALL
    debug: bool = False


class Enrollment(msgspec.Struct, frozen=True, omit_defaults=True):
    """An enforcement point to its decision point, again and again: its roles, what is known of it, what it enforces."""

    roles: Annotated[tuple[Role, ...], Meta(max_length=256)]
    attributes: Annotated[dict[str, Scalar], Meta(max_length=64)] = {}
    digest: str = ""
    incarnation: int = 0
    name: Annotated[str, Meta(max_length=256)] = ""
    """What people call the node."""
    heard: bool = True
    """Whether it has had an order of this decision point."""


class EnforcementOrders(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision point to an enforcement point: everything that it is to enforce."""

    wanted: Annotated[tuple[DesiredPolicy, ...], Meta(max_length=4096)]
    number: int
    """Of two the higher one counts; the decision point's incarnation and its counter."""
    manager: Annotated[str, Meta(max_length=256)] = ""
    """What people call the decision point."""


def address_filter(attribute: str, node: NodeId, name: str) -> str:
    """The filter of what is for a node, by its number or, if it has one, by its name."""
    by_number = f'"{attribute}" = {node}'
    return f"""{by_number} or "{attribute}" = '{name.replace("'", "''")}'""" if name else by_number


def send_report(port: ApplicationPort, tool: NodeId, report: PolicyReport) -> None:
    """To the tool of a node."""
    port.publish({TO: tool, "policy.report": report.what}, msgspec.json.encode(report), NOTICE_LEASE_S)


def decode_message(event: Event, kind: type[N]) -> N:
    """A notice out of an event; a MalformedError if it is none."""
    try:
        return msgspec.json.decode(event.payload, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError, UserError) as error:
        raise MalformedError(str(error)) from None
