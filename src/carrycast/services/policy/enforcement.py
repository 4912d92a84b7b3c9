"""PEP, an enforcement point without a decision point beside it: gives its roles to its cluster manager and obeys it.

[000 §III] The simplest nodes offer a management interface only, and nodes with more intelligence decide for them.
"""

from collections.abc import Iterator
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, NodeId, Scalar
from carrycast.core.protocol import Capability, Fact, Host, Settings
from carrycast.core.protocol.application import Application, ApplicationPort, Key
from carrycast.services.policy.circumstances import attributes_of, told_attributes, wall_of
from carrycast.services.policy.enforcer import Enforcer
from carrycast.services.policy.notices import CONTEXT, ENFORCE, ENROLL, Enrollment, Orders, addressed, read
from carrycast.services.policy.record import MalformedError
from carrycast.services.policy.roles import Role
from carrycast.services.policy.survey import Holding, Survey, SurveyAnswers

MAX_ATTRIBUTES = 64
_ENROLL = "enroll"


class EnforcementSettings(Settings, frozen=True):
    """Who decides for an enforcement point."""

    manager: Annotated[
        NodeId | Annotated[str, Meta(min_length=1, max_length=128)],
        Meta(description="its cluster manager, by the name of that node or by its number"),
    ]
    roles: Annotated[
        tuple[Role, ...], Meta(description="of its node, besides those that the scenario or config gives it")
    ] = ()
    attributes: Annotated[
        dict[str, Scalar], Meta(description="what conditions may ask about, besides what the node knows")
    ] = msgspec.field(default_factory=dict)
    enroll_s: Annotated[float, Meta(ge=0.001, le=3600, description="how often it tells its roles again")] = 30.0

    def needs(self) -> frozenset[Capability]:
        """A manager that is named by its name is known only where nodes have names."""
        return frozenset({Capability.NODE_NAMES} if isinstance(self.manager, str) else ())


class EnforcementPoint(Application):
    """One enforcement point."""

    name = "policy_enforcement"
    summary = "has its cluster manager decide, and enforces"
    settings_type = EnforcementSettings

    def __init__(self, node: NodeId, settings: Settings, port: ApplicationPort, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        assert isinstance(settings, EnforcementSettings)
        self._settings = settings
        self._roles = tuple(sorted({*settings.roles, *host.roles}))
        self._context: dict[str, Scalar] = dict(settings.attributes)
        self._number = -1
        self._obeyed: NodeId | None = None
        """Who gave the last orders."""
        self.enforcer = Enforcer(node, port, host.name)
        self._surveys = SurveyAnswers(node, port, host, rng, "enforcement", lambda: self._roles, self._holdings)

    def on_start(self, now: float) -> None:
        self.port.subscribe("orders", f'"{ENFORCE}" = {self.node}')
        self.port.subscribe("context", addressed(CONTEXT, self.node, self.host.name))
        self._surveys.start()
        self._enroll(now)

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer(_ENROLL)
        self._surveys.stop()

    def on_timer(self, now: float, key: Key) -> None:
        if not self._surveys.on_timer(now, key):
            self._enroll(now)

    def on_event(self, now: float, key: Key, event: Event, hops: int) -> None:
        if self._surveys.on_event(key, event):
            return
        if key == "context":
            before, self._context = self._context, told_attributes(event.attributes, self._context, MAX_ATTRIBUTES)
            if self._context != before:
                self._enroll(now)
            return
        try:
            orders = read(event, Orders)
        except MalformedError:
            self.port.note(Fact("drop", event.id, event.source, "malformed_orders"))
            return
        manager = self._settings.manager
        if manager != (orders.manager if isinstance(manager, str) else event.source):
            self.port.note(Fact("drop", event.id, event.source, "not_my_manager"))
            return
        # Another node of that name counts anew: the one before was replaced.
        if event.source == self._obeyed and orders.number <= self._number:
            self.port.note(Fact("drop", event.id, event.source, "old_orders"))
            return
        self._obeyed, self._number = event.source, orders.number
        wall = wall_of(self.host, now)
        self.enforcer.enforce(orders.wanted, None if wall is None else wall.utc_s)

    def on_performed(self, now: float, token: int, error: str) -> None:
        self.enforcer.on_performed(token, error)

    def on_command(self, now: float, command: int, verb: str, body: bytes) -> None:
        """`list`: what is in force, and what is wanted and failed."""
        manager = str(self._settings.manager)
        if self._obeyed is None:
            manager += ", which has not been heard of"
        told: dict[str, object] = {**self.enforcer.told(), "roles": self._roles, "manager": manager}
        wrong: dict[str, object] = {"error": "an enforcement point knows list"}
        self.port.reply(command, msgspec.json.encode(told if verb == "list" else wrong))

    def _holdings(self, now: float, survey: Survey) -> Iterator[Holding]:
        for wanted in self.enforcer.enforced:
            found = self.enforcer.state(wanted.policy)
            assert found is not None
            yield Holding(wanted.policy, wanted.version, found[1], found[2])

    def _enroll(self, now: float) -> None:
        attributes = attributes_of(self.host, now, self._context)
        heard = self._obeyed is not None
        told = Enrollment(self._roles, attributes, self.enforcer.digest, self.host.incarnation, self.host.name, heard)
        # Whoever misses three of them takes the node for gone.
        lease_s = 3 * self._settings.enroll_s
        self.port.publish({ENROLL: self._settings.manager}, msgspec.json.encode(told), lease_s)
        self.port.set_timer(_ENROLL, self._settings.enroll_s)
