"""The disk radio: all nodes within range receive a frame after a delay; nothing collides.

Scope: no contention and no interference. With a `rate_bps` each node sends one frame at a time and its other frames
wait in a queue. Losses are drawn for each receiver. A unicast is repeated up to `retries` times, and the sender knows
its outcome at the time of the last attempt. The receivers are determined when the frame arrives.
"""

from collections import deque
from random import Random

from carrycast.core.model import Failure, NodeId
from carrycast.sim.radio.disk_settings import DiskRadio
from carrycast.sim.radio.medium import Frame, Medium, MediumUpcalls, Reach, Scheduler, Topology, UnicastBatch

COST_BYTES = 500
_NOBODY = Reach(())
_NEVER = -1
"""The start time of a frame that was withdrawn."""


class _Waiting:
    """A frame that waits for the transmitter of its node."""

    __slots__ = ("airtime_us", "frame", "start_us")

    def __init__(self, frame: Frame, start_us: int, airtime_us: int) -> None:
        self.frame = frame
        self.start_us = start_us
        self.airtime_us = airtime_us


class DiskMedium(Medium):
    """One interface of all nodes. A transmission is one scheduled call."""

    def __init__(
        self, settings: DiskRadio, interface: str, nodes: int, scheduler: Scheduler, air: MediumUpcalls, rng: Random
    ) -> None:
        self.interface = interface
        self.topology = Topology(nodes)
        self._scheduler = scheduler
        self._air = air
        self._rng = rng
        self._loss = settings.loss
        self._retries = settings.retries
        self._rate_bps = settings.rate_bps
        self._queue = settings.queue
        self.takes_time = settings.rate_bps is not None
        self._delay_us = round(settings.delay_s * 1e6)
        self._free_us = [0] * nodes
        """The time at which each node's transmitter will be idle."""
        self._waiting: list[deque[_Waiting]] = [deque() for _ in range(nodes)]
        """The queue of each node. It may begin with frames that have been started since."""

    def cost_s(self) -> float:
        airtime_s = 0.0 if self._rate_bps is None else COST_BYTES * 8 / self._rate_bps
        return (airtime_s + self._delay_us / 1e6) / (1 - self._loss)

    def airtime_us(self, frame: Frame) -> int | None:
        if self._rate_bps is None:
            return None
        return round(len(frame.encoded) * 8e6 / self._rate_bps) * frame.attempts * frame.copies

    def transmit(self, frame: Frame) -> None:
        if frame.target is not None and self._loss > 0.0:
            self._draw_attempts(frame)
        now_us = self._scheduler.now_us
        if self._rate_bps is None:
            self._scheduler.at(now_us + self._delay_us, self._arrive, frame)
            return
        sender = frame.sender
        waiting = self._remove_started(sender)
        if len(waiting) >= self._queue:
            self._air.on_lost(frame, sender, Failure.QUEUE_FULL)
            if frame.token is not None:
                # Reported from the event queue, because a handler must not be re-entered while it is sending.
                self._scheduler.at(now_us, self._refuse, frame)
            return
        start_us = max(now_us, self._free_us[sender])
        airtime_us = round(len(frame.encoded) * 8e6 / self._rate_bps) * frame.attempts
        self._free_us[sender] = start_us + airtime_us
        if start_us > now_us:
            waiting.append(_Waiting(frame, start_us, airtime_us))
            self._schedule(waiting[-1])
        else:
            self._scheduler.at(start_us + airtime_us + self._delay_us, self._arrive, frame)

    def transmit_each(self, batch: UnicastBatch) -> None:
        if self._rate_bps is None and self._loss == 0.0:
            # All frames take the same time, so one scheduled call is enough.
            self._scheduler.at(self._scheduler.now_us + self._delay_us, self._arrive_each, batch)
        else:
            super().transmit_each(batch)

    def _remove_started(self, sender: NodeId) -> deque[_Waiting]:
        """The queue of a node, without the frames that have been started."""
        waiting, now_us = self._waiting[sender], self._scheduler.now_us
        while waiting and waiting[0].start_us <= now_us:
            waiting.popleft()
        return waiting

    def _schedule(self, entry: _Waiting) -> None:
        due_us = entry.start_us + entry.airtime_us + self._delay_us
        self._scheduler.at(due_us, self._arrive_after_waiting, (entry, entry.start_us))

    def _arrive_after_waiting(self, scheduled: object) -> None:
        assert isinstance(scheduled, tuple)
        entry, start_us = scheduled
        # Otherwise the frame was withdrawn, or sent earlier because a frame before it was.
        if entry.start_us == start_us:
            self._arrive(entry.frame)

    def _withdraw(self, sender: NodeId, target: NodeId) -> list[Frame]:
        """Remove the queued frames for one target, in order. The frames behind them are sent earlier."""
        waiting = self._remove_started(sender)
        withdrawn = [entry.frame for entry in waiting if entry.frame.target == target]
        if not withdrawn:
            return []
        free_us, kept = waiting[0].start_us, deque[_Waiting]()
        for entry in waiting:
            if entry.frame.target == target:
                entry.start_us = _NEVER
                continue
            if entry.start_us != free_us:
                entry.start_us = free_us
                self._schedule(entry)
            free_us += entry.airtime_us
            kept.append(entry)
        self._waiting[sender], self._free_us[sender] = kept, free_us
        return withdrawn

    def _draw_attempts(self, frame: Frame) -> None:
        """Draw the number of attempts of a unicast, and whether the last one is lost too."""
        lost = self._rng.random() < self._loss
        while lost and frame.attempts <= self._retries:
            frame.attempts += 1
            lost = self._rng.random() < self._loss
        frame.lost = lost

    def _arrive(self, frame: object) -> None:
        assert isinstance(frame, Frame)
        if frame.target is None:
            reach = self.topology.reach(frame.sender)
            if self._loss > 0.0:
                reach = self._draw_receivers(frame, reach)
            self._air.on_received(frame, reach)
            return
        if self.promiscuous:
            self._air.on_overheard(frame, self._draw_overhearing(frame.sender, frame.target))
        ok = not frame.lost and self.topology.is_linked(frame.sender, frame.target)
        if not ok:
            self._air.on_lost(frame, frame.target, "loss" if frame.lost else Failure.OUT_OF_REACH)
        self._air.on_received(frame, self.topology.alone(frame.target) if ok else _NOBODY)
        if not ok:
            waited = self._withdraw(frame.sender, frame.target)
            for behind in waited:
                self._air.on_lost(behind, frame.sender, Failure.UNREACHABLE)
            self._air.on_unreachable([frame, *waited])
        elif frame.token is not None:
            self._air.on_outcome(frame, None)

    def _arrive_each(self, batch: object) -> None:
        assert isinstance(batch, UnicastBatch)
        reach = self.topology.within(batch.sender, batch.targets)
        missed: list[NodeId] = []
        if len(reach.nodes) < len(batch.targets):
            missed = [target for target in batch.targets if target not in reach.ids]
            for target in missed:
                self._air.on_lost(batch, target, Failure.OUT_OF_REACH)
        self._air.on_received(batch, reach)
        for target in missed:
            self._air.on_outcome(batch.to(target), Failure.UNREACHABLE)

    def _draw_overhearing(self, sender: NodeId, target: NodeId) -> list[NodeId]:
        """Draw the other nodes that overhear a unicast, at its first attempt. Their losses are not reported."""
        others = [node for node in self.topology.reach(sender).nodes if node != target]
        return others if self._loss == 0.0 else [node for node in others if self._rng.random() >= self._loss]

    def _draw_receivers(self, frame: Frame, reach: Reach) -> Reach:
        """Draw the nodes that receive a broadcast, and report the losses of the others."""
        draw, loss = self._rng.random, self._loss
        heard = []
        for node in reach.nodes:
            if draw() < loss:
                self._air.on_lost(frame, node, "loss")
            else:
                heard.append(node)
        return Reach(tuple(heard))

    def _refuse(self, frame: object) -> None:
        assert isinstance(frame, Frame)
        self._air.on_outcome(frame, Failure.QUEUE_FULL)
