"""Bianchi's model of 802.11 under saturation, as pure functions: what `csma` is validated against.

G. Bianchi, "Performance analysis of the IEEE 802.11 distributed coordination function", IEEE JSAC 18(3), 2000. Its n
stations hear each other and always have a frame to send; retries are unlimited; everybody waits DIFS after a collision,
too; a busy period counts as one slot for those who wait.
"""

from typing import NamedTuple

from carrycast.sim.radio.dot11 import CTS_BYTES, RTS_BYTES, Dot11


class FixedPoint(NamedTuple):
    """What one station does in a slot, where both equations of the model hold."""

    attempt: float
    """The probability that it sends (Bianchi's tau)."""
    collision: float
    """The probability that what it sends collides (p)."""


class Durations(NamedTuple):
    """How long a slot lasts in which somebody sends."""

    success_us: float
    collision_us: float


def attempt_given(collision: float, window: int, stages: int) -> float:
    """How often a station sends if each attempt collides with probability p (equation 7).

    tau = 2 / (1 + W + p W sum_{i<m} (2p)^i), with W = `window` and m = `stages`: the form without a pole at p = 1/2.
    """
    p = collision
    return 2 / (1 + window + p * window * sum((2 * p) ** stage for stage in range(stages)))


def fixed_point(stations: int, window: int, stages: int) -> FixedPoint:
    """The one pair of tau and p for which both equations hold: p = 1 - (1 - tau)^(n-1), and tau as above."""
    low, high = 0.0, 1.0
    for _ in range(100):
        p = (low + high) / 2
        # The more others send the more collides, and the more collides the less is sent: one crossing.
        if 1 - (1 - attempt_given(p, window, stages)) ** (stations - 1) > p:
            low = p
        else:
            high = p
    p = (low + high) / 2
    return FixedPoint(attempt_given(p, window, stages), p)


def throughput(stations: int, at: FixedPoint, slot_us: float, lasting: Durations, payload_bits: float) -> float:
    """Bits of payload per microsecond, which are megabits per second (equation 13)."""
    tau = at.attempt
    busy = 1 - (1 - tau) ** stations
    alone = stations * tau * (1 - tau) ** (stations - 1)
    mean_slot_us = (1 - busy) * slot_us + alone * lasting.success_us + (busy - alone) * lasting.collision_us
    return alone * payload_bits / mean_slot_us


def basic_access(dot11: Dot11, message_bytes: int, delay_us: float = 0.0) -> Durations:
    """Frame, SIFS, ACK, DIFS; a collision is as long as the frame (equation 14). `delay_us` is that of propagation."""
    frame_us = dot11.unicast_us(message_bytes)
    difs_us = dot11.difs_us
    return Durations(frame_us + delay_us + dot11.sifs_ack_us + delay_us + difs_us, frame_us + difs_us + delay_us)


def rts_access(dot11: Dot11, message_bytes: int, delay_us: float = 0.0) -> Durations:
    """RTS, CTS, frame, ACK with SIFS between; only RTS collide (equation 17)."""
    rts_us = dot11.control_us(RTS_BYTES)
    asking_us = rts_us + delay_us + dot11.sifs_us + dot11.control_us(CTS_BYTES) + delay_us + dot11.sifs_us
    basic = basic_access(dot11, message_bytes, delay_us)
    return Durations(asking_us + basic.success_us, rts_us + dot11.difs_us + delay_us)


def saturation(dot11: Dot11, stations: int, message_bytes: int, delay_us: float = 0.0) -> float:
    """What n saturated stations carry together, in megabits of messages per second."""
    access = rts_access if dot11.uses_rts(message_bytes) else basic_access
    at = fixed_point(stations, dot11.cw_min + 1, stages_of(dot11))
    return throughput(stations, at, dot11.slot_us, access(dot11, message_bytes, delay_us), 8.0 * message_bytes)


def stages_of(dot11: Dot11) -> int:
    """How often the contention window doubles (m)."""
    window, stages = dot11.cw_min, 0
    while window < dot11.cw_max:
        window, stages = min(2 * window + 1, dot11.cw_max), stages + 1
    return stages
