"""The settings of OLSR. Defaults are those of RFC 3626, section 18; where it has none, a comment gives the reason."""

from typing import Annotated, Literal

from msgspec import Meta

from carrycast.core.protocol import Settings

Seconds = Annotated[float, Meta(ge=0.001, le=3600)]
Room = Annotated[int, Meta(ge=1, le=1_000_000)]

HOLD_INTERVALS = 3
"""[RFC 18.3] NEIGHB_HOLD_TIME and TOP_HOLD_TIME are three intervals."""


class OlsrSettings(Settings, frozen=True):
    """Intervals, redundancy, detection of broken links, and bounds."""

    hello_interval_s: Annotated[Seconds, Meta(description="HELLO_INTERVAL: time between two HELLOs")] = 2.0
    tc_interval_s: Annotated[Seconds, Meta(description="TC_INTERVAL: time between two TCs of a relay")] = 5.0
    # [RFC 18.3] DUP_HOLD_TIME.
    duplicate_hold_s: Annotated[
        Seconds, Meta(description="DUP_HOLD_TIME: how long a TC is remembered, so that it is forwarded once")
    ] = 30.0
    # [RFC 18.3] MAXJITTER = HELLO_INTERVAL / 4.
    max_jitter: Annotated[
        float,
        Meta(ge=0, le=1, description="MAXJITTER as a fraction of hello_interval_s: messages are sent up to this early"),
    ] = 0.25
    willingness: Annotated[
        int, Meta(ge=0, le=7, description="how willing the node is to forward for others: 0 never, 3 usual, 7 always")
    ] = 3
    tc_redundancy: Annotated[
        int,
        Meta(
            ge=0,
            le=2,
            description="TC_REDUNDANCY: TCs list the MPR selectors (0), also the MPRs (1), or all neighbors (2)",
        ),
    ] = 0
    # [RFC 13] "OLSR is designed not to impose or expect any specific information from the link layer."
    detection: Annotated[
        Literal["hello", "link_layer"],
        Meta(description="a link is broken when HELLOs are missing, or also when a unicast fails"),
    ] = "hello"
    # [RFC 9.3] "When a change to the MPR selector set is detected and this change can be attributed to a link failure,
    # a TC-message SHOULD be transmitted."
    early_tc: Annotated[
        bool, Meta(description="a relay that loses the link to a selector sends its next TC within the jitter")
    ] = True
    # The usual time to live of IP packets.
    max_hops: Annotated[int, Meta(ge=1, le=255, description="hops after which a packet is dropped")] = 64
    # Far above any network that flooded TCs can serve.
    max_links: Annotated[Room, Meta(description="links of other nodes in the topology set")] = 65_536
    max_duplicates: Annotated[Room, Meta(description="TCs that are remembered")] = 16_384

    @property
    def neighbor_hold_s(self) -> float:
        """[RFC 18.3] NEIGHB_HOLD_TIME = 3 REFRESH_INTERVAL, where REFRESH_INTERVAL is the HELLO_INTERVAL."""
        return HOLD_INTERVALS * self.hello_interval_s

    @property
    def topology_hold_s(self) -> float:
        """[RFC 18.3] TOP_HOLD_TIME = 3 TC_INTERVAL."""
        return HOLD_INTERVALS * self.tc_interval_s

    @property
    def jitter_s(self) -> float:
        """[RFC 18.3] MAXJITTER."""
        return self.max_jitter * self.hello_interval_s
