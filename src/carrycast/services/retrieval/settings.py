"""The settings of retrieval."""

from typing import Annotated, Literal

from msgspec import Meta

from carrycast.core.protocol import Settings


class RetrievalSettings(Settings, frozen=True):
    """The choice of repositories, time-outs, and retransmission."""

    # [000 §IV] "The selection ... is random in this paper but we can supply ... traffic statistics or topological
    # knowledge".
    choice: Annotated[
        Literal["random", "nearest", "least_loaded"],
        Meta(description="which of several replicas is asked; least_loaded: where the fewest answers came from"),
    ] = "random"
    # Deviation: [000 §IV] a broker that knows no matching advertisement drops the request. Then whoever asks right
    # after its node, or its broker, has started finds nothing.
    no_route: Annotated[
        Literal["wait", "drop"],
        Meta(
            description="what becomes of a request while no advertisement matches it: it waits for one until its "
            "patience is over, or is dropped at once, as in the paper"
        ),
    ] = "wait"
    # The patience of a request that states none.
    history_s: Annotated[
        float,
        Meta(gt=0, le=86_400, description="after how long a subscription is told that its history is not complete"),
    ] = 10.0
    # [000 §VII] "no additional measure is taken to recover any lost message".
    retries: Annotated[int, Meta(ge=0, le=100, description="how often what has not come is asked for again")] = 0
    # Longer than a request and its answers take over some tens of hops.
    retry_s: Annotated[
        float, Meta(ge=0.001, le=3600, description="time until what has not come is asked for again")
    ] = 2.0
    max_stored: Annotated[
        int, Meta(ge=1, le=10_000_000, description="events a repository keeps; the oldest arrival makes room")
    ] = 100_000
    max_asks: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="requests of a node that may be open at a time; so many of others wait at it",
        ),
    ] = 4096
    # [000 §VIII] "incorporate opportunistic caching techniques": future work there, so off.
    cache: Annotated[int, Meta(ge=0, le=100_000, description="answers that a node keeps which only pass by")] = 0
