"""What others say wrongly, or too often, is dropped by name; tables stay bounded."""

import re
from pathlib import Path

import pytest

from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.wire import Message, Parcel, Traffic, classify
from carrycast.protocols.overlay import messages
from carrycast.protocols.overlay.broker_tables import BrokerInformation, BrokerTables
from carrycast.protocols.overlay.client_tables import SubscriptionDirectory
from carrycast.protocols.overlay.messages import (
    Attach,
    ClientAlive,
    DirectoryEntry,
    DirectoryUpdate,
    HomeVersion,
    Hop,
    NearerBroker,
    Output,
    OutputAck,
    ProducedEvent,
    ProducerRecord,
    Publish,
    RelocationRecord,
    RingAnswer,
    RingQuery,
    SequenceNumber,
    StreamPosition,
    StreamRecord,
    StreamSkip,
    StreamSlot,
    Subscribe,
    SubscriptionEnded,
    TopologyItem,
    Unsubscribe,
)
from carrycast.protocols.overlay.settings import OverlaySettings
from carrycast.protocols.overlay.tests.bench import Bench
from carrycast.sim.testing import Net

FOLDER = Path(__file__).parents[1]
EVENT = Event(EventId(9, 1), {})
ID = SubscriptionId(3, 1)
FIRST = HomeVersion(1, 1)


def bench(**settings: object) -> Bench:
    """Brokers 0, 1, 2 and nodes 3, 4."""
    return Bench(5, (0, 1, 2), 1, settings)


def told(net: Bench, node: NodeId, origin: NodeId, message: Message, hops: int = 1) -> list[str]:
    """Why a node drops a message."""
    net.facts.clear()
    net.nodes[node].on_packet(net.now, origin, message, hops)
    net.collect(node)
    return [fact.reason for at, fact in net.facts if fact.kind == "drop" and at == node]


def test_every_drop_has_a_test_and_stands_in_the_readme() -> None:
    producer_homes = "".join(path.read_text() for path in [*FOLDER.glob("*.py"), *FOLDER.glob("adaptors/*.py")])
    pattern = r'(?:drop\(\s*|refused\.append\(|return |refused = )"(\w+)"'
    reasons = set(re.findall(pattern, producer_homes))
    assert len(reasons) > 35
    listed = set(re.findall(r"`(\w+)`", (FOLDER / "README.md").read_text().split("## Drops by name")[1]))
    assert reasons - listed == set()
    tested = "".join(path.read_text() for path in (FOLDER / "tests").glob("*.py"))
    assert [reason for reason in sorted(reasons) if f'"{reason}"' not in tested] == []


# Topology items.


def item(broker: NodeId, number: int, incarnation: int = 1) -> TopologyItem:
    return TopologyItem(broker, SequenceNumber(incarnation, number), 0.0, ((1, 1.0),))


def test_items_that_are_old_absurd_or_forged_are_refused() -> None:
    table = BrokerTables(0, OverlaySettings(max_brokers=3), 1)
    table.update_neighbors(0.0, {1: 1.0}, BrokerInformation(0.0, 0.0, None, 0.0))
    assert table.merge(0.0, [item(1, 5)]) == []
    assert table.merge(0.0, [item(1, 5), item(1, 4)]) == ["item_outdated"] * 2
    assert table.merge(0.0, [item(1, 2**40)]) == ["item_absurd"]
    assert table.merge(0.0, [item(1, 1, incarnation=2**30)]) == ["item_absurd"]
    assert table.merge(0.0, [item(1, 0, incarnation=2)]) == [], "it has started anew"
    assert table.merge(0.0, [item(0, 99)]) == ["item_forged"], "nobody knows better than this broker itself"
    assert table.merge(0.0, [item(2, 1), item(7, 1)]) == ["topology_full"]
    assert set(table.topology) == {0, 1, 2}


def test_items_of_who_is_heard_of_no_more_are_forgotten() -> None:
    table = BrokerTables(0, OverlaySettings(link_rule="either"), 1)
    table.update_neighbors(0.0, {1: 1.0}, BrokerInformation(0.0, 0.0, None, 0.0))
    table.merge(10.0, [item(1, 1), item(2, 1)._replace(age_s=8.0)])
    assert 2 in table.paths_from(0)
    table.remove_older(5.0)
    assert set(table.topology) == {0, 1}
    assert 2 not in table.paths_from(0)


# Searches.


def test_a_flood_of_searches_is_not_passed_on() -> None:
    net = bench(search_rate=5)
    net.facts.clear()
    for number in range(9):
        net.nodes[3].on_message(0.0, 4, RingQuery(4, SequenceNumber(1, number), 3, 1), "radio")
    assert len(net.ports[3].take_messages()) == 5
    for number in range(9):
        net.nodes[3].on_message(0.0, 4, RingQuery(4, SequenceNumber(2, number), 3, 1), "radio")
    net.collect(3)
    assert net.reasons() == {"search_rate"}
    net.nodes[3].on_message(1.0, 4, RingQuery(4, SequenceNumber(3, 1), 3, 1), "radio")
    assert net.ports[3].take_messages() == [RingQuery(4, SequenceNumber(3, 1), 2, 2)], "the next second is another"


def test_answers_of_nobody_and_for_nothing_are_dropped() -> None:
    net = bench()
    assert told(net, 3, 4, RingAnswer(SequenceNumber(1, 1), 1, 0.0)) == ["not_a_broker"]
    assert told(net, 3, 0, RingAnswer(SequenceNumber(1, 1), 1, 0.0)) == ["search_over"]
    net.facts.clear()
    net.nodes[3].on_message(0.0, 4, ClientAlive(FIRST), "radio")
    net.collect(3)
    assert net.reasons() == {"not_routed"}
    assert told(net, 3, 4, ClientAlive(FIRST)) == ["not_a_broker"], "what is for brokers"


# Clients and homes.


def test_a_client_that_names_a_broker_that_does_not_exist_stays_where_it_is() -> None:
    net = bench()
    told(net, 0, 3, Attach(FIRST))
    assert told(net, 0, 3, NearerBroker(FIRST, 4, 1.0, 0.0)) == ["unknown_broker"]
    assert told(net, 0, 3, NearerBroker(FIRST, 99, 1.0, 0.0)) == ["unknown_broker"]
    assert told(net, 0, 3, NearerBroker(FIRST, 0, 1.0, 0.0)) == ["unknown_broker"], "the home itself"
    assert not net.broker(0).relocation.start(0.0, 3, 99, (), True)
    assert 3 in net.broker(0).clients


def test_who_is_not_at_home_here_is_told_so() -> None:
    net = bench(max_clients=1)
    assert told(net, 0, 3, ClientAlive(FIRST)) == ["not_home"]
    told(net, 0, 3, Attach(FIRST))
    assert told(net, 0, 3, ClientAlive(FIRST)) == []
    assert told(net, 0, 3, ClientAlive(HomeVersion(1, 2))) == ["not_home"], "of another attachment"
    assert told(net, 0, 4, Attach(FIRST)) == ["clients_full"]
    publish = Publish(EVENT, 0, 9.0, version=FIRST, number=0, first=0)
    assert told(net, 0, 4, publish) == ["not_home"]


def test_wants_that_cannot_be_served_are_refused() -> None:
    net = bench()
    told(net, 0, 3, Attach(FIRST))
    assert told(net, 0, 3, Subscribe(FIRST, Subscription(SubscriptionId(4, 1), ""))) == ["forged_subscriber"]
    assert told(net, 0, 3, Subscribe(FIRST, Subscription(ID, "a = "))) == ["filter_unreadable"]
    assert told(net, 0, 3, Subscribe(FIRST, Subscription(ID, "", processor="none"))) == ["processor_unknown"]
    assert told(net, 0, 3, Subscribe(FIRST, Subscription(ID, ""))) == []
    assert told(net, 0, 4, Unsubscribe(ID)) == ["forged_subscriber"]
    assert ID in net.broker(0).modulators


def test_two_brokers_that_both_believe_to_be_home_agree_on_one() -> None:
    net = bench()
    for broker, version in ((0, FIRST), (1, HomeVersion(1, 2))):
        told(net, broker, 3, Attach(version))
        told(net, broker, 3, Subscribe(version, Subscription(ID, "")))
    net.run(5)
    assert [ID in net.broker(broker).modulators for broker in (0, 1)] == [False, True]
    assert 3 not in net.broker(0).clients
    assert "superseded" in net.reasons() | {fact.reason for _, fact in net.facts}
    # And with the same word, as no sound client says it.
    table = SubscriptionDirectory(9)
    lean = Subscription(ID, "")
    assert table.put(DirectoryEntry(lean, FIRST, 1, 1), 9.0) == ""
    assert table.put(DirectoryEntry(lean, FIRST, 0, 0), 9.0) == "interest_contested"
    assert table.put(DirectoryEntry(lean, FIRST, 2, 2), 9.0) == ""
    assert table.put(DirectoryEntry(lean, HomeVersion(1, 0), 0, 0), 9.0) == "interest_outdated"


def test_interests_are_bounded_readable_and_of_brokers() -> None:
    table = SubscriptionDirectory(1)
    assert table.put(DirectoryEntry(Subscription(ID, "a = "), FIRST, 1, 1), 9.0) == "filter_unreadable"
    assert table.put(DirectoryEntry(Subscription(ID, ""), FIRST, 1, 1), 9.0) == ""
    assert table.put(DirectoryEntry(Subscription(SubscriptionId(3, 2), ""), FIRST, 1, 1), 9.0) == "interests_full"
    assert table.home_of(3) == 1
    assert table.expire(9.0) == [ID]
    assert table.home_of(3) is None
    net = bench()
    forged = DirectoryUpdate((DirectoryEntry(Subscription(ID, ""), FIRST, 1, 1),))
    assert told(net, 0, 2, forged) == ["unknown_broker"], "of a modulator at another broker"
    assert told(net, 0, 1, DirectoryUpdate((DirectoryEntry(Subscription(ID, ""), FIRST, 1, 4),))) == ["unknown_broker"]
    assert told(net, 0, 1, forged) == []
    told(net, 0, 2, SubscriptionEnded(ID, HomeVersion(1, 0)))
    assert len(net.broker(0).directory) == 1, "older than what is known"
    told(net, 0, 2, SubscriptionEnded(ID, FIRST))
    assert len(net.broker(0).directory) == 0


def test_a_broker_that_starts_holds_what_is_published_until_it_has_been_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.overlay.client_tables.MAX_WAITING", 2)
    net = bench()
    assert told(net, 0, 4, messages.DirectoryReply((), False, True)) == ["not_asked"]
    told(net, 0, 3, Attach(FIRST))

    def publish(number: int) -> list[str]:
        return told(net, 0, 3, Publish(EVENT, 0, 9.0, version=FIRST, number=number, first=0))

    assert [publish(number) for number in range(3)] == [[], [], ["starting"]]
    told(net, 0, 2, messages.DirectoryReply((DirectoryEntry(Subscription(ID, ""), FIRST, 1, 1),), False, True))
    net.run(2)
    [(_, target, _)] = [one for one in net.carried if one[0] == 0 and classify(one[2])[1] == EVENT.id][:1]
    assert target == 1, "they go where the answer says"


# Streams.


def raw(number: int, generation: HomeVersion = FIRST, producer: NodeId = 4, first: int = 0) -> ProducedEvent:
    slot = StreamSlot(ID, number, first)
    return ProducedEvent(EVENT, 0, 9.0, producer=producer, generation=generation, slots=(slot,))


def home_of_three(**settings: object) -> Bench:
    net = bench(**settings)
    told(net, 0, 3, Attach(FIRST))
    told(net, 0, 3, Subscribe(FIRST, Subscription(ID, "")))
    return net


def test_events_for_nobody_copies_and_old_generations_are_dropped() -> None:
    net = home_of_three()
    assert told(net, 1, 0, raw(0)) == ["modulator_elsewhere"]
    assert told(net, 0, 1, raw(0)) == []
    assert told(net, 0, 1, raw(0)) == ["stream_repeated"]
    for attach in (3, 2):
        # A producer that has lost its home says again what may have come over that.
        assert told(net, 0, 1, raw(0, HomeVersion(1, attach))) == ["already_taken"]
    assert told(net, 0, 1, raw(0, HomeVersion(1, 0))) == ["generation_outdated"]
    assert told(net, 0, 4, OutputAck(ID, 1, 0)) == ["modulator_elsewhere"], "only the client has got it"
    told(net, 0, 1, StreamSkip(4, HomeVersion(1, 3), (StreamSlot(ID, 9, 9),)))
    assert told(net, 0, 1, raw(8, HomeVersion(1, 3))) == ["stream_repeated"]


def test_streams_of_very_many_producers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.overlay.modulators.MAX_STREAMS", 2)
    net = home_of_three()
    assert told(net, 0, 1, raw(0, producer=10)) == []
    told(net, 0, 1, raw(0, producer=11))
    assert told(net, 0, 1, raw(0, producer=12)) == ["streams_full"]


def test_a_client_takes_what_it_wants_from_whom_it_is_at_home_with() -> None:
    net = home_of_three()
    net.subscribe(3, None, "number > 5")
    net.run(3)
    version = net.nodes[3].client.version
    input = StreamPosition(4, FIRST, 0)

    def output(number: int, event: Event, id: SubscriptionId = ID, at: HomeVersion = version) -> Output:
        return Output(event, 0, 9.0, slot=StreamSlot(id, number, 0), version=at, input=input)

    fits = Event(EventId(4, 1), {"number": 9})
    assert told(net, 3, 0, output(0, fits, SubscriptionId(3, 9))) == ["not_wanted"]
    assert told(net, 3, 0, output(0, Event(EventId(4, 0), {"number": 1}))) == ["not_wanted"]
    assert told(net, 3, 0, output(1, fits)) == []
    assert told(net, 3, 0, output(1, fits)) == ["stream_repeated"]
    assert told(net, 3, 0, output(2, fits)) == ["already_delivered"]
    assert told(net, 3, 0, output(3, fits, at=HomeVersion(1, 77))) == ["generation_outdated"]
    assert told(net, 3, 0, messages.HomeConfirmed(HomeVersion(1, 77))) == ["home_outdated"]
    assert told(net, 3, 2, messages.NotHome(version)) == ["home_outdated"]
    assert net.outputs(ID) == [fits]


def test_what_waits_too_long_or_is_too_much_goes_by_name() -> None:
    net = bench(max_kept=2)
    net.apart = {0, 1, 2}
    net.publish(3, 0, lease_s=1.0)
    for number in (1, 2):
        net.publish(3, number, lease_s=8.0)
    assert net.reasons() == {"stream_full"}
    net.run(20)
    assert net.reasons() >= {"stream_full", "lease_over"}


def test_paths_of_others_are_bounded_and_their_packets_readable() -> None:
    net = bench()
    hop = Hop(Parcel(b"nothing", Traffic.DATA, EVENT.id), origin=1, path=(), hops=1)
    assert told(net, 0, 1, hop) == ["hop_malformed"]
    net.facts.clear()
    net.nodes[0].on_unreachable(0.0, 2, Hop(hop.parcel, origin=1, path=(2, 3), hops=1))
    target, onward = _first_route(net, 0)
    assert (target, onward) == (3, Hop(hop.parcel, origin=1, path=(), hops=1)), "straight to its target"
    net.nodes[0].on_unreachable(0.0, 3, onward)
    net.nodes[0].on_unreachable(0.0, 3, OutputAck(ID, 1, 0))
    net.collect(0)
    assert [fact.reason for _, fact in net.facts] == ["unreachable", "unreachable"]


def _first_route(net: Bench, node: NodeId) -> tuple[NodeId, Message]:
    net.carried.clear()
    net.collect(node)
    return net.carried[0][1], net.carried[0][2]


# Moves.


def record(production: tuple[ProducerRecord, ...] = ()) -> RelocationRecord:
    return RelocationRecord(3, 0, FIRST, True, production, ())


def test_steps_of_moves_that_nobody_makes_are_dropped() -> None:
    net = bench()
    move = SequenceNumber(1, 1)
    for message in (messages.Ready(move), messages.Installed(move), messages.Resumed(move), messages.Abort(move)):
        assert told(net, 0, 1, message) == ["move_unknown"]
    assert told(net, 0, 1, messages.Release(move)) == ["move_unknown"]
    assert told(net, 0, 1, messages.StateTransfer(move, record(), 600.0)) == []
    assert told(net, 0, 1, messages.StateTransfer(move, record(), 600.0)) == ["move_repeated"]
    assert told(net, 0, 1, messages.Release(move)) == []
    assert told(net, 0, 1, messages.Release(move)) == [], "asked again because the answer was lost"
    assert 3 in net.broker(0).clients


def test_what_is_never_released_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.overlay.relocation.MAX_INCOMING", 1)
    net = bench(lease_s=10.0)
    net.apart = {1}
    assert told(net, 0, 1, messages.StateTransfer(SequenceNumber(1, 1), record(), 600.0)) == []
    assert told(net, 0, 1, messages.StateTransfer(SequenceNumber(1, 2), record(), 600.0)) == ["arrivals_full"]
    net.run(30)
    assert "arrival_expired" in net.reasons()
    assert net.broker(0).relocation.incoming == {}


def test_records_that_are_unsound_or_too_late_are_not_believed() -> None:
    net = bench(max_clients=1)
    crooked = ProducerRecord(FIRST, 0, (), (StreamRecord(ID, 5, (1, 2), (0, 1)),), ())
    told(net, 0, 1, messages.StateTransfer(SequenceNumber(1, 1), record((crooked,)), 600.0, begin=True))
    assert [fact.reason for _, fact in net.facts] == ["record_unsound"]
    told(net, 0, 3, Attach(HomeVersion(1, 9)))
    assert told(net, 0, 1, messages.StateTransfer(SequenceNumber(1, 2), record(), 600.0, begin=True)) == ["superseded"]
    other = RelocationRecord(4, 0, FIRST, True, (), ())
    assert told(net, 0, 1, messages.StateTransfer(SequenceNumber(1, 3), other, 600.0, begin=True)) == ["clients_full"]


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("processor_unknown", {}),
        ("overloaded", {}),
        ("memory_short", {"min_free_bytes": 100}),
        ("clients_full", {"max_clients": 1}),
    ],
)
def test_a_broker_refuses_what_it_cannot_take(reason: str, settings: dict[str, object]) -> None:
    net = bench(home_change_by="", load_balancing_by="", **settings)
    id = net.subscribe(3)
    net.run(3)
    home = net.place(id)
    assert home == 0
    host = net.hosts[1]
    if reason == "processor_unknown":
        host.is_running = ()
    elif reason == "overloaded":
        host.busy = 0.95
    elif reason == "memory_short":
        host.free_bytes = 50
    else:
        told(net, 1, 4, Attach(FIRST))
    net.broker(0).relocation.start(net.now, 3, 1, (id,), True)
    net.collect(0)
    assert not net.broker(0).relocation.start(net.now, 3, 2, (id,), True)
    net.collect(0)
    assert "relocation_under_way" in net.reasons()
    net.run(3)
    assert net.reasons("relocation_refused") == {reason}
    assert net.place(id) == 0


def test_a_client_that_is_moving_keeps_what_it_publishes() -> None:
    net = bench(home_change_by="", load_balancing_by="")
    id = net.subscribe(4, None)
    net.run(3)
    net.publish(3, 0)
    net.run(5)
    home = net.nodes[3].client.home
    assert home is not None
    net.delay_s = (0.2, 0.3)
    net.broker(home).relocation.start(net.now, 3, 1 if home != 1 else 2, (), True)
    net.collect(home)
    for number in range(1, 6):
        net.publish(3, number)
        net.run(0.2)
    net.run(60)
    assert "client_moving" in net.reasons()
    assert [event.id.sequence for event in net.outputs(id)] == list(range(6))


# Modulators.

BAD = """
def raising(event, state):
    if event.attributes["number"] == 2:
        raise ValueError("two")
    return {"count": len(state) + 1}, state + b"x"

def growing(event, state):
    size = 1 << (20 + (event.attributes["number"] == 2))
    return {"count": len(state or b"")}, bytes(size)
"""


@pytest.mark.parametrize(("name", "counts"), [("raising", [1, 2, 3]), ("growing", [0, 1 << 20, 1 << 20])])
def test_a_modulator_that_raises_or_grows_without_bound_costs_its_event_alone(
    name: str, counts: list[int], tmp_path: Path
) -> None:
    (tmp_path / "f.py").write_text(BAD)
    scenario = {
        "base": str(tmp_path),
        "roles": {"broker": [1]},
        "processors": [{"id": name, "function": f"f.py:{name}", "nodes": "broker"}],
    }
    net = Net.line(3, "overlay", scenario)
    id = net.subscribe(2, processor=name)
    net.run(5)
    for number in (1, 2, 3, 4):
        net.publish(0, {"number": number})
        net.run(2)
    assert net.dropped("processor_failed") == 1
    assert [event.attributes["count"] for event in net.delivered(2, id)] == counts


def test_a_modulator_that_does_not_return_keeps_a_bounded_queue_and_can_be_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("carrycast.protocols.overlay.modulators.MAX_CALLS", 3)
    net = bench(home_change_by="", load_balancing_by="", look_s=1e5)
    id = net.subscribe(3)
    net.run(3)
    net.call_s = (1e9, 1e9)
    for number in range(6):
        net.publish(4, number)
        net.run(0.1)
    net.run(5)
    assert "processor_busy" in net.reasons()
    net.call_s = (0.01, 0.02)
    net.broker(0).relocation.start(net.now, 3, 1, (id,), True)
    net.collect(0)
    net.run(30)
    # What was never processed its producer's home still has, but for what the queue had no room for.
    assert [event.derived_from[0].sequence for event in net.outputs(id)][:4] == [0, 1, 2, 3]


def test_a_client_that_is_heard_of_no_more_is_forgotten() -> None:
    net = bench(lease_s=30.0, refresh_s=10.0)
    id = net.subscribe(3, None)
    net.run(5)
    home = net.place(id)
    assert home is not None
    net.crash(3)
    net.run(60)
    assert "client_expired" in net.reasons()
    assert 3 not in net.broker(home).clients
    assert [len(net.broker(broker).directory) for broker in (0, 1, 2)] == [0, 0, 0]
