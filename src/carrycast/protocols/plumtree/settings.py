"""The settings of Plumtree."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.parts import FloodSettings


class PlumtreeSettings(FloodSettings, frozen=True):
    """Timeouts in multiples of the measured time of a hop, and how announcements travel."""

    # Twice that of flooding: a repair takes longer than a flood.
    seen_s: Annotated[
        float, Meta(ge=0.001, description="how long an event is remembered; it is forwarded for at most half of that")
    ] = 120.0
    # The paper: larger than the time that an event takes to reach all nodes. Most networks of tens of nodes have at
    # most five hops.
    graft_hops: Annotated[
        float,
        Meta(gt=0, le=1000, description="timeout 1: hop times from the first announcement of an event to its graft"),
    ] = 5.0
    lazy_hops: Annotated[float, Meta(ge=0, le=1000, description="hop times for which announcements are collected")] = (
        1.0
    )
    # The paper leaves the threshold to the deployment: a low one makes shorter and less stable paths. Three hops are
    # more than random delays of single hops usually make.
    optimize: Annotated[
        int,
        Meta(ge=0, le=65_535, description="a link replaces one whose path is longer by so many hops; 0: never"),
    ] = 3
    announce_all: Annotated[
        bool,
        Meta(description="whether announcements are broadcast, and not sent to each lazy neighbor"),
    ] = False
