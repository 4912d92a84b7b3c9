"""What every protocol that keeps events owes who published at level `stored`: a crash takes nothing of it."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from carrycast.core.model import Event, EventId
from carrycast.core.parts.copies import MAX_COPIES, CopyCounts
from carrycast.core.protocol import KeepsEvents
from carrycast.core.protocol.registry import find_protocol, protocol_names
from carrycast.sim.engine.host import MemoryStore
from carrycast.sim.testing import Net

KEEPERS = [name for name in protocol_names() if issubclass(find_protocol(name), KeepsEvents)]
every_keeper = pytest.mark.parametrize("name", KEEPERS)
# Attempts come soon enough for a short story, and adaptive's relays store what comes.
SOON: Mapping[str, dict[str, object]] = {
    "adaptive": {"retry_s": 2.0, "sigma": 0.0},
    "prophet": {"exchange_s": 2.0},
    "semi_probabilistic": {"retry_s": 2.0, "attempts": 1000},
    "tree": {"recover_s": 2.0},
}
# The tree sends along the paths of subscriptions that stand: a broker on the way has only what was wanted beyond it.
NO_RELAYS = {"direct", "tree"}
WORLD = {"discovery": {"mode": "beacon"}}


def net_of(name: str, contacts: list[tuple[int, int, float, float]], durable: bool) -> Net:
    settings: dict[str, object] = {"durable": durable, **SOON.get(name, {})}
    return Net.contacts(contacts, name, WORLD, 1, **settings)


def numbers(events: list[Event]) -> list[int]:
    return sorted(int(str(event.attributes["n"])) for event in events)


def story(name: str, durable: bool) -> tuple[list[Event], list[Event]]:
    """A publisher crashes before it meets anybody: what it published, and what came."""
    net = net_of(name, [(0, 1, 20.0, 60.0)], durable)
    net.subscribe(1)
    net.run(2)
    published = [net.publish(0, {"n": n}) for n in range(3)]
    net.run(3)
    net.crash(0)
    net.run(5)
    net.restart(0)
    net.run(50)
    return published, net.list_delivered(1)


def test_there_are_protocols_that_keep_events() -> None:
    assert set(KEEPERS) >= {"epidemic", "drift", "adaptive", "semi_probabilistic", "spray_and_wait", "prophet", "tree"}


def test_the_page_states_for_every_protocol_what_it_guarantees_or_why_nothing() -> None:
    levels, _, refused = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text().partition("is refused\n")
    rows = [line.split(" | ") for line in levels.splitlines() if line.startswith("| `")]
    stored = {name for row in rows if "stored" in row[1] for name in re.findall("`(\\w+)`", row[0])}
    assert [name for name in KEEPERS if name not in stored] == []
    assert [name for name in protocol_names() if name not in KEEPERS and f"`{name}`" not in refused] == []


@every_keeper
def test_what_a_node_kept_is_brought_when_it_is_back(name: str) -> None:
    published, came = story(name, durable=True)
    assert numbers(came) == numbers(published)


@every_keeper
def test_without_the_store_the_same_crash_takes_it(name: str) -> None:
    assert story(name, durable=False)[1] == []


@pytest.mark.parametrize("name", [name for name in KEEPERS if name not in NO_RELAYS])
def test_a_relay_that_crashed_brings_what_it_carries(name: str) -> None:
    # That relay and subscriber have met before is what prophet goes by.
    net = net_of(name, [(1, 2, 2.0, 15.0), (0, 1, 20.0, 40.0), (1, 2, 60.0, 100.0)], durable=True)
    net.subscribe(2)
    net.run(25)
    published = net.publish(0, {"n": 1})
    net.run(20)
    net.crash(1)
    net.run(3)
    net.restart(1)
    net.run(50)
    assert net.list_delivered(2) == [published]


@every_keeper
def test_what_ended_while_a_node_was_down_is_let_go_by_name(name: str) -> None:
    net = net_of(name, [(0, 1, 40.0, 60.0)], durable=True)
    net.subscribe(1)
    net.run(2)
    ended, kept = net.publish(0, {"n": 1}, lease_s=5.0), net.publish(0, {"n": 2}, lease_s=500.0)
    net.run(1)
    net.crash(0)
    net.run(10)
    net.restart(0)
    net.run(1)
    assert [row["event"] for row in net.rows("drop", reason="lease_over")] == [str(ended.id)]
    assert [row["event"] for row in net.rows("store", time_s=13.0)] == [str(kept.id)]


@every_keeper
def test_two_starts_in_a_row_hold_the_same(name: str) -> None:
    net = net_of(name, [(0, 1, 40.0, 60.0)], durable=True)
    net.subscribe(1)
    published = [net.publish(0, {"n": n}) for n in range(5)]
    net.run(1)
    for _ in range(3):
        net.crash(0)
        net.run(1)
        net.restart(0)
        net.run(1)
    net.run(50)
    assert numbers(net.list_delivered(1)) == numbers(published)


def test_copies_on_their_way_when_a_node_is_killed_are_its_own_again() -> None:
    store, id = MemoryStore(), EventId(1, 1)
    copies = CopyCounts(store)
    copies.begin(id, 8)
    copies.send(id, 4)
    copies.send(id, 2)
    assert copies[id] == 2
    assert not copies.confirm(id, 4)
    again = CopyCounts(store)
    again.load(id)
    assert again[id] == 4, "the two under way came back, the four that arrived did not"
    again.send(id, 4)
    again.take_back(id, MAX_COPIES + 1)
    assert again[id] == MAX_COPIES
    again.forget(id)
    again.forget(id)
    assert not list(store.items())


def test_the_last_copy_is_gone_when_it_has_arrived() -> None:
    copies = CopyCounts(None)
    copies.begin(EventId(1, 1), 1)
    copies.send(EventId(1, 1), 1)
    assert not copies.confirm(EventId(1, 1), 0), "it is on its way to another"
    assert copies.confirm(EventId(1, 1), 1)
