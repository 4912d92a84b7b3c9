"""The knobs of retrieval."""

from typing import Annotated, Literal

from msgspec import Meta

from driftcast.protocol import Settings


class RetrievalSettings(Settings, frozen=True):
    """Whom a request goes to, how long it is waited for, and what is done about what was lost."""

    # [000 §IV] "The selection ... is random in this paper but we can supply ... traffic statistics or topological
    # knowledge".
    choice: Annotated[
        Literal["random", "nearest", "least_loaded"],
        Meta(description="which of several replicas is asked; least_loaded: where the fewest answers came from"),
    ] = "random"
    # The patience of a request that states none.
    history_s: Annotated[float, Meta(gt=0, le=86_400, description="how long a subscription waits for its history")] = (
        10.0
    )
    # [000 §VII] "no additional measure is taken to recover any lost message".
    retries: Annotated[int, Meta(ge=0, le=100, description="how often what has not come is asked for again")] = 0
    # Longer than a request and its answers take over some tens of hops.
    retry_s: Annotated[
        float, Meta(ge=0.001, le=3600, description="time until what has not come is asked for again")
    ] = 2.0
    max_stored: Annotated[
        int, Meta(ge=1, le=10_000_000, description="events a repository keeps; the oldest arrival makes room")
    ] = 100_000
    max_asks: Annotated[int, Meta(ge=1, le=10_000_000, description="requests of a node that may be open at a time")] = (
        4096
    )
    # [000 §VIII] "incorporate opportunistic caching techniques": future work there, so off.
    cache: Annotated[int, Meta(ge=0, le=100_000, description="answers that a node keeps which only pass by")] = 0
