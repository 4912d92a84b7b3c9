"""The formulas of drift, each a pure function."""

from collections.abc import Iterable

from carrycast.core.model import EventId, NodeId
from carrycast.protocols.drift.messages import MAX_FILTERS

_MASK = (1 << 64) - 1
MAX_FILTER_LENGTH = 1024
"""Of all filters that one answer carries, together."""


def short_name(node: NodeId) -> bytes:
    """The last two bytes of an id. Live ids are hashes of keys, so that two neighbors share one in 65,536 pairs; who
    shares one with a named node is taken for reached, and is served when hashes are compared."""
    return (node & 0xFFFF).to_bytes(2, "big")


def event_trace(id: EventId) -> int:
    """32 well mixed bits of an id (the finalizer of splitmix64). Whoever publishes may choose them."""
    mixed = (id.source * 0x9E3779B97F4A7C15 + id.sequence * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ (mixed >> 31)) >> 32


def keeper_rank(node: NodeId, trace: int) -> int:
    """How much a node is called to keep an event, given by its trace, when those around hold more than they can: a
    number that all who know both can compute (highest random weight)."""
    return (trace ^ node * 0x9E3779B1) * 0x85EBCA6B & 0xFFFFFFFF


def relay_wait_s(unit_s: float, gain: int, degree: int, draw: float) -> float:
    """How long a node waits before it speaks for `gain` of its `degree` neighbors: who reaches most speaks first, and
    where many could speak they spread over a longer time. `draw`, from 0 to 1, keeps equals apart."""
    return unit_s * degree / max(gain, 1) * (0.5 + draw)


def frame_s(size_bytes: int) -> float:
    """How much longer is waited for the sake of a long frame: two and a half times what its bytes take at 1 Mb/s. Who
    waits less has given its frame to the radio before it has heard another's."""
    return min(size_bytes, 1500) * 20e-6


def crowd_wait_s(longest_s: float, degree: int) -> float:
    """How long others are waited for who may say the same: the longest with ten neighbors or more, nearly nothing with
    one, when nobody else will, and the contact may be short."""
    return longest_s * min(1.0, degree / 10)


def gathered(wanted: Iterable[tuple[str, int]]) -> dict[str, int]:
    """What several want: each filter with the links to all whose it is. If that would be too long to say, everything
    (the empty filter) is wanted."""
    links: dict[str, int] = {}
    for text, steps in sorted(wanted):
        links[text] = links.get(text, 0) + steps
    if len(links) > MAX_FILTERS or sum(map(len, links)) > MAX_FILTER_LENGTH:
        return {"": sum(links.values())}
    return links
