"""Reception: which signals a receiver locks on to, and whether it reads them, from powers and interference.

A receiver that neither sends nor receives locks on to a signal whose preamble it can detect. During the frame it
accumulates the effect of noise and of all other signals, piece by piece between their starts and ends. A much stronger
signal that begins during the preamble captures the receiver.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carrycast.core.model import NodeId
from carrycast.sim.radio.channel import SignalChannel
from carrycast.sim.radio.error_rates import SuccessTable

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

_NOBODY: Integers = np.zeros(0, dtype=np.int64)
_FREE = 0
"""In `locked`: the receiver is not receiving."""


class Signal:
    """A transmission on the air, with its power at every node that it may reach."""

    __slots__ = (
        "disturbed",
        "end_us",
        "group",
        "ids",
        "locked_ids",
        "locked_mw",
        "mark_us",
        "power_mw",
        "readable",
        "sender",
        "serial",
        "spoiled",
        "start_us",
        "state",
        "unicast",
    )

    def __init__(self, sender: NodeId, start_us: int, end_us: int, group: int, unicast: bool) -> None:
        self.sender = sender
        self.start_us = start_us
        self.end_us = end_us
        self.group = group
        """Signals of different groups do not lock receivers of each other: the spreading factors of LoRa."""
        self.unicast = unicast
        """Whether the payload has the rate of unicasts."""
        self.serial = 0
        self.ids: Integers = _NOBODY
        self.power_mw: Floats = np.zeros(0)
        self.readable: Booleans = np.zeros(0, dtype=np.bool_)
        self.locked_ids: Integers = _NOBODY
        """The nodes that receive it, with its power there, how their reception goes, and whether others disturb it."""
        self.locked_mw: Floats = np.zeros(0)
        self.state: Floats = np.zeros(0)
        self.disturbed: Booleans = np.zeros(0, dtype=np.bool_)
        self.mark_us = start_us
        """The time up to which `state` accounts for interference."""
        self.spoiled: list[NodeId] = []
        """Nodes that stopped receiving it before its end."""

    def unlock(self, keep: Booleans) -> None:
        """Stop the reception at some nodes."""
        self.spoiled += self.locked_ids[~keep].tolist()
        self.locked_ids, self.locked_mw = self.locked_ids[keep], self.locked_mw[keep]
        self.state, self.disturbed = self.state[..., keep], self.disturbed[keep]


class Outcome(NamedTuple):
    """What became of a signal at its end."""

    received: list[NodeId]
    """By id."""
    garbled: Integers
    """The nodes that received it and could not read it."""
    missed: dict[str, list[NodeId]]
    """The nodes whose mean power is at least their sensitivity and that did not receive it, by reason."""


class Demodulator(ABC):
    """How a receiver turns a ratio of powers into a success. One for each standard."""

    preamble_ratio: float
    """The least ratio of a signal to noise and interference at which its preamble is detected."""
    capture_ratio: float
    """How much stronger than the received signal a new one must be to capture the receiver."""
    capture_us: int
    """For how long after its start a signal can lose its receivers to a stronger one."""

    @abstractmethod
    def begin(self, signal: Signal) -> Floats:
        """The state of a reception that begins; the last axis is that of the receivers."""

    @abstractmethod
    def accumulate(self, signal: Signal, rest_mw: Floats, other_mw: list[Floats], until_us: int) -> None:
        """Account for noise and interference from `mark_us` until a time.

        `rest_mw` is the power of noise and of all other signals of its group, `other_mw` that of each group without the
        signal itself.
        """

    @abstractmethod
    def success(self, signal: Signal) -> Floats:
        """The probability that each receiver reads the signal."""


class BitErrors(Demodulator):
    """A header and a payload whose bits are wrong with a probability that depends on the ratio."""

    def __init__(
        self,
        preamble_us: int,
        header_us: int,
        header: tuple[SuccessTable, float],
        payload: tuple[SuccessTable, float],
        unicast: tuple[SuccessTable, float],
    ) -> None:
        self._preamble_us = preamble_us
        self._header_us = header_us
        self._header = header
        self._payload = payload
        self._unicast = unicast
        self.preamble_ratio = 1.0
        self.capture_ratio = 10.0
        self.capture_us = preamble_us

    def begin(self, signal: Signal) -> Floats:
        return np.zeros(len(signal.locked_ids))

    def accumulate(self, signal: Signal, rest_mw: Floats, other_mw: list[Floats], until_us: int) -> None:
        ratio_db = 10 * np.log10(signal.locked_mw / rest_mw)
        header_us = signal.start_us + self._preamble_us
        payload_us = header_us + self._header_us
        from_us = max(signal.mark_us, header_us)
        if from_us < min(until_us, payload_us):
            table, rate = self._header
            signal.state += (min(until_us, payload_us) - from_us) * rate * table.log_success(ratio_db)
        from_us = max(signal.mark_us, payload_us)
        if from_us < until_us:
            table, rate = self._unicast if signal.unicast else self._payload
            signal.state += (until_us - from_us) * rate * table.log_success(ratio_db)

    def success(self, signal: Signal) -> Floats:
        return np.exp(signal.state)


class Air:
    """All signals of one interface."""

    def __init__(
        self,
        channel: SignalChannel,
        nodes: int,
        sensitivity_mw: Floats,
        demodulator: Demodulator,
        groups: int,
        listens: Integers,
        busy_mw: Floats,
    ) -> None:
        self._channel = channel
        self._demodulator = demodulator
        self._sensitivity_mw = sensitivity_mw
        self._noise_mw = channel.noise_mw
        self.listens = listens
        """The group of signals that each node listens to."""
        self._busy_mw = busy_mw
        self.total_mw = np.zeros((groups, nodes))
        """The power of all signals at each node, without noise."""
        self.locked = np.zeros(nodes, dtype=np.int64)
        self.sending = np.zeros(nodes, dtype=np.int64)
        self._marks = np.zeros(nodes, dtype=np.bool_)
        """False everywhere between two calls."""
        self.on_air: list[Signal] = []
        self._serial = 0
        self.is_up: Callable[[NodeId], bool] = lambda node: True

    def undisturbed(self, signal: Signal, ids: Integers, power_mw: Floats) -> Floats:
        """The chance that nodes read a signal without interference, over several powers (columns) for each (row)."""
        demodulator, shape = self._demodulator, power_mw.shape
        signal.locked_ids, signal.locked_mw = np.repeat(ids, shape[1]), power_mw.ravel()
        signal.state = demodulator.begin(signal)
        nothing = [np.zeros(power_mw.size) for _ in self.total_mw]
        demodulator.accumulate(signal, np.full(power_mw.size, self._noise_mw), nothing, signal.end_us)
        detected = (power_mw >= self._sensitivity_mw[ids][:, None]) & (self.listens[ids] == signal.group)[:, None]
        detected &= power_mw >= self._noise_mw * demodulator.preamble_ratio
        return np.asarray((detected * demodulator.success(signal).reshape(shape)).mean(axis=1))

    def is_busy(self, node: NodeId) -> bool:
        """Whether a node senses a signal, or sends."""
        return bool(
            self.sending[node] or self.locked[node] or self.total_mw[self.listens[node], node] >= self._busy_mw[node]
        )

    def busy_among(self, ids: Integers) -> Booleans:
        """Which of some nodes sense a signal, receive or send."""
        if len(self.total_mw) == 1:
            total = self.total_mw[0, ids]
        else:
            total = self.total_mw[self.listens[ids], ids]
        sensed: Booleans = total >= self._busy_mw[ids]
        sensed |= self.locked[ids] != _FREE
        sensed |= self.sending[ids] != 0
        return sensed

    def begin(self, signal: Signal) -> None:
        """A signal starts. Idle receivers that detect it lock on to it."""
        hearers = self._channel.hearers(signal.sender, signal.start_us)
        ids, power = hearers.ids, self._channel.fade(hearers)
        self._serial += 1
        signal.serial, signal.ids, signal.power_mw, signal.readable = self._serial, ids, power, hearers.readable
        for other in self.on_air:
            self._advance(other, signal.start_us)
        total = self.total_mw[signal.group]
        rest = total[ids] + self._noise_mw
        total[ids] += power
        self._stop_receiving(signal.sender)
        self.sending[signal.sender] += 1
        demodulator = self._demodulator
        detected = (power >= self._sensitivity_mw[ids]) & (power >= rest * demodulator.preamble_ratio)
        detected &= self.sending[ids] == 0
        if len(self.total_mw) > 1:
            detected &= self.listens[ids] == signal.group
        if self.on_air:
            self._capture(signal, detected)
        locking = detected & (self.locked[ids] == _FREE)
        signal.locked_ids, signal.locked_mw = ids[locking], power[locking]
        signal.state = demodulator.begin(signal)
        signal.disturbed = np.zeros(len(signal.locked_ids), dtype=np.bool_)
        self.locked[signal.locked_ids] = signal.serial
        self.on_air.append(signal)

    def _capture(self, new: Signal, detected: Booleans) -> None:
        """Release the receivers of signals whose preamble a much stronger one overlaps."""
        strength = np.zeros(len(self.locked))
        strength[new.ids[detected]] = new.power_mw[detected]
        for other in self.on_air:
            if new.start_us - other.start_us <= self._demodulator.capture_us and len(other.locked_ids):
                lost = strength[other.locked_ids] >= other.locked_mw * self._demodulator.capture_ratio
                if lost.any():
                    self.locked[other.locked_ids[lost]] = _FREE
                    other.unlock(~lost)

    def _stop_receiving(self, node: NodeId) -> None:
        """A node that begins to send, or crashes, receives nothing any more."""
        serial = self.locked[node]
        if serial == _FREE:
            return
        self.locked[node] = _FREE
        for other in self.on_air:
            if other.serial == serial:
                other.unlock(other.locked_ids != node)

    def crash(self, node: NodeId) -> None:
        """A node is down: what it is receiving is lost. What it sends goes on, as interference."""
        self._stop_receiving(node)

    def _advance(self, signal: Signal, until_us: int) -> None:
        """Account for the interference of a signal up to now."""
        if until_us > signal.mark_us and len(signal.locked_ids):
            ids = signal.locked_ids
            other_mw = [total[ids] for total in self.total_mw]
            own = other_mw[signal.group]
            own -= signal.locked_mw
            # What is left of a sum after subtracting its summands again may be just below zero.
            np.maximum(own, 0.0, out=own)
            signal.disturbed |= own > self._noise_mw
            self._demodulator.accumulate(signal, own + self._noise_mw, other_mw, until_us)
        signal.mark_us = until_us

    def end(self, signal: Signal) -> Outcome:
        """A signal ends. Returns which nodes have read it."""
        for other in self.on_air:
            self._advance(other, signal.end_us)
        self.on_air.remove(signal)
        if self.on_air:
            total = self.total_mw[signal.group]
            total[signal.ids] -= signal.power_mw
            np.maximum(total, 0.0, out=total)
        else:
            self.total_mw.fill(0.0)
        self.sending[signal.sender] -= 1
        ids = signal.locked_ids
        self.locked[ids] = _FREE
        read = self._channel.rng.random(len(ids)) < self._demodulator.success(signal)
        return Outcome(ids[read].tolist(), ids[~read], self._missed(signal, read))

    def _missed(self, signal: Signal, read: Booleans) -> dict[str, list[NodeId]]:
        """Why each node that should have received a signal did not."""
        ids = signal.locked_ids
        missed: dict[str, list[NodeId]] = {}
        expected, marks = signal.ids[signal.readable], self._marks
        if len(ids) and not read.all():
            marks[expected] = True
            failed = ~read & marks[ids]
            marks[expected] = False
            for reason, nodes in (
                ("collision", ids[failed & signal.disturbed]),
                ("noise", ids[failed & ~signal.disturbed]),
            ):
                if len(nodes):
                    missed[reason] = nodes.tolist()
        marks[ids] = True
        other = signal.readable & ~marks[signal.ids]
        marks[ids] = False
        if other.any():
            weak = other & (signal.power_mw < self._sensitivity_mw[signal.ids])
            if weak.any():
                missed["fading"] = signal.ids[weak].tolist()
            busy = signal.ids[other & ~weak]
            if len(busy):
                missed["collision"] = sorted([*missed.get("collision", []), *busy.tolist()])
        return missed
