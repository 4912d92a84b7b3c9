"""Who held an event when, from the rows that a trace has of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from carrycast.trace import Kind


@dataclass(slots=True)
class Copy:
    """What one node had to do with an event."""

    node: int
    got_s: float | None = None
    """When it first had the event."""
    giver: int | None = None
    """Whom it had it from; None if it published it, or if nobody knows."""
    delivered_s: float | None = None
    stored_s: float | None = None
    let_go_s: float | None = None
    reason: str | None = None
    """Why it let the event go."""

    def had_by(self, time_s: float) -> bool:
        """Whether the node had met the event by then."""
        return self.got_s is not None and self.got_s <= time_s

    def holds(self, from_s: float, to_s: float) -> bool:
        """Whether it carried the event at some time of a window."""
        if self.stored_s is None:
            return False
        return self.stored_s < to_s and (self.let_go_s is None or self.let_go_s > from_s)

    @property
    def until_s(self) -> float:
        """Until when it carried the event; for ever if nothing says that it ended."""
        return inf if self.let_go_s is None else self.let_go_s


def copies_of(rows: Iterable[Mapping[str, Any]]) -> dict[int, Copy]:
    """By node, in the order in which they had it. Rows come in the order of time."""
    found: dict[int, Copy] = {}
    for row in rows:
        kind, node, time_s = row["kind"], row["node"], row["time_s"]
        if kind == Kind.CRASH:
            lost = found.get(node)
            if lost is not None and lost.holds(time_s, inf):
                lost.let_go_s, lost.reason = time_s, "crash"
            continue
        if kind not in (Kind.PUBLISH, Kind.RECEIVE, Kind.DELIVER, Kind.STORE, Kind.EVICT):
            continue
        copy = found.setdefault(node, Copy(node))
        if copy.got_s is None and kind in (Kind.PUBLISH, Kind.RECEIVE, Kind.DELIVER, Kind.STORE):
            copy.got_s = time_s
            copy.giver = row["peer"] if kind == Kind.RECEIVE else None
        if kind == Kind.DELIVER and copy.delivered_s is None:
            copy.delivered_s = time_s
        elif kind == Kind.STORE:
            copy.stored_s = time_s if copy.stored_s is None else copy.stored_s
            copy.let_go_s = copy.reason = None
        elif kind == Kind.EVICT:
            copy.let_go_s, copy.reason = time_s, row["reason"]
    return found


def way_to(node: int, copies: Mapping[int, Copy]) -> list[tuple[int, float]]:
    """Over whom the event came to a node, and when each had it, as far back as the trace tells."""
    way: list[tuple[int, float]] = []
    at: int | None = node
    met: set[int] = set()
    while at is not None and at in copies and at not in met:
        met.add(at)
        copy = copies[at]
        if copy.got_s is None:
            break
        way.append((at, copy.got_s))
        at = copy.giver
    return way[::-1]
