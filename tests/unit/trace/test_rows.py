"""Rows of the trace, by hand: each kind of fact has its columns, and no other."""

import pytest

from carrycast.core.model import Event, EventId, Failure, SubscriptionId
from carrycast.core.protocol import Fact, Link
from carrycast.core.protocol.discovery import Beacon
from carrycast.core.wire import EventMessage, Layer
from carrycast.trace import Kind, Row, rows

EVENT = Event(EventId(7, 3), {"n": 1})
MINE = SubscriptionId(2, 5)
LINK = Link(4, "radio", 0.25)


class Carrier(EventMessage, frozen=True, tag=1):
    """A message with an event."""


CARRIER = Carrier(EVENT, 2, 60.0)


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (rows.publication_row(1.0, 7, EVENT.id, 20), {"kind": "publish", "node": 7, "event": "7:3", "size_bytes": 20}),
        (rows.subscription_row(1.0, 2, MINE), {"kind": "subscribe", "subscription": "2:5"}),
        (rows.unsubscription_row(1.0, 2, MINE), {"kind": "unsubscribe", "subscription": "2:5"}),
        (
            rows.delivery_row(1.0, 2, MINE, EVENT.id, 3),
            {"kind": "deliver", "event": "7:3", "subscription": "2:5", "hops": 3},
        ),
        (rows.lifecycle_row(1.0, 2, Kind.CRASH), {"kind": "crash"}),
        (rows.link_row(1.0, 2, LINK, None), {"kind": "link_up", "peer": 4, "interface": "radio"}),
        (
            rows.link_row(1.0, 2, LINK, Failure.RESTARTED),
            {"kind": "link_down", "peer": 4, "interface": "radio", "reason": "restarted"},
        ),
        (
            rows.link_change_row(1.0, 2, LINK),
            {"kind": "link_changed", "peer": 4, "interface": "radio", "value": 0.25},
        ),
        (
            rows.fact_row(1.0, 2, Layer.ROUTING, Fact("drop", EVENT.id, 4, "no_route", 0.5)),
            {"kind": "drop", "layer": "routing", "event": "7:3", "peer": 4, "reason": "no_route", "value": 0.5},
        ),
        (rows.fact_row(1.0, 2, Layer.DISSEMINATION, Fact("round")), {"kind": "round"}),
        (
            rows.fact_row(1.0, 2, Layer.DISSEMINATION, rows.processor_error([EVENT], "processor_raised: p raised")),
            {"kind": "processor_error", "event": "7:3", "reason": "processor_raised: p raised"},
        ),
        (
            rows.fact_row(1.0, 2, Layer.DISSEMINATION, rows.processor_error([], "processor_unknown: p")),
            {"kind": "processor_error", "reason": "processor_unknown: p"},
        ),
        (
            rows.drop_row(1.0, 2, Layer.DISCOVERY, "timer_left"),
            {"kind": "drop", "layer": "discovery", "reason": "timer_left"},
        ),
        (
            rows.drop_row(1.0, 2, Layer.DISSEMINATION, "loss", 4, CARRIER),
            {"kind": "drop", "message": "Carrier", "traffic": "data", "event": "7:3", "peer": 4, "reason": "loss"},
        ),
        (rows.refusal_row(1.0, 2, "link_kind", 4), {"kind": "drop", "layer": "link", "peer": 4, "reason": "link_kind"}),
    ],
)
def test_a_fact_has_its_columns_and_no_other(row: Row, columns: dict[str, object]) -> None:
    usual = {"time_s": 1.0, "node": 2, "layer": "dissemination"}
    assert {name: value for name, value in row._asdict().items() if value is not None} == {**usual, **columns}


def test_a_message_has_the_same_columns_wherever_it_is() -> None:
    transfer = rows.Transfer(Layer.DISSEMINATION, CARRIER, "radio", 99)
    sent, again = transfer.send_row(1.0, 2, 4), transfer.send_row(1.5, 2, 4, attempt=2)
    assert sent == Row(1.0, 2, "dissemination", "send", "Carrier", "data", "7:3", None, 4, "radio", 99, 2)
    assert again == sent._replace(time_s=1.5, kind="retry")
    heard = sent._replace(time_s=2.0, kind="receive", peer=2)
    assert transfer.receive_rows(2.0, [4, 5], 2) == [heard._replace(node=4), heard._replace(node=5)]


def test_a_broadcast_that_carries_no_event_has_neither_target_nor_hops() -> None:
    row = rows.Transfer(Layer.DISCOVERY, Beacon(1.0), "udp", 12).send_row(1.0, 2, None)
    assert row == Row(1.0, 2, "discovery", "send", "Beacon", "discovery", interface="udp", size_bytes=12)
