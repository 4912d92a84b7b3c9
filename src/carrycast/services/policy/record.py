"""A policy on its way: what an event says of it, and which of two versions is the newer.

A new version may be for other roles than the one it replaces. It must reach those too, or they would keep the old one
for ever, so a version carries the roles of all before it (`reach`). A withdrawal is a last version that does nothing.
"""

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, Scalar
from carrycast.errors import UserError
from carrycast.services.policy.roles import MAX_ROLES, POLICY_ID, Role, marks, mentioned
from carrycast.services.policy.rule import MAX_VERSION, Policy

KIND = "policy.kind"
VERSION = "policy.version"
MAX_RECORD_BYTES = 1 << 15
"""Half of what a datagram holds. Text of conditions is long to read, and anybody may send it."""
RULE, WITHDRAWN = "rule", "withdrawn"


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the payload of a policy's event holds, as JSON."""

    policy: Policy
    reach: Annotated[tuple[Role, ...], Meta(max_length=MAX_ROLES)] = ()
    """The roles of the versions before this one."""
    withdrawn: bool = False
    origin: EventId | None = None
    """By which event it was first published, if a repository learned it from a node and publishes it again."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """Everybody who may hold this policy in some version."""
        return tuple(sorted({*self.reach, *mentioned(self.policy.roles)}))


class Held(NamedTuple):
    """A record and the event that brought it."""

    record: Record
    event: EventId

    @property
    def rank(self) -> tuple[int, EventId]:
        """Of two with the same id the higher one stands, everywhere: also of two tools that chose the same version."""
        return self.record.policy.version, self.event


_decode = msgspec.json.Decoder(Record).decode
_encode = msgspec.json.Encoder().encode


def attributes_of(record: Record) -> dict[str, Scalar]:
    """What subscriptions and requests ask about."""
    policy = record.policy
    kind = WITHDRAWN if record.withdrawn else RULE
    return {POLICY_ID: policy.id, VERSION: policy.version, KIND: kind, **marks(record.roles)}


def payload_of(record: Record) -> bytes:
    """The record as bytes."""
    return _encode(record)


class MalformedError(Exception):
    """An event that says it is a policy and is none."""


def record_of(event: Event) -> Record:
    """The record in an event; whoever made it, its attributes must say the same as its payload."""
    if len(event.payload) > MAX_RECORD_BYTES:
        raise MalformedError(f"a policy has at most {MAX_RECORD_BYTES} bytes")
    try:
        record = _decode(event.payload)
    except (msgspec.MsgspecError, ValueError, RecursionError, UserError) as error:
        raise MalformedError(str(error)) from None
    if attributes_of(record).items() - event.attributes.items():
        raise MalformedError("its attributes are not those of the policy in it")
    return record


def successor(policy: Policy, before: Iterable[Record]) -> Record:
    """A policy as the version after those that are known of it, which it must exceed."""
    known = list(before)
    last = max((record.policy.version for record in known), default=0)
    if policy.version <= last:
        raise UserError(f"there is a version {last} of policy {policy.id} already; give this one {last + 1} or more")
    return _reaching(policy, known, withdrawn=False)


def withdrawal(before: Iterable[Record]) -> Record:
    """What ends a policy: its last version, without force."""
    known = list(before)
    newest = max(known, key=lambda record: record.policy.version)
    if newest.policy.version >= MAX_VERSION:
        raise UserError(f"policy {newest.policy.id} has version {MAX_VERSION}, after which there is none")
    last = msgspec.structs.replace(newest.policy, version=newest.policy.version + 1)
    return _reaching(last, known, withdrawn=True)


def _reaching(policy: Policy, known: list[Record], withdrawn: bool) -> Record:
    """With the roles of all that were before; a UserError if that can no longer be said in one event."""
    own = set(mentioned(policy.roles))
    reach = {role for record in known for role in record.roles} - own
    if len(reach) + len(own) > MAX_ROLES:
        raise UserError(f"policy {policy.id} has had more than {MAX_ROLES} roles; withdraw it and begin a new one")
    record = Record(policy, tuple(sorted(reach)), withdrawn)
    size_bytes = len(payload_of(record))
    if size_bytes > MAX_RECORD_BYTES:
        raise UserError(f"policy {policy.id} has {size_bytes} bytes, and at most {MAX_RECORD_BYTES} travel; split it")
    return record
