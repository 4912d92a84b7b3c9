"""The messages of policy management other than policies: events with a short lease and a JSON payload."""

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
"""The attribute with the node of the tool that a report is for."""

ENROLL = "policy.enroll"
"""The attribute with the decision point (name or number) that an enrollment is for."""

ENFORCE = "policy.enforce"
"""The attribute with the enforcement point that orders are for."""

CONTEXT = "policy.context"
"""The attribute with the node (name or number) whose context an event reports: the attributes that conditions test."""

NOTICE_LEASE_S = 120.0
"""The lease of these messages. A later report has no use: tools wait seconds, and enrollments are renewed."""

N = TypeVar("N", bound=msgspec.Struct)


class PolicyReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A report on a policy to the tool that published it."""

    what: Literal["stored", "clash", "enforced", "failed", "ended", "would enforce"]
    policy: Name
    version: int
    node: NodeId
    """The node that reports."""
    told: Annotated[str, Meta(max_length=8192)] = ""
    utc_s: float | None = None
    """The time of its clock, if it has one. Time periods are evaluated with this clock."""
    name: Annotated[str, Meta(max_length=256)] = ""
    """The name of that node."""


class DesiredPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The desired state of one policy on one node: its actions that no policy of higher priority overrides."""

    policy: Name
    version: int
    tool: NodeId
    """The node of the tool that receives the reports."""
    actions: Annotated[tuple[Action, ...], Meta(max_length=64)]
    execution: ExecutionStrategy = ExecutionStrategy.ALL
    debug: bool = False


class Enrollment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sent periodically by an enforcement point to its decision point: roles, attributes, and a digest of its state."""

    roles: Annotated[tuple[Role, ...], Meta(max_length=256)]
    attributes: Annotated[dict[str, Scalar], Meta(max_length=64)] = {}
    digest: str = ""
    incarnation: int = 0
    name: Annotated[str, Meta(max_length=256)] = ""
    """The name of the node."""
    heard: bool = True
    """Whether it has received orders of this decision point."""


class EnforcementOrders(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sent by a decision point to an enforcement point: everything that it has to enforce."""

    wanted: Annotated[tuple[DesiredPolicy, ...], Meta(max_length=4096)]
    number: int
    """A sequence number: the incarnation and the counter of the decision point. Older orders are ignored."""
    manager: Annotated[str, Meta(max_length=256)] = ""
    """The name of the decision point."""


def address_filter(attribute: str, node: NodeId, name: str) -> str:
    """The filter for messages to a node, addressed by its number or, if it has one, its name."""
    by_number = f'"{attribute}" = {node}'
    return f"""{by_number} or "{attribute}" = '{name.replace("'", "''")}'""" if name else by_number


def send_report(port: ApplicationPort, tool: NodeId, report: PolicyReport) -> None:
    """Send a report to the tool on a node."""
    port.publish({TO: tool, "policy.report": report.what}, msgspec.json.encode(report), NOTICE_LEASE_S)


def decode_message(event: Event, kind: type[N]) -> N:
    """Decode the message in an event; raises MalformedError."""
    try:
        return msgspec.json.decode(event.payload, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError, UserError) as error:
        raise MalformedError(str(error)) from None
