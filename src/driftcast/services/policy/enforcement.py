"""PEP, an enforcement point without a decision point beside it: gives its roles to its cluster manager and obeys it.

[000 §III] The simplest nodes offer a management interface only, and nodes with more intelligence decide for them.
"""

from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from driftcast.model import Event, NodeId, Scalar
from driftcast.protocol import Fact, Host, Settings
from driftcast.protocol.application import Application, ApplicationPort, Key
from driftcast.services.policy.circumstances import attributes_of, told_attributes, wall_of
from driftcast.services.policy.enforcer import Enforcer
from driftcast.services.policy.notices import CONTEXT, ENFORCE, ENROLL, Enrollment, Orders, read
from driftcast.services.policy.record import MalformedError
from driftcast.services.policy.roles import Role

MAX_ATTRIBUTES = 64
_ENROLL = "enroll"


class EnforcementSettings(Settings, frozen=True):
    """Who decides for an enforcement point."""

    manager: Annotated[int, Meta(ge=0, le=2**31 - 1, description="the node of its cluster manager")]
    roles: Annotated[
        tuple[Role, ...], Meta(description="of its node, besides those that the scenario or config gives it")
    ] = ()
    attributes: Annotated[
        dict[str, Scalar], Meta(description="what conditions may ask about, besides what the node knows")
    ] = msgspec.field(default_factory=dict)
    enroll_s: Annotated[float, Meta(ge=0.001, le=3600, description="how often it tells its roles again")] = 30.0


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
        self.enforcer = Enforcer(node, port)

    def on_start(self, now: float) -> None:
        self.port.subscribe("orders", f'"{ENFORCE}" = {self.node}')
        self.port.subscribe("context", f'"{CONTEXT}" = {self.node}')
        self._enroll(now)

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer(_ENROLL)

    def on_timer(self, now: float, key: Key) -> None:
        self._enroll(now)

    def on_event(self, now: float, key: Key, event: Event, hops: int) -> None:
        if key == "context":
            before, self._context = self._context, told_attributes(event.attributes, self._context, MAX_ATTRIBUTES)
            if self._context != before:
                self._enroll(now)
            return
        if event.source != self._settings.manager:
            self.port.note(Fact("drop", event.id, event.source, "not_my_manager"))
            return
        try:
            orders = read(event, Orders)
        except MalformedError:
            self.port.note(Fact("drop", event.id, event.source, "malformed_orders"))
            return
        if orders.number <= self._number:
            self.port.note(Fact("drop", event.id, event.source, "old_orders"))
            return
        self._number = orders.number
        wall = wall_of(self.host, now)
        self.enforcer.enforce(orders.wanted, None if wall is None else wall.utc_s)

    def on_acted(self, now: float, token: int, error: str) -> None:
        self.enforcer.on_acted(token, error)

    def on_command(self, now: float, command: int, verb: str, body: bytes) -> None:
        """`list`: what is in force."""
        enforced = [f"{one.policy} version {one.version}" for one in self.enforcer.enforced]
        told: dict[str, object] = {"in_force": enforced, "roles": self._roles, "manager": self._settings.manager}
        wrong: dict[str, object] = {"error": "an enforcement point knows list"}
        self.port.reply(command, msgspec.json.encode(told if verb == "list" else wrong))

    def _enroll(self, now: float) -> None:
        attributes = attributes_of(self.host, now, self._context)
        told = Enrollment(self._roles, attributes, self.enforcer.digest, self.host.incarnation)
        # Whoever misses three of them takes the node for gone.
        lease_s = 3 * self._settings.enroll_s
        self.port.publish({ENROLL: self._settings.manager}, msgspec.json.encode(told), lease_s)
        self.port.set_timer(_ENROLL, self._settings.enroll_s)
