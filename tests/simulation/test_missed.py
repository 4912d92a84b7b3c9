"""Who missed what, from tables that are written by hand."""

import pyarrow as pa
import pytest

from carrycast.sim.engine.missed_events import MissedEvent, find_missed_events

Row = tuple[float, int, str, str | None, str | None, int | None, str | None]


def trace(*rows: Row) -> pa.Table:
    names = ("time_s", "node", "kind", "event", "subscription", "peer", "reason")
    types = (pa.float64(), pa.int64(), pa.string(), pa.string(), pa.string(), pa.int64(), pa.string())
    return pa.table(
        {
            name: pa.array([row[place] for row in rows], kind)
            for place, (name, kind) in enumerate(zip(names, types, strict=True))
        }
    )


def event(
    id: str, time_s: float, source: int = 0, counted: bool = True, access: str | None = None
) -> dict[str, object]:
    return {
        "event": id,
        "time_s": time_s,
        "source": 0,
        "counted": counted,
        "attributes": '{"n": 1}',
        "access": access,
    }


def wish(id: str, node: int, filter: str = "n = 1", **more: object) -> dict[str, object]:
    base = {"subscription": id, "node": node, "filter": filter, "attributes": "{}", "processor": None}
    return {**base, "from_s": 0.0, "to_s": None, **more}


def events(*rows: dict[str, object]) -> pa.Table:
    fields = [("event", pa.string()), ("time_s", pa.float64()), ("source", pa.int64()), ("counted", pa.bool_())]
    return pa.Table.from_pylist(list(rows), pa.schema([*fields, ("attributes", pa.string()), ("access", pa.string())]))


def wishes(*rows: dict[str, object]) -> pa.Table:
    fields = [("subscription", pa.string()), ("node", pa.int64()), ("filter", pa.string()), ("attributes", pa.string())]
    more = [("processor", pa.string()), ("from_s", pa.float64()), ("to_s", pa.float64())]
    return pa.Table.from_pylist(list(rows), pa.schema([*fields, *more]))


PUBLISHED: Row = (1.0, 0, "publish", "0:0", None, None, None)


def last(*rows: Row) -> str:
    """What is told of an event that node 2 missed."""
    (found,) = find_missed_events(trace(*rows), events(event("0:0", 1.0)), wishes(wish("2:0", 2)))
    return found.last


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("publish", "published by node 5"),
        ("deliver", "delivered to node 5"),
        ("send", "sent by node 5"),
        ("retry", "sent again by node 5"),
        ("receive", "received by node 5"),
        ("drop", "dropped by node 5"),
        ("store", "stored by node 5"),
        ("evict", "evicted by node 5"),
        ("handover", "handover at node 5"),
    ],
)
def test_the_last_that_happened_is_told(kind: str, said: str) -> None:
    assert last(PUBLISHED, (2.5, 5, kind, "0:0", None, None, None)) == f"{said} at 2.5 s"


def test_with_whom_and_why() -> None:
    row: Row = (3.0, 5, "drop", "0:0", None, 7, "queue_full")
    assert last(PUBLISHED, row) == "dropped by node 5 at 3 s, from or to node 7: queue_full"
    assert last(PUBLISHED, (3.0, 5, "send", "0:0", None, 0, None)) == "sent by node 5 at 3 s, from or to node 0"


def test_what_happened_at_the_node_itself_counts_before_what_happened_later_elsewhere() -> None:
    mine: Row = (2.0, 2, "drop", "0:0", None, None, "lease_over")
    assert last(PUBLISHED, mine, (9.0, 5, "store", "0:0", None, None, None)) == "dropped by node 2 at 2 s: lease_over"
    # The last of several at the node, and nothing about another event.
    again: Row = (4.0, 2, "evict", "0:0", None, None, None)
    other: Row = (5.0, 2, "store", "0:1", None, None, None)
    nameless: Row = (6.0, 2, "send", None, None, None, None)
    assert last(PUBLISHED, mine, again, other, nameless) == "evicted by node 2 at 4 s"


def test_who_had_it_and_who_was_owed_nothing_missed_nothing() -> None:
    told = trace(PUBLISHED, (2.0, 1, "deliver", "0:0", "1:0", None, None), (2.0, 3, "store", "0:0", "3:0", None, None))
    found = find_missed_events(
        told,
        events(event("0:0", 1.0)),
        wishes(
            wish("0:9", 0),  # its own
            wish("1:0", 1),  # delivered
            wish("3:0", 3),  # stored is not delivered
            wish("4:0", 4, filter="n = 2"),  # of something else
            wish("5:0", 5, from_s=1.5),  # too late
            wish("6:0", 6, to_s=1.0),  # gone
            wish("7:0", 7, processor="p"),  # wants what is made of it
            wish("8:0", 8, from_s=1.0, to_s=1.1),
        ),
    )
    assert [(one.node, one.subscription) for one in found] == [(3, "3:0"), (8, "8:0")]
    assert found[0] == MissedEvent(3, "3:0", "0:0", 1.0, "stored by node 3 at 2 s")


def test_another_subscription_of_the_same_node_is_owed_its_own() -> None:
    told = trace(PUBLISHED, (2.0, 1, "deliver", "0:0", "1:0", None, None))
    found = find_missed_events(told, events(event("0:0", 1.0)), wishes(wish("1:0", 1), wish("1:1", 1)))
    assert [one.subscription for one in found] == ["1:1"]
    assert found[0].last == "delivered to node 1 at 2 s"


def test_access_and_what_counts() -> None:
    told = trace(PUBLISHED, (1.0, 0, "publish", "0:1", None, None, None), (1.0, 0, "publish", "0:2", None, None, None))
    published = events(event("0:0", 1.0, access="rank = 1"), event("0:1", 1.0, counted=False), event("0:2", 1.0))
    found = find_missed_events(told, published, wishes(wish("1:0", 1), wish("2:0", 2, attributes='{"rank": 1}')))
    assert [(one.event, one.node) for one in found] == [("0:0", 2), ("0:2", 1), ("0:2", 2)]


def test_in_the_order_of_publishing_and_of_subscriptions() -> None:
    told = trace((5.0, 0, "publish", "0:1", None, None, None), (1.0, 0, "publish", "0:0", None, None, None))
    found = find_missed_events(
        told, events(event("0:1", 5.0), event("0:0", 1.0)), wishes(wish("2:0", 2), wish("1:0", 1))
    )
    assert [(one.event, one.subscription) for one in found] == [
        ("0:0", "1:0"),
        ("0:0", "2:0"),
        ("0:1", "1:0"),
        ("0:1", "2:0"),
    ]
