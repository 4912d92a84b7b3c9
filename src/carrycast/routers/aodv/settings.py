"""The knobs of AODV. Defaults are RFC 3561's (section 10) where it has one; what it leaves open says why it is so."""

from typing import Annotated, Literal

from msgspec import Meta

from carrycast.core.protocol import Settings

Seconds = Annotated[float, Meta(ge=0.001, le=3600)]
Reach = Annotated[int, Meta(ge=1, le=255)]
Rate = Annotated[int, Meta(ge=1, le=10_000)]
Room = Annotated[int, Meta(ge=1, le=1_000_000)]


class AodvSettings(Settings, frozen=True):
    """Lifetimes, the expanding ring, how broken links are noticed and mended, and bounds."""

    active_route_timeout_s: Annotated[Seconds, Meta(description="a route that is not used is good for this long")] = 3.0
    my_route_timeout_s: Annotated[
        Seconds, Meta(description="lifetime of a route in the replies of its own destination; 2 active_route_timeout_s")
    ] = 6.0
    node_traversal_s: Annotated[Seconds, Meta(description="a guess of the time that one hop takes")] = 0.04
    net_diameter: Annotated[Reach, Meta(description="hops of a request to the whole network, and the most it has")] = 35
    ttl_start: Annotated[Reach, Meta(description="hops of the first request of an expanding ring")] = 1
    ttl_increment: Annotated[Reach, Meta(description="hops by which the ring grows")] = 2
    ttl_threshold: Annotated[Reach, Meta(description="the widest ring before the whole network is asked")] = 7
    timeout_buffer: Annotated[
        int, Meta(ge=0, le=255, description="hops added to a ring when its round trip is guessed, for congestion")
    ] = 2
    request_retries: Annotated[
        int, Meta(ge=0, le=20, description="requests to the whole network after the first of them")
    ] = 2
    # [RFC 6.3] Binary; ns-2 multiplies by the number of the attempt.
    backoff: Annotated[
        Literal["binary", "linear"], Meta(description="how the wait after each request to the whole network grows")
    ] = "binary"
    rest_s: Annotated[
        float, Meta(ge=0, le=3600, description="a destination that was not found is not searched again for this long")
    ] = 0.0
    path_discovery_s: Annotated[
        Seconds, Meta(description="a request is remembered for this long; 4 node_traversal_s net_diameter")
    ] = 5.6
    reverse_route_s: Annotated[
        Seconds, Meta(description="a route back to who asks is good for this long, less 2 node_traversal_s per hop")
    ] = 5.6
    request_rate: Annotated[Rate, Meta(description="requests per second that a node makes; those of others twice")] = 10
    error_rate: Annotated[Rate, Meta(description="route errors per second that a node sends")] = 10
    # The radio acknowledges unicasts, here as in ns-2: a break is known at once and nothing is sent to find it.
    detection: Annotated[
        Literal["link_layer", "hello"],
        Meta(description="a link is broken when a unicast fails or discovery says so, or when no HELLO is heard"),
    ] = "link_layer"
    hello_interval_s: Annotated[Seconds, Meta(description="time between two HELLOs of a node with active routes")] = 1.0
    hello_loss: Annotated[int, Meta(ge=1, le=100, description="HELLOs in a row that may be lost")] = 2
    hello_jitter: Annotated[
        float, Meta(ge=0, lt=1, description="share of the interval by which a HELLO may come early or late")
    ] = 0.0
    # [RFC 6.12] The RFC leaves it to the node ("may"); its limit of 0.3 net_diameter is the one that it names.
    local_repair: Annotated[
        Literal["off", "near_target", "past_half"],
        Meta(
            description="who mends a broken route: nobody, a node near the target, one nearer to it than to its origin"
        ),
    ] = "near_target"
    max_repair_share: Annotated[
        float, Meta(ge=0, le=1, description="share of net_diameter within which the target must have been to be near")
    ] = 0.3
    local_add_ttl: Annotated[Reach, Meta(description="hops added to the reach of a repair")] = 2
    # The RFC buffers what waits for a route; that a packet whose first link fails waits again is its natural reading.
    rebuffer: Annotated[
        bool, Meta(description="a node's own packet whose first link fails waits for a new route; else it is given up")
    ] = True
    raise_on_reply: Annotated[
        bool, Meta(description="a destination raises its sequence number for each reply, not only if it must")
    ] = False
    destination_only: Annotated[bool, Meta(description="only the destination answers a request (flag D)")] = False
    # [RFC 6.3] "Should be set" if the destination will answer: the layer above need not, so it is not.
    gratuitous: Annotated[
        bool, Meta(description="who answers for a destination tells it of the route back (flag G)")
    ] = False
    # The RFC has none; without it neighbors that heard the same request would all speak at once. The value is ns-2's.
    forward_jitter_s: Annotated[
        float, Meta(ge=0, le=1, description="a request is passed on after a random delay up to this")
    ] = 0.01
    # The RFC says "first-in, first-out" and gives no size; both are ns-2's.
    buffer: Annotated[Room, Meta(description="packets that may wait for routes; the oldest makes room")] = 64
    buffer_s: Annotated[Seconds, Meta(description="a packet waits no longer than this")] = 30.0
    # [RFC 6.13] Neighbors may still route over a node that has forgotten all; only a wait makes that safe.
    reboot_wait: Annotated[
        bool, Meta(description="a node that has started again asks for no route for a delete period (15 s)")
    ] = True
    # The usual time to live of IP packets.
    max_hops: Annotated[Reach, Meta(description="hops after which a packet is dropped")] = 64
    # Far above any network that a flood of requests can serve.
    max_routes: Annotated[Room, Meta(description="destinations in the routing table")] = 4096
    max_requests: Annotated[Room, Meta(description="requests remembered")] = 4096

    @property
    def net_traversal_s(self) -> float:
        """[RFC 10] NET_TRAVERSAL_TIME."""
        return 2 * self.node_traversal_s * self.net_diameter

    @property
    def delete_period_s(self) -> float:
        """[RFC 10] DELETE_PERIOD, 5 max(ACTIVE_ROUTE_TIMEOUT, HELLO_INTERVAL).

        What a node has lost it remembers until nobody can still rely on it, so with other settings than the RFC's it is
        at least the longest lifetime that a route may have, and the time that a request takes.
        """
        longest_s = max(self.active_route_timeout_s, self.my_route_timeout_s, self.reverse_route_s)
        return max(5 * max(self.active_route_timeout_s, self.hello_interval_s), longest_s + self.path_discovery_s)


NS2: dict[str, object] = {
    "active_route_timeout_s": 10.0,
    "my_route_timeout_s": 10.0,
    "node_traversal_s": 0.03,
    "net_diameter": 30,
    "ttl_start": 5,
    "timeout_buffer": 0,
    "request_retries": 3,
    "backoff": "linear",
    "rest_s": 10.0,
    "path_discovery_s": 6.0,
    "reverse_route_s": 6.0,
    "request_rate": 10_000,
    "error_rate": 10_000,
    "hello_loss": 3,
    "hello_jitter": 0.25,
    "local_repair": "past_half",
    "rebuffer": False,
    "raise_on_reply": True,
    "max_hops": 30,
    "reboot_wait": False,
}
"""ns-2.35's constants (aodv.h, aodv.cc), and what it does otherwise: it has no rate limits, drops a packet whose first
link fails, and its nodes never reboot."""
