"""The knobs of the overlay, and the paper's four schemes as variants."""

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
    """How brokers and clients look around, who adapts what, and how streams are kept whole."""

    # [002 §4.1] "the broker network update interval is fixed at 20 seconds"; 10 to 100 s elsewhere.
    update_s: Annotated[Seconds, Meta(description="period in which a broker looks around and passes news on")] = 20.0
    # [002 §4.1] "a home broker discovery period of 10 seconds".
    look_s: Annotated[
        float, Meta(ge=0.001, description="period in which a client looks for the nearest broker; inf: once")
    ] = 10.0
    # [002 §2.4] "periodically (or in response to changes indicated by the underlying physical network protocol)".
    look_on_change: Annotated[bool, Meta(description="a client also looks when a link of its node comes or goes")] = (
        False
    )
    # [002 §2.3] "by querying the routing table ... or via Expanding Ring Search": the one that every router allows.
    near: Annotated[
        Literal["ring", "router", "view"],
        Meta(description="near brokers are found by ring search, the router's distances, or the simulator's oracle"),
    ] = "ring"
    # The paper does not say what "vicinity" is. Of some forty readings this one came nearest to its five figures: a
    # fit, so experiments that use it show others beside it.
    vicinity: Annotated[
        Literal["nearest", "ring", "within"],
        Meta(description="overlay neighbors: the nearest `degree`, all of the smallest ring with so many, or all near"),
    ] = "nearest"
    degree: Annotated[int, Meta(ge=1, le=64, description="overlay neighbors that a broker looks for")] = 6
    within_hops: Annotated[Hops, Meta(description='how far a neighbor may be with vicinity = "within"')] = 2
    # Of the two ends' words on a link; the younger is the only rule under which the paper's Figure 3 comes out.
    link_rule: Annotated[
        Literal["younger", "either"], Meta(description="a link stands if the younger item, or any of the two, lists it")
    ] = "younger"
    # A ring is grown until it has enough; AODV's guess of the time that one hop takes.
    ring_max: Annotated[Hops, Meta(description="hops of the widest ring")] = 10
    ring_hop_s: Annotated[Seconds, Meta(description="a search waits twice this for each hop of its ring")] = 0.04
    # As AODV: more requests than this are no search.
    search_rate: Annotated[int, Meta(ge=1, le=10_000, description="searches per second that a node passes on")] = 40
    # [002 §3.5] Three adaptors; which of them a broker runs is a matter of its roles. Empty: nobody.
    topology_by: Annotated[Role, Meta(description="role of the brokers that follow the network; others look once")] = (
        "broker"
    )
    home_change_by: Annotated[Role, Meta(description="role of the brokers that move clients")] = "broker"
    load_balancing_by: Annotated[Role, Meta(description="role of the brokers that move modulators when overloaded")] = (
        "broker"
    )
    # Near 1 the queue of a processor grows without bound; inf switches overload control off.
    max_load: Annotated[float, Meta(gt=0, description="a broker whose processor is busier is overloaded")] = 0.9
    min_free_bytes: Annotated[
        int, Meta(ge=0, le=1 << 50, description="a broker with less memory left takes no modulators in; 0: any does")
    ] = 0
    load_s: Annotated[Seconds, Meta(description="period in which a broker looks at its own load")] = 5.0
    # [002 §6] costs other than latency.
    weight_hops: Annotated[Weight, Meta(description="weight of a hop in the cost of a link")] = 1.0
    weight_load: Annotated[Weight, Meta(description="weight of a broker's load in the cost of links to it")] = 0.0
    weight_energy: Annotated[
        Weight, Meta(description="weight of the spent share of a broker's battery in the cost of links to it")
    ] = 0.0
    # [002 §2.4 step 3] "lighter weight protocols ... loosen the requirements".
    carry_state: Annotated[bool, Meta(description="a modulator that moves keeps its state; else it begins anew")] = True
    keep_order: Annotated[bool, Meta(description="outputs keep their order when a modulator moves")] = True
    move_s: Annotated[Seconds, Meta(description="a step of a move that takes longer has failed")] = 20.0
    # Two words in a row may be lost.
    refresh_s: Annotated[Seconds, Meta(description="period in which homes and clients say that they are there")] = 20.0
    lease_s: Annotated[Seconds, Meta(description="who was not heard of for this long is forgotten")] = 65.0
    # A broker says its links again after a third of it; long, since [002] says only what has changed.
    item_s: Annotated[Seconds, Meta(description="a broker whose links were not told for this long is forgotten")] = (
        300.0
    )
    # [002 §6] A client that is away for longer finds another home, and its modulators begin anew.
    patience_s: Annotated[Seconds, Meta(description="a client waits this long for a home that it cannot reach")] = 40.0
    # Word of a move may be under way; a few round trips find the new home if there is one.
    seek_s: Annotated[
        Seconds, Meta(description="a client without its home, or a broker that starts, asks for this long")
    ] = 5.0
    taken_s: Annotated[Seconds, Meta(description="how long word of what has arrived may wait for more")] = 0.5
    resend_s: Annotated[Seconds, Meta(description="what is not said to have arrived is sent again after this")] = 5.0
    # [002 §6] Without it a broker that crashes takes the state of its modulators with it.
    durable: Annotated[bool, Meta(description="brokers write what they hold to the node's durable store")] = False
    seen_s: Annotated[Seconds, Meta(description="how long a delivered event is remembered")] = 120.0
    max_kept: Annotated[Room, Meta(description="events of a stream that wait to be taken; the oldest makes room")] = 256
    max_clients: Annotated[Room, Meta(description="clients of one broker")] = 1024
    max_interests: Annotated[Room, Meta(description="subscriptions that a broker knows of")] = 16384
    max_brokers: Annotated[Room, Meta(description="brokers that a broker knows of")] = 1024

    def needs(self) -> frozenset[Capability]:
        wanted = set()
        if self.max_load < math.inf or self.weight_load > 0:
            wanted.add(Capability.LOAD)
        if self.min_free_bytes > 0:
            wanted.add(Capability.MEMORY)
        if self.durable:
            wanted.add(Capability.DURABLE_STORE)
        if self.weight_energy > 0:
            wanted.add(Capability.ENERGY)
        if self.near == "view":
            wanted.add(Capability.GLOBAL_VIEW)
        return frozenset(wanted)


SCHEMES: dict[str, dict[str, object]] = {
    "static": {"topology_by": "", "home_change_by": "", "load_balancing_by": "", "look_s": math.inf},
    "static-opportunistic": {"topology_by": ""},
    "best": {"near": "view", "look_s": 1.0, "router": "shortest_path"},
    "stateless": {"carry_state": False},
    "unordered": {"keep_order": False},
    "light": {"carry_state": False, "keep_order": False},
}
"""[002 §4.1] (1), (2) and (4); (3), which adapts both, is the default. [002 §2.4] Then three lighter relocations."""
