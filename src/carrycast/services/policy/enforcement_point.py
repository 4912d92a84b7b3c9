"""The policy enforcement point (PEP, RFC 3198), and the enforcer that it shares with a decision point on the same node.

[000 §III] The simplest nodes offer a management interface only, and nodes with more resources decide for them. Such an
enforcement point enrolls its roles with its cluster manager and follows its orders. The enforcer gets the whole desired
state every time, and performs only the actions that change the current state, in order, once, and reports the outcome.
A variable that no policy sets any longer goes back to its configured value.
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
from carrycast.services.policy.context import merge_context, observed_attributes, wall_time
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
    """One policy's list of actions, on its way."""

    def __init__(self, wanted: DesiredPolicy) -> None:
        self.wanted = wanted
        self.next = 0
        self.failures: list[str] = []
        self.ended = False
        self.state: Literal["under way", "enforced", "failed", "would enforce"] = "under way"


class Enforcer:
    """The management interface of one node."""

    def __init__(self, node: NodeId, port: ApplicationPort, name: str = "") -> None:
        self._node = node
        self._name = name
        self._port = port
        self._courses: dict[str, _ActionList] = {}
        self._running: dict[int, tuple[_ActionList, Action]] = {}
        self._done: dict[str, Action] = {}
        """What was last done to each variable and with each command, as long as some policy wants it."""
        self._tokens = 0
        self._utc_s: float | None = None

    @property
    def enforced(self) -> tuple[DesiredPolicy, ...]:
        """What is wanted of the node as far as it knows."""
        return tuple(course.wanted for course in self._courses.values())

    def state(self, policy: str) -> tuple[DesiredPolicy, State, str] | None:
        """What has become of a policy that is wanted of the node, and what failed; None if none of that name is."""
        course = self._courses.get(policy)
        return None if course is None else (course.wanted, course.state, "; ".join(course.failures)[:MAX_WHY])

    def report(self) -> dict[str, object]:
        """What is in force, and what is wanted and is not, for people."""
        courses = [(f"{one.wanted.policy} version {one.wanted.version}", one) for one in self._courses.values()]
        failed = [f"{name}: {'; '.join(one.failures)}" for name, one in courses if one.state == "failed"]
        under_way = [name for name, one in courses if one.state == "under way"]
        in_force = [name for name, one in courses if one.state == "enforced"]
        would = [name for name, one in courses if one.state == "would enforce"]
        return {"in_force": in_force, "failed": failed, "under_way": under_way, "would_enforce": would}

    @property
    def digest(self) -> str:
        """A few letters that differ if what is enforced does."""
        return digest(self.enforced)

    def enforce(self, wanted: tuple[DesiredPolicy, ...], utc_s: float | None = None) -> None:
        """From now on this, and nothing else, is wanted."""
        self._utc_s = utc_s
        before = self._courses
        begun = [one for one in wanted if (course := before.get(one.policy)) is None or course.wanted != one]
        restarted = {one.policy: _ActionList(one) for one in begun}
        # An action list whose policy has changed starts from its beginning.
        self._courses = {one.policy: restarted.get(one.policy) or before[one.policy] for one in wanted}
        for id, course in before.items():
            if id not in self._courses:
                self._report(course.wanted, "ended")
        aims = {action.target for one in wanted if not one.debug for action in one.actions}
        for target in [target for target in self._done if target not in aims]:
            action = self._done.pop(target)
            if isinstance(action, SetVariable):
                self._act(None, "reset", action.variable, ())
        for one in begun:
            if one.debug:
                self._courses[one.policy].state = "would enforce"
                self._report(one, "would enforce", "; ".join(format_action(action) for action in one.actions))
            else:
                self._step(self._courses[one.policy])

    def on_performed(self, token: int, error: str) -> None:
        """An action is done, or could not be."""
        found = self._running.pop(token, None)
        if found is None:
            if error:
                self._port.note(Fact("drop", reason=f"not_reset: {error}"))
            return
        course, action = found
        wanted = course.wanted
        if error:
            course.failures.append(f"{format_action(action)}: {error}")
            self._port.note(Fact("policy_failed", reason=f"{wanted.policy}: {error}"))
            if self._done.get(action.target) is action:
                del self._done[action.target]
        if self._courses.get(wanted.policy) is not course:
            # It has been replaced on its way, and its successor goes on from what it did.
            return
        course.ended = wanted.execution is (
            ExecutionStrategy.UNTIL_FAILURE if error else ExecutionStrategy.UNTIL_SUCCESS
        )
        self._step(course)

    def _step(self, course: _ActionList) -> None:
        """[RFC 3460 §5.2] The next action of a list, or its end."""
        wanted = course.wanted
        while course.next < len(wanted.actions) and not course.ended:
            action = wanted.actions[course.next]
            course.next += 1
            before = self._done.get(action.target)
            if before is not None and not contradicts(before, action):
                # It is so already, and stays so.
                course.ended = wanted.execution is ExecutionStrategy.UNTIL_SUCCESS
                continue
            self._done[action.target] = action
            if isinstance(action, SetVariable):
                self._act((course, action), "set", action.variable, (action.value,))
            else:
                self._act((course, action), "run", action.command, action.arguments)
            return
        failed = bool(course.failures) and not (wanted.execution is ExecutionStrategy.UNTIL_SUCCESS and course.ended)
        course.state = "failed" if failed else "enforced"
        self._report(wanted, course.state, "; ".join(course.failures))

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
    """A few letters that differ if what is wanted does."""
    return hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()[:16]


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
        self._surveys = SurveyResponder(node, port, host, rng, "enforcement", lambda: self._roles, self._holdings)

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
        # Another node under that name has replaced the former one, and counts from the start.
        if event.source == self._obeyed and orders.number <= self._number:
            self.port.note(Fact("drop", event.id, event.source, "old_orders"))
            return
        self._obeyed, self._number = event.source, orders.number
        wall = wall_time(self.host, now)
        self.enforcer.enforce(orders.wanted, None if wall is None else wall.utc_s)

    def on_performed(self, now: float, token: int, error: str) -> None:
        self.enforcer.on_performed(token, error)

    def on_command(self, now: float, command: int, verb: str, body: bytes) -> None:
        """`list`: what is in force, and what is wanted and failed."""
        manager = str(self._settings.manager)
        if self._obeyed is None:
            manager += ", which has not been heard of"
        told: dict[str, object] = {**self.enforcer.report(), "roles": self._roles, "manager": manager}
        wrong: dict[str, object] = {"error": "an enforcement point knows list"}
        self.port.reply(command, msgspec.json.encode(told if verb == "list" else wrong))

    def _holdings(self, now: float, survey: PolicySurvey) -> Iterator[HeldPolicy]:
        for wanted in self.enforcer.enforced:
            found = self.enforcer.state(wanted.policy)
            assert found is not None
            yield HeldPolicy(wanted.policy, wanted.version, found[1], found[2])

    def _enroll(self, now: float) -> None:
        attributes = observed_attributes(self.host, now, self._context)
        heard = self._obeyed is not None
        told = Enrollment(self._roles, attributes, self.enforcer.digest, self.host.incarnation, self.host.name, heard)
        # Whoever misses three of them takes the node for gone.
        lease_s = 3 * self._settings.enroll_s
        self.port.publish({ENROLL: self._settings.manager}, msgspec.json.encode(told), lease_s)
        self.port.set_timer(_ENROLL, self._settings.enroll_s)
