"""The settings of topic holders. Where paper 003 gives no number, the line above a default has the reason."""

from typing import Annotated, Literal

from msgspec import Meta

from carrycast.core.protocol import Capability, Settings

Seconds = Annotated[float, Meta(ge=0.001, le=3600)]
Room = Annotated[int, Meta(ge=1, le=1_000_000)]


class TopicHolderSettings(Settings, frozen=True):
    """The holders of topics, the nodes that match events, time-outs of soft state, and bounds."""

    mode: Annotated[
        Literal["broker", "rendezvous"],
        Meta(description="broker: the holder matches and forwards events; rendezvous: publishers do, with its list"),
    ] = "broker"
    holder: Annotated[
        Literal["node", "place", "road"],
        Meta(description="a topic's hash names a node, a place, or the point of a road nearest to that place"),
    ] = "node"
    # The name that the filters of all examples have for it.
    topic: Annotated[str, Meta(min_length=1, max_length=128, description="the attribute that is the topic")] = "topic"
    # [003 §3.3] Any node may be one.
    role: Annotated[
        str, Meta(min_length=1, max_length=64, description="nodes of this role hold topics, if nodes do")
    ] = "all"
    # [003 §3.2] "one or more"; its evaluation speaks of one.
    holders: Annotated[
        int, Meta(ge=1, le=16, description="nodes or places for each topic; subscribers refresh at all")
    ] = 1
    # Sending to all costs as often; what arrives twice is delivered once.
    publish_to: Annotated[Literal["one", "all"], Meta(description="the holders of a topic that a publisher uses")] = (
        "one"
    )
    # [003 §3.4] has a new holder "if a failure occurs" and does not say which. A router gives a packet back when a link
    # breaks just as when its target fails, and each node notices by itself: where nodes move, subscribers and
    # publishers would use different holders for `failed_s` at a time. So it is for networks in which nodes fail.
    next_holders: Annotated[
        int, Meta(ge=0, le=16, description="nodes, next by hash, that are tried if a holder cannot be reached")
    ] = 0
    # Longer than AODV takes to give up (21.5 s with its defaults), so that most of the time the next one is in use.
    failed_s: Annotated[
        Seconds, Meta(description="a holder that could not be reached is passed over for this long")
    ] = 30.0
    # [003 §3.5] "radio transmission range divided by 2", with the usual 250 m.
    capture_m: Annotated[
        float, Meta(ge=0, le=1e6, description="K: nodes this near to a topic's place hold it; 0: only the nearest")
    ] = 125.0
    # [003 §5]
    refresh_s: Annotated[Seconds, Meta(description="time between two refreshes of a subscription at its holder")] = 1.0
    # Two refreshes in a row may be lost.
    timeout_s: Annotated[
        Seconds, Meta(description="a subscription expires after this time at a holder or in a list")
    ] = 3.0
    # As often as subscriptions.
    advertise_s: Annotated[Seconds, Meta(description="rendezvous: time between two advertisements of a publisher")] = (
        1.0
    )
    # Three of the intervals of publication of [003 §5].
    publisher_s: Annotated[
        Seconds, Meta(description="rendezvous: a node advertises for this long after its last event of a topic")
    ] = 30.0
    # As long as a list is valid.
    list_wait_s: Annotated[Seconds, Meta(description="rendezvous: an event waits this long for the first list")] = 3.0
    # Longer than a router keeps a packet, AODV's 30 s included, even if it is given back and tried again.
    seen_s: Annotated[Seconds, Meta(description="how long an event is remembered to detect duplicates")] = 120.0
    # What fits an Ethernet frame with the headers of the layers beneath.
    list_bytes: Annotated[
        int, Meta(ge=64, le=60_000, description="subscriptions in one message; longer lists go in several")
    ] = 1400
    max_held: Annotated[Room, Meta(description="subscriptions in a holder's table, and in a publisher's lists")] = 4096
    max_waiting: Annotated[Room, Meta(description="rendezvous: events that wait for a list")] = 64
    # More than a radio of 2 Mb/s brings in `seen_s`.
    max_seen: Annotated[Room, Meta(description="events remembered; the oldest are forgotten")] = 65_536
    # Beyond the paper: off.
    fan_out: Annotated[
        Literal["unicast", "tree"],
        Meta(
            description="an event is sent to each subscriber separately, or in one packet that splits where paths part"
        ),
    ] = "unicast"
    hand_over: Annotated[
        bool, Meta(description="a holder that leaves a topic's place (K) sends its table there; needs places")
    ] = False
    # As often as subscribers refresh by default: at 30 m/s a node is then 30 m outside at most.
    watch_s: Annotated[Seconds, Meta(description="hand_over: time between two checks whether a place was left")] = 1.0

    def __post_init__(self) -> None:
        if self.timeout_s < self.refresh_s:
            raise ValueError("timeout_s is below refresh_s: every subscription would expire before its next refresh")
        if self.hand_over and not (self.by_place and self.capture_m > 0):
            raise ValueError(
                "hand_over: only a place can be left; give holder 'place' or 'road', and capture_m above 0"
            )

    @property
    def by_place(self) -> bool:
        """Whether topics are held at places."""
        return self.holder != "node"

    def needs(self) -> frozenset[Capability]:
        if self.holder == "node":
            return frozenset({Capability.DIRECTORY, Capability.NODE_ROUTES})
        return frozenset({Capability.POSITION, Capability.AREA, Capability.PLACE_ROUTES}) | (
            {Capability.MAP} if self.holder == "road" else frozenset()
        )

    def needs_roles(self) -> frozenset[str]:
        """If nodes hold topics, at least one node must have the role."""
        return frozenset({self.role}) if self.holder == "node" and self.role != "all" else frozenset()


SCHEMES: dict[str, dict[str, object]] = {
    "broker_aodv": {"mode": "broker", "holder": "node", "router": "aodv"},
    "broker_gpsr": {"mode": "broker", "holder": "place", "router": "gpsr"},
    "broker_gpsr_map": {"mode": "broker", "holder": "road", "router": "gpsr"},
    "rendezvous_aodv": {"mode": "rendezvous", "holder": "node", "router": "aodv"},
    "rendezvous_gpsr": {"mode": "rendezvous", "holder": "place", "router": "gpsr"},
    "rendezvous_gpsr_map": {"mode": "rendezvous", "holder": "road", "router": "gpsr"},
}
"""[003 §5] B-AODV, B-GPSR (no map), B-GPSR (with map), and R- likewise."""
