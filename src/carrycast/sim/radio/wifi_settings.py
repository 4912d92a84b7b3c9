"""The settings of the radio `wifi`: IEEE 802.11 with powers, by presets."""

from math import ceil
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from carrycast.sim.radio.error_rates import OFDM_MODES, OfdmMode, SuccessTable, dsss_table, ofdm_table
from carrycast.sim.radio.medium import Medium
from carrycast.sim.radio.radio import RadioContext
from carrycast.sim.radio.reception import BitErrors
from carrycast.sim.radio.signal_settings import Decibels, Loss, SignalRadio

if TYPE_CHECKING:
    from carrycast.sim.radio.edca import Category

AccessCategory = Literal["background", "best_effort", "video", "voice"]
CATEGORIES: tuple[AccessCategory, ...] = ("background", "best_effort", "video", "voice")
"""By rising priority."""


class WifiPhy(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one physical layer of IEEE 802.11."""

    frequency_hz: float
    bandwidth_hz: float
    slot_us: int
    sifs_us: int
    preamble_us: int
    """The training sequence, before the header."""
    header_us: int
    sense_us: int
    """The time until a transmission is sensed."""
    cw_min: int
    cw_max: int
    carrier_dbm: float
    """The weakest signal that makes the medium busy."""
    data_rate_bps: float
    basic_rate_bps: float
    ofdm: bool
    edca: bool
    """Whether there are four access categories."""
    sensitivities_dbm: tuple[float, ...]
    """The sensitivity that the standard requires at each rate, from the slowest on."""


# [IEEE 802.11-2016 tables 17-18 and 17-21] For 20 MHz; 3 dB less for half the bandwidth.
_OFDM_20_DBM = (-82.0, -81.0, -79.0, -77.0, -74.0, -70.0, -66.0, -65.0)
_OFDM_10_DBM = tuple(level - 3 for level in _OFDM_20_DBM)

PRESETS: dict[str, WifiPhy] = {
    # [IEEE 802.11-2016 tables 17-5, 17-21, §17.3.10.6 for 10 MHz] 6 Mb/s is the usual rate of vehicles
    # [D. Jiang, Q. Chen, L. Delgrossi, Optimal data rate selection for vehicle safety communications, VANET 2008].
    "802.11p": WifiPhy(
        frequency_hz=5.9e9,
        bandwidth_hz=10e6,
        slot_us=13,
        sifs_us=32,
        preamble_us=32,
        header_us=8,
        sense_us=8,
        cw_min=15,
        cw_max=1023,
        carrier_dbm=-85.0,
        data_rate_bps=6e6,
        basic_rate_bps=6e6,
        ofdm=True,
        edca=True,
        sensitivities_dbm=_OFDM_10_DBM,
    ),
    "802.11a": WifiPhy(
        frequency_hz=5.18e9,
        bandwidth_hz=20e6,
        slot_us=9,
        sifs_us=16,
        preamble_us=16,
        header_us=4,
        sense_us=4,
        cw_min=15,
        cw_max=1023,
        carrier_dbm=-82.0,
        data_rate_bps=24e6,
        basic_rate_bps=6e6,
        ofdm=True,
        edca=False,
        sensitivities_dbm=_OFDM_20_DBM,
    ),
    # [IEEE 802.11-2016 §15.4.8, §16.3.8] The standard requires -80 dBm at 2 Mb/s and -76 dBm at 11 Mb/s; at 1 and
    # 5.5 Mb/s 3 dB less are customary. Timing as in the preset 802.11b of `csma`.
    "802.11b": WifiPhy(
        frequency_hz=2.412e9,
        bandwidth_hz=22e6,
        slot_us=20,
        sifs_us=10,
        preamble_us=144,
        header_us=48,
        sense_us=20,
        cw_min=31,
        cw_max=1023,
        carrier_dbm=-83.0,
        data_rate_bps=11e6,
        basic_rate_bps=1e6,
        ofdm=False,
        edca=False,
        sensitivities_dbm=(-83.0, -80.0, -79.0, -76.0),
    ),
}
DSSS_RATES_BPS = (1e6, 2e6, 5.5e6, 11e6)
# [IEEE 802.11-2016 table 9-138] EDCA outside of a basic service set, by rising priority: AIFSN, and CWmin and CWmax as
# functions of the CWmin of the physical layer.
AIFSN = (9, 6, 3, 2)


class WifiRadio(SignalRadio, frozen=True, kw_only=True):
    """IEEE 802.11 with powers: 802.11p for vehicles, 802.11a and 802.11b."""

    name: ClassVar[str] = "wifi"
    summary: ClassVar[str] = "802.11p, 802.11a or 802.11b: powers, fading, buildings, bit errors, access categories"
    needs_positions: ClassVar[bool] = True

    preset: Annotated[Literal["802.11p", "802.11a", "802.11b"], Meta(description="standard")] = "802.11p"
    tx_power_dbm: Annotated[Decibels, Meta(description="transmit power")] = 20.0
    path_exponent: Annotated[
        float, Meta(ge=1, le=8, description="exponent of log_distance; 2.2 between vehicles that see each other")
    ] = 2.2
    data_rate_bps: (
        Annotated[float, Meta(ge=1e6, le=54e6, description="rate of unicasts; the preset's if absent")] | None
    ) = None
    basic_rate_bps: (
        Annotated[float, Meta(ge=1e6, le=54e6, description="rate of broadcasts and ACK; the preset's if absent")] | None
    ) = None
    carrier_sense_dbm: (
        Annotated[Decibels, Meta(description="weakest power that makes the medium busy; the preset's if absent")] | None
    ) = None
    error_model: Annotated[
        Literal["nist", "yans"], Meta(description="bit errors of OFDM: NIST's model or that of Yans")
    ] = "nist"
    preamble_db: Annotated[
        Loss, Meta(description="least ratio of signal to noise and interference to detect a preamble")
    ] = 4.0
    capture_db: Annotated[
        Loss, Meta(description="a signal that is so much stronger captures the receiver during a preamble")
    ] = 5.0
    retry_limit: Annotated[int, Meta(ge=1, le=255, description="largest number of transmissions of a unicast")] = 7
    overhead_bytes: Annotated[
        int, Meta(ge=0, le=1000, description="bytes of headers for each message: MAC 30, LLC 8, IP 20, UDP 8")
    ] = 66
    discovery_category: Annotated[AccessCategory, Meta(description="access category of beacons")] = "best_effort"
    routing_category: Annotated[AccessCategory, Meta(description="access category of the router's messages")] = "video"
    dissemination_category: Annotated[
        AccessCategory, Meta(description="access category of the protocol's messages")
    ] = "best_effort"

    def check_settings(self) -> None:
        rates = self.rates_bps()
        for name, rate in (("data_rate_bps", self.data_bps), ("basic_rate_bps", self.basic_bps)):
            if rate not in rates:
                allowed = ", ".join(f"{one / 1e6:g}" for one in rates)
                raise ValueError(f"{name} must be a rate of {self.preset}: {allowed} Mb/s")

    @property
    def phy(self) -> WifiPhy:
        """The parameters of the preset."""
        return PRESETS[self.preset]

    @property
    def frequency_hz(self) -> float:
        return self.phy.frequency_hz

    @property
    def bandwidth_hz(self) -> float:
        return self.phy.bandwidth_hz

    @property
    def data_bps(self) -> float:
        """The rate of unicasts."""
        return self.phy.data_rate_bps if self.data_rate_bps is None else self.data_rate_bps

    @property
    def basic_bps(self) -> float:
        """The rate of broadcasts and acknowledgements."""
        return self.phy.basic_rate_bps if self.basic_rate_bps is None else self.basic_rate_bps

    @property
    def carrier_dbm(self) -> float:
        """The weakest power that makes the medium busy."""
        return self.phy.carrier_dbm if self.carrier_sense_dbm is None else self.carrier_sense_dbm

    @property
    def standard_sensitivity_dbm(self) -> float:
        # A broadcast that can be read must be at the basic rate; faster unicasts fail by their bit errors.
        return self.phy.sensitivities_dbm[self.rates_bps().index(self.basic_bps)]

    def rates_bps(self) -> tuple[float, ...]:
        """The rates of the preset."""
        if not self.phy.ofdm:
            return DSSS_RATES_BPS
        return tuple(mode.bits_per_symbol / self._symbol_us * 1e6 for mode in OFDM_MODES)

    @property
    def _symbol_us(self) -> int:
        # [IEEE 802.11-2016 table 17-5] 4 µs in 20 MHz; twice that in half the bandwidth.
        return round(80e6 / self.phy.bandwidth_hz)

    def _mode(self, rate_bps: float) -> OfdmMode:
        return OFDM_MODES[self.rates_bps().index(rate_bps)]

    def airtime_us(self, size_bytes: int, unicast: bool, control: bool) -> int:
        """The airtime of a frame with its MAC header; control frames have the basic rate."""
        phy = self.phy
        rate_bps = self.data_bps if unicast and not control else self.basic_bps
        if not phy.ofdm:
            return phy.preamble_us + phy.header_us + ceil(size_bytes * 8e6 / rate_bps)
        # [IEEE 802.11-2016 §17.4.3] 16 bits of SERVICE, 6 bits of tail, and padding to whole symbols.
        symbols = -(-(16 + 8 * size_bytes + 6) // self._mode(rate_bps).bits_per_symbol)
        return phy.preamble_us + phy.header_us + symbols * self._symbol_us

    def table(self, rate_bps: float) -> tuple[SuccessTable, float]:
        """The success of a bit at a rate, and the bits in a microsecond."""
        if not self.phy.ofdm:
            return dsss_table(rate_bps), rate_bps / 1e6
        return ofdm_table(self._mode(rate_bps), self.error_model, self.phy.bandwidth_hz), rate_bps / 1e6

    def demodulator(self) -> BitErrors:
        """The reception of frames."""
        slowest = self.rates_bps()[0]
        phy = self.phy
        demodulator = BitErrors(
            phy.preamble_us, phy.header_us, self.table(slowest), self.table(self.basic_bps), self.table(self.data_bps)
        )
        demodulator.preamble_ratio = 10 ** (self.preamble_db / 10)
        demodulator.capture_ratio = 10 ** (self.capture_db / 10)
        return demodulator

    def category_names(self) -> tuple[str, ...]:
        """The access categories by rising priority."""
        return CATEGORIES if self.phy.edca else ("",)

    def categories(self) -> list["Category"]:
        """The parameters of the access categories, in the same order."""
        from carrycast.sim.radio.edca import Category

        low, high = self.phy.cw_min, self.phy.cw_max
        if not self.phy.edca:
            # DIFS is SIFS and two slots.
            return [Category(2, low, high)]
        half, quarter = (low + 1) // 2 - 1, (low + 1) // 4 - 1
        windows = ((low, high), (low, high), (half, low), (quarter, half))
        return [Category(aifsn, *window) for aifsn, window in zip(AIFSN, windows, strict=True)]

    def medium(self, context: RadioContext) -> Medium:
        from carrycast.sim.radio.edca import EdcaMedium

        return EdcaMedium(self, context)
