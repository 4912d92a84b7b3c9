"""The radio `ieee802154`: IEEE 802.15.4 at 2.4 GHz, as in Zigbee and 6LoWPAN, without a coordinator."""

from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.sim.radio.channel import NodeTraits
from carrycast.sim.radio.error_rates import table_802154
from carrycast.sim.radio.fragments import split_message
from carrycast.sim.radio.medium import Medium
from carrycast.sim.radio.radio import RadioContext
from carrycast.sim.radio.reception import BitErrors
from carrycast.sim.radio.signal_settings import Decibels, Loss, SignalRadio
from carrycast.sim.radio.unslotted import Access, UnslottedMedium

# [IEEE 802.15.4-2006 table 1 and §6.5] 250 kb/s, symbols of 16 µs with 4 bits each.
RATE_BPS = 250e3
SYMBOL_US = 16
# [ibid. §6.3] Preamble of 4 bytes and its delimiter, then the length of the frame.
SYNCHRONIZATION_US, LENGTH_US = 160, 32
# [ibid. table 22] The largest frame, aMaxPHYPacketSize.
FRAME_BYTES = 127
# [ibid. §7.2.2.3] An acknowledgement: frame control, sequence number, checksum.
ACK_BYTES = 5
# [ibid. table 22] aTurnaroundTime; [table 85] aUnitBackoffPeriod; [§6.9.9] a look at the medium takes 8 symbols.
TURNAROUND_US, UNIT_US, LOOK_US = 12 * SYMBOL_US, 20 * SYMBOL_US, 8 * SYMBOL_US
# [ibid. §7.4.2] macAckWaitDuration: a unit of backoff, the turnaround, and the synchronization and 6 symbols per octet.
ACK_WAIT_US = 54 * SYMBOL_US
# [RFC 4944 §5.3] The header of each fragment after the first.
FRAGMENT_BYTES = 5


class Ieee802154Radio(SignalRadio, frozen=True, kw_only=True):
    """IEEE 802.15.4: 250 kb/s, frames of 127 bytes, unslotted CSMA-CA."""

    name: ClassVar[str] = "ieee802154"
    summary: ClassVar[str] = "802.15.4 at 2.4 GHz: 250 kb/s, frames of 127 bytes, unslotted CSMA-CA"
    needs_positions: ClassVar[bool] = True

    tx_power_dbm: Annotated[Decibels, Meta(description="transmit power")] = 0.0
    noise_figure_db: Annotated[Loss, Meta(description="noise that a receiver adds to thermal noise")] = 12.0
    """At 2 MHz, 12 dB make the error rate of a frame of 20 bytes 1 % at about -95 dBm, as common chips have."""
    carrier_sense_dbm: Annotated[
        Decibels, Meta(description="weakest power that makes the medium busy; 10 dB above the required sensitivity")
    ] = -75.0
    min_exponent: Annotated[int, Meta(ge=0, le=8, description="first backoff: 0 to 2^n - 1 units of 320 µs")] = 3
    max_exponent: Annotated[int, Meta(ge=0, le=8, description="largest such exponent")] = 5
    max_looks: Annotated[int, Meta(ge=0, le=1000, description="busy looks at the medium before a frame is dropped")] = 4
    retries: Annotated[int, Meta(ge=0, le=255, description="repetitions of a unicast without acknowledgement")] = 3
    overhead_bytes: Annotated[
        int, Meta(ge=0, le=110, description="bytes of headers for each frame: MAC 11, compressed IP and UDP 7")
    ] = 18

    def check_settings(self) -> None:
        if self.max_exponent < self.min_exponent:
            raise ValueError(f"max_exponent must be at least min_exponent ({self.min_exponent})")

    @property
    def frequency_hz(self) -> float:
        # [IEEE 802.15.4-2006 §6.1.2.1] Channel 18, in the middle of the band.
        return 2.44e9

    @property
    def bandwidth_hz(self) -> float:
        return 2e6

    @property
    def standard_sensitivity_dbm(self) -> float:
        # [IEEE 802.15.4-2006 §6.5.3.3] At least -85 dBm; chips such as the CC2420 have 10 dB better.
        return -95.0

    def medium(self, context: RadioContext) -> Medium:
        return Ieee802154Medium(self, context)


class Ieee802154Medium(UnslottedMedium):
    """One interface of all nodes with IEEE 802.15.4."""

    def __init__(self, settings: Ieee802154Radio, context: RadioContext) -> None:
        table, bits_per_us = table_802154(), RATE_BPS / 1e6
        demodulator = BitErrors(SYNCHRONIZATION_US, LENGTH_US, *((table, bits_per_us),) * 3)
        # Spreading lets a receiver synchronize to a signal that is as strong as noise and interference.
        demodulator.preamble_ratio = 1.0
        # [CC2420 data sheet] Co-channel rejection 3 dB.
        demodulator.capture_ratio = 2.0
        access = Access(
            listens=True,
            unit_us=UNIT_US,
            look_us=LOOK_US,
            turnaround_us=TURNAROUND_US,
            min_exponent=settings.min_exponent,
            max_exponent=settings.max_exponent,
            max_looks=settings.max_looks,
            retries=settings.retries,
        )
        nodes = context.nodes
        busy_mw = np.full(nodes, 10 ** (settings.carrier_sense_dbm / 10))
        listens = np.zeros(nodes, dtype=np.int64)
        super().__init__(settings, context, NodeTraits(settings, context), access, demodulator, 1, listens, busy_mw)
        self._overhead_bytes = settings.overhead_bytes

    def split(self, size_bytes: int) -> list[int]:
        return split_message(size_bytes, self._overhead_bytes, FRAME_BYTES, FRAGMENT_BYTES)

    def frame_us(self, sender: NodeId, size_bytes: int, unicast: bool) -> int:
        return airtime_us(size_bytes)

    def answer_us(self, node: NodeId) -> tuple[int, int, int]:
        return TURNAROUND_US, airtime_us(ACK_BYTES), ACK_WAIT_US


def airtime_us(size_bytes: int) -> int:
    """The airtime of a frame with its MAC header and checksum."""
    return SYNCHRONIZATION_US + LENGTH_US + size_bytes * 2 * SYMBOL_US
