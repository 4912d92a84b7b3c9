"""The settings of the tree."""

from typing import Annotated, Literal

from msgspec import Meta

from carrycast.core.parts import LOG_BYTES, LogBytes
from carrycast.services.retrieval import RetrievalSettings


class TreeSettings(RetrievalSettings, frozen=True):
    """The construction of the tree, the repair of its tables, and the retrieval of stored events."""

    # [000 §III] "several nodes of the network take the role of the event broker"; which, the scenario says.
    role: Annotated[
        str,
        Meta(min_length=1, max_length=64, description="nodes of this role are brokers, all others are clients of one"),
    ] = "broker"
    # Radios move and know cycles, so the tree is built; the paper's own runs give it.
    links: Annotated[
        Literal["built", "given"],
        Meta(
            description="built: brokers build a tree among their links; given: every link of two brokers is part of it"
        ),
    ] = "built"
    # [000 §V] "delay the unsubscription and unadvertisement process until the subscription ... process is complete".
    reconcile: Annotated[
        Literal["deferred", "strawman"],
        Meta(description="when the filters of a lost neighbor are withdrawn: after defer_s, or at once"),
    ] = "deferred"
    # REDS' DEFER_TIMEOUT.
    defer_s: Annotated[float, Meta(gt=0, le=3600, description="how long a lost neighbor's filters are kept")] = 3.0
    # MAODV's GROUP_HELLO_INTERVAL.
    group_s: Annotated[float, Meta(ge=0.05, le=3600, description="time between two rounds of a tree's leader")] = 5.0
    # As often as subscription reports of other protocols; a lost message is repaired within one period.
    refresh_s: Annotated[
        float,
        Meta(
            ge=0.001, description="time between two digests of the filters forwarded to a neighbor; inf: none are sent"
        ),
    ] = 10.0
    seen_s: Annotated[float, Meta(gt=0, le=3600, description="the least time for which an event is remembered")] = 60.0
    # Not in the paper but announced as its future work; off, so that the tree is the paper's.
    recover_s: Annotated[
        float,
        Meta(ge=0.001, description="time between two rounds of recovery among brokers; inf: none, as in the paper"),
    ] = float("inf")
    # [000 §III] "clients that are disconnected ... can request and retrieve content that has been published the time
    # that were disconnected": they can, and in the paper's runs they do not.
    catch_up_s: Annotated[
        float,
        Meta(
            ge=0.001,
            description="how long after a lost neighbor is replaced history is requested again; inf: never",
        ),
    ] = float("inf")
    recover_buffer: Annotated[int, Meta(ge=1, le=100_000, description="events a broker keeps for recovery")] = 1000
    # As long as other protocols that keep events do.
    recover_lease_s: Annotated[float, Meta(gt=0, le=1e9, description="the longest time for which one is kept")] = 3600.0
    durable: Annotated[
        bool,
        Meta(description="recovery events and seen ids are in the durable store; clients keep their own events"),
    ] = False
    log_bytes: LogBytes = LOG_BYTES

    def __post_init__(self) -> None:
        if self.durable and self.recover_s == float("inf"):
            raise ValueError("durable needs recover_s: else no events are kept")

    def needs_roles(self) -> frozenset[str]:
        """At least one node must be a broker."""
        return frozenset({self.role})
