"""Policy records: a policy in an event, the order of its versions, and a catalog of the newest version of each policy.

A new version may have other roles than the one it replaces. It must also reach the nodes of the former roles, which
would otherwise keep the old version forever. So a version carries the roles of all previous versions (`reach`). A
withdrawal is a last version whose actions are no longer performed.
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
"""Half of a datagram. Parsing conditions takes time, and any node may send them."""

RULE, WITHDRAWN = "rule", "withdrawn"


class PolicyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The payload of a policy's event, as JSON."""

    policy: Policy
    reach: Annotated[tuple[Role, ...], Meta(max_length=MAX_ROLES)] = ()
    """The roles of the previous versions."""
    withdrawn: bool = False
    origin: EventId | None = None
    """The event by which the policy was first published, if this event publishes it again."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of all nodes that may hold any version of this policy."""
        return tuple(sorted({*self.reach, *roles_in(self.policy.roles)}))


class PublishedPolicy(NamedTuple):
    """A policy record and the event by which it was first published."""

    record: PolicyRecord
    event: EventId

    @property
    def rank(self) -> tuple[int, EventId]:
        """The order of the records of one policy: the highest rank is the newest. The event id decides between two
        tools that published the same version."""
        return self.record.policy.version, self.event


_decode = msgspec.json.Decoder(PolicyRecord).decode

_encode = msgspec.json.Encoder().encode


def record_attributes(record: PolicyRecord) -> dict[str, Scalar]:
    """The attributes of a policy's event, which subscriptions and requests match."""
    policy = record.policy
    kind = WITHDRAWN if record.withdrawn else RULE
    return {POLICY_ID: policy.id, VERSION: policy.version, KIND: kind, **role_attributes(record.roles)}


def encode_record(record: PolicyRecord) -> bytes:
    """Encode a record as JSON."""
    return _encode(record)


class MalformedError(Exception):
    """An event is not a valid policy or policy message."""


def read_record(event: Event) -> PolicyRecord:
    """Decode the record in an event. The attributes of the event must agree with its payload."""
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
    """Make the record of a new version; raises UserError unless its version is higher than all known ones."""
    known = list(before)
    last = max((record.policy.version for record in known), default=0)
    if policy.version <= last:
        raise UserError(f"there is a version {last} of policy {policy.id} already; give this one {last + 1} or more")
    return _make_record(policy, known, withdrawn=False)


def make_withdrawal(before: Iterable[PolicyRecord]) -> PolicyRecord:
    """Make the record of a withdrawal: a last version that is not enforced."""
    known = list(before)
    newest = max(known, key=lambda record: record.policy.version)
    if newest.policy.version >= MAX_VERSION:
        raise UserError(f"policy {newest.policy.id} has version {MAX_VERSION}, after which there is none")
    last = msgspec.structs.replace(newest.policy, version=newest.policy.version + 1)
    return _make_record(last, known, withdrawn=True)


def _make_record(policy: Policy, known: list[PolicyRecord], withdrawn: bool) -> PolicyRecord:
    """Make a record with the roles of all known versions; raises UserError if it does not fit in one event."""
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
    """The newest known version of each policy, by policy id; at most `most` policies."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str, PublishedPolicy] = {}
        self._by_target: dict[str, dict[str, None]] = {}
        """The policies that act on each target (variable or command)."""

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[PublishedPolicy]:
        return iter(self._held.values())

    def get(self, id: str) -> PublishedPolicy | None:
        """The newest known version of a policy, or None."""
        return self._held.get(id)

    def is_full(self, id: str) -> bool:
        """Whether there is no room for another policy."""
        return len(self._held) >= self._most and id not in self._held

    def add(self, held: PublishedPolicy) -> bool:
        """Add a version; False if the catalog already has the same or a newer one."""
        before = self._held.get(held.record.policy.id)
        if before is not None and before.rank >= held.rank:
            return False
        id = held.record.policy.id
        if before is not None:
            for action in before.record.policy.actions:
                self._by_target[action.target].pop(id, None)
        self._held[id] = held
        for action in held.record.policy.actions:
            self._by_target.setdefault(action.target, {})[id] = None
        return True

    def possible_conflicts(self, policy: Policy) -> list[Policy]:
        """The policies with a target in common with this one, without withdrawn ones. No others can contradict it."""
        ids = {id: None for action in policy.actions for id in self._by_target.get(action.target, ())}
        found = [self._held[id].record for id in ids]
        return [record.policy for record in found if not record.withdrawn]

    def active_policies(self) -> list[Policy]:
        """The policies that are not withdrawn, ordered by id."""
        return [held.record.policy for _, held in sorted(self._held.items()) if not held.record.withdrawn]


def read_policy(event: Event) -> PublishedPolicy:
    """Decode the policy in an event; raises MalformedError."""
    record = read_record(event)
    return PublishedPolicy(record, record.origin or event.id)
