"""What a management tool is asked for, and what it has to know before it can answer."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from carrycast.core.model import EventId, NodeId
from carrycast.errors import UserError
from carrycast.services.policy.record import Held, Record
from carrycast.services.policy.roles import ANY_POLICY, EVERYBODY, NAME, POLICY_ID, Role, filters, wider_filters
from carrycast.services.policy.rule import Policy
from carrycast.services.policy.survey import Holdings, Survey
from carrycast.services.policy.text import MAX_TEXT_CHARACTERS, policy_text

MAX_SURVEYED = 1000
"""Policies that nodes are asked for by name; of more they are asked for all."""


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a command."""

    text: Annotated[str, Meta(max_length=MAX_TEXT_CHARACTERS)] = ""
    """Policies, for `check` and `publish`."""
    id: Annotated[str, Meta(pattern=f"^({NAME})?$")] = ""
    """Of a policy, for `withdraw`, `history` and `status`."""
    node: Annotated[str, Meta(max_length=256)] = ""
    """Of which node `status` tells, by its name or number; none: all."""
    roles: tuple[Role, ...] = ()
    """Whose policies to list; none: all."""
    anyway: bool = False
    """Publish even if not every repository has answered."""
    next: bool = False
    """Publish as the version after the last there is."""
    nodes: tuple[tuple[Role, ...], ...] | None = None
    """The roles of each node, where people know them: then overlap of roles is exact."""

    def population(self) -> list[frozenset[str]] | None:
        """The roles of all nodes, if they are known."""
        return None if self.nodes is None else [frozenset(roles) for roles in self.nodes]


class Job:
    """A command on its way."""

    def __init__(self, command: int, verb: str, ask: Ask, policies: list[Policy]) -> None:
        self.command = command
        self.verb = verb
        self.ask = ask
        self.policies = policies
        self.open: set[str] = set()
        self.complete = True
        self.found: dict[EventId, Held] = {}
        self.attempts = 0
        self.published: dict[tuple[str, int], Record] = {}
        self.stored: dict[tuple[str, int], list[NodeId]] = {}
        self.told: dict[str, Any] = {}
        self.surveying = False
        self.holdings: list[Holdings] = []
        """What nodes say that they hold."""


def questions(job: Job) -> list[str]:
    """The filters of everything a command must know; a UserError if it cannot be meant."""
    if job.verb in ("check", "publish"):
        if not job.policies:
            raise UserError("there is no policy in this")
        if job.ask.nodes is not None:
            # A node may have any roles together, so any policy may meet these.
            return [ANY_POLICY]
        roles = wider_filters(roles for policy in job.policies for roles in policy.roles)
        if roles == [ANY_POLICY]:
            return roles
        # Other versions may be for other roles.
        ids = [policy.id for policy in job.policies]
        parts = [ids[at : at + 50] for at in range(0, len(ids), 50)]
        return [*roles, *(f"{POLICY_ID} in ({', '.join(repr(id) for id in part)})" for part in parts)]
    if job.verb == "list":
        return filters(job.ask.roles) if job.ask.roles else [ANY_POLICY]
    if job.verb in ("withdraw", "history"):
        if not job.ask.id:
            raise UserError(f"{job.verb}: name a policy")
        return [f"{POLICY_ID} = '{job.ask.id}'"]
    if job.verb == "status":
        return []
    raise UserError("a management tool knows check, publish, withdraw, list, history, status and reports")


def survey_of(job: Job, number: int, spread_s: float) -> Survey:
    """What nodes are asked for a command: repositories may never have heard of what they hold."""
    if job.verb in ("check", "publish"):
        ids: tuple[str, ...] = tuple(policy.id for policy in job.policies)
    else:
        ids = (job.ask.id,) if job.ask.id else ()
    if len(ids) > MAX_SURVEYED:
        ids = ()
    return Survey(number, spread_s, ids, records=job.verb not in ("status", "list"))


def unstored(job: Job) -> list[dict[str, object]]:
    """The policies that nodes hold in a newer version than any repository has told of."""
    stored: dict[str, int] = {}
    for held in job.found.values():
        id, version = held.record.policy.id, held.record.policy.version
        stored[id] = max(version, stored.get(id, 0))
    nodes: dict[tuple[str, int], list[NodeId]] = {}
    for holdings in job.holdings:
        for one in holdings.held:
            # Whoever asked for some roles alone is not told of others.
            if job.ask.roles and not {EVERYBODY, *job.ask.roles} & set(one.roles):
                continue
            if holdings.part == "decision" and one.state != "withdrawn" and one.version > stored.get(one.policy, 0):
                nodes.setdefault((one.policy, one.version), []).append(holdings.node)
    return [{"id": id, "version": version, "nodes": sorted(held)} for (id, version), held in sorted(nodes.items())]


def listed(job: Job) -> list[dict[str, object]]:
    """The policies that were found: the newest versions that stand, or (`history`) all versions of one."""
    newest: dict[str, Held] = {}
    for held in sorted(job.found.values(), key=lambda held: held.rank):
        newest[held.record.policy.id] = held
    if job.verb == "history":
        # One that was published again, since nobody had stored it, is the same.
        versions = {(held.record.policy.version, held.event.source): held for held in job.found.values()}
        shown = sorted(versions.values(), key=lambda held: held.rank)
    else:
        shown = [held for _, held in sorted(newest.items()) if not held.record.withdrawn]
    return [
        {
            "id": held.record.policy.id,
            "version": held.record.policy.version,
            "withdrawn": held.record.withdrawn,
            "from": held.event.source,
            "event": str(held.event),
            "text": policy_text(held.record.policy),
        }
        for held in shown
    ]
