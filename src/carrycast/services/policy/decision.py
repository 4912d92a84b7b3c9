"""PDP, the decision point: fetches the policies of its roles, decides which hold, and has them enforced.

[000 §III] It subscribes to the roles of its node and, on joining, asks for what was published before. A cluster manager
does so for the enforcement points that gave it their roles, too: one subscription for all of them together.
"""

from collections.abc import Iterator
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, NodeId, Scalar
from carrycast.core.model.wall_clock import WallTime
from carrycast.core.protocol import Fact, Host, Settings
from carrycast.core.protocol.application import Application, ApplicationPort, Key
from carrycast.errors import UserError
from carrycast.services.policy.catalog import Catalog, held_of
from carrycast.services.policy.circumstances import attributes_of, told_attributes, wall_of
from carrycast.services.policy.deciding import decide, next_change_s, why_not
from carrycast.services.policy.enforcer import Enforcer, digest
from carrycast.services.policy.fetching import TIMER as FETCH
from carrycast.services.policy.fetching import Fetching
from carrycast.services.policy.notices import (
    CONTEXT,
    ENFORCE,
    ENROLL,
    NOTICE_LEASE_S,
    Enrollment,
    Orders,
    addressed,
    read,
)
from carrycast.services.policy.record import MalformedError
from carrycast.services.policy.roles import Role, filters
from carrycast.services.policy.survey import Holding, State, Survey, SurveyAnswers

MAX_MANAGED = 1000
"""Enforcement points of one cluster; more are not served."""
MAX_ATTRIBUTES = 64
"""That a node is told of itself."""
_LOOK = "look"


class DecisionSettings(Settings, frozen=True):
    """Whose policies a decision point decides on."""

    roles: Annotated[
        tuple[Role, ...], Meta(description="of its node, besides those that the scenario or config gives it")
    ] = ()
    manager: Annotated[bool, Meta(description="whether it manages the enforcement points that enroll with it")] = False
    attributes: Annotated[
        dict[str, Scalar], Meta(description="what conditions may ask about, besides what the node knows")
    ] = msgspec.field(default_factory=dict)
    look_s: Annotated[float, Meta(ge=0.001, le=86_400, description="how often conditions are looked at again")] = 10.0
    # Quicker than anybody would notice, and ten decisions a second cost little.
    react_s: Annotated[float, Meta(ge=0, le=3600, description="how long news are gathered before a decision")] = 0.1
    patience_s: Annotated[
        float,
        Meta(gt=0, le=3600, description="how long it waits for the answers of repositories; then it asks again"),
    ] = 10.0
    retry_s: Annotated[
        float, Meta(ge=0.001, le=3600, description="after which it asks again at the earliest if they were not all")
    ] = 5.0
    # A minute or two of an old policy is what a lost publication, or an island that was cut off, then costs.
    refetch_s: Annotated[
        float, Meta(ge=0.001, le=86_400, description="after which it asks again although they were all")
    ] = 120.0
    enrolled_s: Annotated[
        float, Meta(gt=0, le=1e9, description="how long an enforcement point counts that is silent")
    ] = 100.0
    most_policies: Annotated[int, Meta(ge=1, le=1_000_000, description="more are not held")] = 10_000


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
    """One decision point and the enforcement point beside it."""

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
        self._fetching = Fetching(port, rng, settings.patience_s, settings.retry_s, settings.refetch_s, elsewhere=False)
        self._orders = 0
        self._deciding = False
        self._tied: tuple[tuple[str, str], ...] = ()
        self.catalog = Catalog(settings.most_policies)
        self.enforcer = Enforcer(node, port, host.name)
        self._surveys = SurveyAnswers(node, port, host, rng, "decision", lambda: self._own, self._holdings)

    def on_start(self, now: float) -> None:
        self.port.subscribe("context", addressed(CONTEXT, self.node, self.host.name))
        if self._settings.manager:
            self.port.subscribe("enroll", addressed(ENROLL, self.node, self.host.name))
        self._surveys.start()
        self._ask_for_roles(now)
        self._decide(now)

    def on_stop(self, now: float) -> None:
        self._fetching.stop()
        self._surveys.stop()
        self.port.cancel_timer(_LOOK)

    def on_event(self, now: float, key: Key, event: Event, hops: int) -> None:
        if self._surveys.on_event(key, event):
            return
        if key == "context":
            self._context = told_attributes(event.attributes, self._context, MAX_ATTRIBUTES)
        elif key == "enroll":
            # It concerns one node alone: with a thousand of them there is always one that enrolls.
            self._enroll(now, event)
            return
        else:
            self._take(event)
        self._decide_soon(now)

    def on_answer(self, now: float, key: Key, event: Event, hops: int) -> None:
        self._take(event)
        self._decide_soon(now)

    def on_closed(self, now: float, key: Key, complete: bool) -> None:
        if self._fetching.on_closed(now, key, complete):
            self.port.note(Fact("policies_retrieved", value=float(len(self.catalog))))

    def on_timer(self, now: float, key: Key) -> None:
        if key == FETCH:
            self._fetching.again(now)
        elif not self._surveys.on_timer(now, key):
            self._decide(now)

    def on_performed(self, now: float, token: int, error: str) -> None:
        self.enforcer.on_performed(token, error)

    def on_command(self, now: float, command: int, verb: str, body: bytes) -> None:
        """`list`: what it holds, what is in force, and what is wanted and failed."""
        if verb != "list":
            self.port.reply(command, b'{"error":"a decision point knows list"}')
            return
        standing = [f"{policy.id} version {policy.version}" for policy in self.catalog.standing()]
        managed = [one.name or str(node) for node, one in self._managed.items()]
        told = {"policies": standing, **self.enforcer.told(), "retrieved": self.retrieved, "roles": self._roles()}
        if self._settings.manager:
            told["manages"] = managed
        self.port.reply(command, msgspec.json.encode(told))

    def _holdings(self, now: float, survey: Survey) -> Iterator[Holding]:
        """What it holds, and what has become of it."""
        wall, attributes = wall_of(self.host, now), attributes_of(self.host, now, self._context)
        for held in self.catalog:
            record, policy = held.record, held.record.policy
            state: State = "withdrawn" if record.withdrawn else "held"
            why = ""
            found = self.enforcer.state(policy.id)
            if found is not None and found[0].version == policy.version:
                _, state, why = found
            elif not record.withdrawn:
                why = why_not(policy, self._own, attributes, wall)
            yield Holding(policy.id, policy.version, state, why, held.event, record.roles, record)

    # Fetching.

    def _roles(self) -> list[str]:
        """[000 §III] Its own and those of the enforcement points it manages."""
        return sorted({*self._own, *(role for one in self._managed.values() for role in one.enrollment.roles)})

    def _ask_for_roles(self, now: float) -> None:
        try:
            texts = filters(self._roles())
        except UserError:
            self.port.note(Fact("drop", reason="too_many_roles"))
            return
        if texts == self._subscribed:
            return
        # A filter that stands unchanged is left alone; one that is wider than before replaces it.
        for number, text in enumerate(texts):
            if self._subscribed[number : number + 1] != [text]:
                self.port.subscribe(f"policies {number}", text)
        for number in range(len(texts), len(self._subscribed)):
            self.port.unsubscribe(f"policies {number}")
        self._subscribed = texts
        # After having subscribed, so that nothing falls between the two.
        self._fetching.fetch(now, texts)

    @property
    def retrieved(self) -> bool:
        """Whether repositories have answered with all they have."""
        return self._fetching.complete

    def _take(self, event: Event) -> None:
        try:
            held = held_of(event)
        except MalformedError:
            self.port.note(Fact("drop", event.id, event.source, "malformed_policy"))
            return
        if self.catalog.is_full(held.record.policy.id):
            self.port.note(Fact("drop", event.id, event.source, "too_many_policies"))
        elif self.catalog.take(held):
            self.port.note(Fact("policy_received", event.id, value=float(held.record.policy.version)))

    # Deciding.

    def _decide_soon(self, now: float) -> None:
        """Once for all that comes together: who joins may be answered with thousands of policies."""
        if not self._deciding:
            self._deciding = True
            self.port.set_timer(_LOOK, self._settings.react_s)

    def _decide(self, now: float) -> None:
        self._deciding = False
        wall = wall_of(self.host, now)
        attributes = attributes_of(self.host, now, self._context)
        decision = decide(self.catalog, self._own, attributes, wall)
        if decision.tied != self._tied:
            self._tied = decision.tied
            for winner, loser in decision.tied:
                self.port.note(Fact("policy_tie", reason=f"{winner} before {loser}"))
        self.enforcer.enforce(decision.wanted, None if wall is None else wall.utc_s)
        for node in [node for node, one in self._managed.items() if one.until <= now]:
            del self._managed[node]
            self.port.note(Fact("enforcement_point_gone", peer=node))
            self._ask_for_roles(now)
        for node, managed in self._managed.items():
            self._order(node, managed, wall)
        # A second at least: a border of periods that lies too near is met by the look after it.
        look_s = min(self._settings.look_s, max(1.0, next_change_s(self.catalog, wall)))
        self.port.set_timer(_LOOK, look_s)

    # A cluster.

    def _enroll(self, now: float, event: Event) -> None:
        node = event.source
        if node not in self._managed and len(self._managed) >= MAX_MANAGED:
            self.port.note(Fact("drop", event.id, node, "cluster_full"))
            return
        try:
            enrollment = read(event, Enrollment)
        except MalformedError:
            self.port.note(Fact("drop", event.id, node, "malformed_enrollment"))
            return
        managed = self._managed.get(node)
        if managed is None:
            managed = self._managed[node] = _Managed(enrollment, 0.0)
        managed.enrollment, managed.until = enrollment, now + self._settings.enrolled_s
        # What it enforces it says itself: an order that was lost is given again. One that has not heard of its manager
        # is told even that there is nothing to do.
        managed.ordered = enrollment.digest if enrollment.heard else ""
        self._ask_for_roles(now)
        self._order(node, managed, wall_of(self.host, now))

    def _order(self, node: NodeId, managed: _Managed, wall: WallTime | None) -> None:
        """Tell an enforcement point what it is to enforce, unless it does."""
        enrollment = managed.enrollment
        wanted = decide(self.catalog, enrollment.roles, enrollment.attributes, wall).wanted
        orders = Orders(wanted, (self.host.incarnation << 32) + self._orders, self.host.name)
        if managed.ordered == digest(orders.wanted):
            return
        managed.ordered = digest(orders.wanted)
        self._orders += 1
        self.port.publish({ENFORCE: node}, msgspec.json.encode(orders), NOTICE_LEASE_S)
