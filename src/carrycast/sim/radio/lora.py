"""The radio `lora`: LoRa as in meshes and LoRaWAN, with spreading factors, duty cycle, and ALOHA or listen before talk.

All formulas are those of the data sheet of Semtech's SX1276/77/78/79 (rev. 7). Signals of one spreading factor capture
each other, and those of different ones are nearly orthogonal
[C. Goursaud, J.-M. Gorce, Dedicated networks for IoT: PHY/MAC state of the art and challenges, 2015].
"""

from math import ceil
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.sim.radio.channel import NodeTraits, chosen_nodes
from carrycast.sim.radio.fragments import split_message
from carrycast.sim.radio.medium import Medium
from carrycast.sim.radio.path_loss import noise_dbm
from carrycast.sim.radio.radio import RadioContext
from carrycast.sim.radio.reception import Demodulator, Floats, Signal
from carrycast.sim.radio.signal_medium import DutyCycleBudget
from carrycast.sim.radio.signal_settings import Decibels, Loss, RadioOverride, SignalRadio
from carrycast.sim.radio.unslotted import Access, UnslottedMedium

SpreadingFactor = Annotated[int, Meta(ge=7, le=12)]
# [SX1276 §4.1.1.2, table 13] The ratio of signal to noise that each spreading factor needs, from 7 to 12.
NEEDED_DB = (-7.5, -10.0, -12.5, -15.0, -17.5, -20.0)
# [Goursaud, Gorce 2015, table 4] How much stronger (or, below 0, weaker) than interference of each spreading factor
# (column, from 7 to 12) a signal of a spreading factor (row) must be.
ISOLATION_DB = (
    (6.0, -16.0, -18.0, -19.0, -19.0, -20.0),
    (-24.0, 6.0, -20.0, -22.0, -22.0, -22.0),
    (-27.0, -27.0, 6.0, -23.0, -25.0, -25.0),
    (-30.0, -30.0, -30.0, 6.0, -26.0, -28.0),
    (-33.0, -33.0, -33.0, -33.0, 6.0, -29.0),
    (-36.0, -36.0, -36.0, -36.0, -36.0, 6.0),
)
# [M. Bor, U. Roedig, T. Voigt, J. Alonso, Do LoRa low-power wide-area networks scale?, MSWiM 2016] A receiver needs the
# last 5 symbols of a preamble.
NEEDED_SYMBOLS = 5
# [SX1276 §4.1.1.1] The largest payload of a frame.
FRAME_BYTES = 255
# An acknowledgement is a header without a message.
# [SX1276 §2.1.6, application note AN1200.21] A channel activity detection takes somewhat less than two symbols.
DETECTION_SYMBOLS = 2


class LoraOverride(RadioOverride, frozen=True, kw_only=True):
    """One `[[radio.override]]` of LoRa."""

    spreading_factor: SpreadingFactor | None = None
    """The spreading factor with which these nodes send and listen."""


class LoraRadio(SignalRadio, frozen=True, kw_only=True):
    """LoRa: long range at a low rate."""

    name: ClassVar[str] = "lora"
    summary: ClassVar[str] = "LoRa: spreading factors, duty cycle, capture, ALOHA or listen before talk"
    needs_positions: ClassVar[bool] = True

    frequency_mhz: Annotated[float, Meta(ge=100, le=3000, description="carrier frequency")] = 868.1
    spreading_factor: Annotated[SpreadingFactor, Meta(description="spreading factor")] = 9
    bandwidth_khz: Annotated[float, Meta(ge=7.8, le=1600, description="bandwidth; 125, 250 and 500 kHz are common")] = (
        125.0
    )
    coding_rate: Annotated[int, Meta(ge=1, le=4, description="n of the coding rate 4/(4 + n)")] = 1
    preamble_symbols: Annotated[int, Meta(ge=6, le=65535, description="symbols of the preamble, without 4.25")] = 8
    explicit_header: Annotated[bool, Meta(description="whether frames have a header with their length")] = True
    tx_power_dbm: Annotated[Decibels, Meta(description="transmit power; 14 dBm are allowed in Europe")] = 14.0
    noise_figure_db: Annotated[Loss, Meta(description="noise that a receiver adds to thermal noise")] = 6.0
    path_exponent: Annotated[float, Meta(ge=1, le=8, description="exponent of log_distance; 2.7 to 3.5 in towns")] = 3.0
    access: Annotated[
        Literal["aloha", "listen"], Meta(description="send at once, or listen before talk with a random wait")
    ] = "listen"
    min_exponent: Annotated[int, Meta(ge=0, le=16, description="first wait: 0 to 2^n - 1 units of two symbols")] = 3
    max_exponent: Annotated[int, Meta(ge=0, le=16, description="largest such exponent")] = 8
    max_looks: Annotated[
        int, Meta(ge=0, le=100_000, description="busy looks at the medium before a frame is dropped as channel_busy")
    ] = 64
    duty_cycle: Annotated[float, Meta(gt=0, le=1, description="largest share of time that a node sends")] = 0.01
    duty_window_s: Annotated[
        float, Meta(gt=0, le=1e6, description="window of the duty cycle; an hour by ETSI EN 300 220")
    ] = 3600.0
    retries: Annotated[int, Meta(ge=0, le=255, description="repetitions of a unicast without acknowledgement")] = 3
    overhead_bytes: Annotated[int, Meta(ge=0, le=200, description="bytes of headers for each frame")] = 16
    override: Annotated[
        tuple[LoraOverride, ...],
        Meta(description="nodes with another transmitter or receiver; the last entry wins"),
    ] = ()

    def check_settings(self) -> None:
        if self.max_exponent < self.min_exponent:
            raise ValueError(f"max_exponent must be at least min_exponent ({self.min_exponent})")

    @property
    def frequency_hz(self) -> float:
        return self.frequency_mhz * 1e6

    @property
    def bandwidth_hz(self) -> float:
        return self.bandwidth_khz * 1e3

    @property
    def standard_sensitivity_dbm(self) -> float:
        return self.sensitivity_of(self.spreading_factor)

    def sensitivity_of(self, spreading_factor: int) -> float:
        """[SX1276 §3.5.5] Noise in the bandwidth, and the ratio that the spreading factor needs."""
        return noise_dbm(self.bandwidth_hz, self.noise_figure_db) + NEEDED_DB[spreading_factor - 7]

    def medium(self, context: RadioContext) -> Medium:
        return LoraMedium(self, context)


def symbol_us(spreading_factor: int, bandwidth_hz: float) -> float:
    """[SX1276 §4.1.1.6] The time of a symbol: 2^SF / BW."""
    return (1 << spreading_factor) * 1e6 / bandwidth_hz


def payload_symbols(settings: LoraRadio, spreading_factor: int, size_bytes: int) -> int:
    """[SX1276 §4.1.1.7] The symbols after the preamble, of a frame with a checksum."""
    # Low data rate optimization is mandated for symbols longer than 16 ms.
    optimized = 1 if symbol_us(spreading_factor, settings.bandwidth_hz) > 16_000 else 0
    implicit = 0 if settings.explicit_header else 1
    bits = 8 * size_bytes - 4 * spreading_factor + 28 + 16 - 20 * implicit
    blocks = ceil(bits / (4 * (spreading_factor - 2 * optimized)))
    return 8 + max(blocks * (settings.coding_rate + 4), 0)


def airtime_us(settings: LoraRadio, spreading_factor: int, size_bytes: int) -> int:
    """The airtime of a frame of some bytes, headers included."""
    symbols = settings.preamble_symbols + 4.25 + payload_symbols(settings, spreading_factor, size_bytes)
    return ceil(symbols * symbol_us(spreading_factor, settings.bandwidth_hz))


class LoraDemodulator(Demodulator):
    """A frame is read if its energy exceeds that of each interference by the isolation of the spreading factors
    [D. Magrin, M. Centenaro, L. Vangelista, Performance evaluation of LoRa networks in a smart city scenario, 2017]."""

    preamble_ratio = 0.0

    def __init__(self, factors: list[int], preamble_us: list[int]) -> None:
        table = [[ISOLATION_DB[own - 7][other - 7] for other in factors] for own in factors]
        self._isolation = 10 ** (np.array(table) / 10)
        self.capture_ratio = 10 ** (ISOLATION_DB[0][0] / 10)
        self.capture_us = max(preamble_us)
        self._groups = len(factors)

    def begin(self, signal: Signal) -> Floats:
        return np.zeros((self._groups, len(signal.locked_ids)))

    def accumulate(self, signal: Signal, rest_mw: Floats, other_mw: list[Floats], until_us: int) -> None:
        for group, power in enumerate(other_mw):
            signal.state[group] += power * (until_us - signal.mark_us)

    def success(self, signal: Signal) -> Floats:
        energy = signal.locked_mw * (signal.end_us - signal.start_us)
        needed = self._isolation[signal.group][:, None] * signal.state
        return np.asarray((energy >= needed).all(axis=0), dtype=np.float64)


class LoraMedium(UnslottedMedium):
    """One interface of all nodes with LoRa on one channel."""

    def __init__(self, settings: LoraRadio, context: RadioContext) -> None:
        nodes = context.nodes
        factor_of = np.full(nodes, settings.spreading_factor, dtype=np.int64)
        for entry in settings.override:
            if entry.spreading_factor is not None:
                factor_of[chosen_nodes(entry, context)] = entry.spreading_factor
        traits = NodeTraits(settings, context)
        if settings.sensitivity_dbm is None:
            given = np.zeros(nodes, dtype=np.bool_)
            for entry in settings.override:
                given[chosen_nodes(entry, context)] |= entry.sensitivity_dbm is not None
            own = np.array([settings.sensitivity_of(factor) for factor in factor_of.tolist()])
            traits.sensitivity_dbm = np.where(given, traits.sensitivity_dbm, own)
        factors = sorted(set(factor_of.tolist()))
        self._factors = factor_of.tolist()
        self._groups = np.searchsorted(factors, factor_of)
        symbols_us = [symbol_us(factor, settings.bandwidth_hz) for factor in factors]
        steals = max(settings.preamble_symbols - NEEDED_SYMBOLS, 0)
        demodulator = LoraDemodulator(factors, [round(steals * one) for one in symbols_us])
        unit_us = ceil(DETECTION_SYMBOLS * max(symbols_us))
        access = Access(
            listens=settings.access == "listen",
            unit_us=unit_us,
            look_us=unit_us if settings.access == "listen" else 0,
            # The oscillator runs, so that the transmitter is ready within a fraction of a symbol.
            turnaround_us=0,
            min_exponent=settings.min_exponent,
            max_exponent=settings.max_exponent,
            max_looks=settings.max_looks,
            retries=settings.retries,
        )
        busy_mw = 10 ** (traits.sensitivity_dbm / 10)
        super().__init__(settings, context, traits, access, demodulator, len(factors), self._groups, busy_mw)
        self._settings = settings
        self._unit_us = unit_us
        if settings.duty_cycle < 1:
            self._budget = DutyCycleBudget(settings.duty_cycle, settings.duty_window_s, nodes)

    def group_of(self, node: NodeId) -> int:
        return int(self._groups[node])

    def split(self, size_bytes: int) -> list[int]:
        return split_message(size_bytes, self._settings.overhead_bytes, FRAME_BYTES, 0)

    def frame_us(self, sender: NodeId, size_bytes: int, unicast: bool) -> int:
        return airtime_us(self._settings, self._factors[sender], size_bytes)

    def answer_us(self, node: NodeId) -> tuple[int, int, int]:
        # The acknowledgement follows after two symbols, the time to switch from receiving to sending.
        answer_us = airtime_us(self._settings, self._factors[node], self._settings.overhead_bytes)
        return self._unit_us, answer_us, 2 * self._unit_us + answer_us
