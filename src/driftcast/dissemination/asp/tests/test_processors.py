"""Processors at one broker [001 §4.1, §4.2]."""

import pytest

from driftcast.dissemination.asp.messages import PathKind, Publication, ShortAnnouncement
from driftcast.dissemination.asp.rules import announcement_id, derived_subscriber, stream_id
from driftcast.dissemination.asp.tests.bench import (
    CELSIUS,
    ME,
    Broker,
    C,
    announcement,
    event,
    publication,
    station,
    subscribe,
)
from driftcast.model import Event, EventId, Processor
from driftcast.protocol import Link
from driftcast.protocol.effects import Process


def test_a_result_is_announced_to_all_with_the_cost_of_processing() -> None:
    broker, kelvin, id = station()
    sent = broker.announced()
    assert list(sent) == [1, 2, 3]
    message = sent[1]
    assert (message.id, message.event, message.stages) == (id, kelvin, 1)
    assert message.metric_s == pytest.approx(0.05 + 0.2 + 0.01)


def test_the_processing_of_a_short_announcement_is_simulated_by_the_broker() -> None:
    broker, _, id = station()
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


def test_a_subscription_to_a_result_goes_on_to_its_inputs_and_publications_pass_the_processor() -> None:
    broker, _, id = station()
    broker.effects()
    derived = derived_subscriber(7, id)
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
    broker.asp.on_link_down(3.0, Link(3, "radio", 0.01))
    assert broker.effects() == [(1, subscribe(derived, 0.3, PathKind.PATH_BROKEN))]


def test_a_processor_that_is_on_no_active_path_gets_no_publications() -> None:
    broker, _, _ = station()
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
    assert broker.announced()[1].metric_s == pytest.approx(0.05 + 0.02 + 0.1 + 0.01)
    subscribed = broker.hear(2, subscribe(7, 0.3, id=result))
    derived = derived_subscriber(7, result)
    assert subscribed == [(1, subscribe(derived, 0.3)), (2, subscribe(derived, 0.3, id=ids[1]))]
    # A new announcement of one input joins the newest message of the other.
    newer = event(0, 5, unit="C")
    broker.hear(1, publication(2, event(0, 2)))
    last = Event(EventId(9, 2), {"topic": "u"})
    assert broker.hear(2, publication(2, last, ids[1]))[-1] == Process("mean", b"", (event(0, 2), last), 2)
    effects = broker.hear(1, announcement(0.05, of=newer, id=announcement_id(newer, (0,), 3), counter=3))
    broker.asp.on_processed(2.0, 2, b"", [], 0.1, "")
    assert Process("mean", b"", (newer, last), 3) in effects + broker.effects()
