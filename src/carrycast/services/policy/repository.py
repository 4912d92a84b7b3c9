"""The policy repository (PR, RFC 3198): stores policies for nodes that join later, and detects conflicts.

[000 §III] A repository subscribes to policies and advertises them as stored, so that its node's protocol keeps the
events and answers requests with them. A repository without roles stores all policies, one with roles stores a part, and
a network may have both. It also writes the newest version of each policy to its own durable store, and reports "stored"
only afterwards. It detects conflicts between policies that two tools published at the same time.

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
from carrycast.services.policy.context import read_wall_time
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
"""The time over which the answers to a survey are spread: a thousand nodes then send 200 a second."""

MAX_REMEMBERED = 100_000
"""The most entries in the tables of sent and requested policies."""

Rank = tuple[int, EventId]


class RepositorySync:
    """Compares the policies of nodes with those of the repository, by surveys, and corrects differences."""

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
        """The versions for which a node was asked in this round."""
        self._asked: dict[tuple[str, Rank], set[NodeId]] = {}
        """The nodes that were asked for a version and have not published it: others are asked first."""
        self._sent: dict[tuple[NodeId, str], Rank] = {}
        """The version of each policy that was last published again for a node."""

    def survey(self) -> None:
        """Ask all nodes which policies they hold."""
        for wanted in [wanted for wanted in self._asked if wanted not in self._round]:
            # No other node has the version, or all have been asked: start again.
            del self._asked[wanted]
        self._round.clear()
        self._ask(PolicySurvey(self._number, SPREAD_S))

    def _ask(self, survey: PolicySurvey) -> None:
        self._number += 1
        send_survey(self._port, self._node, survey)

    def on_holdings(self, holdings: SurveyAnswer) -> None:
        """A node has answered a survey."""
        for holding in holdings.held:
            if holding.event is None or not self._keeps(holding):
                continue
            rank = (holding.version, holding.event)
            own = self._catalog.get(holding.policy)
            if own is None or own.rank < rank:
                self._request_publication(holdings.node, holding, rank)
            elif own.rank > rank and holdings.part == "decision":
                self._send_newer(holdings.node, own)

    def _keeps(self, holding: HeldPolicy) -> bool:
        """Whether this repository stores policies with these roles."""
        attributes = {"policy.id": holding.policy, **role_attributes(holding.roles)}
        return any(Filter(text).matches(attributes) for text in self._filters())

    def _request_publication(self, node: NodeId, holding: HeldPolicy, rank: Rank) -> None:
        """Ask a node to publish a newer version. The repository does not accept it from the answer, because only the
        publication shows that the node is authorized."""
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
"""The time to wait for answers of other repositories, and the interval between requests until they are complete."""


class RepositorySettings(Settings, frozen=True):
    """The roles of a repository, and the conditions for its use."""

    roles: Annotated[tuple[Role, ...], Meta(description="the roles whose policies it stores; empty for all")] = ()
    active: Annotated[bool, Meta(description="whether it is active from the start")] = True
    least_energy: Annotated[float, Meta(ge=0, le=1, description="the least battery charge at which it is active")] = 0.0
    most_speed_mps: Annotated[float, Meta(gt=0, description="the highest speed at which it is active")] = float("inf")
    look_s: Annotated[
        float, Meta(ge=0.001, le=86_400, description="the interval between checks of battery and speed")
    ] = 30.0
    # As for a decision point: a policy whose publication was lost is at most two minutes late.
    refetch_s: Annotated[
        float, Meta(ge=0.001, le=86_400, description="the interval between requests to other repositories")
    ] = 120.0
    most_policies: Annotated[int, Meta(ge=1, le=1_000_000, description="the most policies that it stores")] = 10_000

    def needs(self) -> frozenset[Capability]:
        battery = {Capability.ENERGY} if self.least_energy > 0 else set()
        speed = {Capability.VELOCITY} if self.most_speed_mps < float("inf") else set()
        return frozenset(battery | speed)


class _StoredPolicy(msgspec.Struct, frozen=True):
    record: PolicyRecord
    event: EventId


_decode = msgspec.msgpack.Decoder(_StoredPolicy).decode


class Repository(Application):
    """A policy repository."""

    name = "policy_repository"
    summary = "stores policies, and finds those that contradict each other"
    settings_type = RepositorySettings
    needs = frozenset({Capability.DURABLE_STORE})

    def __init__(self, node: NodeId, settings: Settings, port: ApplicationPort, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        assert isinstance(settings, RepositorySettings)
        self._settings = settings
        self._activated = settings.active
        """Whether users have activated it. It is used only while battery and speed allow it."""
        self._retrieval = PolicyRetrieval(port, rng, CATCH_UP_S, CATCH_UP_S, settings.refetch_s, elsewhere=True)
        self.active = False
        self.catalog = PolicyCatalog(settings.most_policies)
        self._sync = RepositorySync(node, port, self.catalog, host.incarnation, self._filters)
        self._surveys = SurveyResponder(node, port, host, rng, "repository", lambda: host.roles, self._list_holdings)

    def on_start(self, now: float) -> None:
        for _, value in self.host.store.items(_PREFIX):
            try:
                kept = _decode(value)
            except (msgspec.MsgspecError, ValueError):
                self.port.note(Fact("drop", reason="stored_policy_unreadable"))
                continue
            self.catalog.add(PublishedPolicy(kept.record, kept.event))
        stays = self.host.store.get(b"ordered")
        self._activated = self._settings.active if stays is None else stays == b"active"
        self.port.subscribe(_ANSWERS, f'"{TO}" = {self.node} and "{REPORT_KIND}" = \'{HOLDINGS}\'')
        self._surveys.start()
        self._check_activity(now)

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer(_ACTIVITY)
        self._retrieval.stop()
        self._surveys.stop()

    def on_timer(self, now: float, key: Key) -> None:
        if key == FETCH:
            self._retrieval.repeat(now)
            self._sync.survey()
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
        """A policy of another repository, which has already reported it to the tool."""
        self._store(event)

    def _on_holdings(self, event: Event) -> None:
        if not self.active:
            return
        try:
            self._sync.on_holdings(read_survey_answer(event))
        except MalformedError:
            self.port.note(Fact("drop", event.id, event.source, "malformed_holdings"))

    def _list_holdings(self, now: float, survey: PolicySurvey) -> Iterator[HeldPolicy]:
        for held in self.catalog:
            record, policy = held.record, held.record.policy
            state: State = "withdrawn" if record.withdrawn else "stored"
            yield HeldPolicy(policy.id, policy.version, state, "", held.event, record.roles, record)

    def on_closed(self, now: float, key: Key, complete: bool) -> None:
        if self.active and self._retrieval.on_closed(now, key, complete):
            self.port.note(Fact("repository_complete", value=float(len(self.catalog))))

    def _store(self, event: Event) -> PublishedPolicy | None:
        """Store the policy in an event; None if it is not valid or the repository is full."""
        try:
            held = read_policy(event)
        except MalformedError:
            self.port.note(Fact("drop", event.id, event.source, "malformed_policy"))
            return None
        policy = held.record.policy
        if self.catalog.is_full(policy.id):
            # No report is sent, since the policy is not stored.
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
            self._activated = verb == "activate"
            self.host.store.put(b"ordered", b"active" if self._activated else b"inactive")
            self._check_activity(now)
        elif verb != "list":
            self.port.reply(command, msgspec.json.encode({"error": "a repository knows activate, deactivate and list"}))
            return
        active_policies = [f"{policy.id} version {policy.version}" for policy in self.catalog.active_policies()]
        self.port.reply(command, msgspec.json.encode({"active": self.active, "policies": active_policies}))

    def _check_activity(self, now: float) -> None:
        """[000 §III] Activate or deactivate the repository, depending on the node's speed and battery."""
        settings = self._settings
        fit = True
        if settings.least_energy > 0:
            fit = self.host.energy(now) >= settings.least_energy
        if settings.most_speed_mps < float("inf"):
            moving = self.host.velocity(now)
            fit = fit and moving is not None and moving.x_mps**2 + moving.y_mps**2 <= settings.most_speed_mps**2
        if settings.needs():
            self.port.set_timer(_ACTIVITY, settings.look_s)
        wanted = fit and self._activated
        if wanted is not self.active:
            self.active = wanted
            self.port.note(Fact("repository_active" if wanted else "repository_inactive"))
            for number, text in enumerate(self._filters()):
                if wanted:
                    # Advertised before the subscription, so that no policy is missed in between.
                    self.port.advertise(f"stored {number}", text, stored=True)
                    self.port.subscribe(f"stored {number}", text)
                else:
                    self.port.unsubscribe(f"stored {number}")
                    self.port.unadvertise(f"stored {number}")
            if wanted:
                # Other repositories have the policies that were published while this one was inactive.
                self._retrieval.fetch(now, self._filters())
                self._sync.survey()
            else:
                self._retrieval.stop()

    def _filters(self) -> list[str]:
        return role_filters(self._settings.roles) if self._settings.roles else [ANY_POLICY]

    def _find_conflicts(self, new: PublishedPolicy) -> None:
        """Report conflicts between policies that two tools published at the same time without knowing each other's."""
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
        wall = read_wall_time(self.host, now)
        return None if wall is None else wall.utc_s
