"""The policy repository (PR, RFC 3198): stores policies for nodes that join later, and detects conflicts.

[000 §III] It stores by subscription: its node's protocol keeps the events that it advertises as stored, and answers
requests with them. A repository without roles replicates all policies, one with roles stores a part, and a network may
have both. It also keeps the newest version of each policy in its own durable store, and reports "stored" only when that
is written. It detects conflicts between policies that two tools published at the same time.

A repository also asks nodes which policies they hold (`survey`). A node with a newer policy is asked to publish it
again, as it was first published (`PolicyRecord.origin`), so that every repository stores it. A node with an older
version, because it was disconnected when the newer one or the withdrawal was published, is sent the newer one.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.matching import Filter
from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.protocol import Application, ApplicationPort, Capability, Fact, Host, Key, Settings
from carrycast.services.policy.catalog import MalformedError, PolicyCatalog, PolicyRecord, PublishedPolicy, read_policy
from carrycast.services.policy.conflict import find_conflicts
from carrycast.services.policy.context import wall_time
from carrycast.services.policy.messages import TO, PolicyReport, send_report
from carrycast.services.policy.policy_retrieval import TIMER as FETCH, PolicyRetrieval
from carrycast.services.policy.roles import ANY_POLICY, Role, role_attributes, role_filters
from carrycast.services.policy.survey import (
    HOLDINGS,
    KIND as REPORT_KIND,
    HeldPolicy,
    PolicySurvey,
    State,
    SurveyAnswer,
    SurveyResponder,
    publish_again,
    read_survey_answer,
    send_survey,
)

SPREAD_S = 5.0
"""Over which time nodes answer: a thousand of them are then 200 a second."""

MAX_REMEMBERED = 100_000
"""What was sent to whom, and who was asked for what."""

Rank = tuple[int, EventId]


class RepositorySync:
    """One repository's knowledge of what nodes hold."""

    def __init__(
        self,
        node: NodeId,
        port: ApplicationPort,
        catalog: PolicyCatalog,
        incarnation: int,
        role_filters: Callable[[], list[str]],
    ) -> None:
        self._node = node
        self._port = port
        self._catalog = catalog
        self._filters = role_filters
        self._number = incarnation << 32
        self._round: set[tuple[str, Rank]] = set()
        """What a node was asked for in this round."""
        self._asked: dict[tuple[str, Rank], set[NodeId]] = {}
        """Who was asked for what before, and has not published it: others are asked first."""
        self._sent: dict[tuple[NodeId, str], Rank] = {}
        """Which version was published again for which node."""

    def survey(self) -> None:
        """Ask all nodes what they hold."""
        for wanted in [wanted for wanted in self._asked if wanted not in self._round]:
            # Nobody else has it, or all have been asked: begin again.
            del self._asked[wanted]
        self._round.clear()
        self._ask(PolicySurvey(self._number, SPREAD_S))

    def _ask(self, survey: PolicySurvey) -> None:
        self._number += 1
        send_survey(self._port, self._node, survey)

    def on_holdings(self, holdings: SurveyAnswer) -> None:
        """A node has answered."""
        for holding in holdings.held:
            if holding.event is None or not self._keeps(holding):
                continue
            rank = (holding.version, holding.event)
            own = self._catalog.get(holding.policy)
            if own is None or own.rank < rank:
                self._learn(holdings.node, holding, rank)
            elif own.rank > rank and holdings.part == "decision":
                self._send_newer(holdings.node, own)

    def _keeps(self, holding: HeldPolicy) -> bool:
        """Whether such a policy belongs here."""
        attributes = {"policy.id": holding.policy, **role_attributes(holding.roles)}
        return any(Filter(text).matches(attributes) for text in self._filters())

    def _learn(self, node: NodeId, holding: HeldPolicy, rank: Rank) -> None:
        """Not on a node's word alone: the node publishes the policy itself, if it may."""
        wanted = (holding.policy, rank)
        asked = self._asked.setdefault(wanted, set())
        if wanted in self._round or node in asked or len(self._asked) > MAX_REMEMBERED:
            return
        self._round.add(wanted)
        asked.add(node)
        self._port.note(Fact("policy_learned", rank[1], node, holding.policy, float(holding.version)))
        self._ask(PolicySurvey(self._number, 0.0, (holding.policy,), node=node, publish=True))

    def _send_newer(self, node: NodeId, own: PublishedPolicy) -> None:
        key = (node, own.record.policy.id)
        if self._sent.get(key) == own.rank:
            return
        if len(self._sent) >= MAX_REMEMBERED:
            self._sent.clear()
        self._sent[key] = own.rank
        self._port.note(Fact("policy_sent_again", own.event, node, own.record.policy.id))
        publish_again(self._port, own.record, own.event)


_PREFIX = b"policy/"

_ACTIVITY = "activity"

_ANSWERS = "answers"

CATCH_UP_S = 10.0
"""How long the answers of other repositories are waited for, and after how long they are asked again."""


class RepositorySettings(Settings, frozen=True):
    """What a repository keeps, and when it does."""

    roles: Annotated[tuple[Role, ...], Meta(description="whose policies it keeps; none: everybody's")] = ()
    active: Annotated[bool, Meta(description="whether it begins to keep policies by itself")] = True
    least_energy: Annotated[float, Meta(ge=0, le=1, description="below that share of its battery it is not used")] = 0.0
    most_speed_mps: Annotated[float, Meta(gt=0, description="nor while it moves faster than that")] = float("inf")
    look_s: Annotated[float, Meta(ge=0.001, le=86_400, description="how often it looks at both")] = 30.0
    # As a decision point: what a lost publication then costs.
    refetch_s: Annotated[
        float, Meta(ge=0.001, le=86_400, description="how often it asks the others for what it missed")
    ] = 120.0
    most_policies: Annotated[int, Meta(ge=1, le=1_000_000, description="more are not stored")] = 10_000

    def needs(self) -> frozenset[Capability]:
        battery = {Capability.ENERGY} if self.least_energy > 0 else set()
        speed = {Capability.VELOCITY} if self.most_speed_mps < float("inf") else set()
        return frozenset(battery | speed)


class _StoredPolicy(msgspec.Struct, frozen=True):
    record: PolicyRecord
    event: EventId


_decode = msgspec.msgpack.Decoder(_StoredPolicy).decode


class Repository(Application):
    """One policy repository."""

    name = "policy_repository"
    summary = "stores policies, and finds those that contradict each other"
    settings_type = RepositorySettings
    needs = frozenset({Capability.DURABLE_STORE})

    def __init__(self, node: NodeId, settings: Settings, port: ApplicationPort, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        assert isinstance(settings, RepositorySettings)
        self._settings = settings
        self._ordered = settings.active
        """Whether it is to be active, as far as people say."""
        self._fetching = PolicyRetrieval(port, rng, CATCH_UP_S, CATCH_UP_S, settings.refetch_s, elsewhere=True)
        self.active = False
        self.catalog = PolicyCatalog(settings.most_policies)
        self._learning = RepositorySync(node, port, self.catalog, host.incarnation, self._filters)
        self._surveys = SurveyResponder(node, port, host, rng, "repository", lambda: host.roles, self._holdings)

    def on_start(self, now: float) -> None:
        for _, value in self.host.store.items(_PREFIX):
            try:
                kept = _decode(value)
            except (msgspec.MsgspecError, ValueError):
                self.port.note(Fact("drop", reason="stored_policy_unreadable"))
                continue
            self.catalog.add(PublishedPolicy(kept.record, kept.event))
        stays = self.host.store.get(b"ordered")
        self._ordered = self._settings.active if stays is None else stays == b"active"
        self.port.subscribe(_ANSWERS, f'"{TO}" = {self.node} and "{REPORT_KIND}" = \'{HOLDINGS}\'')
        self._surveys.start()
        self._check_activity(now)

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer(_ACTIVITY)
        self._fetching.stop()
        self._surveys.stop()

    def on_timer(self, now: float, key: Key) -> None:
        if key == FETCH:
            self._fetching.again(now)
            self._learning.survey()
        elif not self._surveys.on_timer(now, key):
            self._check_activity(now)

    def on_event(self, now: float, key: Key, event: Event, hops: int) -> None:
        if self._surveys.on_event(key, event):
            return
        if key == _ANSWERS:
            self._on_holdings(event)
            return
        held = self._store(event)
        if held is not None:
            policy = held.record.policy
            report = PolicyReport("stored", policy.id, policy.version, self.node, "", self._utc_s(now), self.host.name)
            self._report(held, report)

    def on_answer(self, now: float, key: Key, event: Event, hops: int) -> None:
        """From another repository, which has told the tool long ago."""
        self._store(event)

    def _on_holdings(self, event: Event) -> None:
        if not self.active:
            return
        try:
            self._learning.on_holdings(read_survey_answer(event))
        except MalformedError:
            self.port.note(Fact("drop", event.id, event.source, "malformed_holdings"))

    def _holdings(self, now: float, survey: PolicySurvey) -> Iterator[HeldPolicy]:
        for held in self.catalog:
            record, policy = held.record, held.record.policy
            state: State = "withdrawn" if record.withdrawn else "stored"
            yield HeldPolicy(policy.id, policy.version, state, "", held.event, record.roles, record)

    def on_closed(self, now: float, key: Key, complete: bool) -> None:
        if self.active and self._fetching.on_closed(now, key, complete):
            self.port.note(Fact("repository_complete", value=float(len(self.catalog))))

    def _store(self, event: Event) -> PublishedPolicy | None:
        """Keep the policy in an event; None if that cannot be."""
        try:
            held = read_policy(event)
        except MalformedError:
            self.port.note(Fact("drop", event.id, event.source, "malformed_policy"))
            return None
        policy = held.record.policy
        if self.catalog.is_full(policy.id):
            # Nothing is said to be stored that is not.
            self.port.note(Fact("drop", event.id, event.source, "repository_full"))
            return None
        if self.catalog.add(held):
            kept = msgspec.msgpack.encode(_StoredPolicy(held.record, held.event))
            self.host.store.put(_PREFIX + policy.id.encode(), kept)
            self.port.note(Fact("policy_stored", event.id, value=float(policy.version)))
            if not held.record.withdrawn:
                self._find_conflicts(held)
        return held

    def on_command(self, now: float, command: int, verb: str, body: bytes) -> None:
        """`activate`, `deactivate`, `list`."""
        if verb in ("activate", "deactivate"):
            self._ordered = verb == "activate"
            self.host.store.put(b"ordered", b"active" if self._ordered else b"inactive")
            self._check_activity(now)
        elif verb != "list":
            self.port.reply(command, msgspec.json.encode({"error": "a repository knows activate, deactivate and list"}))
            return
        active_policies = [f"{policy.id} version {policy.version}" for policy in self.catalog.active_policies()]
        self.port.reply(command, msgspec.json.encode({"active": self.active, "policies": active_policies}))

    # Whether it is used.

    def _check_activity(self, now: float) -> None:
        """[000 §III] A repository may be there and not be used, because of the node's movement or battery."""
        settings = self._settings
        fit = True
        if settings.least_energy > 0:
            fit = self.host.energy(now) >= settings.least_energy
        if settings.most_speed_mps < float("inf"):
            moving = self.host.velocity(now)
            fit = fit and moving is not None and moving.x_mps**2 + moving.y_mps**2 <= settings.most_speed_mps**2
        if settings.needs():
            self.port.set_timer(_ACTIVITY, settings.look_s)
        wanted = fit and self._ordered
        if wanted is not self.active:
            self.active = wanted
            self.port.note(Fact("repository_active" if wanted else "repository_inactive"))
            for number, text in enumerate(self._filters()):
                if wanted:
                    # First what is to be kept, then what brings it: nothing falls between the two.
                    self.port.advertise(f"stored {number}", text, stored=True)
                    self.port.subscribe(f"stored {number}", text)
                else:
                    self.port.unsubscribe(f"stored {number}")
                    self.port.unadvertise(f"stored {number}")
            if wanted:
                # What was published while this one was not there, or not used, the others have.
                self._fetching.fetch(now, self._filters())
                self._learning.survey()
            else:
                self._fetching.stop()

    def _filters(self) -> list[str]:
        return role_filters(self._settings.roles) if self._settings.roles else [ANY_POLICY]

    # Clashes.

    def _find_conflicts(self, new: PublishedPolicy) -> None:
        """What two tools published at once, each without the other's policy to compare with."""
        refused, _ = find_conflicts(new.record.policy, self.catalog.possible_conflicts(new.record.policy))
        for found in refused:
            other = self.catalog.get(found.two.id)
            assert other is not None
            told = found.explain()
            self.port.note(Fact("policy_clash", new.event, reason=f"{found.one.id} and {found.two.id}"))
            for held in (new, other):
                policy = held.record.policy
                self._report(
                    held, PolicyReport("clash", policy.id, policy.version, self.node, told[:8192], name=self.host.name)
                )

    def _report(self, held: PublishedPolicy, report: PolicyReport) -> None:
        send_report(self.port, held.event.source, report)

    def _utc_s(self, now: float) -> float | None:
        wall = wall_time(self.host, now)
        return None if wall is None else wall.utc_s
