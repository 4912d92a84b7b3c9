"""Processors at one broker [001 §4.1, §4.2]."""

from pathlib import Path

import pytest

import carrycast.sim.testing
from carrycast.core.model import Event, EventId, Failure, Processor
from carrycast.core.protocol import Link
from carrycast.core.protocol.effects import Process
from carrycast.protocols.asp.announcement_table import StreamMessage, StreamState
from carrycast.protocols.asp.messages import PathKind, Publication, ShortAnnouncement
from carrycast.protocols.asp.rules import announcement_id, derive_subscriber, stream_id
from carrycast.protocols.asp.sources import combine_messages
from carrycast.protocols.asp.tests.bench import (
    CELSIUS,
    KELVIN,
    ME,
    Broker,
    C,
    announcement,
    event,
    make_station,
    publication,
    subscribe,
)
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import parse_scenario

FUNCTIONS = Path(carrycast.sim.testing.__file__).parent / "fuzz" / "processors.py"


def test_a_result_is_announced_to_all_with_the_cost_of_processing() -> None:
    broker, kelvin, id = make_station()
    sent = broker.take_announcements()
    assert list(sent) == [1, 2, 3]
    message = sent[1]
    assert (message.id, message.event, message.stages) == (id, kelvin, 1)
    assert message.metric_s == pytest.approx(0.05 + 0.2 + 0.01)


def test_the_processing_of_a_short_announcement_is_simulated_by_the_broker() -> None:
    broker, _, id = make_station()
    broker.effects()
    effects = broker.hear(2, ShortAnnouncement(C, 0.02, 1))
    assert not [effect for effect in effects if isinstance(effect, Process)]
    pairs = [effect for effect in effects if isinstance(effect, tuple)]
    shorts = {(target, m.id): m.metric_s for target, m in pairs if isinstance(m, ShortAnnouncement)}
    assert shorts == {
        (1, C): pytest.approx(0.03),
        (3, C): pytest.approx(0.03),
        (1, id): pytest.approx(0.23),
        (2, id): pytest.approx(0.23),
        (3, id): pytest.approx(0.23),
    }


def test_a_subscription_to_a_result_is_forwarded_to_its_inputs_and_publications_are_processed() -> None:
    broker, _, id = make_station()
    broker.effects()
    derived = derive_subscriber(7, id)
    assert broker.hear(3, subscribe(7, 0.3, id=id)) == [(1, subscribe(derived, 0.3))]
    second = event(0, 2, unit="C", value=21.5)
    assert broker.hear(1, publication(2, second)) == [Process("kelvin", b"", (second,), 2)]
    result = Event(EventId(ME, 2), {"topic": "t", "unit": "K", "value": 294.65})
    broker.asp.on_processed(2.1, 2, b"", [result], 0.2, "")
    [passed] = broker.effects()
    assert isinstance(passed, tuple)
    assert isinstance(passed[1], Publication)
    assert (passed[0], passed[1].id, passed[1].counter, passed[1].event) == (3, id, 2, result)
    # [001 §4.3] A broken path to the sink is a broken path of the input.
    broker.asp.on_link_down(3.0, Link(3, "radio", 0.01), Failure.SILENT)
    assert broker.effects() == [(1, subscribe(derived, 0.3, PathKind.PATH_BROKEN))]


def test_a_processor_that_is_on_no_active_path_gets_no_publications() -> None:
    broker, _, _ = make_station()
    broker.effects()
    assert broker.hear(1, publication(2, event(0, 2, unit="C"))) == []


def test_a_processor_of_two_inputs_waits_for_both() -> None:
    broker = Broker(1, 2)
    broker.asp.on_processor(0.0, Processor("mean", "topic in ('t', 'u')", inputs=2))
    other = Event(EventId(9, 1), {"topic": "u"})
    ids = (C, announcement_id(other, (9,), 3))
    broker.hear(1, announcement(0.05))
    effects = broker.hear(2, announcement(0.02, of=other, id=ids[1], stream=stream_id(9, ["u"])))
    assert effects[-1] == Process("mean", b"", (CELSIUS, other), 1)
    mean = Event(EventId(ME, 1), {"topic": "mean"})
    broker.asp.on_processed(1.1, 1, b"", [mean], 0.1, "")
    result = announcement_id(mean, sorted(ids), 3)
    assert broker.take_announcements()[1].metric_s == pytest.approx(0.05 + 0.02 + 0.1 + 0.01)
    subscribed = broker.hear(2, subscribe(7, 0.3, id=result))
    derived = derive_subscriber(7, result)
    assert subscribed == [(1, subscribe(derived, 0.3)), (2, subscribe(derived, 0.3, id=ids[1]))]
    # A new announcement of one input is combined with the newest message of the other.
    newer = event(0, 5, unit="C")
    broker.hear(1, publication(2, event(0, 2)))
    last = Event(EventId(9, 2), {"topic": "u"})
    assert broker.hear(2, publication(2, last, ids[1]))[-1] == Process("mean", b"", (event(0, 2), last), 2)
    effects = broker.hear(1, announcement(0.05, of=newer, id=announcement_id(newer, (0,), 3), counter=3))
    broker.asp.on_processed(2.0, 2, b"", [], 0.1, "")
    assert Process("mean", b"", (newer, last), 3) in effects + broker.effects()


# Late processors, equal processors, aggregates.


def make_kelvin(number: int) -> Event:
    return Event(EventId(ME, number), {"topic": "t", "unit": "K", "value": 293.65})


def make_equal_processors(first_s: float, second_s: float) -> tuple[Broker, int]:
    """Make a broker with two local processors that have equal results at different costs, and a subscriber."""
    broker = Broker(1, 2, 3)
    for name in ("first", "second"):
        broker.asp.on_processor(0.0, Processor(name, "unit = 'C'"))
    broker.hear(1, announcement(0.05))
    for token, cost_s in ((1, first_s), (2, second_s)):
        broker.asp.on_processed(1.1, token, b"", [make_kelvin(token)], cost_s, "")
    broker.effects()
    id = announcement_id(make_kelvin(1), (C,), 3)
    assert broker.hear(3, subscribe(7, 0.3, id=id)) == [(1, subscribe(derive_subscriber(7, id), 0.3))]
    return broker, id


@pytest.mark.parametrize(("first_s", "second_s", "best"), [(0.1, 0.2, "first"), (0.2, 0.1, "second")])
def test_of_two_local_processors_with_equal_results_only_the_best_runs(
    first_s: float, second_s: float, best: str
) -> None:
    broker, _ = make_equal_processors(first_s, second_s)
    second = event(0, 2, unit="C")
    assert broker.hear(1, publication(2, second)) == [Process(best, b"", (second,), 3)]


@pytest.mark.parametrize("cache", [False, True])
def test_a_late_processor_is_called_for_known_announcements_only_with_the_cache(cache: bool) -> None:
    broker = Broker(1, 2, announcement_cache=cache)
    broker.hear(1, announcement(0.05))
    newest = event(0, 2, unit="C")
    broker.hear(1, publication(2, newest))
    broker.asp.on_processor(2.0, KELVIN)
    assert broker.effects() == ([Process("kelvin", b"", (newest,), 1)] if cache else [])


def test_the_counter_of_an_aggregate_rises_when_an_input_restarts() -> None:
    """Incarnations 5 and 0, then 5 and 1: the sum of the counters falls, but no number is repeated."""
    stream = StreamState(1)
    five = 5 << 32
    before = combine_messages(
        stream, [StreamMessage(five + 10, CELSIUS, 0, 9.0), StreamMessage(100, CELSIUS, 0, 9.0)], CELSIUS
    )
    after = combine_messages(
        stream, [StreamMessage(five + 11, CELSIUS, 0, 9.0), StreamMessage((1 << 32) + 1, CELSIUS, 0, 9.0)], CELSIUS
    )
    assert (before.counter, after.counter) == (five + 110, five + 111)


def test_an_aggregate_of_inputs_with_large_sequences_has_a_valid_sequence() -> None:
    broker = Broker(1, 2)
    broker.asp.on_processor(0.0, Processor("mean", "topic in ('t', 'u')", inputs=2))
    large = (1 << 62) + 1
    other = Event(EventId(9, 1), {"topic": "u"})
    id = announcement_id(other, (9,), 3)
    broker.hear(1, announcement(0.05, sequence=large, counter=large))
    broker.hear(2, announcement(0.02, sequence=large, of=other, id=id, stream=stream_id(9, ["u"]), counter=large))
    broker.asp.on_processed(1.1, 1, b"", [Event(EventId(ME, 1), {"topic": "mean"})], 0.1, "")
    message = broker.take_announcements()[1]
    assert (message.sequence, message.counter) == ((1 << 62) + 2, (1 << 62) + 2)


@pytest.mark.parametrize(
    "functions",
    [("copy_attributes",), ("change_topic", "change_topic", "change_topic"), ("join_events", "copy_attributes")],
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_result_that_equals_its_own_input_is_not_announced(functions: tuple[str, ...], seed: int) -> None:
    """If ids are hashes of the content alone, a processor whose result equals its input announces its input again, and
    three processors that rotate topics do so together."""
    processors = [
        {
            "id": f"p{place}",
            "function": f"{FUNCTIONS}:{name}",
            "nodes": "all",
            "inputs": 2 if name == "join_events" else 1,
        }
        for place, name in enumerate(functions)
    ]
    table = {
        "duration_s": 20.0,
        "nodes": 3,
        "mobility": {"model": "line", "spacing_m": 100.0},
        "discovery": {"mode": "oracle"},
        "protocol": {"name": "asp", "identity": "content"},
        "subscribe": [{}],
        "publish": [{"nodes": "all", "every_s": 3.0, "attributes": {"topic": {"integers": [1, 3]}, "level": 2}}],
        "processors": processors,
        "trace": "full",
    }
    outcome = run(parse_scenario(table, "itself"), seed)
    assert outcome.metrics["delivered"]
    reasons = {row["reason"] for row in outcome.trace.table().to_pylist() if row["kind"] == "drop"}
    assert "result_of_itself" in reasons
