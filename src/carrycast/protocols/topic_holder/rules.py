"""Topics and the hash that maps them to nodes and places. Pure functions, the same on every node."""

import hashlib
from collections.abc import Sequence
from math import isfinite

from carrycast.core.model import Area, NodeId, Position, Scalar


def topic_key(value: Scalar) -> str:
    """A topic as a text that equal values share, however they are written: 1 and 1.0 are one topic, '1' is not."""
    if isinstance(value, bool):
        return f"b:{value}"
    return f"s:{value}" if isinstance(value, str) else f"n:{float(value) + 0.0!r}"


def topic_hash(topic: str, salt: str) -> float:
    """[003 §3.3] A "globally defined hash function": SHA-1, uniform in [0, 1)."""
    digest = hashlib.sha1(f"{salt}:{topic}".encode(), usedforsecurity=False).digest()
    # 53 bits, so that the quotient is exact and below 1.
    return (int.from_bytes(digest[:8]) >> 11) / 2**53


def home_place(topic: str, number: int, area: Area) -> Position:
    """[003 §3.3] (Hx(topic), Hy(topic)) in the area, for the topic's holder with this number."""
    return Position(area.width_m * topic_hash(topic, f"x{number}"), area.height_m * topic_hash(topic, f"y{number}"))


def home_nodes(topic: str, number: int, holders: int, nodes: Sequence[NodeId], more: int) -> list[NodeId]:
    """[003 §3.3] The node that holds a topic, as its holder with this number, and those next by hash, in their order.

    `nodes` are ordered by id. Ids are not spread evenly over any range, so "closest to the hashed value" is taken by
    rank: the hash chooses one of the nodes. Holders of one topic are spread evenly over the ranks.
    """
    if not nodes:
        return []
    count = len(nodes)
    first = int(topic_hash(topic, "node") * count) + number * count // holders
    return [nodes[(first + step) % count] for step in range(min(more + 1, count))]


def is_plausible(position: Position | None, area: Area) -> bool:
    """Whether a position is plausible: in the area, or no farther from it than its longer side, since receivers err."""
    if position is None:
        return False
    x_m, y_m = position
    if not (isfinite(x_m) and isfinite(y_m)):
        return False
    margin_m = max(area.width_m, area.height_m)
    return -margin_m <= x_m <= area.width_m + margin_m and -margin_m <= y_m <= area.height_m + margin_m
