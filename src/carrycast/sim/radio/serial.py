"""The radio `serial`: a generic line between each two nodes in range, with a rate, a delay and a largest frame.

Each direction of each line sends one frame at a time, and nothing collides. A broadcast is sent over every line. A
message that is longer than a frame is sent in several, each with headers. So it stands for serial lines, directional
links and other point-to-point links. Each line is a transmission of its own, so a broadcast counts once for each.
"""

from collections import deque
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from carrycast.core.model import Failure, NodeId
from carrycast.sim.radio.fragments import split_message
from carrycast.sim.radio.medium import Frame, Medium, MediumUpcalls, Reach, Scheduler, Topology
from carrycast.sim.radio.radio import Radio, RadioContext

COST_BYTES = 500
_NOBODY = Reach(())
_Line = tuple[NodeId, NodeId]


class SerialRadio(Radio, frozen=True, kw_only=True):
    """Lines between nodes."""

    name: ClassVar[str] = "serial"
    summary: ClassVar[str] = "a line between each two nodes in range: rate, delay, largest frame"

    range_m: Annotated[float, Meta(gt=0, le=1e9, description="two nodes have a line up to this distance")] = 250.0
    rate_bps: Annotated[float, Meta(ge=1, le=1e12, description="bit rate of each direction")] = 115_200.0
    delay_s: Annotated[
        float, Meta(ge=0, le=3600, description="time from the end of a transmission to its reception")
    ] = 0.0
    frame_bytes: Annotated[
        int, Meta(ge=1, le=1 << 30, description="largest frame with headers (MTU); longer messages take several")
    ] = 1500
    overhead_bytes: Annotated[int, Meta(ge=0, le=1000, description="bytes of headers for each frame")] = 8
    queue: Annotated[int, Meta(ge=1, le=1_000_000, description="largest number of waiting messages of a line")] = 50

    def medium(self, context: RadioContext) -> Medium:
        return SerialMedium(self, context.interface, context.nodes, context.scheduler, context.air)


class _Sending(NamedTuple):
    """A frame that waits for or uses a line."""

    frame: Frame
    airtime_us: int


class SerialMedium(Medium):
    """The lines of one interface."""

    def __init__(
        self, settings: SerialRadio, interface: str, nodes: int, scheduler: Scheduler, air: MediumUpcalls
    ) -> None:
        self.interface = interface
        self.topology: Topology = _CrashTopology(nodes, self)
        self._settings = settings
        self._scheduler = scheduler
        self._air = air
        self._delay_us = round(settings.delay_s * 1e6)
        self._lines: dict[_Line, deque[_Sending]] = {}
        """The frames of each direction of a line; the first is being sent."""
        self._epochs = [0] * nodes

    def line_us(self, size_bytes: int) -> int:
        """The time that a line is busy with a message."""
        settings = self._settings
        parts = split_message(size_bytes, settings.overhead_bytes, settings.frame_bytes, 0)
        return max(1, round(sum(parts) * 8e6 / settings.rate_bps))

    def cost_s(self) -> float:
        return (self.line_us(COST_BYTES) + self._delay_us) / 1e6

    def transmit(self, frame: Frame) -> None:
        sender = frame.sender
        if frame.target is not None:
            targets: tuple[NodeId, ...] = (frame.target,)
        else:
            targets = self.topology.reach(sender).nodes
        sending = _Sending(frame, self.line_us(len(frame.encoded)))
        for target in targets:
            line = self._lines.setdefault((sender, target), deque())
            if len(line) <= self._settings.queue:
                line.append(sending)
                if len(line) == 1:
                    self._start((sender, target))
                continue
            self._air.on_lost(frame, sender, Failure.QUEUE_FULL)
            if frame.token is not None:
                # Reported from the event queue, because a handler must not be re-entered while it is sending.
                self._scheduler.at(self._scheduler.now_us, self._refuse, frame)

    def forget(self, node: NodeId) -> None:
        """Discard the frames of a node that crashes."""
        self._epochs[node] += 1
        lost: dict[int, Frame] = {}
        for line, waiting in self._lines.items():
            if line[0] == node:
                lost |= {id(one): one.frame for one in waiting}
                waiting.clear()
        for frame in lost.values():
            self._air.on_lost(frame, node, "sender_down")

    def _start(self, line: _Line) -> None:
        sending = self._lines[line][0]
        due_us = self._scheduler.now_us + sending.airtime_us
        self._scheduler.at(due_us, self._leave, (line, sending, self._epochs[line[0]]))

    def _leave(self, left: object) -> None:
        """A line has sent a frame, which arrives after the delay; the next one follows."""
        assert isinstance(left, tuple)
        line, sending, epoch = left
        if self._epochs[line[0]] != epoch:
            return
        waiting = self._lines[line]
        waiting.popleft()
        if waiting:
            self._start(line)
        self._scheduler.at(self._scheduler.now_us + self._delay_us, self._arrive, (line, sending, epoch))

    def _arrive(self, arrived: object) -> None:
        assert isinstance(arrived, tuple)
        (sender, target), sending, epoch = arrived
        if self._epochs[sender] != epoch:
            return
        frame = sending.frame
        frame.airtime_us = sending.airtime_us
        if self.topology.is_linked(sender, target):
            self._air.on_received(frame, self.topology.alone(target))
            if frame.token is not None:
                self._air.on_outcome(frame, None)
            return
        frame.lost = True
        self._air.on_lost(frame, target, Failure.OUT_OF_REACH)
        self._air.on_received(frame, _NOBODY)
        if frame.target is not None:
            self._withdraw((sender, target), frame)

    def _withdraw(self, line: _Line, frame: Frame) -> None:
        """The line of a failed unicast is down: its other unicasts fail with it."""
        waiting = self._lines[line]
        withdrawn = [one for one in list(waiting)[1:] if one.frame.target is not None]
        for one in withdrawn:
            waiting.remove(one)
            self._air.on_lost(one.frame, line[0], Failure.UNREACHABLE)
        self._air.on_unreachable([frame, *(one.frame for one in withdrawn)])

    def _refuse(self, frame: object) -> None:
        assert isinstance(frame, Frame)
        self._air.on_outcome(frame, Failure.QUEUE_FULL)


class _CrashTopology(Topology):
    """Reports crashes to the medium."""

    __slots__ = ("_medium",)

    def __init__(self, nodes: int, medium: SerialMedium) -> None:
        super().__init__(nodes)
        self._medium = medium

    def set_node(self, node: NodeId, up: bool) -> None:
        super().set_node(node, up)
        if not up:
            self._medium.forget(node)
