"""The announcement table, and the expiry of its entries."""

import math
from random import Random

import pytest

from carrycast.core.model import Subscription
from carrycast.core.protocol.effects import Deliver
from carrycast.protocols.asp import announcement_table
from carrycast.protocols.asp.announcement_table import (
    SPARE_EXPIRIES,
    AnnouncementTable,
    KnownAnnouncement,
    StreamMessage,
    StreamState,
)
from carrycast.protocols.asp.path_state import PathState
from carrycast.protocols.asp.tests.bench import CELSIUS, SINK, Broker, C, announcement, event, publication

MEMORY_S = 5.0


def make_entry(table: AnnouncementTable, id: int, stream: int, until: float, sequence: int = 1) -> KnownAnnouncement:
    return KnownAnnouncement(
        id, table.stream(stream), sequence, StreamMessage(sequence, CELSIUS, 0, until), until, PathState(1, 0.1)
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_next_expiry_is_the_earliest_of_all_entries(seed: int) -> None:
    """Compared with a scan, while entries are added, prolonged, removed and expire."""
    rng = Random(seed)
    table = AnnouncementTable()
    streams = [table.stream(number) for number in range(5)]
    for stream in streams:
        table.put(make_entry(table, 100 + stream.id, stream.id, 1000.0), MEMORY_S)
    now = 0.0
    for step in range(400):
        what = rng.random()
        stream = rng.choice(streams)
        if what < 0.4:
            table.put(make_entry(table, rng.randrange(8), stream.id, now + rng.uniform(1, 9), step), MEMORY_S)
        elif what < 0.7:
            table.cache_message(stream, StreamMessage(step, CELSIUS, 0, now + rng.uniform(1, 9)))
        elif what < 0.8 and stream.cache:
            stream.cache.popleft()
        else:
            now += rng.uniform(0, 1)
            for one in table.expire(now).stale:
                for item in [item for item in one.cache if item.lease_until <= now]:
                    one.cache.remove(item)
        ends = [entry.until for entry in table.entries()] + [stream.until for stream in streams]
        ends += [item.lease_until for stream in streams for item in stream.cache]
        assert table.next_expiry() == min(ends)
        assert min(ends) > now


def test_a_stream_is_remembered_for_a_while_after_its_last_announcement() -> None:
    table = AnnouncementTable()
    table.put(make_entry(table, 1, 7, 10.0), MEMORY_S)
    table.put(make_entry(table, 2, 7, 12.0), MEMORY_S)
    assert [entry.id for entry in table.expire(10.0).announcements] == [1]
    assert [entry.id for entry in table.expire(16.9).announcements] == [2]
    assert [stream.id for stream in table.expire(17.0).streams] == [7]
    assert table.next_expiry() is None


def test_a_stream_is_remembered_until_the_leases_of_its_messages_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its source may announce the last message again long after its first announcement has expired."""
    table = AnnouncementTable()
    table.put(make_entry(table, 1, 7, 10.0), MEMORY_S)
    table.remember_message(table.stream(7), StreamMessage(2, CELSIUS, 0, 40.0))
    assert not table.expire(39.9).streams
    assert [stream.id for stream in table.expire(40.0).streams] == [7]
    # The number of streams that are remembered for their leases is bounded.
    monkeypatch.setattr(announcement_table, "MAX_LEASED_STREAMS", 2)
    for stream in range(3):
        table.put(make_entry(table, 10 + stream, stream, 50.0), MEMORY_S)
    for stream in range(3):
        table.remember_message(table.stream(stream), StreamMessage(2, CELSIUS, 0, math.inf))
    assert [stream.id for stream in table.expire(55.0).streams] == [0, 1, 2]
    table.put(make_entry(table, 10, 0, 60.0), MEMORY_S)
    table.remember_message(table.stream(0), StreamMessage(2, CELSIUS, 0, math.inf))
    assert not table.expire(1e9).streams
    assert table.next_expiry() is None


def test_finding_the_next_expiry_does_not_examine_all_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    examined = 0
    is_live = AnnouncementTable.is_live

    def count_examined(
        table: AnnouncementTable, end: float, what: KnownAnnouncement | StreamState | StreamMessage, stream: StreamState
    ) -> bool:
        nonlocal examined
        examined += 1
        return is_live(table, end, what, stream)

    monkeypatch.setattr(AnnouncementTable, "is_live", count_examined)
    table = AnnouncementTable()
    for number in range(2000):
        table.put(make_entry(table, number, number, 1000.0 + number), MEMORY_S)
        table.next_expiry()
    assert examined < 10 * 2000, "examining all entries each time would be two million"


def test_outdated_expiries_are_compacted() -> None:
    table = AnnouncementTable()
    stream = table.stream(1)
    for number in range(10_000):
        table.cache_message(stream, StreamMessage(number, CELSIUS, 0, 600.0 + number))
        if len(stream.cache) > 16:
            stream.cache.popleft()
    assert len(table) <= 2 * 17 + SPARE_EXPIRIES


def test_an_older_message_does_not_replace_the_newest_of_a_stream() -> None:
    broker = Broker(1)
    broker.hear(1, announcement(0.02))
    for counter in (3, 2):
        broker.hear(1, publication(counter, event(0, counter)))
    entry = broker.asp.broker.table.get(C)
    assert entry is not None
    assert entry.latest.counter == 3


def test_a_message_announced_again_within_its_lease_is_delivered_once() -> None:
    """Its announcement expired longer ago than `memory_s`, and its lease has not expired."""
    broker = Broker(1, memory_s=5.0)
    broker.asp.on_subscribe(0.0, Subscription(SINK, "true"))
    assert Deliver(SINK, CELSIUS, 1) in broker.hear(1, announcement(0.02, validity_s=10.0))
    broker.asp.on_timer(40.0, "expiry")
    assert broker.asp.broker.table.get(C) is None
    assert not any(isinstance(effect, Deliver) for effect in broker.hear(1, announcement(0.02, 2), 40.0))
