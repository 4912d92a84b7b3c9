"""The feed of a live network: sorted, bounded, and after a new chapter equivalent to the complete feed."""

from typing import Any

import pytest

from carrycast.analysis.live_page import feed
from carrycast.analysis.live_page.feed import DROP, EVENT, FRAMES, LINK_DOWN, LINK_UP, PLACE, LiveFeed
from carrycast.analysis.player.story import CRASH, DELIVER, EVICT, REACH, START, STORE
from carrycast.node.event_feed import ActiveSubscription, FeedEvent

T0 = 1000.0


def network(*ids: int) -> LiveFeed:
    found = LiveFeed(T0)
    for id in ids:
        found.add_node(id, f"node-{id}")
    return found


def rows(of: LiveFeed, until_s: float = 1000.0) -> list[list[Any]]:
    of.release(T0 + until_s)
    found: list[list[Any]] = of.story(-1, 0)["rows"]
    return found


def feed_event(kind: str, event: str | None = "7:0", **more: Any) -> FeedEvent:
    return FeedEvent(0.0, kind, event, **more)


def test_what_nodes_tell_at_their_own_pace_is_put_in_order() -> None:
    story = network(7, 9)
    story.report(9, T0 + 2.0, "event", feed_event("receive", peer=7))
    story.report(9, T0 + 0.5, "subscriptions", [ActiveSubscription("9:0", "n = 1"), ActiveSubscription("9:1", "n = 2")])
    story.report(7, T0 + 1.0, "event", feed_event("publish", attributes={"n": 1}))
    story.report(9, T0 + 2.0, "event", feed_event("deliver"))
    assert rows(story, 2.0) == [
        [EVENT, 1.0, 0, "7:0", "n = 1", [1]],
        [REACH, 1.0, 0, 0, -1],
        [REACH, 2.0, 1, 0, 0],
        [DELIVER, 2.0, 1, 0, -1],
    ]
    # A late report gets a late time, a repeated report is one row, and only carried events are evicted.
    story.report(7, T0 + 1.5, "event", feed_event("store"))
    for kind in ("store", "receive", "deliver", "evict", "evict"):
        story.report(7 if kind != "deliver" else 9, T0 + 3.0, "event", feed_event(kind))
    assert rows(story, 3.0)[4:] == [[STORE, 2.0, 0, 0, -1], [EVICT, 3.0, 0, 0, -1]]


def test_the_page_gets_what_it_does_not_have() -> None:
    story = network(7)
    story.report(7, T0 + 1.0, "event", feed_event("drop", None, reason="loss"))
    story.release(T0 + 1.0)
    first = story.story(-1, 0)
    assert (first["begins"], first["names"], first["rows"]) == (True, ["node-7"], [[DROP, 1.0, 0, -1, "loss"]])
    again = story.story(first["chapter"], first["next"])
    assert (again["begins"], again["rows"]) == (False, [])
    # A new node begins a chapter, and so does a new name.
    story.add_node(9)
    anew = story.story(first["chapter"], first["next"])
    assert (anew["begins"], anew["names"], len(anew["rows"])) == (True, ["node-7", "9"], 1)
    story.add_node(9, "nine")
    assert story.story(anew["chapter"], anew["next"])["names"] == ["node-7", "nine"]


def test_a_pair_is_linked_while_either_says_so() -> None:
    story = network(7, 9)
    for time_s, id, neighbors in ((1, 7, [9]), (2, 9, [7]), (3, 7, []), (4, 9, [5]), (5, 9, [7])):
        story.report(id, T0 + time_s, "neighbors", neighbors)
    story.report(9, T0 + 6, "gone", None)
    assert rows(story) == [
        [LINK_UP, 1.0, 0, 1],
        [LINK_DOWN, 4.0, 0, 1],
        [LINK_UP, 5.0, 0, 1],
        [CRASH, 6.0, 1, -1, -1],
        [LINK_DOWN, 6.0, 0, 1],
    ]


def test_a_described_event_is_described_once() -> None:
    story = network(7, 9)
    story.report(9, T0 + 1, "holds", ["7:3"])
    story.report(9, T0 + 2, "event", feed_event("receive", "7:3", attributes={"n": 1}))
    story.report(9, T0 + 3, "event", feed_event("receive", "7:3", attributes={"n": 1}))
    assert [row for row in rows(story) if row[0] == EVENT] == [
        [EVENT, 1.0, 0, "7:3", "", []],
        [EVENT, 2.0, 0, "7:3", "n = 1", []],
    ]


class Shown:
    """The state after some rows, as the page computes it."""

    def __init__(self, rows: list[list[Any]]) -> None:
        self.events: list[str] = []
        self.carries: set[tuple[str, int]] = set()
        self.reached: set[tuple[str, int]] = set()
        self.links: set[tuple[int, int]] = set()
        self.places: dict[int, Any] = {}
        self.down: set[int] = set()
        self.frames = 0
        last = 0.0
        for code, time_s, *rest in rows:
            assert time_s >= last
            last = time_s
            if code == EVENT:
                self.events += [rest[1]] if rest[1] not in self.events else []
            elif code in (REACH, STORE, EVICT):
                pair = (self.events[rest[1]], rest[0])
                self.reached.add(pair)
                if code != REACH:
                    (self.carries.add if code == STORE else self.carries.discard)(pair)
            elif code in (CRASH, START):
                (self.down.add if code == CRASH else self.down.discard)(rest[0])
                self.carries = {pair for pair in self.carries if pair[1] != rest[0]}
            elif code in (LINK_UP, LINK_DOWN):
                (self.links.add if code == LINK_UP else self.links.remove)(tuple(rest))
            elif code == PLACE:
                self.places[rest[0]] = rest[1:]
            elif code == FRAMES:
                self.frames = rest[0]


@pytest.mark.parametrize("limit", ["rows", "span"])
def test_a_long_story_goes_on_as_if_all_of_it_were_told(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(story: LiveFeed) -> LiveFeed:
        for step in range(400):
            now, event, id = T0 + step, f"7:{step // 4}", (7, 9, 11)[step % 3]
            story.report(id, now, "event", feed_event("receive", event, attributes={"n": step}))
            if step % 5 == 0:
                story.report(id, now, "event", feed_event("store", event))
            if step % 7 == 0:
                story.report(9, now, "event", feed_event("evict", f"7:{step // 8}"))
            if step % 50 == 0:
                story.report(9, now, "gone" if step % 100 else "up", None)
            story.report(7, now, "neighbors", [9, 11] if step % 9 else [])
            story.report(11, now, "place", (step, 1.0))
            story.report(11, now, "frames", step)
            story.release(now)
        return story

    whole = Shown(play(network(7, 9, 11)).story(-1, 0)["rows"])
    if limit == "rows":
        monkeypatch.setattr(feed, "MAX_ROWS", 300)
    else:
        monkeypatch.setattr(feed, "MAX_SPAN_S", 100.0)
        monkeypatch.setattr(feed, "KEEP_S", 40.0)
    story = play(network(7, 9, 11))
    told = story.story(-1, 0)
    short = Shown(told["rows"])
    assert told["chapter"] > 5
    assert (short.links, short.places, short.down, short.frames) == (
        whole.links,
        whole.places,
        whole.down,
        whole.frames,
    )
    assert set(short.events[-5:]) == set(whole.events[-5:])
    assert len(short.events) < len(whole.events)
    if limit == "rows":
        assert len(told["rows"]) <= 300
        assert short.carries <= whole.carries
    else:
        # Carried events are kept, however old they are.
        assert told["now_s"] <= 101
        assert short.carries == whole.carries
    assert {pair for pair in whole.reached if pair[0] in short.events[-5:]} == {
        pair for pair in short.reached if pair[0] in short.events[-5:]
    }
