"""The event feed of a live network: rows in order of time, which the page adds to those it has.

Nodes report at different times, so reports are held until all nodes have reported, and are then sorted. The feed is
bounded: when it gets too long, a new chapter begins with the rows that still matter, and the page reads all of them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from carrycast.analysis.player import CRASH, DELIVER, EVICT, REACH, START, STOP, STORE, attributes_text
from carrycast.node import ActiveSubscription, FeedEvent
from carrycast.trace import Eligibility, Kind

MAX_ROWS = 200_000
MAX_SPAN_S = 7200.0
KEEP_S = 3600.0
AT_ONCE = 20_000
"""The most rows in one response to the page."""
MAX_NODES = 2000
MAX_TEXT = 500
"""The most characters of an event's attributes; the page shows fewer."""
_CODES: dict[str, int] = {
    Kind.PUBLISH: REACH,
    Kind.RECEIVE: REACH,
    Kind.STORE: STORE,
    Kind.EVICT: EVICT,
    Kind.DELIVER: DELIVER,
}

Pair = tuple[int, int]
LINK_UP, LINK_DOWN, PLACE, DROP, EVENT, FRAMES = range(7, 13)
"""Rows of a live feed besides the facts of `player.story`; the page's live.js knows them by these numbers."""

Row = list[Any]
"""Kind and time, then the values of the kind. Events are numbered in the order of their first rows."""


class LiveFeed:
    """The feed of one network. Times are seconds on the watcher's clock; nodes are numbered in order of appearance."""

    def __init__(self, origin_s: float) -> None:
        self._origin_s = origin_s
        self._chapter = 0
        self._rows: list[Row] = []
        self._until_s = 0.0
        self._places: dict[int, int] = {}
        self._names: list[str] = []
        self._waiting: list[tuple[float, int, int, str, Any]] = []
        self._numbered = 0
        self._missed = 0
        self._frames: dict[int, int] = {}
        # The state after the last row.
        self._events: dict[str, int] = {}
        self._described: set[int] = set()
        self._have: tuple[set[Pair], set[Pair], set[Pair]] = (set(), set(), set())
        """Pairs of event and node: reached, carried, delivered."""
        self._neighbors: dict[int, frozenset[int]] = {}
        self._links: dict[Pair, int] = {}
        self._subscriptions: dict[tuple[int, str], dict[str, Any]] = {}

    # Reports of nodes.

    def add_node(self, id: int, name: str | None = None) -> None:
        """Add a node, or set its name once it is known."""
        place = self._places.get(id)
        if place is None and len(self._places) < MAX_NODES:
            self._places[id] = len(self._names)
            self._names.append(name or str(id))
            self._chapter += 1
        elif place is not None and name is not None and self._names[place] != name:
            self._names[place] = name
            self._chapter += 1

    def report(self, id: int, time_s: float, what: str, value: Any) -> None:
        """Add a node's report.

        `what` is an `event` of its feed, its `place`, `neighbors`, `subscriptions` or `frames`, the events that it
        `holds`, or that the node is `up` or `gone`.
        """
        self._numbered += 1
        self._waiting.append((time_s - self._origin_s, self._numbered, id, what, value))

    def add_missed(self, count: int) -> None:
        """Add to the number of events that nodes' feeds have lost."""
        self._missed += count

    # Rows in order of time.

    def release(self, until_s: float) -> None:
        """Turn all reports up to a time into rows. Every node must have reported up to that time."""
        until_s -= self._origin_s
        due = sorted((one for one in self._waiting if one[0] <= until_s), key=lambda one: one[:2])
        self._waiting = [one for one in self._waiting if one[0] > until_s]
        for time_s, _, id, what, value in due:
            if id in self._places:
                # A late report gets a late time: rows never go back in time.
                self._add_report(max(time_s, self._until_s), id, what, value)
                self._until_s = max(time_s, self._until_s)
        self._until_s = max(until_s, self._until_s)
        if len(self._rows) > MAX_ROWS or self._until_s > MAX_SPAN_S:
            self._shorten()

    def story(self, chapter: int, after: int) -> dict[str, Any]:
        """The rows that the page does not have: all, if it has another chapter."""
        start = after if chapter == self._chapter and 0 <= after <= len(self._rows) else 0
        rows = self._rows[start : start + AT_ONCE]
        return {
            "chapter": self._chapter,
            "next": start + len(rows),
            "more": start + len(rows) < len(self._rows),
            "begins": start == 0,
            "now_s": self._until_s,
            "names": self._names if start == 0 else None,
            "missed": self._missed,
            "rows": rows,
        }

    def _add_report(self, now: float, id: int, what: str, value: Any) -> None:
        node = self._places[id]
        if what == "event":
            self._add_feed_event(now, node, value)
        elif what == "place":
            self._rows.append([PLACE, now, node, *(value or (None, None))])
        elif what == "neighbors":
            self._update_links(now, node, value)
        elif what == "subscriptions":
            self._subscribe(now, id, value)
        elif what == "frames":
            self._frames[node] = value
            self._rows.append([FRAMES, now, sum(self._frames.values())])
        elif what == "holds":
            for event in value:
                self._add_fact(now, STORE, node, self._number_event(now, event), -1)
        elif what == "up":
            self._rows.append([START, now, node, -1, -1])
        else:
            assert what == "gone", what
            self._rows.append([CRASH, now, node, -1, -1])
            self._update_links(now, node, ())
            self._subscribe(now, id, ())
            self._have[1].difference_update([pair for pair in self._have[1] if pair[1] == node])

    def _add_feed_event(self, now: float, node: int, seen: FeedEvent) -> None:
        if seen.kind == Kind.DROP:
            event = self._events.get(seen.event or "", -1)
            self._rows.append([DROP, now, node, event, seen.reason or "unknown"])
            return
        # An eviction of an event that an older chapter dropped is not shown.
        if seen.event is None or (seen.kind == Kind.EVICT and seen.event not in self._events):
            return
        code = _CODES.get(seen.kind)
        if code is not None:
            peer = -1 if seen.peer is None else self._places.get(seen.peer, -1)
            self._add_fact(now, code, node, self._number_event(now, seen.event, seen), peer)

    def _add_fact(self, now: float, code: int, node: int, event: int, peer: int) -> None:
        reached, carried, delivered = self._have
        pair = (event, node)
        if code == EVICT:
            if pair not in carried:
                return
            carried.discard(pair)
        else:
            had = {REACH: reached, STORE: carried, DELIVER: delivered}[code]
            if pair in had:
                return
            had.add(pair)
            reached.add(pair)
        self._rows.append([code, now, node, event, peer])

    def _number_event(self, now: float, id: str, seen: FeedEvent | None = None) -> int:
        """The number of an event. Its eligible nodes are added once its attributes are known."""
        attributes = None if seen is None else seen.attributes
        known = id in self._events
        place = self._events.setdefault(id, len(self._events))
        if known and (attributes is None or place in self._described):
            return place
        source, text, wanted = int(id.partition(":")[0]), "", []
        if seen is not None and attributes is not None:
            self._described.add(place)
            text = attributes_text(attributes)[:MAX_TEXT]
            eligible = self._eligible_nodes(now, id, source, seen)
            wanted = [self._places[node] for node in eligible if node in self._places]
        self._rows.append([EVENT, now, self._places.get(source, -1), id, text, wanted])
        return place

    def _eligible_nodes(self, now: float, id: str, source: int, seen: FeedEvent) -> Iterable[int]:
        row: Mapping[str, Any] = {
            "run": "",
            "event": id,
            "source": source,
            "time_s": now,
            "attributes": msgspec.json.encode(seen.attributes).decode(),
            "access": seen.access,
            "processor": seen.processor,
        }
        nodes: list[int] = Eligibility(list(self._subscriptions.values())).find_nodes(row).tolist()
        return nodes

    def _subscribe(self, now: float, id: int, subscriptions: Sequence[ActiveSubscription]) -> None:
        for key in [key for key in self._subscriptions if key[0] == id]:
            del self._subscriptions[key]
        for one in subscriptions:
            self._subscriptions[id, one.subscription] = {
                "subscription": one.subscription,
                "node": id,
                "filter": one.filter,
                "attributes": msgspec.json.encode(one.attributes).decode(),
                "from_s": now,
                "to_s": None,
                "processor": one.processor,
            }

    def _update_links(self, now: float, node: int, neighbors: Iterable[int]) -> None:
        """Update the links of a node. A pair is linked while either node reports it."""
        after = frozenset(self._places[id] for id in neighbors if id in self._places)
        before = self._neighbors.get(node, frozenset())
        self._neighbors[node] = after
        for other in sorted(after ^ before):
            pair = (min(node, other), max(node, other))
            count = self._links.get(pair, 0) + (1 if other in after else -1)
            self._links[pair] = count
            if other in after and count == 1:
                self._rows.append([LINK_UP, now, *pair])
            elif not count:
                del self._links[pair]
                self._rows.append([LINK_DOWN, now, *pair])

    def _shorten(self) -> None:
        carried = {event for event, _ in self._have[1]}
        from_s = max(self._until_s - KEEP_S, 0.0)
        self._rows, kept, from_s = shorten_rows(self._rows, from_s, carried, MAX_ROWS // 2)
        self._until_s -= from_s
        self._origin_s += from_s
        self._waiting = [(one[0] - from_s, *one[1:]) for one in self._waiting]
        for row in self._subscriptions.values():
            row["from_s"] -= from_s
        self._events = {id: kept[place] for id, place in self._events.items() if place in kept}
        self._described = {kept[place] for place in self._described if place in kept}
        reached, carries, delivered = (
            {(kept[event], node) for event, node in pairs if event in kept} for pairs in self._have
        )
        self._have = (reached, carries, delivered)
        self._chapter += 1


def shorten_rows(
    rows: list[Row], from_s: float, carried: Collection[int], most: int
) -> tuple[list[Row], dict[int, int], float]:
    """Drop old rows.

    Returns at most `most` rows with times relative to `from_s`, the new numbers of the remaining events, and `from_s`,
    which is later than requested if there are too many rows since then.
    """
    if len(rows) > most:
        from_s = max(from_s, rows[len(rows) - most // 2][1])
    last: dict[int, float] = {}
    share: dict[int, int] = {}
    number = -1
    ids: dict[str, int] = {}
    for row in rows:
        if row[0] == EVENT:
            number = ids.setdefault(row[3], len(ids))
        event = number if row[0] == EVENT else row[3] if row[0] < CRASH else -1
        if event >= 0:
            last[event] = row[1]
            share[event] = share.get(event, 0) + 1
    kept: dict[int, int] = {}
    room = most
    # The newest events first: users look at them.
    for event in sorted(last, key=lambda event: -last[event]):
        if (last[event] >= from_s or event in carried) and share[event] <= room:
            kept[event] = -1
            room -= share[event]
    kept = {event: place for place, event in enumerate(sorted(kept))}
    return _select_rows(rows, from_s, kept, ids), kept, from_s


def _select_rows(rows: list[Row], from_s: float, kept: dict[int, int], ids: dict[str, int]) -> list[Row]:
    standing: dict[tuple[Any, ...], Row] = {}
    recent: list[Row] = []
    # The stored events of a node that stopped or crashed are gone.
    born = {row[2]: place for place, row in enumerate(rows) if row[0] in (CRASH, STOP, START) and row[1] < from_s}
    for place, row in enumerate(rows):
        code, time_s = row[0], row[1]
        now = max(time_s - from_s, 0.0)
        if code == EVENT:
            if ids[row[3]] in kept:
                recent.append([code, now, *row[2:]])
        elif code < CRASH:
            if row[3] in kept and (code not in (STORE, EVICT) or place > born.get(row[2], -1)):
                recent.append([code, now, row[2], kept[row[3]], row[4]])
        elif code == DROP:
            if time_s >= from_s:
                recent.append([code, now, row[2], kept.get(row[3], -1), row[4]])
        elif time_s >= from_s:
            recent.append([code, now, *row[2:]])
        elif code == LINK_DOWN:
            standing.pop((LINK_UP, row[2], row[3]), None)
        else:
            # Only the last position, the last start or stop, and the last frame count matter.
            what = code if code in (LINK_UP, PLACE, FRAMES) else CRASH
            whose = tuple(row[2:4]) if code == LINK_UP else (row[2],) if code != FRAMES else ()
            standing[what, *whose] = [code, 0.0, *row[2:]]
    return [*standing.values(), *recent]
