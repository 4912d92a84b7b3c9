"""The equations of adaptive content-based routing [004], each a pure function. The forwarding rule is `parts.fanout`."""

from collections.abc import Iterable, Mapping, Set

from driftcast.dissemination.adaptive.messages import Utilities
from driftcast.model import NodeId
from driftcast.parts.horizon import Known


def host_utility(subscribed: bool, as_carrier: float) -> float:
    """[004 §2.2.1, eq. 1] What a node is worth as a receiver: everything as a subscriber, else what it is as a carrier."""
    return 1.0 if subscribed else as_carrier


def forwarding_utility(utilities: Iterable[float]) -> float:
    """[004 §2.2.2, eq. 2] What a link is worth: the most that a node reached over it within the horizon is; 0 if none."""
    return max(utilities, default=0.0)


def composed(weights: Mapping[str, float], predictions: Mapping[str, float]) -> float:
    """[004 §3, eq. 3; eq. 5 with change degree and co-location] The weighted sum of the attributes' predictions."""
    return sum(weight * predictions.get(name, 0.0) for name, weight in weights.items())


def change_degree(before: Set[NodeId], now: Set[NodeId]) -> float | None:
    """[004 §3, eq. 6] The share of the neighbors, of the beginning and the end of a period, that came or went.

    Without neighbors at both times the equation is 0 / 0, and there is no observation.
    """
    met = len(before | now)
    return len(before ^ now) / met if met else None


def neighborhood_utility(forwarding_utilities: Iterable[float]) -> float:
    """[004 §4, eq. 7] What can be reached through a node: the most that one of its links is worth."""
    return max(forwarding_utilities, default=0.0)


def seen_utility(own: float, neighborhood: float, hops: int, horizon: int) -> float:
    """[004 §4, eq. 8] What a known node counts for: exactly at the horizon, what can be reached through it counts too."""
    return max(own, neighborhood) if hops == horizon else own


def update_interval_s(change: float, shortest_s: float, longest_s: float) -> float:
    """[004 §4, eq. 9] Time to the next report of utilities: the more the neighbors change, the sooner.

    The equation alone would exceed its own maximum for a small change; T_dmax bounds it [004 §5.1.2: "ranges from T_dmin
    to T_dmax"].
    """
    return longest_s if change <= 0 else min(longest_s, shortest_s / change)


def carries(as_carrier: float, sigma: float) -> bool:
    """[004 §2.3.2] Whether a node stores an event of an interest that it does not subscribe to: σ ≤ U < 1."""
    return as_carrier >= sigma


def link_utility(
    reached: Iterable[Known[Utilities]], interests: list[str], horizon: int, node: NodeId, split_horizon: bool
) -> float:
    """[004 eq. 2 and 8] What a link is worth for an event of some interests, by the carriers reached over it.

    The same as `forwarding_utility` of `seen_utility` of each table entry, which a test holds it to; here in one pass,
    since every event asks it of every link. Subscribers are not looked at: links to them are taken before (step 1).
    With split horizon, what a node learned from `node` itself does not count.
    """
    best = 0.0
    for known in reached:
        report = known.report
        worth = report.worth
        if known.hops == horizon and report.beyond:
            beyond = report.beyond
            for interest in interests:
                entry = beyond.get(interest)
                if entry is not None and entry[0] > best and not (split_horizon and entry[2] == node):
                    best = entry[0]
                    if best >= 1.0:
                        return best
        for interest in interests:
            if interest in worth and worth[interest] > best:
                best = worth[interest]
    return best
