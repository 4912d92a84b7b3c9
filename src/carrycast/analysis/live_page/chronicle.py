"""The story of a live network as it happens: rows in order of time, which the page adds to what it has.

Nodes tell at their own pace, so what is told waits a moment until all have, and is then put in order. The story is
bounded: when it gets too long, a new chapter begins with what still matters, and the page reads anew.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from carrycast.analysis.live_page.shortened import DROP, EVENT, FRAMES, LINK_DOWN, LINK_UP, PLACE, Row, shortened
from carrycast.analysis.player.story import CRASH, DELIVER, EVICT, REACH, START, STORE, said
from carrycast.node.event_feed import ActiveSubscription, FeedEvent
from carrycast.trace import Kind
from carrycast.trace.eligible import eligible

MAX_ROWS = 200_000
MAX_SPAN_S = 7200.0
KEEP_S = 3600.0
AT_ONCE = 20_000
"""Rows in one answer to the page."""
MAX_NODES = 2000
MAX_TEXT = 500
"""Characters of an event's attributes: the page has room for fewer."""
_CODES: dict[str, int] = {
    Kind.PUBLISH: REACH,
    Kind.RECEIVE: REACH,
    Kind.STORE: STORE,
    Kind.EVICT: EVICT,
    Kind.DELIVER: DELIVER,
}

Pair = tuple[int, int]


class Chronicle:
    """One network. Times are seconds on the watcher's clock; nodes are known by their ids and numbered as they come."""

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
        # What holds at the end of the rows.
        self._events: dict[str, int] = {}
        self._described: set[int] = set()
        self._have: tuple[set[Pair], set[Pair], set[Pair]] = (set(), set(), set())
        """(event, node): reached, carried, delivered."""
        self._voices: dict[int, frozenset[int]] = {}
        self._links: dict[Pair, int] = {}
        self._wishes: dict[tuple[int, str], dict[str, Any]] = {}

    # What nodes tell.

    def meet(self, id: int, name: str | None = None) -> None:
        """A node, by its name once that is known."""
        place = self._places.get(id)
        if place is None and len(self._places) < MAX_NODES:
            self._places[id] = len(self._names)
            self._names.append(name or str(id))
            self._chapter += 1
        elif place is not None and name is not None and self._names[place] != name:
            self._names[place] = name
            self._chapter += 1

    def tell(self, id: int, time_s: float, what: str, told: Any) -> None:
        """A node has told something: `seen` a sighting, `place` where it is, `neighbors`, `wishes`, `holds`, `frames`,
        or that it is `up` or `gone`."""
        self._numbered += 1
        self._waiting.append((time_s - self._origin_s, self._numbered, id, what, told))

    def miss(self, count: int) -> None:
        """So many sightings came too fast to be kept."""
        self._missed += count

    # In order.

    def release(self, until_s: float) -> None:
        """Make rows of all that happened up to a time, by which everybody has told."""
        until_s -= self._origin_s
        due = sorted((one for one in self._waiting if one[0] <= until_s), key=lambda one: one[:2])
        self._waiting = [one for one in self._waiting if one[0] > until_s]
        for time_s, _, id, what, told in due:
            if id in self._places:
                # Who tells late is heard late: rows never go back in time.
                self._write(max(time_s, self._until_s), id, what, told)
                self._until_s = max(time_s, self._until_s)
        self._until_s = max(until_s, self._until_s)
        if len(self._rows) > MAX_ROWS or self._until_s > MAX_SPAN_S:
            self._shorten()

    def story(self, chapter: int, after: int) -> dict[str, Any]:
        """What the page does not have yet: all, if it has another chapter."""
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

    def _write(self, now: float, id: int, what: str, told: Any) -> None:
        node = self._places[id]
        if what == "seen":
            self._see(now, node, told)
        elif what == "place":
            self._rows.append([PLACE, now, node, *(told or (None, None))])
        elif what == "neighbors":
            self._hear(now, node, told)
        elif what == "wishes":
            self._wish(now, id, told)
        elif what == "frames":
            self._frames[node] = told
            self._rows.append([FRAMES, now, sum(self._frames.values())])
        elif what == "holds":
            for event in told:
                self._fact(now, STORE, node, self._event(now, event), -1)
        elif what == "up":
            self._rows.append([START, now, node, -1, -1])
        else:
            assert what == "gone", what
            self._rows.append([CRASH, now, node, -1, -1])
            self._hear(now, node, ())
            self._wish(now, id, ())
            self._have[1].difference_update([pair for pair in self._have[1] if pair[1] == node])

    def _see(self, now: float, node: int, seen: FeedEvent) -> None:
        if seen.kind == Kind.DROP:
            event = self._events.get(seen.event or "", -1)
            self._rows.append([DROP, now, node, event, seen.reason or "unknown"])
            return
        # What an older chapter forgot is not worth mentioning only because it goes.
        if seen.event is None or (seen.kind == Kind.EVICT and seen.event not in self._events):
            return
        code = _CODES.get(seen.kind)
        if code is not None:
            peer = -1 if seen.peer is None else self._places.get(seen.peer, -1)
            self._fact(now, code, node, self._event(now, seen.event, seen), peer)

    def _fact(self, now: float, code: int, node: int, event: int, peer: int) -> None:
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

    def _event(self, now: float, id: str, seen: FeedEvent | None = None) -> int:
        """Its number; who wants it is known as soon as its attributes are."""
        attributes = None if seen is None else seen.attributes
        known = id in self._events
        place = self._events.setdefault(id, len(self._events))
        if known and (attributes is None or place in self._described):
            return place
        source, text, wanted = int(id.partition(":")[0]), "", []
        if seen is not None and attributes is not None:
            self._described.add(place)
            text = said(attributes)[:MAX_TEXT]
            wanted = [self._places[node] for node in self._wanting(now, id, source, seen) if node in self._places]
        self._rows.append([EVENT, now, self._places.get(source, -1), id, text, wanted])
        return place

    def _wanting(self, now: float, id: str, source: int, seen: FeedEvent) -> Iterable[int]:
        row: Mapping[str, Any] = {
            "run": "",
            "event": id,
            "source": source,
            "time_s": now,
            "attributes": msgspec.json.encode(seen.attributes).decode(),
            "access": seen.access,
            "processor": seen.processor,
        }
        return [node for _, _, node, _, through in eligible([row], list(self._wishes.values())) if not through]

    def _wish(self, now: float, id: int, wishes: Sequence[ActiveSubscription]) -> None:
        for key in [key for key in self._wishes if key[0] == id]:
            del self._wishes[key]
        for wish in wishes:
            self._wishes[id, wish.subscription] = {
                "subscription": wish.subscription,
                "node": id,
                "filter": wish.filter,
                "attributes": msgspec.json.encode(wish.attributes).decode(),
                "from_s": now,
                "to_s": None,
                "processor": wish.processor,
            }

    def _hear(self, now: float, node: int, neighbors: Iterable[int]) -> None:
        """A pair is linked while either of it says so."""
        after = frozenset(self._places[id] for id in neighbors if id in self._places)
        before = self._voices.get(node, frozenset())
        self._voices[node] = after
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
        self._rows, kept, from_s = shortened(self._rows, from_s, carried, MAX_ROWS // 2)
        self._until_s -= from_s
        self._origin_s += from_s
        self._waiting = [(one[0] - from_s, *one[1:]) for one in self._waiting]
        for row in self._wishes.values():
            row["from_s"] -= from_s
        self._events = {id: kept[place] for id, place in self._events.items() if place in kept}
        self._described = {kept[place] for place in self._described if place in kept}
        reached, carries, delivered = (
            {(kept[event], node) for event, node in pairs if event in kept} for pairs in self._have
        )
        self._have = (reached, carries, delivered)
        self._chapter += 1
