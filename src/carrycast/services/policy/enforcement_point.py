"""The policy enforcement point (PEP, RFC 3198), and the enforcer that it shares with a decision point on the same node.

[000 §III] The simplest nodes offer only a management interface, and nodes with more resources decide for them. Such an
enforcement point enrolls its roles with its cluster manager and follows the manager's orders. The enforcer receives the
whole desired state each time. It performs only the actions that change the current state, in order and once, and
reports the outcome. A variable that no policy sets any longer is reset to its configured value.
"""

import hashlib
from collections.abc import Iterator
from random import Random
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, NodeId, Scalar
from carrycast.core.protocol import Application, ApplicationPort, Capability, Fact, Host, Key, Settings
from carrycast.services.policy.catalog import MalformedError
from carrycast.services.policy.context import merge_context, read_attributes, read_wall_time
from carrycast.services.policy.messages import (
    CONTEXT,
    ENFORCE,
    ENROLL,
    DesiredPolicy,
    EnforcementOrders,
    Enrollment,
    PolicyReport,
    address_filter,
    decode_message,
    send_report,
)
from carrycast.services.policy.roles import Role
from carrycast.services.policy.rule import Action, ExecutionStrategy, SetVariable, contradicts, format_action
from carrycast.services.policy.survey import MAX_WHY, HeldPolicy, PolicySurvey, State, SurveyResponder


class _ActionList:
    """The progress of one policy's list of actions."""

    def __init__(self, wanted: DesiredPolicy) -> None:
        self.wanted = wanted
        self.next = 0
        self.failures: list[str] = []
        self.ended = False
        self.state: Literal["under way", "enforced", "failed", "would enforce"] = "under way"


class Enforcer:
    """Brings one node to the desired state, through its management interface."""

    def __init__(self, node: NodeId, port: ApplicationPort, name: str = "") -> None:
        self._node = node
        self._name = name
        self._port = port
        self._action_lists: dict[str, _ActionList] = {}
        self._running: dict[int, tuple[_ActionList, Action]] = {}
        self._done: dict[str, Action] = {}
        """The last action on each target, as long as some policy has an action on it."""
        self._tokens = 0
        self._utc_s: float | None = None

    @property
    def enforced(self) -> tuple[DesiredPolicy, ...]:
        """The desired state of the node."""
        return tuple(action_list.wanted for action_list in self._action_lists.values())

    def state(self, policy: str) -> tuple[DesiredPolicy, State, str] | None:
        """The state of a policy in the desired state, and its failures; None if there is no such policy."""
        action_list = self._action_lists.get(policy)
        return (
            None
            if action_list is None
            else (action_list.wanted, action_list.state, "; ".join(action_list.failures)[:MAX_WHY])
        )

    def report(self) -> dict[str, object]:
        """The policies by state, as text for people."""
        action_lists = [
            (f"{one.wanted.policy} version {one.wanted.version}", one) for one in self._action_lists.values()
        ]
        failed = [f"{name}: {'; '.join(one.failures)}" for name, one in action_lists if one.state == "failed"]
        under_way = [name for name, one in action_lists if one.state == "under way"]
        in_force = [name for name, one in action_lists if one.state == "enforced"]
        would = [name for name, one in action_lists if one.state == "would enforce"]
        return {"in_force": in_force, "failed": failed, "under_way": under_way, "would_enforce": would}

    @property
    def digest(self) -> str:
        """A hash of the desired state."""
        return digest(self.enforced)

    def enforce(self, wanted: tuple[DesiredPolicy, ...], utc_s: float | None = None) -> None:
        """Replace the desired state and start the actions that it needs."""
        self._utc_s = utc_s
        before = self._action_lists
        begun = [one for one in wanted if (action_list := before.get(one.policy)) is None or action_list.wanted != one]
        restarted = {one.policy: _ActionList(one) for one in begun}
        # An action list whose policy has changed starts from its beginning.
        self._action_lists = {one.policy: restarted.get(one.policy) or before[one.policy] for one in wanted}
        for id, action_list in before.items():
            if id not in self._action_lists:
                self._report(action_list.wanted, "ended")
        aims = {action.target for one in wanted if not one.debug for action in one.actions}
        for target in [target for target in self._done if target not in aims]:
            action = self._done.pop(target)
            if isinstance(action, SetVariable):
                self._act(None, "reset", action.variable, ())
        for one in begun:
            if one.debug:
                self._action_lists[one.policy].state = "would enforce"
                self._report(one, "would enforce", "; ".join(format_action(action) for action in one.actions))
            else:
                self._step(self._action_lists[one.policy])

    def on_performed(self, token: int, error: str) -> None:
        """An action has succeeded or failed."""
        found = self._running.pop(token, None)
        if found is None:
            if error:
                self._port.note(Fact("drop", reason=f"not_reset: {error}"))
            return
        action_list, action = found
        wanted = action_list.wanted
        if error:
            action_list.failures.append(f"{format_action(action)}: {error}")
            self._port.note(Fact("policy_failed", reason=f"{wanted.policy}: {error}"))
            if self._done.get(action.target) is action:
                del self._done[action.target]
        if self._action_lists.get(wanted.policy) is not action_list:
            # The list was replaced meanwhile, and its successor continues from the state it left.
            return
        action_list.ended = wanted.execution is (
            ExecutionStrategy.UNTIL_FAILURE if error else ExecutionStrategy.UNTIL_SUCCESS
        )
        self._step(action_list)

    def _step(self, action_list: _ActionList) -> None:
        """[RFC 3460 §5.2] Perform the next action of a list, or finish the list."""
        wanted = action_list.wanted
        while action_list.next < len(wanted.actions) and not action_list.ended:
            action = wanted.actions[action_list.next]
            action_list.next += 1
            before = self._done.get(action.target)
            if before is not None and not contradicts(before, action):
                # The action would change nothing.
                action_list.ended = wanted.execution is ExecutionStrategy.UNTIL_SUCCESS
                continue
            self._done[action.target] = action
            if isinstance(action, SetVariable):
                self._act((action_list, action), "set", action.variable, (action.value,))
            else:
                self._act((action_list, action), "run", action.command, action.arguments)
            return
        failed = bool(action_list.failures) and not (
            wanted.execution is ExecutionStrategy.UNTIL_SUCCESS and action_list.ended
        )
        action_list.state = "failed" if failed else "enforced"
        self._report(wanted, action_list.state, "; ".join(action_list.failures))

    def _act(self, about: tuple[_ActionList, Action] | None, verb: str, name: str, values: tuple[Scalar, ...]) -> None:
        self._tokens += 1
        if about is not None:
            self._running[self._tokens] = about
        self._port.perform(self._tokens, verb, name, values)

    def _report(self, wanted: DesiredPolicy, what: str, told: str = "") -> None:
        self._port.note(Fact(f"policy_{what.replace(' ', '_')}", reason=f"{wanted.policy} {wanted.version}"))
        report = PolicyReport(what, wanted.policy, wanted.version, self._node, told[:8192], self._utc_s, self._name)  # type: ignore[arg-type]
        send_report(self._port, wanted.tool, report)


def digest(wanted: tuple[DesiredPolicy, ...]) -> str:
    """A hash of a desired state."""
    return hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()[:16]


MAX_ATTRIBUTES = 64

_ENROLL = "enroll"


class EnforcementSettings(Settings, frozen=True):
    """The cluster manager of an enforcement point, its roles and attributes."""

    manager: Annotated[
        NodeId | Annotated[str, Meta(min_length=1, max_length=128)],
        Meta(description="the cluster manager: the name or number of its node"),
    ]
    roles: Annotated[
        tuple[Role, ...], Meta(description="roles of the node, in addition to those of the scenario or config")
    ] = ()
    attributes: Annotated[
        dict[str, Scalar], Meta(description="attributes for conditions, in addition to those that the node measures")
    ] = msgspec.field(default_factory=dict)
    enroll_s: Annotated[float, Meta(ge=0.001, le=3600, description="the interval between enrollments")] = 30.0

    def needs(self) -> frozenset[Capability]:
        """A manager given by its name requires an environment in which nodes have names."""
        return frozenset({Capability.NODE_NAMES} if isinstance(self.manager, str) else ())


class EnforcementPoint(Application):
    """An enforcement point of a cluster."""

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
        self._last_manager: NodeId | None = None
        """The sender of the last orders."""
        self.enforcer = Enforcer(node, port, host.name)
        self._surveys = SurveyResponder(node, port, host, rng, "enforcement", lambda: self._roles, self._list_holdings)

    def on_start(self, now: float) -> None:
        self.port.subscribe("orders", f'"{ENFORCE}" = {self.node}')
        self.port.subscribe("context", address_filter(CONTEXT, self.node, self.host.name))
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
            before, self._context = self._context, merge_context(event.attributes, self._context, MAX_ATTRIBUTES)
            if self._context != before:
                self._enroll(now)
            return
        try:
            orders = decode_message(event, EnforcementOrders)
        except MalformedError:
            self.port.note(Fact("drop", event.id, event.source, "malformed_orders"))
            return
        manager = self._settings.manager
        if manager != (orders.manager if isinstance(manager, str) else event.source):
            self.port.note(Fact("drop", event.id, event.source, "not_my_manager"))
            return
        # A node that has replaced the former manager under the same name starts its own sequence numbers.
        if event.source == self._last_manager and orders.number <= self._number:
            self.port.note(Fact("drop", event.id, event.source, "old_orders"))
            return
        self._last_manager, self._number = event.source, orders.number
        wall = read_wall_time(self.host, now)
        self.enforcer.enforce(orders.wanted, None if wall is None else wall.utc_s)

    def on_performed(self, now: float, token: int, error: str) -> None:
        self.enforcer.on_performed(token, error)

    def on_command(self, now: float, command: int, verb: str, body: bytes) -> None:
        """`list`: the policies in force, and those that failed."""
        manager = str(self._settings.manager)
        if self._last_manager is None:
            manager += ", which has not been heard of"
        told: dict[str, object] = {**self.enforcer.report(), "roles": self._roles, "manager": manager}
        wrong: dict[str, object] = {"error": "an enforcement point knows list"}
        self.port.reply(command, msgspec.json.encode(told if verb == "list" else wrong))

    def _list_holdings(self, now: float, survey: PolicySurvey) -> Iterator[HeldPolicy]:
        for wanted in self.enforcer.enforced:
            found = self.enforcer.state(wanted.policy)
            assert found is not None
            yield HeldPolicy(wanted.policy, wanted.version, found[1], found[2])

    def _enroll(self, now: float) -> None:
        attributes = read_attributes(self.host, now, self._context)
        heard = self._last_manager is not None
        told = Enrollment(self._roles, attributes, self.enforcer.digest, self.host.incarnation, self.host.name, heard)
        # A manager that misses three enrollments assumes that the node is gone.
        lease_s = 3 * self._settings.enroll_s
        self.port.publish({ENROLL: self._settings.manager}, msgspec.json.encode(told), lease_s)
        self.port.set_timer(_ENROLL, self._settings.enroll_s)
