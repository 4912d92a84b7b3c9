"""The equations of adaptive content-based routing [004], each a pure function. The forwarding rule is in
`core.parts.link_selection`."""

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from hashlib import blake2b
from itertools import repeat

from carrycast.core.model import EventId, NodeId


def forwarding_utility(utilities: Iterable[float]) -> float:
    """[004 §2.2.2, eq. 2] The utility of a link: the largest utility of a node reached over it within the horizon."""
    return max(utilities, default=0.0)


def weighted_sum(weights: Mapping[str, float], predictions: Mapping[str, float]) -> float:
    """[004 §3, eq. 3; eq. 5 with change degree and co-location] The weighted sum of the attributes' predictions."""
    return sum(weight * predictions.get(name, 0.0) for name, weight in weights.items())


def change_degree(before: Set[NodeId], now: Set[NodeId]) -> float | None:
    """[004 §3, eq. 6] The share of the neighbors, of the beginning and the end of a period, that came or went.

    Without neighbors at both times the equation is 0 / 0, and there is no observation.
    """
    met = len(before | now)
    return len(before ^ now) / met if met else None


def visible_utilities(
    own: Mapping[str, float], neighborhood: Mapping[str, float], ignored: Iterable[str], hops: int, horizon: int
) -> Mapping[str, float]:
    """[004 §4, eq. 8] The utilities of a known node, by interest: at the horizon its neighborhood utilities count too.

    Neighborhood utilities are reported only where they exceed the node's own, so they are the maximum. Those of
    `ignored` interests are left out.
    """
    if hops != horizon or not neighborhood:
        return own
    seen = {**own, **neighborhood}
    for interest in ignored:
        if interest in own:
            seen[interest] = own[interest]
        else:
            seen.pop(interest, None)
    return seen


def update_interval_s(change: float, shortest_s: float, longest_s: float) -> float:
    """[004 §4, eq. 9] The time to the next report of utilities: the more the neighbors change, the shorter.

    The equation alone would exceed its own maximum for a small change; T_dmax bounds it ("ranges from T_dmin to T_dmax"
    [004 §5.1.2]).
    """
    return longest_s if change <= 0 else min(longest_s, shortest_s / change)


def is_carrier(as_carrier: float, sigma: float) -> bool:
    """[004 §2.3.2] Whether a node stores an event of an interest that it does not subscribe to: σ ≤ U < 1."""
    return as_carrier >= sigma


def draw_interest(event: EventId, interests: Sequence[str]) -> str:
    """Draw one of the interests that an event matches by a hash of event and interest: nodes that know the drawn
    interest draw the same one, whatever other interests they know."""
    return min(interests, key=lambda interest: (_hash_pair(event, interest), interest))


@lru_cache(maxsize=1 << 16)
def _hash_pair(event: EventId, interest: str) -> bytes:
    return blake2b(f"{event} {interest}".encode(), digest_size=8).digest()


def link_table(reached: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """[004 §2.2.2, eq. 2] The utility of a link by interest, from the tables of the nodes reached over it."""
    if len(reached) == 1:
        return reached[0]
    interests = dict.fromkeys(interest for table in reached for interest in table)
    return {interest: forwarding_utility(table.get(interest, 0.0) for table in reached) for interest in interests}


def link_utilities(
    tables: Mapping[NodeId, Mapping[str, float]], links: Iterable[NodeId], interests: list[str]
) -> list[float]:
    """[004 §2.3.1, step 2] The utility of each link for an event: the largest over the interests that the event
    matches."""
    return [max(map(tables[link].get, interests, _ZEROS)) for link in links]


_ZEROS = repeat(0.0)
