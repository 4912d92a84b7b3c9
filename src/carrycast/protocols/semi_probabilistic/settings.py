"""The settings of semi-probabilistic routing."""

from typing import Annotated, Literal

from msgspec import Meta

from carrycast.core.parts import LOG_BYTES, LogBytes
from carrycast.core.protocol import Capability, Settings
from carrycast.protocols.semi_probabilistic.messages import MAX_HORIZON


class SemiProbabilisticSettings(Settings, frozen=True):
    """The horizon of subscriptions, the share of links that an event takes, and the storing of events."""

    # [004 §5.1.2] tau = 0.4, phi = 1, beta = 100, retransmission every 60 s; [004 §5.1.3] ten times.
    tau: Annotated[float, Meta(gt=0, le=1, description="share of the links that an event takes")] = 0.4
    phi: Annotated[
        int, Meta(ge=0, le=MAX_HORIZON, description="hops that subscriptions travel; 0: purely probabilistic")
    ] = 1
    store: Annotated[bool, Meta(description="store events and forward them again")] = True
    buffer: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="copies of events carried, besides events at level stored; the oldest arrival makes room",
        ),
    ] = 100
    retry_s: Annotated[
        float, Meta(ge=0.001, le=86_400, description="time between two attempts to forward a stored event")
    ] = 60.0
    # "Each node periodically attempts to forward the messages in its buffer" [004 §2.3.3]: the period is the node's.
    retry_timer: Annotated[
        Literal["node", "copy"],
        Meta(description="node: all stored events are tried together; copy: each counts from its own arrival"),
    ] = "node"
    attempts: Annotated[int, Meta(ge=1, le=1_000_000, description="attempts after which a stored event is removed")] = (
        10
    )
    # As often as the adaptive protocol reports utilities, so that the two can be compared.
    update_s: Annotated[float, Meta(ge=0.001, le=3600, description="time between two reports of subscriptions")] = 10.0
    # Two reports in a row may be lost, as usual for soft state.
    missed_updates: Annotated[float, Meta(ge=1, le=20, description="periods for which a report is valid")] = 3.0
    # The paper's rules for retransmissions do not depend on which nodes have the event.
    retransmit_to: Annotated[
        Literal["everyone", "others"],
        Meta(description="others: a stored event is not sent again to neighbors that are known to have it"),
    ] = "everyone"
    max_lease_s: Annotated[
        float, Meta(gt=0, description="no event lives longer; at level stored a longer lease is refused")
    ] = 3600.0
    # Copies at other nodes may expire a little later than this node's.
    seen_grace_s: Annotated[float, Meta(ge=0, le=1e9, description="how long past its lease an event is remembered")] = (
        60.0
    )
    durable: Annotated[
        bool,
        Meta(
            description="what is stored is in the node's durable store; events of its own are stored whatever the rule"
        ),
    ] = False
    log_bytes: LogBytes = LOG_BYTES

    def needs(self) -> frozenset[Capability]:
        return frozenset({Capability.DURABLE_STORE}) if self.durable else frozenset()

    def __post_init__(self) -> None:
        if self.durable and not self.store:
            raise ValueError("durable needs store = true: else nothing is kept")
