"""The settings of the overlay, and the paper's four schemes as variants."""

import math
from typing import Annotated, Literal

from msgspec import Meta

from carrycast.core.protocol import Capability, Settings

Seconds = Annotated[float, Meta(ge=0.001, le=86400)]
Hops = Annotated[int, Meta(ge=1, le=255)]
Room = Annotated[int, Meta(ge=1, le=1_000_000)]
Weight = Annotated[float, Meta(ge=0, le=1000)]
Role = Annotated[str, Meta(max_length=64)]


class OverlaySettings(Settings, frozen=True):
    """The search for brokers, the adaptors that each broker runs, relocation, and the reliability of streams."""

    # [002 §4.1] "the broker network update interval is fixed at 20 seconds"; 10 to 100 s elsewhere.
    update_s: Annotated[
        Seconds, Meta(description="period in which a broker searches its neighbors and propagates topology changes")
    ] = 20.0
    # [002 §4.1] "a home broker discovery period of 10 seconds".
    look_s: Annotated[
        float, Meta(ge=0.001, description="period in which a client searches the nearest broker; inf: once")
    ] = 10.0
    # [002 §2.4] "periodically (or in response to changes indicated by the underlying physical network protocol)".
    look_on_change: Annotated[
        bool, Meta(description="a client also searches when a link of its node comes or goes")
    ] = False
    # [002 §2.3] "by querying the routing table ... or via Expanding Ring Search": the one that works with every router.
    near: Annotated[
        Literal["ring", "router", "view"],
        Meta(description="near brokers are found by ring search, the router's distances, or the simulator's oracle"),
    ] = "ring"
    # The paper does not define "vicinity". Of some forty definitions this one came closest to its five figures. It is a
    # fit, so experiments that use it show others too.
    vicinity: Annotated[
        Literal["nearest", "ring", "within"],
        Meta(description="overlay neighbors: the nearest `degree`, all of the smallest ring with so many, or all near"),
    ] = "nearest"
    degree: Annotated[int, Meta(ge=1, le=64, description="overlay neighbors that a broker searches")] = 6
    within_hops: Annotated[Hops, Meta(description='the largest distance of a neighbor with vicinity = "within"')] = 2
    # Both ends report their links. Only with the younger report does the paper's Figure 3 come out as described.
    link_rule: Annotated[
        Literal["younger", "either"],
        Meta(description="a link exists if the younger item of its two ends, or either of them, lists it"),
    ] = "younger"
    # RFC 3561, 6.4 and 10: a ring is widened until enough brokers answer; NODE_TRAVERSAL_TIME is 40 ms.
    ring_max: Annotated[Hops, Meta(description="radius of the widest ring, in hops")] = 10
    ring_hop_s: Annotated[Seconds, Meta(description="a search waits twice this for each hop of its ring")] = 0.04
    # A rate limit against floods of queries: four times the RREQ_RATELIMIT of one AODV node (RFC 3561, 10).
    search_rate: Annotated[int, Meta(ge=1, le=10_000, description="searches per second that a node forwards")] = 40
    # [002 §3.5] Three adaptors; the roles of a broker decide which of them it runs. Empty: no broker.
    topology_by: Annotated[
        Role, Meta(description="role of the brokers whose links follow the network; others search once")
    ] = "broker"
    home_change_by: Annotated[Role, Meta(description="role of the brokers that move clients")] = "broker"
    load_balancing_by: Annotated[Role, Meta(description="role of the brokers that move modulators when overloaded")] = (
        "broker"
    )
    # Near 1 the queue of a processor grows without bound; inf switches overload control off.
    max_load: Annotated[float, Meta(gt=0, description="a broker with a higher processor utilization is overloaded")] = (
        0.9
    )
    min_free_bytes: Annotated[
        int, Meta(ge=0, le=1 << 50, description="a broker with less free memory accepts no modulators; 0: no limit")
    ] = 0
    load_s: Annotated[Seconds, Meta(description="period in which a broker samples its load")] = 5.0
    # [002 §6] Costs other than latency.
    weight_hops: Annotated[Weight, Meta(description="weight of a hop in the cost of a link")] = 1.0
    weight_load: Annotated[Weight, Meta(description="weight of a broker's load in the cost of links to it")] = 0.0
    weight_energy: Annotated[
        Weight, Meta(description="weight of the used share of a broker's battery in the cost of links to it")
    ] = 0.0
    # [002 §2.4 step 3] "lighter weight protocols ... loosen the requirements".
    carry_state: Annotated[bool, Meta(description="a relocated modulator keeps its state; else it starts again")] = True
    keep_order: Annotated[bool, Meta(description="outputs keep their order when a modulator is relocated")] = True
    move_s: Annotated[Seconds, Meta(description="time-out of a step of a relocation")] = 20.0
    # The lease is a little more than three periods, so two messages in a row may be lost.
    refresh_s: Annotated[
        Seconds, Meta(description="period of keepalives of clients and of announcements of brokers")
    ] = 20.0
    lease_s: Annotated[
        Seconds, Meta(description="a client or subscription that is not renewed for this long is removed")
    ] = 65.0
    # A broker reports its links again after a third of it; long, since [002] propagates only changes.
    item_s: Annotated[Seconds, Meta(description="a broker whose links were not reported for this long is removed")] = (
        300.0
    )
    # [002 §6] A client that is disconnected for longer finds another home broker, and its modulators start again.
    patience_s: Annotated[Seconds, Meta(description="a client waits this long for an unreachable home broker")] = 40.0
    # The client may have been moved just now; a few round trips find the new home broker if there is one.
    seek_s: Annotated[
        Seconds,
        Meta(description="a client that lost its home broker, or a broker that starts, asks others for this long"),
    ] = 5.0
    taken_s: Annotated[Seconds, Meta(description="delay of acknowledgements, to combine several")] = 0.5
    resend_s: Annotated[Seconds, Meta(description="retransmission time-out of events without acknowledgement")] = 5.0
    # [002 §6] Without it a broker that crashes loses the state of its modulators.
    durable: Annotated[bool, Meta(description="brokers write their state to the node's durable store")] = False
    seen_s: Annotated[Seconds, Meta(description="how long a delivered event is remembered")] = 120.0
    max_clients: Annotated[Room, Meta(description="largest number of clients of one broker")] = 1024

    def needs(self) -> frozenset[Capability]:
        capabilities = set()
        if self.max_load < math.inf or self.weight_load > 0:
            capabilities.add(Capability.LOAD)
        if self.min_free_bytes > 0:
            capabilities.add(Capability.MEMORY)
        if self.durable:
            capabilities.add(Capability.DURABLE_STORE)
        if self.weight_energy > 0:
            capabilities.add(Capability.ENERGY)
        if self.near == "view":
            capabilities.add(Capability.GLOBAL_VIEW)
        return frozenset(capabilities)


SCHEMES: dict[str, dict[str, object]] = {
    "static": {"topology_by": "", "home_change_by": "", "load_balancing_by": "", "look_s": math.inf},
    "static-opportunistic": {"topology_by": ""},
    "best": {"near": "view", "look_s": 1.0, "router": "shortest_path"},
    "stateless": {"carry_state": False},
    "unordered": {"keep_order": False},
    "light": {"carry_state": False, "keep_order": False},
}
"""[002 §4.1] (1), (2) and (4); (3), which adapts both, is the default. [002 §2.4] Then three lighter relocations."""
