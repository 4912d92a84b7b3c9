"""The formulas of drift, each a pure function."""

from collections.abc import Iterable

from carrycast.core.model import EventId, NodeId
from carrycast.protocols.drift.messages import MAX_FILTERS

_MASK = (1 << 64) - 1
MAX_FILTER_LENGTH = 1024
"""Characters of all filters in one `Echo` together."""


def short_address(node: NodeId) -> bytes:
    """The last two bytes of a node id (compare the 16-bit short addresses of IEEE 802.15.4).

    Live ids are hashes of keys, so one pair of neighbors in 65,536 shares a short address. A neighbor that shares one
    with a listed node counts as covered although it is not; reconciliation then brings it the event."""
    return (node & 0xFFFF).to_bytes(2, "big")


def id_sketch(id: EventId) -> int:
    """32 well mixed bits of an event id (the finalizer of splitmix64: Steele et al., OOPSLA 2014).

    They are the element that the PinSketch of `set_hash` adds up. A publisher can choose its ids so that these bits
    take any value it likes."""
    mixed = (id.source * 0x9E3779B97F4A7C15 + id.sequence * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ (mixed >> 31)) >> 32


def rendezvous_weight(node: NodeId, sketch: int) -> int:
    """The weight of a node for the event with this id sketch (rendezvous hashing, also called highest random weight:
    Thaler and Ravishankar, IEEE/ACM ToN 1998).

    All nodes compute the same weights without a message. Among neighbors whose buffers are full, the node with the
    highest weight keeps the event."""
    return (sketch ^ node * 0x9E3779B1) * 0x85EBCA6B & 0xFFFFFFFF


def rebroadcast_backoff_s(unit_s: float, uncovered: int, degree: int, draw: float) -> float:
    """The random backoff before a rebroadcast (random assessment delay: Williams and Camp, MobiHoc 2002).

    The more of its `degree` neighbors are uncovered, the sooner a node sends; the higher the degree, the longer the
    time over which competing nodes spread. `draw`, from 0 to 1, separates nodes with equal coverage."""
    return unit_s * degree / max(uncovered, 1) * (0.5 + draw)


def payload_backoff_s(size_bytes: int) -> float:
    """The addition to the backoff for a long frame: two and a half times the airtime of its bytes at 1 Mb/s. With less,
    a node would hand its frame to the radio before it has received a neighbor's copy."""
    return min(size_bytes, 1500) * 20e-6


def response_backoff_s(longest_s: float, degree: int) -> float:
    """The longest backoff before a message that other neighbors might send too. It is the full time with ten neighbors
    or more. With one neighbor, no other node will send it and the contact may be short, so it is a tenth of that."""
    return longest_s * min(1.0, degree / 10)


def merge_filters(filters: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The filters of several nodes, each with the number of links to all nodes that have it. If the result would be too
    long for a message, it is the empty filter, which matches every event."""
    links: dict[str, int] = {}
    for text, count in sorted(filters):
        links[text] = links.get(text, 0) + count
    if len(links) > MAX_FILTERS or sum(map(len, links)) > MAX_FILTER_LENGTH:
        return {"": sum(links.values())}
    return links
