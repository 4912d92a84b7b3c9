"""Medium access without slots: a random wait, a look at the medium, and sending if it is idle; or sending at once.

With a look this is the unslotted CSMA-CA of [IEEE 802.15.4-2006 §7.5.1.4], and LoRa's listen before talk. Without one
it is ALOHA.
"""

from typing import NamedTuple

import numpy as np

from carrycast.core.model import Failure
from carrycast.sim.radio.channel import NodeTraits
from carrycast.sim.radio.medium import Frame
from carrycast.sim.radio.path_loss import Floats
from carrycast.sim.radio.radio import RadioContext
from carrycast.sim.radio.reception import Air, Demodulator, Integers
from carrycast.sim.radio.signal_medium import SendQueue, SignalMedium
from carrycast.sim.radio.signal_settings import SignalRadio

CHANNEL_BUSY = "channel_busy"


class Access(NamedTuple):
    """How a node gets at the medium."""

    listens: bool
    """Whether it looks at the medium before it sends."""
    unit_us: int
    """The unit of waiting times."""
    look_us: int
    """How long a look at the medium takes."""
    turnaround_us: int
    """From the look to the transmission, and from a frame to its acknowledgement."""
    min_exponent: int
    """The first wait is 0 to 2^n - 1 units."""
    max_exponent: int
    """Longer waits follow, up to this exponent."""
    max_looks: int
    """After so many busy looks a frame is dropped as `channel_busy`."""
    retries: int
    """Repetitions of a unicast without an acknowledgement."""


class UnslottedMedium(SignalMedium):
    """One interface of all nodes. Subclasses are standards."""

    def __init__(
        self,
        settings: SignalRadio,
        context: RadioContext,
        traits: NodeTraits,
        access: Access,
        demodulator: Demodulator,
        groups: int,
        listens: Integers,
        busy_mw: Floats,
    ) -> None:
        super().__init__(settings, context, traits, 1)
        self._access = access
        sensitivity_mw = 10 ** (traits.sensitivity_dbm / 10)
        self.air = Air(self.channel, context.nodes, sensitivity_mw, demodulator, groups, listens, np.asarray(busy_mw))

    def category_of(self, frame: Frame) -> int:
        return 0

    def after_attempt(self, queue: SendQueue, success: bool) -> bool:
        return not success and queue.attempt <= self._access.retries

    def contend(self, queue: SendQueue, fresh: bool) -> None:
        access = self._access
        # `window` is the exponent and `slots` the number of busy looks.
        queue.window, queue.slots = access.min_exponent, 0
        if access.listens:
            self._wait(queue)
        elif queue.attempt:
            # After a collision both senders would repeat at once. [N. Abramson 1970] waits at random.
            queue.window = min(access.min_exponent + queue.attempt, access.max_exponent)
            self._wait(queue)
        else:
            self._scheduler.at(self._scheduler.now_us, self._reach_turn, (queue, queue.turn))

    def _wait(self, queue: SendQueue) -> None:
        units = int(self._rng.random() * (1 << queue.window))
        after_us = units * self._access.unit_us + self._access.look_us
        self._scheduler.at(self._scheduler.now_us + after_us, self._look, (queue, queue.turn))

    def _look(self, looked: object) -> None:
        assert isinstance(looked, tuple)
        queue, turn = looked
        if queue.turn != turn:
            return
        access = self._access
        if not access.listens or not self.air.is_busy(queue.node):
            at_us = self._scheduler.now_us + (access.turnaround_us if access.listens else 0)
            self._scheduler.at(at_us, self._reach_turn, (queue, turn))
            return
        queue.slots += 1
        queue.window = min(queue.window + 1, access.max_exponent)
        if queue.slots > access.max_looks:
            job = queue.jobs[0]
            job.reason = CHANNEL_BUSY
            self.give_up(queue, job, Failure.QUEUE_FULL, CHANNEL_BUSY)
        else:
            self._wait(queue)

    def _reach_turn(self, due: object) -> None:
        assert isinstance(due, tuple)
        queue, turn = due
        if queue.turn != turn:
            return
        if self.air.sending[queue.node]:
            # The node is acknowledging a frame of another one.
            self._wait(queue)
        else:
            self.send(queue)
