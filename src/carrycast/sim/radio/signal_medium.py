"""The part that all media with signal powers share: queues, parts of long messages, acknowledgements and outcomes.

Medium access is what subclasses add: when the first frame of a queue may be sent (`contend`), and what to do after an
attempt. A message that is longer than a frame is sent in several parts, and received if all of them are.
"""

from abc import abstractmethod
from collections import deque
from functools import cache

import numpy as np

from carrycast.core.model import Failure, NodeId
from carrycast.sim.radio.channel import NodeTraits, SignalChannel
from carrycast.sim.radio.medium import Frame, Medium, Reach, Topology
from carrycast.sim.radio.radio import RadioContext
from carrycast.sim.radio.reception import Air, Floats, Integers, Outcome, Signal
from carrycast.sim.radio.signal_settings import SignalRadio

COST_BYTES = 500
DUTY_CYCLE = "duty_cycle"
_NOBODY = Reach(())


QUANTILES = 32


@cache
def gain_quantiles(shape: float) -> Floats:
    """Means of equal shares of the distribution of fading, from the weakest to the strongest."""
    draws = np.sort(np.random.default_rng(1).standard_gamma(shape, QUANTILES * 256)) / shape
    return np.asarray(draws.reshape(QUANTILES, 256).mean(axis=1))


class Job:
    """A message that a node sends, in one or more parts."""

    __slots__ = ("airtime_us", "frame", "heard", "index", "parts", "reason", "reported", "retries", "taken", "unheard")

    def __init__(self, frame: Frame, parts: list[int]) -> None:
        self.frame = frame
        self.parts = parts
        """The sizes of its parts, with headers."""
        self.index = 0
        """The part that is being sent."""
        self.heard: set[NodeId] | None = None
        """The nodes that have read all parts so far; None before the first."""
        self.unheard: dict[str, list[NodeId]] = {}
        """Why other nodes have not, by reason."""
        self.taken = False
        """Whether the target of a unicast has read the part that is being sent."""
        self.retries = 0
        """Repetitions of parts, all together."""
        self.reported = 0
        """The attempts that have been reported."""
        self.airtime_us = 0
        """The time on the air since the last report."""
        self.reason = ""
        """Why the last attempt failed."""

    @property
    def attempts(self) -> int:
        """The transmissions of the whole message. Repetitions of single parts count as a share, rounded up."""
        return 1 + -(-self.retries // len(self.parts))


class SendQueue:
    """The jobs of a node that wait for the medium; the first is being sent. Media with priorities have several."""

    __slots__ = (
        "access_us",
        "attempt",
        "category",
        "counting",
        "from_us",
        "jobs",
        "node",
        "slots",
        "token",
        "turn",
        "window",
    )

    def __init__(self, node: NodeId, category: int) -> None:
        self.node = node
        self.category = category
        self.jobs: deque[Job] = deque()
        self.attempt = 0
        """The repetitions of the part that is being sent."""
        self.window = 0
        """Of the backoff, in the unit of the medium."""
        self.slots = 0
        """The slots left of the backoff."""
        self.turn = 0
        """The number of crashes. What was scheduled before one is void."""
        self.token = 0
        """Changes when a scheduled access is called off."""
        self.from_us = 0
        """The time from which the slots of the backoff count."""
        self.access_us = 0
        """When the backoff ends, if it counts."""
        self.counting = False


class UpOrDown(Topology):
    """Also tells which nodes are up and which links are cut, whatever their distance."""

    __slots__ = ("_crash",)

    def __init__(self, nodes: int, medium: "SignalMedium") -> None:
        super().__init__(nodes)
        self._crash = medium.forget

    def set_node(self, node: NodeId, up: bool) -> None:
        super().set_node(node, up)
        if not up:
            self._crash(node)

    def is_up(self, node: NodeId) -> bool:
        """Whether a node can receive."""
        return self._up[node]

    def can_pass(self, a: NodeId, b: NodeId) -> bool:
        """Whether a node is up and no fault cuts its link to another one."""
        return self._up[b] and (not self._cut or (min(a, b), max(a, b)) not in self._cut)


class DutyCycleBudget:
    """The share of time that each node may send, over a sliding window."""

    def __init__(self, share: float, window_s: float, nodes: int) -> None:
        self._window_us = round(window_s * 1e6)
        self._most_us = share * self._window_us
        self._sent: list[deque[tuple[int, int]]] = [deque() for _ in range(nodes)]
        self._used_us = [0] * nodes

    def spend(self, node: NodeId, now_us: int, airtime_us: int) -> bool:
        """Whether a node may send for some time now; if so, the time is taken from its budget."""
        sent = self._sent[node]
        while sent and sent[0][0] <= now_us - self._window_us:
            self._used_us[node] -= sent.popleft()[1]
        if self._used_us[node] + airtime_us > self._most_us:
            return False
        sent.append((now_us, airtime_us))
        self._used_us[node] += airtime_us
        return True


class SignalMedium(Medium):
    """One interface of all nodes, with powers."""

    air: Air

    def __init__(self, settings: SignalRadio, context: RadioContext, traits: NodeTraits, categories: int) -> None:
        self.interface = context.interface
        self._up_or_down = UpOrDown(context.nodes, self)
        self.topology: Topology = self._up_or_down
        self._scheduler = context.scheduler
        self._upcalls = context.air
        self._rng = context.rng
        self.channel = SignalChannel(settings, context, traits)
        self._limit = settings.queue
        self._budget: DutyCycleBudget | None = None
        self._queues = [[SendQueue(node, one) for one in range(categories)] for node in range(context.nodes)]

    # What a standard defines.

    @abstractmethod
    def split(self, size_bytes: int) -> list[int]:
        """The sizes of the frames that carry a message, with headers."""

    @abstractmethod
    def frame_us(self, sender: NodeId, size_bytes: int, unicast: bool) -> int:
        """The airtime of a frame with its headers."""

    @abstractmethod
    def answer_us(self, node: NodeId) -> tuple[int, int, int]:
        """From the end of a unicast to the start of its acknowledgement, the airtime of that, and the wait for it."""

    @abstractmethod
    def category_of(self, frame: Frame) -> int:
        """The queue of a frame."""

    @abstractmethod
    def contend(self, queue: SendQueue, fresh: bool) -> None:
        """Arrange that the first job of a queue is sent (`send`). `fresh`: it has come to an empty queue."""

    @abstractmethod
    def after_attempt(self, queue: SendQueue, success: bool) -> bool:
        """Prepare the next access after an attempt. Returns whether a failed attempt may be repeated."""

    def group_of(self, node: NodeId) -> int:
        """The group of a node's signals."""
        return 0

    def on_change(self, signal: Signal, outcome: Outcome | None) -> None:
        """A signal has started or, with an outcome, ended; nodes may have become busy or idle."""

    def reserve(self, nodes: list[NodeId], until_us: int) -> None:
        """Nodes have sent or read a unicast for another node, whose acknowledgement ends at a time."""

    def forget_access(self, queue: SendQueue) -> None:
        """The node of a queue has crashed."""

    # Pictures.

    def reception_chances(self, sender: NodeId, now_us: int) -> tuple[Integers, Floats]:
        """The nodes that a sender may reach now, and the chance that each reads a broadcast that nothing disturbs."""
        hearers, air = self.channel.hearers(sender, now_us), self.air
        gains = np.ones((len(hearers.ids), 1))
        if hearers.shape is not None:
            gains = np.array([gain_quantiles(shape) for shape in hearers.shape.tolist()]).reshape(-1, QUANTILES)
        power = hearers.mean_mw[:, None] * gains
        airtime_us = sum(self.frame_us(sender, part, unicast=False) for part in self.split(COST_BYTES))
        signal = Signal(sender, 0, airtime_us, self.group_of(sender), unicast=False)
        return hearers.ids, air.undisturbed(signal, hearers.ids, power)

    # Queues.

    def cost_s(self) -> float:
        # Every part has a frame, and a turnaround and an acknowledgement.
        parts = self.split(COST_BYTES)
        wait_us, answer_us, _ = self.answer_us(0)
        return sum(self.frame_us(0, part, unicast=True) + wait_us + answer_us for part in parts) / 1e6

    def transmit(self, frame: Frame) -> None:
        queue = self._queues[frame.sender][self.category_of(frame)]
        if len(queue.jobs) > self._limit:
            self._upcalls.on_lost(frame, frame.sender, Failure.QUEUE_FULL)
            if frame.token is not None:
                # Reported from the event queue, because a handler must not be re-entered while it is sending.
                self._scheduler.at(self._scheduler.now_us, self._refuse, frame)
            return
        frame.attempts = 0
        queue.jobs.append(Job(frame, self.split(len(frame.encoded))))
        if len(queue.jobs) == 1:
            self.contend(queue, fresh=True)

    def forget(self, node: NodeId) -> None:
        """Discard the queues of a node that crashes. Outcomes are not reported, since no sender is left."""
        for queue in self._queues[node]:
            for job in queue.jobs:
                self._upcalls.on_lost(job.frame, node, "sender_down")
            queue.jobs.clear()
            queue.turn += 1
            queue.attempt = 0
            self.forget_access(queue)
        self.air.crash(node)

    def _refuse(self, frame: object) -> None:
        assert isinstance(frame, Frame)
        self._upcalls.on_outcome(frame, Failure.QUEUE_FULL)

    # Transmissions.

    def send(self, queue: SendQueue) -> None:
        """Send the next part of the first job of a queue now."""
        job, now_us = queue.jobs[0], self._scheduler.now_us
        frame = job.frame
        unicast = frame.target is not None
        airtime_us = self.frame_us(queue.node, job.parts[job.index], unicast)
        if self._budget is not None and not self._budget.spend(queue.node, now_us, airtime_us):
            # Not from within the handler that sends.
            self._scheduler.at(now_us, self._exceed, (queue, job, queue.turn))
            return
        job.airtime_us += airtime_us
        signal = Signal(queue.node, now_us, now_us + airtime_us, self.group_of(queue.node), unicast)
        self.air.begin(signal)
        self.on_change(signal, None)
        self._scheduler.at(signal.end_us, self._end, (signal, queue, job, queue.turn))

    def _exceed(self, dropped: object) -> None:
        """The duty cycle does not allow a job."""
        assert isinstance(dropped, tuple)
        queue, job, turn = dropped
        if queue.turn == turn:
            job.reason = DUTY_CYCLE
            self.after_attempt(queue, success=True)
            self.give_up(queue, job, Failure.QUEUE_FULL, DUTY_CYCLE)

    def _end(self, ended: object) -> None:
        assert isinstance(ended, tuple)
        signal, queue, job, turn = ended
        outcome = self.air.end(signal)
        self.on_change(signal, outcome)
        if queue.turn == turn:
            self._restrict(signal, outcome)
            if job.frame.target is None:
                self._end_broadcast(queue, job, outcome)
            else:
                self._end_unicast(signal, queue, job, outcome)

    def _restrict(self, signal: Signal, outcome: Outcome) -> None:
        """Leave out the nodes that are down or cut off by a fault."""
        can_pass, sender = self._up_or_down.can_pass, signal.sender
        outcome.received[:] = [node for node in outcome.received if can_pass(sender, node)]
        for nodes in outcome.missed.values():
            nodes[:] = [node for node in nodes if can_pass(sender, node)]

    def _end_broadcast(self, queue: SendQueue, job: Job, outcome: Outcome) -> None:
        if job.heard is None:
            job.heard = set(outcome.received)
            job.unheard = outcome.missed
        else:
            for reason, nodes in outcome.missed.items():
                job.unheard.setdefault(reason, []).extend(node for node in nodes if node in job.heard)
            job.heard &= set(outcome.received)
        job.index += 1
        self.after_attempt(queue, success=True)
        if job.index < len(job.parts):
            self.contend(queue, fresh=False)
            return
        queue.jobs.popleft()
        if queue.jobs:
            self.contend(queue, fresh=False)
        frame = job.frame
        frame.attempts, frame.airtime_us = 1, job.airtime_us
        for reason, nodes in job.unheard.items():
            if nodes:
                self._upcalls.on_missed(frame, tuple(nodes), reason)
        self._upcalls.on_received(frame, Reach(tuple(sorted(job.heard))))

    def _end_unicast(self, signal: Signal, queue: SendQueue, job: Job, outcome: Outcome) -> None:
        frame, target = job.frame, job.frame.target
        assert target is not None
        wait_us, answer_us, timeout_us = self.answer_us(target)
        got = target in outcome.received
        others = [node for node in outcome.received if node != target]
        self.reserve([queue.node, *others], signal.end_us + wait_us + answer_us)
        if self.promiscuous and len(job.parts) == 1:
            self._upcalls.on_overheard(frame, others)
        if not got:
            reasons = [reason for reason, nodes in outcome.missed.items() if target in nodes]
            job.reason = reasons[0] if reasons else Failure.OUT_OF_REACH
            self._scheduler.at(signal.end_us + timeout_us, self._fail, (queue, job, queue.turn))
            return
        self._scheduler.at(signal.end_us + wait_us, self._answer, (queue, job, queue.turn, target))
        # The acknowledgement is counted with the frame that it answers.
        job.airtime_us += answer_us
        if not job.taken:
            # Only the first reception counts; a repetition after a lost acknowledgement does not.
            job.taken = True
            if job.index == len(job.parts) - 1:
                self._report(job, self.topology.alone(target))

    def _answer(self, answered: object) -> None:
        """The target of a unicast acknowledges it, unless it is sending itself, is down or may not send."""
        assert isinstance(answered, tuple)
        queue, job, turn, target = answered
        now_us = self._scheduler.now_us
        _, answer_us, timeout_us = self.answer_us(target)
        failed = (queue, job, turn)
        if not self._up_or_down.is_up(target) or self.air.sending[target]:
            job.reason = "no_acknowledgement"
            self._scheduler.at(now_us + timeout_us, self._fail, failed)
            return
        if self._budget is not None and not self._budget.spend(target, now_us, answer_us):
            job.reason = DUTY_CYCLE
            self._upcalls.on_lost(job.frame, target, DUTY_CYCLE)
            self._scheduler.at(now_us + timeout_us, self._fail, failed)
            return
        signal = Signal(target, now_us, now_us + answer_us, self.group_of(queue.node), unicast=False)
        self.air.begin(signal)
        self.on_change(signal, None)
        self._scheduler.at(signal.end_us, self._end_answer, (signal, queue, job, turn))

    def _end_answer(self, ended: object) -> None:
        assert isinstance(ended, tuple)
        signal, queue, job, turn = ended
        outcome = self.air.end(signal)
        self.on_change(signal, outcome)
        self._restrict(signal, outcome)
        if queue.turn != turn:
            return
        if queue.node not in outcome.received:
            job.reason = "no_acknowledgement"
            self._fail((queue, job, turn))
            return
        job.index, job.taken = job.index + 1, False
        queue.attempt = 0
        self.after_attempt(queue, success=True)
        if job.index == len(job.parts):
            self._finish(queue, job, None, "")
        else:
            self.contend(queue, fresh=False)

    # Outcomes of unicasts.

    def _fail(self, failed: object) -> None:
        """An attempt failed: repeat it, or give the message up."""
        assert isinstance(failed, tuple)
        queue, job, turn = failed
        if queue.turn != turn:
            return
        queue.attempt += 1
        if self.after_attempt(queue, success=False):
            job.retries += 1
            self.contend(queue, fresh=False)
        else:
            self.give_up(queue, job, Failure.UNREACHABLE, job.reason)

    def give_up(self, queue: SendQueue, job: Job, failure: Failure, reason: str) -> None:
        """Drop the first job of a queue for a reason."""
        queue.attempt = 0
        if job.frame.target is not None:
            self._finish(queue, job, failure, reason)
            return
        queue.jobs.popleft()
        if queue.jobs:
            self.contend(queue, fresh=False)
        self._upcalls.on_lost(job.frame, queue.node, reason)
        if job.airtime_us:
            self._report(job, _NOBODY)

    def _finish(self, queue: SendQueue, job: Job, failure: Failure | None, reason: str) -> None:
        """Remove a finished unicast from its queue and report its outcome."""
        frame, upcalls = job.frame, self._upcalls
        jobs, withdrawn = queue.jobs, list[Frame]()
        jobs.popleft()
        if failure is Failure.UNREACHABLE:
            withdrawn = [one.frame for one in jobs if one.frame.target == frame.target]
            queue.jobs = deque(one for one in jobs if one.frame.target != frame.target)
        if queue.jobs:
            self.contend(queue, fresh=False)
        assert frame.target is not None
        if not job.reported and failure is not None:
            frame.lost = True
            # A full budget or a busy medium is a drop at the sender.
            at_sender = failure is not Failure.UNREACHABLE
            upcalls.on_lost(frame, frame.sender if at_sender else frame.target, reason)
        if job.airtime_us and (job.attempts > job.reported or not job.reported):
            self._report(job, _NOBODY)
        if failure is Failure.UNREACHABLE:
            for behind in withdrawn:
                upcalls.on_lost(behind, queue.node, failure)
            upcalls.on_unreachable([frame, *withdrawn])
        elif frame.token is not None:
            upcalls.on_outcome(frame, failure)

    def _report(self, job: Job, reach: Reach) -> None:
        """Report the attempts of a job since its last report."""
        frame = job.frame
        attempts, airtime_us = job.attempts - job.reported, job.airtime_us
        if job.reported:
            frame = Frame(
                frame.sender, frame.target, frame.layer, frame.message, frame.encoded, None, frame.sent_us,
                frame.interface,
            )  # fmt: skip
        frame.attempts, frame.airtime_us = max(attempts, 1), airtime_us
        job.reported, job.airtime_us = job.attempts, 0
        self._upcalls.on_received(frame, reach)
