"""Enforcing: what a node is told to do is done, in order, once, and its outcome reported.

The state that is wanted is given as a whole, again and again; only what differs from the state there is leads to deeds.
A variable that no policy sets any longer goes back to what the node's configuration says.
"""

import hashlib
from typing import Literal

import msgspec

from carrycast.core.model import NodeId, Scalar
from carrycast.core.protocol import Fact
from carrycast.core.protocol.application import ApplicationPort
from carrycast.services.policy.notices import Report, Wanted, send_report
from carrycast.services.policy.rule import Action, Execution, Set, contradict, shown
from carrycast.services.policy.survey import MAX_WHY, State


class _Course:
    """One policy's list of actions, on its way."""

    def __init__(self, wanted: Wanted) -> None:
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
        self._courses: dict[str, _Course] = {}
        self._running: dict[int, tuple[_Course, Action]] = {}
        self._done: dict[str, Action] = {}
        """What was last done to each variable and with each command, as long as some policy wants it."""
        self._tokens = 0
        self._utc_s: float | None = None

    @property
    def enforced(self) -> tuple[Wanted, ...]:
        """What is wanted of the node as far as it knows."""
        return tuple(course.wanted for course in self._courses.values())

    def state(self, policy: str) -> tuple[Wanted, State, str] | None:
        """What has become of a policy that is wanted of the node, and what failed; None if none of that name is."""
        course = self._courses.get(policy)
        return None if course is None else (course.wanted, course.state, "; ".join(course.failures)[:MAX_WHY])

    def told(self) -> dict[str, object]:
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

    def enforce(self, wanted: tuple[Wanted, ...], utc_s: float | None = None) -> None:
        """From now on this, and nothing else, is wanted."""
        self._utc_s = utc_s
        before = self._courses
        begun = [one for one in wanted if (course := before.get(one.policy)) is None or course.wanted != one]
        anew = {one.policy: _Course(one) for one in begun}
        # Not to be taken up in the middle of another order: what is wanted otherwise begins anew.
        self._courses = {one.policy: anew.get(one.policy) or before[one.policy] for one in wanted}
        for id, course in before.items():
            if id not in self._courses:
                self._report(course.wanted, "ended")
        aims = {action.target for one in wanted if not one.debug for action in one.actions}
        for target in [target for target in self._done if target not in aims]:
            action = self._done.pop(target)
            if isinstance(action, Set):
                self._act(None, "reset", action.variable, ())
        for one in begun:
            if one.debug:
                self._courses[one.policy].state = "would enforce"
                self._report(one, "would enforce", "; ".join(shown(action) for action in one.actions))
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
            course.failures.append(f"{shown(action)}: {error}")
            self._port.note(Fact("policy_failed", reason=f"{wanted.policy}: {error}"))
            if self._done.get(action.target) is action:
                del self._done[action.target]
        if self._courses.get(wanted.policy) is not course:
            # It has been replaced on its way, and its successor goes on from what it did.
            return
        course.ended = wanted.execution is (Execution.UNTIL_FAILURE if error else Execution.UNTIL_SUCCESS)
        self._step(course)

    def _step(self, course: _Course) -> None:
        """[RFC 3460 §5.2] The next action of a list, or its end."""
        wanted = course.wanted
        while course.next < len(wanted.actions) and not course.ended:
            action = wanted.actions[course.next]
            course.next += 1
            before = self._done.get(action.target)
            if before is not None and not contradict(before, action):
                # It is so already, and stays so.
                course.ended = wanted.execution is Execution.UNTIL_SUCCESS
                continue
            self._done[action.target] = action
            if isinstance(action, Set):
                self._act((course, action), "set", action.variable, (action.value,))
            else:
                self._act((course, action), "run", action.command, action.arguments)
            return
        failed = bool(course.failures) and not (wanted.execution is Execution.UNTIL_SUCCESS and course.ended)
        course.state = "failed" if failed else "enforced"
        self._report(wanted, course.state, "; ".join(course.failures))

    def _act(self, about: tuple[_Course, Action] | None, verb: str, name: str, values: tuple[Scalar, ...]) -> None:
        self._tokens += 1
        if about is not None:
            self._running[self._tokens] = about
        self._port.perform(self._tokens, verb, name, values)

    def _report(self, wanted: Wanted, what: str, told: str = "") -> None:
        self._port.note(Fact(f"policy_{what.replace(' ', '_')}", reason=f"{wanted.policy} {wanted.version}"))
        report = Report(what, wanted.policy, wanted.version, self._node, told[:8192], self._utc_s, self._name)  # type: ignore[arg-type]
        send_report(self._port, wanted.tool, report)


def digest(wanted: tuple[Wanted, ...]) -> str:
    """A few letters that differ if what is wanted does."""
    return hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()[:16]
