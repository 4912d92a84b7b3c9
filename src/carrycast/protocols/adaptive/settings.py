"""The settings of adaptive routing. Where the paper gives no value, a comment has the reason of the default."""

from math import isclose
from typing import Annotated, Literal

from msgspec import Meta, field

from carrycast.core.parts import LOG_BYTES, LogBytes
from carrycast.core.protocol import Capability, Settings
from carrycast.protocols.adaptive.context import ATTRIBUTES
from carrycast.protocols.adaptive.messages import MAX_HORIZON, MAX_REACH

Period = Annotated[float, Meta(ge=0.001, le=3600)]
Share = Annotated[float, Meta(ge=0, le=1)]


class AdaptiveSettings(Settings, frozen=True):
    """Thresholds, the prediction and propagation of utilities, and the storing of events."""

    # [004 §5.1.2] gives all values down to `sample_s`.
    tau: Annotated[float, Meta(gt=0, le=1, description="share of the links that an event takes")] = 0.4
    sigma: Annotated[Share, Meta(description="smallest utility with which a node stores events")] = 0.4
    phi: Annotated[int, Meta(ge=1, le=MAX_HORIZON, description="hops that utilities travel")] = 1
    weights: Annotated[
        dict[str, Share], Meta(description="weight of each context attribute in the utility; together 1")
    ] = field(default_factory=lambda: {"change_degree": 0.5, "colocation": 0.5})
    buffer: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="copies of events carried, besides events at level stored; the oldest arrival makes room",
        ),
    ] = 100
    retry_s: Annotated[Period, Meta(description="time between two attempts to forward a stored event")] = 60.0
    update_min_s: Annotated[Period, Meta(description="time between two reports of utilities")] = 10.0
    update_max_s: Annotated[Period, Meta(description="the longest such time if it adapts")] = 60.0
    sample_s: Annotated[Period, Meta(description="period of the predictors")] = 10.0
    # "Each node periodically attempts to forward the messages in its buffer" [004 §2.3.3]: the period is the node's.
    retry_timer: Annotated[
        Literal["node", "copy"],
        Meta(description="node: all stored events are tried together; copy: each counts from its own arrival"),
    ] = "node"
    # [004 §5.2] The paper's figures but Figure 11 are without adaptation.
    adaptive_updates: Annotated[bool, Meta(description="report less often while the neighbors stay the same")] = False
    # The paper gives no lease. Its baselines try ten times at 60 s, and a run lasts 600 s.
    lease_s: Annotated[
        float, Meta(gt=0, description="no event lives longer; at level stored a longer lease is refused")
    ] = 600.0
    # "Provides aggregate information about a host's phi-neighborhood" [004 §4]: a neighborhood utility is computed from
    # host utilities. Computed from neighborhood utilities, as equation 8 in equation 2 could be read, it would describe
    # the whole network and outlive its subscribers, travelling in circles until its steps run out.
    neighborhood: Annotated[
        int,
        Meta(
            ge=0, le=MAX_REACH, description="neighborhoods that a utility is passed on through; 0: none; >1: recursive"
        ),
    ] = 1
    # Else each of two neighbors would report as its own what it has learned from the other (RFC 2453, 3.4.3).
    split_horizon: Annotated[bool, Meta(description="a neighborhood utility does not count where it was learned")] = (
        True
    )
    # The paper sorts by utility and does not define an order of equals. A fixed order would always use the same links.
    ties: Annotated[
        Literal["random", "fixed", "lowest"],
        Meta(description="order of links of equal utility; fixed: oldest link first; lowest: lowest node id first"),
    ] = "random"
    # "For at least one of the matching interests" [004 §2.3.2]; all predictions "for an interest i matching message m
    # are used" [004 §2.3.1]. The paper draws recipients at random, so its messages may have matched only one interest.
    counts_for: Annotated[
        Literal["any", "one"],
        Meta(description="interests that utilities are looked up for; one: one that is drawn for each event"),
    ] = "any"
    # "According to the aforementioned rules" [004 §2.3.2], which do not depend on which nodes have the event.
    retransmit_to: Annotated[
        Literal["everyone", "others"],
        Meta(description="others: a stored event is not sent again to neighbors that are known to have it"),
    ] = "everyone"
    # "For at least one of the matching interests" [004 §2.3.2], literally: a subscriber to one of an event's interests
    # may be a good carrier for another.
    subscribers_store: Annotated[
        bool, Meta(description="a node that subscribes to an event may store it because of another interest")
    ] = True
    # [004 §4] requires such a test and gives no thresholds: see `prediction`.
    predictability: Annotated[bool, Meta(description="ignore predictions that turn out to be unreliable")] = True
    # drift / noise = 0.1 gives a gain of 0.27, a memory of about four periods. Gains from 0.1 to 0.6 are sensible.
    drift: Annotated[float, Meta(gt=0, le=1, description="variance of the steps of an attribute's true level")] = 0.01
    noise: Annotated[float, Meta(gt=0, le=1, description="variance of the noise on its observations")] = 0.1
    # Two reports in a row may be lost, as usual for soft state.
    missed_updates: Annotated[float, Meta(ge=1, le=20, description="periods for which a report is valid")] = 3.0
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
        weighted = [kind for name, kind in ATTRIBUTES.items() if self.weights.get(name, 0.0) > 0]
        store = frozenset({Capability.DURABLE_STORE}) if self.durable else frozenset()
        return store | frozenset(capability for kind in weighted for capability in kind.needs)

    def __post_init__(self) -> None:
        known = ATTRIBUTES
        for name in self.weights:
            if name not in known:
                raise ValueError(f"weights: there is no context attribute {name!r}; there are {', '.join(known)}")
        total = sum(self.weights.values())
        if not isclose(total, 1.0, abs_tol=1e-6):
            raise ValueError(f"weights must sum to 1, not to {total:g}")
        if self.update_min_s > self.update_max_s:
            raise ValueError(
                f"update_min_s ({self.update_min_s:g}) must not exceed update_max_s ({self.update_max_s:g})"
            )
