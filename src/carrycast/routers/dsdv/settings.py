"""The settings of DSDV. [DSDV94] has no constants; the defaults are those of ns-2.35 (dsdv.cc), which its authors'
comparisons used."""

from typing import Annotated, Literal

from msgspec import Meta

from carrycast.core.protocol import Settings

Seconds = Annotated[float, Meta(ge=0.001, le=3600)]
Room = Annotated[int, Meta(ge=1, le=1_000_000)]


class DsdvSettings(Settings, frozen=True):
    """Updates, damping, detection of broken links, and bounds."""

    # ns-2: perup_ 15.
    update_interval_s: Annotated[Seconds, Meta(description="time between two full dumps of the routing table")] = 15.0
    # ns-2: a full dump follows after 0.75 to 1 interval.
    jitter: Annotated[
        float, Meta(ge=0, lt=1, description="fraction of update_interval_s by which a full dump may come early")
    ] = 0.25
    # ns-2: min_update_periods_ 3.
    hold_intervals: Annotated[
        float, Meta(ge=1, le=100, description="intervals after which a route that was not advertised again is lost")
    ] = 3.0
    # ns-2: DSDV_MIN_TUP_PERIOD 1.0.
    min_trigger_s: Annotated[Seconds, Meta(description="the shortest time between two triggered updates")] = 1.0
    # ns-2: DSDV_BROADCAST_JITTER 0.01.
    trigger_jitter_s: Annotated[
        float, Meta(ge=0, le=60, description="a triggered update is sent after a random delay up to this")
    ] = 0.01
    # Broch et al., MobiCom 1998: DSDV-SQ triggers on new sequence numbers too, and delivers more. The paper does not.
    trigger_on: Annotated[
        Literal["metric", "sequence"],
        Meta(description="updates are triggered by changed metrics, or also by new sequence numbers (DSDV-SQ)"),
    ] = "metric"
    # ns-2: wst0_ 6.
    settling_s: Annotated[
        float, Meta(ge=0, le=3600, description="settling time of a destination before it was measured")
    ] = 6.0
    # ns-2: alpha_ 0.875.
    settling_weight: Annotated[
        float, Meta(ge=0, le=1, description="weight of earlier measurements in the average settling time")
    ] = 0.875
    # [DSDV94, Route Selection Criteria] The more recent sequence number, whoever reports it.
    break_reports: Annotated[
        Literal["all", "next_hop"],
        Meta(description="whose reports of a lost route are used: those of all neighbors, or of the next hop alone"),
    ] = "all"
    # [DSDV94, Responding to Topology Changes] "The broken link may be detected by the layer-2 protocol, or it may
    # instead be inferred if no broadcasts have been received for a while from a former neighbor."
    detection: Annotated[
        Literal["link_layer", "updates"],
        Meta(description="a link is broken when a unicast fails, or only when updates are missing"),
    ] = "link_layer"
    # Both values are ns-2's: MAX_QUEUE_LENGTH 5, and the 30 s of its buffers.
    buffer: Annotated[
        int, Meta(ge=0, le=10_000, description="own packets that wait for a route to a destination; 0: none")
    ] = 5
    buffer_s: Annotated[Seconds, Meta(description="the longest time that a packet waits for a route")] = 30.0
    # Neighbors may still route over a node that has lost its routes; only a wait makes that safe.
    reboot_wait: Annotated[
        bool,
        Meta(description="a node that has restarted forwards nothing for others while their routes over it expire"),
    ] = True
    # The usual time to live of IP packets.
    max_hops: Annotated[int, Meta(ge=1, le=255, description="hops after which a packet is dropped")] = 64
    # Far above any network that full dumps can serve.
    max_routes: Annotated[Room, Meta(description="entries of the routing table")] = 4096

    @property
    def hold_s(self) -> float:
        """How long a route stays valid without being advertised again."""
        return self.hold_intervals * self.update_interval_s


NS3: dict[str, object] = {
    "trigger_on": "sequence",
    "trigger_jitter_s": 0.001,
    "min_trigger_s": 0.001,
    "settling_s": 5.0,
    "break_reports": "next_hop",
    "detection": "updates",
}
"""The constants and the behavior of ns-3: it triggers on each new sequence number, and does not ask the MAC layer."""
