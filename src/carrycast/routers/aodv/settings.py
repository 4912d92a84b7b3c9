"""The settings of AODV. Defaults are those of RFC 3561, section 10; where it has none, a comment gives the reason."""

from typing import Annotated, Literal

from msgspec import Meta

from carrycast.core.protocol import Settings

Seconds = Annotated[float, Meta(ge=0.001, le=3600)]
Reach = Annotated[int, Meta(ge=1, le=255)]
Rate = Annotated[int, Meta(ge=1, le=10_000)]
Room = Annotated[int, Meta(ge=1, le=1_000_000)]


class AodvSettings(Settings, frozen=True):
    """Lifetimes, the expanding ring search, detection and repair of broken links, and bounds."""

    active_route_timeout_s: Annotated[
        Seconds, Meta(description="ACTIVE_ROUTE_TIMEOUT: lifetime of a route that is not used")
    ] = 3.0
    my_route_timeout_s: Annotated[
        Seconds,
        Meta(description="MY_ROUTE_TIMEOUT: lifetime in a RREP of the destination itself; 2 active_route_timeout_s"),
    ] = 6.0
    node_traversal_s: Annotated[Seconds, Meta(description="NODE_TRAVERSAL_TIME: estimate of the time of one hop")] = (
        0.04
    )
    net_diameter: Annotated[
        Reach, Meta(description="NET_DIAMETER: TTL of a RREQ to the whole network, and the greatest TTL")
    ] = 35
    ttl_start: Annotated[Reach, Meta(description="TTL_START: TTL of the first RREQ of an expanding ring search")] = 1
    ttl_increment: Annotated[Reach, Meta(description="TTL_INCREMENT: hops by which the ring grows")] = 2
    ttl_threshold: Annotated[Reach, Meta(description="TTL_THRESHOLD: the greatest TTL before net_diameter")] = 7
    timeout_buffer: Annotated[
        int, Meta(ge=0, le=255, description="TIMEOUT_BUFFER: hops added to the TTL when its round trip is estimated")
    ] = 2
    request_retries: Annotated[
        int, Meta(ge=0, le=20, description="RREQ_RETRIES: further RREQs to the whole network after the first")
    ] = 2
    # [RFC 6.3] Binary exponential backoff; ns-2 multiplies by the number of the attempt.
    backoff: Annotated[
        Literal["binary", "linear"], Meta(description="how the timeout grows with each RREQ to the whole network")
    ] = "binary"
    rest_s: Annotated[
        float, Meta(ge=0, le=3600, description="no new discovery for this long after a destination was not found")
    ] = 0.0
    path_discovery_s: Annotated[
        Seconds,
        Meta(description="PATH_DISCOVERY_TIME: how long a RREQ ID is remembered; 4 node_traversal_s net_diameter"),
    ] = 5.6
    reverse_route_s: Annotated[
        Seconds, Meta(description="lifetime of a reverse route, less 2 node_traversal_s per hop")
    ] = 5.6
    request_rate: Annotated[
        Rate, Meta(description="RREQ_RATELIMIT: RREQs per second of a node; twice as many are accepted of others")
    ] = 10
    error_rate: Annotated[Rate, Meta(description="RERR_RATELIMIT: RERRs per second that a node sends")] = 10
    # The radio acknowledges unicasts, as in ns-2: a broken link is noticed at once, without further messages.
    detection: Annotated[
        Literal["link_layer", "hello"],
        Meta(description="a link is broken when a unicast fails or discovery reports it, or when HELLOs are missing"),
    ] = "link_layer"
    hello_interval_s: Annotated[
        Seconds, Meta(description="HELLO_INTERVAL: time between two HELLOs of a node with active routes")
    ] = 1.0
    hello_loss: Annotated[
        int, Meta(ge=1, le=100, description="ALLOWED_HELLO_LOSS: HELLOs in a row that may be lost")
    ] = 2
    hello_jitter: Annotated[
        float, Meta(ge=0, lt=1, description="fraction of the interval by which a HELLO may come early or late")
    ] = 0.0
    # [RFC 6.12] A node "may" repair within MAX_REPAIR_TTL, 0.3 net_diameter.
    local_repair: Annotated[
        Literal["off", "near_target", "past_half"],
        Meta(description="which node repairs a broken route: none, one near the target, one past half of the route"),
    ] = "near_target"
    max_repair_share: Annotated[float, Meta(ge=0, le=1, description="MAX_REPAIR_TTL as a fraction of net_diameter")] = (
        0.3
    )
    local_add_ttl: Annotated[Reach, Meta(description="LOCAL_ADD_TTL: hops added to the TTL of a local repair")] = 2
    # The RFC buffers packets that wait for a route, so a packet whose first link fails waits again.
    rebuffer: Annotated[
        bool,
        Meta(description="a packet whose first link fails waits at its origin for a new route; else it is dropped"),
    ] = True
    raise_on_reply: Annotated[
        bool, Meta(description="a destination raises its sequence number for each RREP, not only if the RFC demands it")
    ] = False
    destination_only: Annotated[bool, Meta(description="only the destination answers a RREQ (flag D)")] = False
    # [RFC 6.3] "Should be set" if the destination will send packets back. The layer above need not do that.
    gratuitous: Annotated[
        bool, Meta(description="an intermediate node that answers also sends a RREP to the destination (flag G)")
    ] = False
    # Not in the RFC. Without it, neighbors that heard the same RREQ would all forward it at once. The value is ns-2's.
    forward_jitter_s: Annotated[
        float, Meta(ge=0, le=1, description="a RREQ is forwarded after a random delay up to this")
    ] = 0.01
    # The RFC says "first-in, first-out" and gives no size; both values are ns-2's.
    buffer: Annotated[Room, Meta(description="packets that may wait for routes; the oldest is dropped first")] = 64
    buffer_s: Annotated[Seconds, Meta(description="the longest time that a packet waits for a route")] = 30.0
    # [RFC 6.13] Neighbors may still route over a node that has lost its routes; only a wait makes that safe.
    reboot_wait: Annotated[
        bool, Meta(description="a node that has restarted sends no RREQ for DELETE_PERIOD (15 s)")
    ] = True
    # The usual time to live of IP packets.
    max_hops: Annotated[Reach, Meta(description="hops after which a packet is dropped")] = 64
    # Far above any network that flooded RREQs can serve.
    max_routes: Annotated[Room, Meta(description="entries of the route table")] = 4096
    max_requests: Annotated[Room, Meta(description="RREQ IDs that are remembered")] = 4096

    @property
    def net_traversal_s(self) -> float:
        """[RFC 10] NET_TRAVERSAL_TIME."""
        return 2 * self.node_traversal_s * self.net_diameter

    @property
    def delete_period_s(self) -> float:
        """[RFC 10] DELETE_PERIOD, 5 max(ACTIVE_ROUTE_TIMEOUT, HELLO_INTERVAL).

        An invalid entry must outlive every route over this node. With other settings than the RFC's, the period is
        therefore at least the longest lifetime of a route plus PATH_DISCOVERY_TIME.
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
"""The constants of ns-2.35 (aodv.h, aodv.cc) and its behavior: it has no rate limits, drops a packet whose first link
fails, and its nodes never reboot."""
