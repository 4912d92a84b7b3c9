"""Bad input: invalid or too frequent messages are dropped with a reason, and tables stay bounded."""

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


def make_bench(**settings: object) -> Bench:
    """Brokers 0, 1, 2 and nodes 3, 4."""
    return Bench(5, (0, 1, 2), 1, settings)


def receive(net: Bench, node: NodeId, origin: NodeId, message: Message, hops: int = 1) -> list[str]:
    """Pass a message to a node, and return the reasons of its drops."""
    net.facts.clear()
    net.nodes[node].on_packet(net.now, origin, message, hops)
    net.collect(node)
    return [fact.reason for at, fact in net.facts if fact.kind == "drop" and at == node]


def test_every_drop_reason_is_tested_and_documented() -> None:
    source = "".join(path.read_text() for path in FOLDER.glob("*.py"))
    pattern = r'(?:drop\(\s*|rejected\.append\(|return |refused = )"(\w+)"'
    reasons = set(re.findall(pattern, source))
    assert len(reasons) > 35
    listed = set(re.findall(r"`(\w+)`", (FOLDER / "README.md").read_text().split("## Drops by name")[1]))
    assert reasons - listed == set()
    tested = "".join(path.read_text() for path in (FOLDER / "tests").glob("*.py"))
    assert [reason for reason in sorted(reasons) if f'"{reason}"' not in tested] == []


# Topology items.


def make_item(broker: NodeId, number: int, incarnation: int = 1) -> TopologyItem:
    return TopologyItem(broker, SequenceNumber(incarnation, number), 0.0, ((1, 1.0),))


def test_outdated_absurd_and_forged_items_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.overlay.broker_tables.MAX_BROKERS", 3)
    table = BrokerTables(0, OverlaySettings(), 1)
    table.update_neighbors(0.0, {1: 1.0}, BrokerInformation(0.0, 0.0, None, 0.0))
    assert table.merge(0.0, [make_item(1, 5)]) == []
    assert table.merge(0.0, [make_item(1, 5), make_item(1, 4)]) == ["item_outdated"] * 2
    assert table.merge(0.0, [make_item(1, 2**40)]) == ["item_absurd"]
    assert table.merge(0.0, [make_item(1, 1, incarnation=2**30)]) == ["item_absurd"]
    assert table.merge(0.0, [make_item(1, 0, incarnation=2)]) == [], "it has restarted"
    assert table.merge(0.0, [make_item(0, 99)]) == ["item_forged"], "items about the receiver itself are forged"
    assert table.merge(0.0, [make_item(2, 1), make_item(7, 1)]) == ["topology_full"]
    assert set(table.topology) == {0, 1, 2}


def test_old_items_are_removed() -> None:
    table = BrokerTables(0, OverlaySettings(link_rule="either"), 1)
    table.update_neighbors(0.0, {1: 1.0}, BrokerInformation(0.0, 0.0, None, 0.0))
    table.merge(10.0, [make_item(1, 1), make_item(2, 1)._replace(age_s=8.0)])
    assert 2 in table.paths_from(0)
    table.remove_older(5.0)
    assert set(table.topology) == {0, 1}
    assert 2 not in table.paths_from(0)


# Searches.


def test_searches_beyond_the_rate_limit_are_dropped() -> None:
    net = make_bench(search_rate=5)
    net.facts.clear()
    for number in range(9):
        net.nodes[3].on_message(0.0, 4, RingQuery(4, SequenceNumber(1, number), 3, 1), "radio")
    assert len(net.ports[3].take_messages()) == 5
    for number in range(9):
        net.nodes[3].on_message(0.0, 4, RingQuery(4, SequenceNumber(2, number), 3, 1), "radio")
    net.collect(3)
    assert net.list_reasons() == {"search_rate"}
    net.nodes[3].on_message(1.0, 4, RingQuery(4, SequenceNumber(3, 1), 3, 1), "radio")
    assert net.ports[3].take_messages() == [RingQuery(4, SequenceNumber(3, 1), 2, 2)], "the limit is for each second"


def test_unexpected_search_answers_are_dropped() -> None:
    net = make_bench()
    assert receive(net, 3, 4, RingAnswer(SequenceNumber(1, 1), 1, 0.0)) == ["not_a_broker"]
    assert receive(net, 3, 0, RingAnswer(SequenceNumber(1, 1), 1, 0.0)) == ["search_over"]
    net.facts.clear()
    net.nodes[3].on_message(0.0, 4, ClientAlive(FIRST), "radio")
    net.collect(3)
    assert net.list_reasons() == {"not_routed"}
    assert receive(net, 3, 4, ClientAlive(FIRST)) == ["not_a_broker"], "a message for brokers"


# Clients and homes.


def test_a_report_of_an_unknown_broker_is_dropped() -> None:
    net = make_bench()
    receive(net, 0, 3, Attach(FIRST))
    assert receive(net, 0, 3, NearerBroker(FIRST, 4, 1.0, 0.0)) == ["unknown_broker"]
    assert receive(net, 0, 3, NearerBroker(FIRST, 99, 1.0, 0.0)) == ["unknown_broker"]
    assert receive(net, 0, 3, NearerBroker(FIRST, 0, 1.0, 0.0)) == ["unknown_broker"], "the home broker itself"
    assert not net.broker(0).relocation.start(0.0, 3, 99, (), True)
    assert 3 in net.broker(0).clients


def test_a_message_of_a_client_of_another_broker_is_dropped() -> None:
    net = make_bench(max_clients=1)
    assert receive(net, 0, 3, ClientAlive(FIRST)) == ["not_home"]
    receive(net, 0, 3, Attach(FIRST))
    assert receive(net, 0, 3, ClientAlive(FIRST)) == []
    assert receive(net, 0, 3, ClientAlive(HomeVersion(1, 2))) == ["not_home"], "of another attachment"
    assert receive(net, 0, 4, Attach(FIRST)) == ["clients_full"]
    publish = Publish(EVENT, 0, 9.0, version=FIRST, number=0, first=0)
    assert receive(net, 0, 4, publish) == ["not_home"]


def test_invalid_subscriptions_are_rejected() -> None:
    net = make_bench()
    receive(net, 0, 3, Attach(FIRST))
    assert receive(net, 0, 3, Subscribe(FIRST, Subscription(SubscriptionId(4, 1), ""))) == ["forged_subscriber"]
    assert receive(net, 0, 3, Subscribe(FIRST, Subscription(ID, "a = "))) == ["filter_unreadable"]
    assert receive(net, 0, 3, Subscribe(FIRST, Subscription(ID, "", processor="none"))) == ["processor_unknown"]
    assert receive(net, 0, 3, Subscribe(FIRST, Subscription(ID, ""))) == []
    assert receive(net, 0, 4, Unsubscribe(ID)) == ["forged_subscriber"]
    assert ID in net.broker(0).modulators


def test_of_two_home_brokers_of_one_client_one_yields() -> None:
    net = make_bench()
    for broker, version in ((0, FIRST), (1, HomeVersion(1, 2))):
        receive(net, broker, 3, Attach(version))
        receive(net, broker, 3, Subscribe(version, Subscription(ID, "")))
    net.run(5)
    assert [ID in net.broker(broker).modulators for broker in (0, 1)] == [False, True]
    assert 3 not in net.broker(0).clients
    assert "superseded" in net.list_reasons() | {fact.reason for _, fact in net.facts}
    # Two entries with the same version, which no correct client causes.
    table = SubscriptionDirectory(9)
    lean = Subscription(ID, "")
    assert table.put(DirectoryEntry(lean, FIRST, 1, 1), 9.0) == ""
    assert table.put(DirectoryEntry(lean, FIRST, 0, 0), 9.0) == "interest_contested"
    assert table.put(DirectoryEntry(lean, FIRST, 2, 2), 9.0) == ""
    assert table.put(DirectoryEntry(lean, HomeVersion(1, 0), 0, 0), 9.0) == "interest_outdated"


def test_invalid_directory_entries_are_rejected() -> None:
    table = SubscriptionDirectory(1)
    assert table.put(DirectoryEntry(Subscription(ID, "a = "), FIRST, 1, 1), 9.0) == "filter_unreadable"
    assert table.put(DirectoryEntry(Subscription(ID, ""), FIRST, 1, 1), 9.0) == ""
    assert table.put(DirectoryEntry(Subscription(SubscriptionId(3, 2), ""), FIRST, 1, 1), 9.0) == "interests_full"
    assert table.home_of(3) == 1
    assert table.expire(9.0) == [ID]
    assert table.home_of(3) is None
    net = make_bench()
    forged = DirectoryUpdate((DirectoryEntry(Subscription(ID, ""), FIRST, 1, 1),))
    assert receive(net, 0, 2, forged) == ["unknown_broker"], "of a modulator at another broker"
    assert receive(net, 0, 1, DirectoryUpdate((DirectoryEntry(Subscription(ID, ""), FIRST, 1, 4),))) == [
        "unknown_broker"
    ]
    assert receive(net, 0, 1, forged) == []
    receive(net, 0, 2, SubscriptionEnded(ID, HomeVersion(1, 0)))
    assert len(net.broker(0).directory) == 1, "older than what is known"
    receive(net, 0, 2, SubscriptionEnded(ID, FIRST))
    assert len(net.broker(0).directory) == 0


def test_a_starting_broker_queues_events_until_it_has_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.overlay.client_tables.MAX_WAITING", 2)
    net = make_bench()
    assert receive(net, 0, 4, messages.DirectoryReply((), False, True)) == ["not_asked"]
    receive(net, 0, 3, Attach(FIRST))

    def publish(number: int) -> list[str]:
        return receive(net, 0, 3, Publish(EVENT, 0, 9.0, version=FIRST, number=number, first=0))

    assert [publish(number) for number in range(3)] == [[], [], ["starting"]]
    receive(net, 0, 2, messages.DirectoryReply((DirectoryEntry(Subscription(ID, ""), FIRST, 1, 1),), False, True))
    net.run(2)
    [(_, target, _)] = [one for one in net.routed if one[0] == 0 and classify(one[2])[1] == EVENT.id][:1]
    assert target == 1, "the event goes to the broker in the reply"


# Streams.


def make_input(number: int, generation: HomeVersion = FIRST, producer: NodeId = 4, first: int = 0) -> ProducedEvent:
    slot = StreamSlot(ID, number, first)
    return ProducedEvent(EVENT, 0, 9.0, producer=producer, generation=generation, slots=(slot,))


def make_bench_with_client(**settings: object) -> Bench:
    net = make_bench(**settings)
    receive(net, 0, 3, Attach(FIRST))
    receive(net, 0, 3, Subscribe(FIRST, Subscription(ID, "")))
    return net


def test_duplicates_and_inputs_of_unknown_modulators_are_dropped() -> None:
    net = make_bench_with_client()
    assert receive(net, 1, 0, make_input(0)) == ["modulator_elsewhere"]
    assert receive(net, 0, 1, make_input(0)) == []
    assert receive(net, 0, 1, make_input(0)) == ["stream_repeated"]
    for attach in (3, 2):
        # A producer that has lost its home broker publishes again the events that may not have arrived.
        assert receive(net, 0, 1, make_input(0, HomeVersion(1, attach))) == ["already_taken"]
    assert receive(net, 0, 1, make_input(0, HomeVersion(1, 0))) == ["generation_outdated"]
    assert receive(net, 0, 4, OutputAck(ID, 1, 0)) == ["modulator_elsewhere"], "only the client may acknowledge outputs"
    receive(net, 0, 1, StreamSkip(4, HomeVersion(1, 3), (StreamSlot(ID, 9, 9),)))
    assert receive(net, 0, 1, make_input(8, HomeVersion(1, 3))) == ["stream_repeated"]


def test_producer_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.overlay.modulators.MAX_STREAMS", 2)
    net = make_bench_with_client()
    assert receive(net, 0, 1, make_input(0, producer=10)) == []
    receive(net, 0, 1, make_input(0, producer=11))
    assert receive(net, 0, 1, make_input(0, producer=12)) == ["streams_full"]


def test_a_client_drops_outputs_that_are_duplicate_outdated_or_do_not_match() -> None:
    net = make_bench_with_client()
    net.subscribe(3, None, "number > 5")
    net.run(3)
    version = net.nodes[3].client.version
    input = StreamPosition(4, FIRST, 0)

    def output(number: int, event: Event, id: SubscriptionId = ID, at: HomeVersion = version) -> Output:
        return Output(event, 0, 9.0, slot=StreamSlot(id, number, 0), version=at, input=input)

    fits = Event(EventId(4, 1), {"number": 9})
    assert receive(net, 3, 0, output(0, fits, SubscriptionId(3, 9))) == ["not_wanted"]
    assert receive(net, 3, 0, output(0, Event(EventId(4, 0), {"number": 1}))) == ["not_wanted"]
    assert receive(net, 3, 0, output(1, fits)) == []
    assert receive(net, 3, 0, output(1, fits)) == ["stream_repeated"]
    assert receive(net, 3, 0, output(2, fits)) == ["already_delivered"]
    assert receive(net, 3, 0, output(3, fits, at=HomeVersion(1, 77))) == ["generation_outdated"]
    assert receive(net, 3, 0, messages.HomeConfirmed(HomeVersion(1, 77))) == ["home_outdated"]
    assert receive(net, 3, 2, messages.NotHome(version)) == ["home_outdated"]
    assert net.list_outputs(ID) == [fits]


def test_buffered_events_are_bounded_and_expire_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.overlay.streams.MAX_BUFFERED", 2)
    net = make_bench()
    net.unreachable = {0, 1, 2}
    net.publish(3, 0, lease_s=1.0)
    for number in (1, 2):
        net.publish(3, number, lease_s=8.0)
    assert net.list_reasons() == {"stream_full"}
    net.run(20)
    assert net.list_reasons() >= {"stream_full", "lease_over"}


def test_malformed_and_unreachable_source_routed_packets_are_dropped() -> None:
    net = make_bench()
    hop = Hop(Parcel(b"nothing", Traffic.DATA, EVENT.id), origin=1, path=(), hops=1)
    assert receive(net, 0, 1, hop) == ["hop_malformed"]
    net.facts.clear()
    net.nodes[0].on_unreachable(0.0, 2, Hop(hop.parcel, origin=1, path=(2, 3), hops=1))
    target, onward = _first_route(net, 0)
    assert (target, onward) == (3, Hop(hop.parcel, origin=1, path=(), hops=1)), "directly to its target"
    net.nodes[0].on_unreachable(0.0, 3, onward)
    net.nodes[0].on_unreachable(0.0, 3, OutputAck(ID, 1, 0))
    net.collect(0)
    assert [fact.reason for _, fact in net.facts] == ["unreachable", "unreachable"]


def _first_route(net: Bench, node: NodeId) -> tuple[NodeId, Message]:
    net.routed.clear()
    net.collect(node)
    return net.routed[0][1], net.routed[0][2]


# Relocation.


def make_record(production: tuple[ProducerRecord, ...] = ()) -> RelocationRecord:
    return RelocationRecord(3, 0, FIRST, True, production, ())


def test_steps_of_unknown_relocations_are_dropped() -> None:
    net = make_bench()
    move = SequenceNumber(1, 1)
    for message in (messages.Ready(move), messages.Installed(move), messages.Resumed(move), messages.Abort(move)):
        assert receive(net, 0, 1, message) == ["move_unknown"]
    assert receive(net, 0, 1, messages.Release(move)) == ["move_unknown"]
    assert receive(net, 0, 1, messages.StateTransfer(move, make_record(), 600.0)) == []
    assert receive(net, 0, 1, messages.StateTransfer(move, make_record(), 600.0)) == ["move_repeated"]
    assert receive(net, 0, 1, messages.Release(move)) == []
    assert receive(net, 0, 1, messages.Release(move)) == [], "a repeated release, because the answer was lost"
    assert 3 in net.broker(0).clients


def test_a_state_without_a_release_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.overlay.relocation.MAX_INCOMING", 1)
    net = make_bench(lease_s=10.0)
    net.unreachable = {1}
    assert receive(net, 0, 1, messages.StateTransfer(SequenceNumber(1, 1), make_record(), 600.0)) == []
    assert receive(net, 0, 1, messages.StateTransfer(SequenceNumber(1, 2), make_record(), 600.0)) == ["arrivals_full"]
    net.run(30)
    assert "arrival_expired" in net.list_reasons()
    assert net.broker(0).relocation.incoming == {}


def test_inconsistent_and_outdated_records_are_rejected() -> None:
    net = make_bench(max_clients=1)
    inconsistent = ProducerRecord(FIRST, 0, (), (StreamRecord(ID, 5, (1, 2), (0, 1)),), ())
    receive(net, 0, 1, messages.StateTransfer(SequenceNumber(1, 1), make_record((inconsistent,)), 600.0, begin=True))
    assert [fact.reason for _, fact in net.facts] == ["record_unsound"]
    receive(net, 0, 3, Attach(HomeVersion(1, 9)))
    assert receive(net, 0, 1, messages.StateTransfer(SequenceNumber(1, 2), make_record(), 600.0, begin=True)) == [
        "superseded"
    ]
    other = RelocationRecord(4, 0, FIRST, True, (), ())
    assert receive(net, 0, 1, messages.StateTransfer(SequenceNumber(1, 3), other, 600.0, begin=True)) == [
        "clients_full"
    ]


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("processor_unknown", {}),
        ("overloaded", {}),
        ("memory_short", {"min_free_bytes": 100}),
        ("clients_full", {"max_clients": 1}),
    ],
)
def test_a_broker_refuses_relocations_with_a_reason(reason: str, settings: dict[str, object]) -> None:
    net = make_bench(home_change_by="", load_balancing_by="", **settings)
    id = net.subscribe(3)
    net.run(3)
    home = net.find_place(id)
    assert home == 0
    host = net.hosts[1]
    if reason == "processor_unknown":
        host.installed = ()
    elif reason == "overloaded":
        host.busy = 0.95
    elif reason == "memory_short":
        host.free_bytes = 50
    else:
        receive(net, 1, 4, Attach(FIRST))
    net.broker(0).relocation.start(net.now, 3, 1, (id,), True)
    net.collect(0)
    assert not net.broker(0).relocation.start(net.now, 3, 2, (id,), True)
    net.collect(0)
    assert "relocation_under_way" in net.list_reasons()
    net.run(3)
    assert net.list_reasons("relocation_refused") == {reason}
    assert net.find_place(id) == 0


def test_events_published_during_a_relocation_are_not_lost() -> None:
    net = make_bench(home_change_by="", load_balancing_by="")
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
    assert "client_moving" in net.list_reasons()
    assert [event.id.sequence for event in net.list_outputs(id)] == list(range(6))


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
def test_a_modulator_that_raises_or_exceeds_its_state_loses_only_that_event(
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
    assert net.count_dropped("processor_failed") == 1
    assert [event.attributes["count"] for event in net.list_delivered(2, id)] == counts


def test_a_modulator_that_does_not_return_has_a_bounded_queue_and_can_be_relocated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("carrycast.protocols.overlay.modulators.MAX_CALLS", 3)
    net = make_bench(home_change_by="", load_balancing_by="", look_s=1e5)
    id = net.subscribe(3)
    net.run(3)
    net.call_s = (1e9, 1e9)
    for number in range(6):
        net.publish(4, number)
        net.run(0.1)
    net.run(5)
    assert "processor_busy" in net.list_reasons()
    net.call_s = (0.01, 0.02)
    net.broker(0).relocation.start(net.now, 3, 1, (id,), True)
    net.collect(0)
    net.run(30)
    # Inputs that were not processed are still at their producer's home broker, except those beyond the queue.
    assert [event.derived_from[0].sequence for event in net.list_outputs(id)][:4] == [0, 1, 2, 3]


def test_a_silent_client_is_removed() -> None:
    net = make_bench(lease_s=30.0, refresh_s=10.0)
    id = net.subscribe(3, None)
    net.run(5)
    home = net.find_place(id)
    assert home is not None
    net.crash(3)
    net.run(60)
    assert "client_expired" in net.list_reasons()
    assert 3 not in net.broker(home).clients
    assert [len(net.broker(broker).directory) for broker in (0, 1, 2)] == [0, 0, 0]
