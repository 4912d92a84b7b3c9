"""The settings of ASP. The defaults are the paper's; extensions are off."""

import math
from typing import Annotated, Literal

from msgspec import Meta

from carrycast.core.protocol import Settings

FRAGMENT_OVERHEAD_BYTES = 48
"""The header of a frame and the other fields of a fragment, at their longest."""


class AspSettings(Settings, frozen=True):
    """The validity of announcements, the definition of a stream, and the extensions."""

    # [001 §5.1] sweeps 10, 20, 50 and 100 s; the shortest takes in new sinks the fastest.
    validity_s: Annotated[float, Meta(gt=0, le=1e6, description="how long an announcement is valid")] = 10.0
    # The protocol interface does not identify applications, so attributes of their events identify their streams.
    stream_attributes: Annotated[
        tuple[str, ...],
        Meta(max_length=16, description="attributes whose values identify the streams of a node"),
    ] = ("topic",)
    # [001 §4.1] "the sink receives only announcements matching the given filter"
    interest: Annotated[
        Literal["announced", "possible"],
        Meta(description="subscribe if the announced message matches, or if some message of the stream could"),
    ] = "announced"
    # [001 §4.1] each message is delivered to the neighbor, so the paper's abstraction layer sends one by one.
    announce_by: Annotated[
        Literal["unicast", "broadcast"],
        Meta(description="announcements to each neighbor reliably, or to all at once; the same on all nodes"),
    ] = "unicast"
    # An Ethernet frame's 1500 bytes less the header of 802.2 LLC with SNAP, the link control of [001 §5].
    packet_bytes: Annotated[
        int, Meta(ge=64, le=65507, description="size of a packet; larger messages cannot be announced whole")
    ] = 1492
    # [001 §4.5] "the accuracy of floating point representation has to be limited before hashing"
    decimals: Annotated[int, Meta(ge=0, le=15, description="decimals of numbers that count in an id")] = 3
    # Two sensors with the same reading are two streams; the paper's hash of the content alone would merge them.
    identity: Annotated[
        Literal["origin", "content"],
        Meta(description="an announcement's id is a hash of its content with its source, or of its content alone"),
    ] = "origin"
    # [001 §4.5] time "can be totalled to result in a path metric even if processing leads to data aggregation"
    aggregate_metric: Annotated[
        Literal["sum", "max"], Meta(description="the metric of several inputs together: their sum, or the largest")
    ] = "sum"
    # [001 §4.5] a system boundary is necessary, "for example a hop count or a maximum metric".
    max_metric_s: Annotated[
        float, Meta(gt=0, description="announcements with a larger metric are not forwarded; bounds the system")
    ] = math.inf
    max_stages: Annotated[
        int, Meta(ge=0, le=64, description="processors in a row on one path; ends endless chains of processors")
    ] = 4
    # About one beacon period: the next beacon shows whether the neighbor can be reached after all.
    unreachable_s: Annotated[
        float, Meta(gt=0, le=3600, description="how long a link over which a message failed is not used")
    ] = 1.0
    # The radio's own retransmissions end within milliseconds, and the burst of a flood may outlast them: one more try
    # comes after it. Each further one would delay the detection of a true loss.
    retries: Annotated[
        int, Meta(ge=0, le=10, description="how often a message that a link could not deliver is sent again over it")
    ] = 1
    memory_s: Annotated[
        float, Meta(ge=0, le=1e9, description="how long a stream's counters are remembered after its last announcement")
    ] = 60.0

    # Beyond the paper [001 §6.2, §6.3].
    repair: Annotated[
        bool,
        Meta(description="a broker that loses its best announcer switches to another one that cannot cause a loop"),
    ] = False
    patience_s: Annotated[
        float, Meta(ge=0, le=3600, description="how long a source waits for the repair of a path before it announces")
    ] = 0.0
    announcement_cache: Annotated[
        bool, Meta(description="late sinks and new neighbors learn of announcements that are still valid")
    ] = False
    publication_cache: Annotated[
        int,
        Meta(ge=0, le=1024, description="publications cached per stream, for late and repeated subscriptions; 0: none"),
    ] = 0
    fragment_bytes: Annotated[
        int, Meta(ge=0, le=65000, description="larger messages are sent in fragments of this size; 0: no fragmentation")
    ] = 0
    fragment_wait_s: Annotated[
        float, Meta(gt=0, le=3600, description="time without a fragment after which missing ones are requested")
    ] = 1.0
    individual: Annotated[
        Literal["never", "unkeyed", "always"],
        Meta(description="which messages are one-off and only flooded: none, those without a stream attribute, all"),
    ] = "never"

    def __post_init__(self) -> None:
        if self.fragment_bytes and self.fragment_bytes + FRAGMENT_OVERHEAD_BYTES > self.packet_bytes:
            raise ValueError(
                f"fragment_bytes ({self.fragment_bytes}) must leave {FRAGMENT_OVERHEAD_BYTES} of the "
                f"packet_bytes ({self.packet_bytes}) for the header of a fragment"
            )
