"""The parameters of 802.11: presets, the settings of the CSMA radio, and the airtime of frames."""

from math import ceil
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from carrycast.sim.radio.medium import Medium
from carrycast.sim.radio.radio import Radio, RadioContext

# [IEEE 802.11-1999 §7.2.1] Control frames have one size, checksum included.
ACK_BYTES = 14
RTS_BYTES = 20
CTS_BYTES = 14
# [ibid. §9.2.10] EIFS leaves time for an ACK at the lowest rate of the DSSS PHY.
LOWEST_RATE_BPS = 1e6
# A frame is captured if it is this much stronger than the interfering one [ns-2: CPThresh_ 10].
CAPTURE_DB = 10.0
COST_BYTES = 500
"""The packet for which the cost of a link is computed."""
UNLIMITED = 2**31 - 1
"""As a retry limit: never give up."""

Meters = Annotated[float, Meta(gt=0, le=1e6)]
Rate = Annotated[float, Meta(ge=1e3, le=1e12)]
Micros = Annotated[int, Meta(ge=1, le=1_000_000)]
Tries = Annotated[int, Meta(ge=1, le=UNLIMITED)]
Window = Annotated[int, Meta(ge=0, le=65535)]


class Dot11(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one radio. The defaults are 802.11b with the long preamble."""

    data_rate_bps: float = 11e6
    """The rate of unicast data."""
    basic_rate_bps: float = 1e6
    """The rate of broadcasts, RTS, CTS and ACK: the lowest, which every receiver supports."""
    plcp_us: int = 192
    """Preamble and header before each frame: 144 + 48 bits at 1 Mb/s."""
    slot_us: int = 20
    sifs_us: int = 10
    cw_min: int = 31
    cw_max: int = 1023
    retry_limit: int = 7
    """The most transmissions of a frame, or of its RTS [802.11: dot11ShortRetryLimit]."""
    long_retry_limit: int = 4
    """The most transmissions of a frame that follows an RTS [802.11: dot11LongRetryLimit]."""
    rts_threshold_bytes: int = 2347
    """An RTS precedes unicast frames with more bytes than this. 2347 is the standard's default: no frame has."""
    overhead_bytes: int = 64
    """The bytes added to a message: MAC header and checksum 28, LLC/SNAP 8, IP 20, UDP 8."""
    queue: int = 50
    """Frames that may wait behind the one being sent; ns-2's interface queue."""
    routing_first: bool = False
    """Whether routers' own messages go to the head of the queue, as in ns-2's PriQueue."""
    eifs: bool = True
    """Whether a node waits EIFS instead of DIFS after a frame that it received with errors."""
    busy_slot_counts: bool = False
    """Bianchi's slot rule: the slot in which another station starts counts down too. In the standard it does not."""
    sense_us: int = 20
    """The time until a transmission is sensed: 15 µs to assess the channel and 5 µs to switch to sending."""
    timeout_us: int | None = None
    """The wait for a CTS or an ACK; by default SIFS, the answer and a slot. Bianchi's model does not wait: 0."""
    capture_db: float = 0.0
    """A frame that is this much stronger than another at a receiver is received; 0: without capture."""
    path_exponent: float = 4.0
    """The path-loss exponent; 4 is that of two-ray ground reflection beyond about 100 m."""

    @property
    def difs_us(self) -> int:
        """The time for which the medium must be idle before a station may send."""
        return self.sifs_us + 2 * self.slot_us

    @property
    def eifs_us(self) -> int:
        """The same after a frame received with errors; it leaves time for another station's ACK."""
        return self.sifs_us + self.difs_us + self.airtime_us(ACK_BYTES, LOWEST_RATE_BPS)

    @property
    def sifs_ack_us(self) -> int:
        """From the end of a frame to the end of its ACK."""
        return self.sifs_us + self.control_us(ACK_BYTES)

    def airtime_us(self, size_bytes: int, rate_bps: float) -> int:
        """The airtime of a frame with its MAC header, in whole microseconds as in the PLCP header."""
        return self.plcp_us + ceil(size_bytes * 8e6 / rate_bps)

    def control_us(self, size_bytes: int) -> int:
        """The airtime of a control frame."""
        return self.airtime_us(size_bytes, self.basic_rate_bps)

    def broadcast_us(self, message_bytes: int) -> int:
        """The airtime of a broadcast message."""
        return self.airtime_us(message_bytes + self.overhead_bytes, self.basic_rate_bps)

    def unicast_us(self, message_bytes: int) -> int:
        """The airtime of a unicast message, without RTS, CTS and ACK."""
        return self.airtime_us(message_bytes + self.overhead_bytes, self.data_rate_bps)

    def uses_rts(self, message_bytes: int) -> bool:
        """Whether an RTS precedes a unicast message."""
        return message_bytes + self.overhead_bytes > self.rts_threshold_bytes

    @property
    def space_after_error_us(self) -> int:
        """How long a node waits after a frame that it received with errors."""
        return self.eifs_us if self.eifs else self.difs_us

    @property
    def capture_ratio(self) -> float:
        """The least ratio of the squared distances from an interferer and from the sender at which a frame is captured;
        0 without capture."""
        return 10 ** (self.capture_db / (5 * self.path_exponent)) if self.capture_db > 0 else 0.0

    @property
    def cost_s(self) -> float:
        """The expected time to send a packet of 500 bytes over a link."""
        rts_us = 0
        if self.uses_rts(COST_BYTES):
            rts_us = self.control_us(RTS_BYTES) + self.control_us(CTS_BYTES) + 2 * self.sifs_us
        waiting_us = self.difs_us + self.cw_min / 2 * self.slot_us
        return (waiting_us + rts_us + self.unicast_us(COST_BYTES) + self.sifs_ack_us) / 1e6

    def numbers(self) -> dict[str, float]:
        """All parameters that are used while frames are sent, given and derived, by their names."""
        return {
            "slot_us": self.slot_us,
            "sifs_us": self.sifs_us,
            "difs_us": self.difs_us,
            "eifs_us": self.space_after_error_us,
            "sense_us": self.sense_us,
            "rts_us": self.control_us(RTS_BYTES),
            "cts_us": self.control_us(CTS_BYTES),
            "sifs_ack_us": self.sifs_ack_us,
            "cts_timeout_us": self.answer_timeout_us(CTS_BYTES),
            "ack_timeout_us": self.answer_timeout_us(ACK_BYTES),
            "cw_min": self.cw_min,
            "cw_max": self.cw_max,
            "retry_limit": self.retry_limit,
            "long_retry_limit": self.long_retry_limit,
            "plcp_us": self.plcp_us,
            "overhead_bytes": self.overhead_bytes,
            "rts_threshold_bytes": self.rts_threshold_bytes,
            "queue": self.queue,
            "data_rate_bps": self.data_rate_bps,
            "basic_rate_bps": self.basic_rate_bps,
            "capture": self.capture_ratio,
            "cost_s": self.cost_s,
            "routing_first": self.routing_first,
            "busy_slot_counts": self.busy_slot_counts,
        }

    def answer_timeout_us(self, answer_bytes: int) -> int:
        """The time that a sender waits for a CTS or an ACK."""
        if self.timeout_us is not None:
            return self.timeout_us
        return self.sifs_us + self.control_us(answer_bytes) + self.slot_us


PRESETS: dict[str, Dot11] = {
    "802.11b": Dot11(),
    # [ns-2.35: tcl/lib/ns-default.tcl, mac/mac-802_11] 2 Mb/s for everything, RTS before every unicast, capture at
    # 10 dB; packets have an IP header of 20 bytes but neither LLC nor UDP headers; a carrier is sensed at once. The
    # queue of its wireless scripts is PriQueue, with Prefer_Routing_Protocols on.
    "ns2": Dot11(
        data_rate_bps=2e6,
        basic_rate_bps=2e6,
        rts_threshold_bytes=0,
        overhead_bytes=48,
        sense_us=1,
        capture_db=CAPTURE_DB,
        routing_first=True,
    ),
}
# [ns-2.35: tcl/lan/ns-mac.tcl] The script above sets 2 Mb/s (`bandwidth_`); a script that sets no rate has 1 Mb/s for
# data and for control frames, because `dataRate_` and `basicRate_` come first.
PRESETS["ns2-default"] = msgspec.structs.replace(PRESETS["ns2"], data_rate_bps=1e6, basic_rate_bps=1e6)

# [ns-2: 550 m to 250 m] Carriers are sensed beyond the range in which frames are received.
CS_RANGES = 2.2
# A sender at the edge of the range is 10 dB above an interferer this many ranges away, with path-loss exponent 4.
INTERFERENCE_RANGES = 10 ** (CAPTURE_DB / 40)


class CsmaRadio(Radio, frozen=True, kw_only=True):
    """A radio with the medium access of IEEE 802.11. A setting that is not given has the value of the preset."""

    name: ClassVar[str] = "csma"
    summary: ClassVar[str] = "802.11 DCF: carrier sense, backoff, collisions, acknowledgements"
    needs_positions: ClassVar[bool] = True

    preset: Annotated[Literal["802.11b", "ns2", "ns2-default"], Meta(description="set of default values")] = "802.11b"
    range_m: Annotated[Meters, Meta(description="frames can be read up to this distance")] = 250.0
    cs_range_m: Annotated[Meters, Meta(description="carrier sense distance; 2.2 ranges if absent")] | None = None
    interference_range_m: (
        Annotated[
            Meters, Meta(description="distance of interference; 1.78 ranges, or cs_range_m with capture, if absent")
        ]
        | None
    ) = None
    capture_db: (
        Annotated[
            float,
            Meta(ge=0, le=100, description="a frame survives an overlapping one that is this much weaker; 0: never"),
        ]
        | None
    ) = None
    path_exponent: Annotated[float, Meta(ge=1, le=8, description="exponent of the path loss, for capture")] | None = (
        None
    )
    data_rate_bps: Annotated[Rate, Meta(description="bit rate of unicast data")] | None = None
    basic_rate_bps: Annotated[Rate, Meta(description="bit rate of broadcasts, RTS, CTS and ACK")] | None = None
    plcp_us: (
        Annotated[int, Meta(ge=0, le=10_000, description="time of preamble and header; 96 for the short preamble")]
        | None
    ) = None
    slot_us: Annotated[Micros, Meta(description="slot time")] | None = None
    sifs_us: Annotated[Micros, Meta(description="SIFS; DIFS is SIFS and two slots")] | None = None
    cw_min: Annotated[Window, Meta(description="smallest contention window, in slots")] | None = None
    cw_max: Annotated[Window, Meta(description="largest contention window, in slots")] | None = None
    retry_limit: (
        Annotated[Tries, Meta(description="largest number of transmissions of a unicast or its RTS")] | None
    ) = None
    long_retry_limit: (
        Annotated[Tries, Meta(description="largest number of transmissions of data after an RTS")] | None
    ) = None
    rts_threshold_bytes: (
        Annotated[
            int, Meta(ge=0, le=65535, description="unicast frames with more bytes, with headers, send an RTS first")
        ]
        | None
    ) = None
    overhead_bytes: Annotated[int, Meta(ge=0, le=1000, description="bytes of headers for each message")] | None = None
    queue: Annotated[int, Meta(ge=1, le=1_000_000, description="largest number of waiting frames")] | None = None
    routing_first: (
        Annotated[bool, Meta(description="messages of the router itself are sent before waiting frames")] | None
    ) = None
    eifs: Annotated[bool, Meta(description="wait EIFS instead of DIFS after an unreadable frame")] | None = None
    busy_slot_counts: (
        Annotated[bool, Meta(description="slot rule of Bianchi's model: a busy period counts as a slot")] | None
    ) = None
    sense_us: Annotated[Micros, Meta(description="time until other nodes sense a transmission")] | None = None
    timeout_us: (
        Annotated[
            int, Meta(ge=0, le=1_000_000, description="wait for a CTS or an ACK; SIFS, the answer and a slot if absent")
        ]
        | None
    ) = None

    def __post_init__(self) -> None:
        if self.cs_m < self.range_m:
            raise ValueError(f"cs_range_m must be at least range_m ({self.range_m:g}): what is read is also sensed")
        if self.interference_m < self.range_m:
            raise ValueError(f"interference_range_m must be at least range_m ({self.range_m:g})")
        dot11 = self.dot11()
        if dot11.cw_max < dot11.cw_min:
            raise ValueError(f"cw_max must be at least cw_min ({dot11.cw_min})")
        if dot11.sense_us > dot11.slot_us:
            raise ValueError(f"sense_us must be at most slot_us ({dot11.slot_us}): a slot is for noticing others")

    @property
    def cs_m(self) -> float:
        """The distance up to which carriers are sensed."""
        return CS_RANGES * self.range_m if self.cs_range_m is None else self.cs_range_m

    @property
    def interference_m(self) -> float:
        """The distance up to which a transmission interferes with receptions.

        With capture, the signal strengths of all transmissions that can be sensed are compared.
        """
        if self.interference_range_m is not None:
            return self.interference_range_m
        if self.dot11().capture_db > 0:
            return self.cs_m
        return INTERFERENCE_RANGES * self.range_m

    def dot11(self) -> Dot11:
        """The preset, with the given settings instead of its own."""
        given = {name: value for name in Dot11.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(PRESETS[self.preset], **given)

    def medium(self, context: RadioContext) -> Medium:
        """Create a `CsmaMedium`. The import is here because its module imports this one."""
        from carrycast.sim.radio.csma import CsmaMedium

        medium = CsmaMedium(
            self, context.interface, context.nodes, context.scheduler, context.air, context.rng, context.places
        )
        for range_m, vicinity in medium.wider:
            vicinity.follow(context.contacts_within(range_m), context.duration_s)
        return medium
