"""The policy decision point (PDP, RFC 3198): retrieves the policies of its roles, and decides which apply.

[000 §III] It subscribes to the policies of its node's roles and, on joining, requests those that were published before.
A cluster manager also does so for the enforcement points that enrolled with it, with one subscription for all.
"""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, NodeId, Scalar, WallTime
from carrycast.core.protocol import Application, ApplicationPort, Fact, Host, Key, Settings
from carrycast.errors import UserError
from carrycast.services.policy.catalog import MalformedError, PolicyCatalog, PublishedPolicy, read_policy
from carrycast.services.policy.context import merge_context, read_attributes, read_wall_time
from carrycast.services.policy.enforcement_point import Enforcer, digest
from carrycast.services.policy.messages import (
    CONTEXT,
    ENFORCE,
    ENROLL,
    NOTICE_LEASE_S,
    DesiredPolicy,
    EnforcementOrders,
    Enrollment,
    address_filter,
    decode_message,
)
from carrycast.services.policy.policy_retrieval import TIMER as FETCH, PolicyRetrieval
from carrycast.services.policy.roles import Role, matches_roles, role_filters
from carrycast.services.policy.rule import Action, Enabled, Policy, contradicts
from carrycast.services.policy.survey import HeldPolicy, PolicySurvey, State, SurveyResponder
from carrycast.services.policy.time_period import any_period_includes


class PolicyDecision(NamedTuple):
    """The policies to enforce on a node, and the conflicts between rules of equal priority."""

    wanted: tuple[DesiredPolicy, ...]
    tied: tuple[tuple[str, str], ...]
    """For each conflict, the id of the rule that wins and of the rule that is overridden."""


def is_applicable(
    policy: Policy, roles: Iterable[str], attributes: Mapping[str, Scalar], wall: WallTime | None
) -> bool:
    """Whether a rule applies to a node with these roles and attributes at a time.

    On a node without a clock, rules with time periods do not apply: the safe default is to perform no action.
    """
    if policy.enabled is Enabled.DISABLED or not matches_roles(policy.roles, roles):
        return False
    if policy.periods and (wall is None or not any_period_includes(policy.periods, wall)):
        return False
    return policy.conditions.filter.matches(attributes)


def explain_inactive(
    policy: Policy, roles: Iterable[str], attributes: Mapping[str, Scalar], wall: WallTime | None
) -> str:
    """Explain why a rule that a node holds does not apply now."""
    if policy.enabled is Enabled.DISABLED:
        return "it is disabled"
    if not matches_roles(policy.roles, roles):
        return "it is for other roles"
    if policy.periods and wall is None:
        return "it has time periods, and the node has no clock"
    if policy.periods and wall is not None and not any_period_includes(policy.periods, wall):
        return "it is not its time"
    if not policy.conditions.filter.matches(attributes):
        return "its conditions do not hold"
    return "policies of higher priority, or of the same and a lesser name, want otherwise"


def decide(
    known: Iterable[PublishedPolicy], roles: Iterable[str], attributes: Mapping[str, Scalar], wall: WallTime | None
) -> PolicyDecision:
    """Decide which policies to enforce [RFC 3060 §6.1]: of rules that contradict each other, the higher priority wins.

    If priorities are equal, the lower id wins, so that all decision points agree; this is reported as a tie.
    """
    own = tuple(roles)
    active = [
        held for held in known if not held.record.withdrawn and is_applicable(held.record.policy, own, attributes, wall)
    ]
    active.sort(key=lambda held: (-held.record.policy.priority, held.record.policy.id))
    active_policies: dict[str, tuple[Policy, Action]] = {}
    wanted: list[DesiredPolicy] = []
    tied: list[tuple[str, str]] = []
    for held in active:
        policy = held.record.policy
        debug = policy.enabled is Enabled.DEBUG
        kept: list[Action] = []
        for action in policy.actions:
            winner = active_policies.get(action.target)
            if winner is None or not contradicts(winner[1], action):
                kept.append(action)
                if not debug:
                    active_policies.setdefault(action.target, (policy, action))
            elif winner[0].priority == policy.priority:
                tied.append((winner[0].id, policy.id))
        if kept:
            wanted.append(
                DesiredPolicy(policy.id, policy.version, held.event.source, tuple(kept), policy.execution, debug=debug)
            )
    return PolicyDecision(tuple(wanted), tuple(dict.fromkeys(tied)))


def next_change_s(known: Iterable[PublishedPolicy], wall: WallTime | None) -> float:
    """The duration within which no time period starts or ends."""
    if wall is None:
        return float("inf")
    periods = [period for held in known for period in held.record.policy.periods if not held.record.withdrawn]
    return min((period.next_change_s(wall) for period in periods), default=float("inf"))


MAX_MANAGED = 1000
"""The most enforcement points of one cluster. Further enrollments are dropped."""

MAX_ATTRIBUTES = 64
"""The most attributes in the context of a node."""

_LOOK = "look"


class DecisionSettings(Settings, frozen=True):
    """The roles of a decision point, and the timing of requests and decisions."""

    roles: Annotated[
        tuple[Role, ...], Meta(description="roles of the node, in addition to those of the scenario or config")
    ] = ()
    manager: Annotated[bool, Meta(description="whether it manages the enforcement points that enroll with it")] = False
    attributes: Annotated[
        dict[str, Scalar], Meta(description="attributes for conditions, in addition to those that the node measures")
    ] = msgspec.field(default_factory=dict)
    look_s: Annotated[
        float, Meta(ge=0.001, le=86_400, description="the interval between evaluations of the conditions")
    ] = 10.0
    # Too short for people to notice, and ten decisions a second cost little.
    react_s: Annotated[float, Meta(ge=0, le=3600, description="the delay of a decision, to collect changes")] = 0.1
    patience_s: Annotated[
        float,
        Meta(gt=0, le=3600, description="the time to wait for answers of repositories before asking again"),
    ] = 10.0
    retry_s: Annotated[
        float, Meta(ge=0.001, le=3600, description="the least interval between requests after an incomplete answer")
    ] = 5.0
    # A policy whose publication was lost, or that was published in another island, is at most two minutes late.
    refetch_s: Annotated[
        float, Meta(ge=0.001, le=86_400, description="the interval between requests after a complete answer")
    ] = 120.0
    enrolled_s: Annotated[
        float, Meta(gt=0, le=1e9, description="the time-out of an enforcement point that sends no enrollment")
    ] = 100.0
    most_policies: Annotated[int, Meta(ge=1, le=1_000_000, description="the most policies that it holds")] = 10_000


class _Managed:
    """An enforcement point of the cluster."""

    def __init__(self, enrollment: Enrollment, until: float) -> None:
        self.enrollment = enrollment
        self.until = until
        self.ordered = ""

    @property
    def name(self) -> str:
        return self.enrollment.name


class DecisionPoint(Application):
    """A decision point, with an enforcer for its own node."""

    name = "policy_decision"
    summary = "retrieves the policies of its roles and has them enforced"
    settings_type = DecisionSettings

    def __init__(self, node: NodeId, settings: Settings, port: ApplicationPort, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        assert isinstance(settings, DecisionSettings)
        self._settings = settings
        self._own = tuple(sorted({*settings.roles, *host.roles}))
        self._context: dict[str, Scalar] = dict(settings.attributes)
        self._managed: dict[NodeId, _Managed] = {}
        self._subscribed: list[str] = []
        self._retrieval = PolicyRetrieval(
            port, rng, settings.patience_s, settings.retry_s, settings.refetch_s, elsewhere=False
        )
        self._orders = 0
        self._deciding = False
        self._tied: tuple[tuple[str, str], ...] = ()
        self.catalog = PolicyCatalog(settings.most_policies)
        self.enforcer = Enforcer(node, port, host.name)
        self._surveys = SurveyResponder(node, port, host, rng, "decision", lambda: self._own, self._list_holdings)

    def on_start(self, now: float) -> None:
        self.port.subscribe("context", address_filter(CONTEXT, self.node, self.host.name))
        if self._settings.manager:
            self.port.subscribe("enroll", address_filter(ENROLL, self.node, self.host.name))
        self._surveys.start()
        self._subscribe_roles(now)
        self._decide(now)

    def on_stop(self, now: float) -> None:
        self._retrieval.stop()
        self._surveys.stop()
        self.port.cancel_timer(_LOOK)

    def on_event(self, now: float, key: Key, event: Event, hops: int) -> None:
        if self._surveys.on_event(key, event):
            return
        if key == "context":
            self._context = merge_context(event.attributes, self._context, MAX_ATTRIBUTES)
        elif key == "enroll":
            # No new decision for all: an enrollment concerns one node, and in a large cluster there is always one.
            self._enroll(now, event)
            return
        else:
            self._receive_policy(event)
        self._decide_soon(now)

    def on_answer(self, now: float, key: Key, event: Event, hops: int) -> None:
        self._receive_policy(event)
        self._decide_soon(now)

    def on_closed(self, now: float, key: Key, complete: bool) -> None:
        if self._retrieval.on_closed(now, key, complete):
            self.port.note(Fact("policies_retrieved", value=float(len(self.catalog))))

    def on_timer(self, now: float, key: Key) -> None:
        if key == FETCH:
            self._retrieval.repeat(now)
        elif not self._surveys.on_timer(now, key):
            self._decide(now)

    def on_performed(self, now: float, token: int, error: str) -> None:
        self.enforcer.on_performed(token, error)

    def on_command(self, now: float, command: int, verb: str, body: bytes) -> None:
        """`list`: the policies that it holds, those in force, and those that failed."""
        if verb != "list":
            self.port.reply(command, b'{"error":"a decision point knows list"}')
            return
        active_policies = [f"{policy.id} version {policy.version}" for policy in self.catalog.active_policies()]
        managed = [one.name or str(node) for node, one in self._managed.items()]
        told = {
            "policies": active_policies,
            **self.enforcer.report(),
            "retrieved": self.retrieved,
            "roles": self._roles(),
        }
        if self._settings.manager:
            told["manages"] = managed
        self.port.reply(command, msgspec.json.encode(told))

    def _list_holdings(self, now: float, survey: PolicySurvey) -> Iterator[HeldPolicy]:
        """List the policies that it holds, with their states."""
        wall, attributes = read_wall_time(self.host, now), read_attributes(self.host, now, self._context)
        for held in self.catalog:
            record, policy = held.record, held.record.policy
            state: State = "withdrawn" if record.withdrawn else "held"
            why = ""
            found = self.enforcer.state(policy.id)
            if found is not None and found[0].version == policy.version:
                _, state, why = found
            elif not record.withdrawn:
                why = explain_inactive(policy, self._own, attributes, wall)
            yield HeldPolicy(policy.id, policy.version, state, why, held.event, record.roles, record)

    def _roles(self) -> list[str]:
        """[000 §III] The roles of its own node and of the enforcement points that it manages."""
        return sorted({*self._own, *(role for one in self._managed.values() for role in one.enrollment.roles)})

    def _subscribe_roles(self, now: float) -> None:
        try:
            texts = role_filters(self._roles())
        except UserError:
            self.port.note(Fact("drop", reason="too_many_roles"))
            return
        if texts == self._subscribed:
            return
        # Subscriptions whose filters have not changed stay.
        for number, text in enumerate(texts):
            if self._subscribed[number : number + 1] != [text]:
                self.port.subscribe(f"policies {number}", text)
        for number in range(len(texts), len(self._subscribed)):
            self.port.unsubscribe(f"policies {number}")
        self._subscribed = texts
        # Requested after the subscription, so that no policy is missed in between.
        self._retrieval.fetch(now, texts)

    @property
    def retrieved(self) -> bool:
        """Whether repositories have answered completely."""
        return self._retrieval.complete

    def _receive_policy(self, event: Event) -> None:
        try:
            held = read_policy(event)
        except MalformedError:
            self.port.note(Fact("drop", event.id, event.source, "malformed_policy"))
            return
        if self.catalog.is_full(held.record.policy.id):
            self.port.note(Fact("drop", event.id, event.source, "too_many_policies"))
        elif self.catalog.add(held):
            self.port.note(Fact("policy_received", event.id, value=float(held.record.policy.version)))

    def _decide_soon(self, now: float) -> None:
        """Schedule one decision for all changes within a short time: a request may return thousands of policies."""
        if not self._deciding:
            self._deciding = True
            self.port.set_timer(_LOOK, self._settings.react_s)

    def _decide(self, now: float) -> None:
        self._deciding = False
        wall = read_wall_time(self.host, now)
        attributes = read_attributes(self.host, now, self._context)
        decision = decide(self.catalog, self._own, attributes, wall)
        if decision.tied != self._tied:
            self._tied = decision.tied
            for winner, loser in decision.tied:
                self.port.note(Fact("policy_tie", reason=f"{winner} before {loser}"))
        self.enforcer.enforce(decision.wanted, None if wall is None else wall.utc_s)
        for node in [node for node, one in self._managed.items() if one.until <= now]:
            del self._managed[node]
            self.port.note(Fact("enforcement_point_gone", peer=node))
            self._subscribe_roles(now)
        for node, managed in self._managed.items():
            self._send_orders(node, managed, wall)
        # At least a second: the next decision handles the start or end of a period that is closer.
        look_s = min(self._settings.look_s, max(1.0, next_change_s(self.catalog, wall)))
        self.port.set_timer(_LOOK, look_s)

    def _enroll(self, now: float, event: Event) -> None:
        node = event.source
        if node not in self._managed and len(self._managed) >= MAX_MANAGED:
            self.port.note(Fact("drop", event.id, node, "cluster_full"))
            return
        try:
            enrollment = decode_message(event, Enrollment)
        except MalformedError:
            self.port.note(Fact("drop", event.id, node, "malformed_enrollment"))
            return
        managed = self._managed.get(node)
        if managed is None:
            managed = self._managed[node] = _Managed(enrollment, 0.0)
        managed.enrollment, managed.until = enrollment, now + self._settings.enrolled_s
        # The enrollment states what the node enforces, so lost orders are sent again. A node that has not received any
        # orders receives even empty ones.
        managed.ordered = enrollment.digest if enrollment.heard else ""
        self._subscribe_roles(now)
        self._send_orders(node, managed, read_wall_time(self.host, now))

    def _send_orders(self, node: NodeId, managed: _Managed, wall: WallTime | None) -> None:
        """Send an enforcement point its orders, unless it already enforces them."""
        enrollment = managed.enrollment
        wanted = decide(self.catalog, enrollment.roles, enrollment.attributes, wall).wanted
        orders = EnforcementOrders(wanted, (self.host.incarnation << 32) + self._orders, self.host.name)
        if managed.ordered == digest(orders.wanted):
            return
        managed.ordered = digest(orders.wanted)
        self._orders += 1
        self.port.publish({ENFORCE: node}, msgspec.json.encode(orders), NOTICE_LEASE_S)
