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
        Meta(description="the choice among several replicas; least_loaded: the one with the fewest responses so far"),
    ] = "random"
    # Deviation: [000 §IV] a broker that knows no matching advertisement drops the request. A node that sends a request
    # right after its own start, or that of its broker, would receive nothing.
    no_route: Annotated[
        Literal["wait", "drop"],
        Meta(
            description="the treatment of a request that no advertisement matches: it waits for one until its "
            "patience expires, or is dropped at once, as in the paper"
        ),
    ] = "wait"
    # The default patience of a request.
    history_s: Annotated[
        float,
        Meta(gt=0, le=86_400, description="the time after which an incomplete history is reported to its subscription"),
    ] = 10.0
    # [000 §VII] "no additional measure is taken to recover any lost message".
    retries: Annotated[int, Meta(ge=0, le=100, description="the number of repeated requests for missing events")] = 0
    # Longer than a request and its answers take over some tens of hops.
    retry_s: Annotated[
        float, Meta(ge=0.001, le=3600, description="the time until missing events are requested again")
    ] = 2.0
    max_stored: Annotated[
        int, Meta(ge=1, le=10_000_000, description="the most events in a repository; the oldest arrival is evicted")
    ] = 100_000
    max_asks: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="the most open requests of a node, and the most requests of others that wait at it",
        ),
    ] = 4096
    # [000 §VIII] "incorporate opportunistic caching techniques": future work there, so off.
    cache: Annotated[
        int, Meta(ge=0, le=100_000, description="the number of forwarded responses that a node caches")
    ] = 0
