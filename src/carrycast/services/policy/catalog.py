"""Policy records: a policy in an event, the order of its versions, and a catalog of the newest version of each policy.

A new version may be for other roles than the one it replaces. It must reach the nodes of those roles too, or they would
keep the old version for ever. So a version carries the roles of all versions before it (`reach`). A withdrawal is a
last version without actions.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, Scalar
from carrycast.errors import UserError
from carrycast.services.policy.roles import MAX_ROLES, POLICY_ID, Role, role_attributes, roles_in
from carrycast.services.policy.rule import MAX_VERSION, Policy

KIND = "policy.kind"

VERSION = "policy.version"

MAX_RECORD_BYTES = 1 << 15
"""Half of what a datagram holds. Text of conditions is long to read, and anybody may send it."""

RULE, WITHDRAWN = "rule", "withdrawn"


class PolicyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
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
        return tuple(sorted({*self.reach, *roles_in(self.policy.roles)}))


class PublishedPolicy(NamedTuple):
    """A record and the event that brought it."""

    record: PolicyRecord
    event: EventId

    @property
    def rank(self) -> tuple[int, EventId]:
        """Of two with the same id the higher one stands, everywhere: also of two tools that chose the same version."""
        return self.record.policy.version, self.event


_decode = msgspec.json.Decoder(PolicyRecord).decode

_encode = msgspec.json.Encoder().encode


def record_attributes(record: PolicyRecord) -> dict[str, Scalar]:
    """What subscriptions and requests ask about."""
    policy = record.policy
    kind = WITHDRAWN if record.withdrawn else RULE
    return {POLICY_ID: policy.id, VERSION: policy.version, KIND: kind, **role_attributes(record.roles)}


def encode_record(record: PolicyRecord) -> bytes:
    """The record as bytes."""
    return _encode(record)


class MalformedError(Exception):
    """An event that says it is a policy and is none."""


def read_record(event: Event) -> PolicyRecord:
    """The record in an event; whoever made it, its attributes must say the same as its payload."""
    if len(event.payload) > MAX_RECORD_BYTES:
        raise MalformedError(f"a policy has at most {MAX_RECORD_BYTES} bytes")
    try:
        record = _decode(event.payload)
    except (msgspec.MsgspecError, ValueError, RecursionError, UserError) as error:
        raise MalformedError(str(error)) from None
    if record_attributes(record).items() - event.attributes.items():
        raise MalformedError("its attributes are not those of the policy in it")
    return record


def make_successor(policy: Policy, before: Iterable[PolicyRecord]) -> PolicyRecord:
    """A policy as the version after those that are known of it, which it must exceed."""
    known = list(before)
    last = max((record.policy.version for record in known), default=0)
    if policy.version <= last:
        raise UserError(f"there is a version {last} of policy {policy.id} already; give this one {last + 1} or more")
    return _make_record(policy, known, withdrawn=False)


def make_withdrawal(before: Iterable[PolicyRecord]) -> PolicyRecord:
    """What ends a policy: its last version, without force."""
    known = list(before)
    newest = max(known, key=lambda record: record.policy.version)
    if newest.policy.version >= MAX_VERSION:
        raise UserError(f"policy {newest.policy.id} has version {MAX_VERSION}, after which there is none")
    last = msgspec.structs.replace(newest.policy, version=newest.policy.version + 1)
    return _make_record(last, known, withdrawn=True)


def _make_record(policy: Policy, known: list[PolicyRecord], withdrawn: bool) -> PolicyRecord:
    """With the roles of all that were before; a UserError if that can no longer be said in one event."""
    own = set(roles_in(policy.roles))
    reach = {role for record in known for role in record.roles} - own
    if len(reach) + len(own) > MAX_ROLES:
        raise UserError(f"policy {policy.id} has had more than {MAX_ROLES} roles; withdraw it and begin a new one")
    record = PolicyRecord(policy, tuple(sorted(reach)), withdrawn)
    size_bytes = len(encode_record(record))
    if size_bytes > MAX_RECORD_BYTES:
        raise UserError(f"policy {policy.id} has {size_bytes} bytes, and at most {MAX_RECORD_BYTES} travel; split it")
    return record


class PolicyCatalog:
    """By the id of the policy; bounded."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str, PublishedPolicy] = {}
        self._about: dict[str, dict[str, None]] = {}
        """Of each variable and command, the policies that act on it."""

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[PublishedPolicy]:
        return iter(self._held.values())

    def get(self, id: str) -> PublishedPolicy | None:
        """What is known of a policy."""
        return self._held.get(id)

    def is_full(self, id: str) -> bool:
        """Whether there is no room for another policy."""
        return len(self._held) >= self._most and id not in self._held

    def add(self, held: PublishedPolicy) -> bool:
        """Keep a version if it is newer than what is here; whether it was."""
        before = self._held.get(held.record.policy.id)
        if before is not None and before.rank >= held.rank:
            return False
        id = held.record.policy.id
        if before is not None:
            for action in before.record.policy.actions:
                self._about[action.target].pop(id, None)
        self._held[id] = held
        for action in held.record.policy.actions:
            self._about.setdefault(action.target, {})[id] = None
        return True

    def possible_conflicts(self, policy: Policy) -> list[Policy]:
        """Those that stand and act on something that a policy acts on too: no others can contradict it."""
        ids = {id: None for action in policy.actions for id in self._about.get(action.target, ())}
        found = [self._held[id].record for id in ids]
        return [record.policy for record in found if not record.withdrawn]

    def active_policies(self) -> list[Policy]:
        """Those that are not withdrawn, in the order of their ids."""
        return [held.record.policy for _, held in sorted(self._held.items()) if not held.record.withdrawn]


def read_policy(event: Event) -> PublishedPolicy:
    """The policy in an event; a MalformedError if there is none."""
    record = read_record(event)
    return PublishedPolicy(record, record.origin or event.id)
