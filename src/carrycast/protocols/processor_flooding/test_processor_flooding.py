"""The baseline of ASP: every message everywhere, and processors that flood their results."""

from pathlib import Path

import pytest

from carrycast.core.model import Event, EventId, Failure, Processor
from carrycast.core.protocol import Fact, Link, Protocol, RecordingPort
from carrycast.core.protocol.effects import Note, Send
from carrycast.core.wire import EventMessage
from carrycast.protocols.processor_flooding.protocol import FloodedMessage, ProcessorFlooding
from carrycast.sim.testing import Net, isolate_protocol
from carrycast.trace import Kind

FUNCTIONS = """
def kelvin(event):
    return {"topic": "t", "unit": "K", "value": event.attributes["value"] + 273.15}


def increment(event):
    return {"topic": "t", "unit": "C", "value": event.attributes["value"] + 1}


def broken(event):
    raise RuntimeError


def mean(events):
    return {"topic": "mean", "value": sum(event.attributes["value"] for event in events) / len(events)}
"""


def net_with(base: Path, name: str, nodes: list[int], inputs: int = 1, **settings: object) -> Net:
    """Four nodes in a line; some of them run a processor on Celsius."""
    (base / "functions.py").write_text(FUNCTIONS)
    entry = {"id": name, "function": f"functions.py:{name}", "nodes": nodes, "filter": "unit = 'C'", "inputs": inputs}
    places = [(100.0 * node, 0.0) for node in range(4)]
    return Net(4, "processor_flooding", settings, {"base": str(base), "processors": [entry]}, positions=places)


def publish(net: Net, node: int, value: float) -> None:
    net.publish(node, {"topic": "t", "unit": "C", "value": value})
    net.run(1)


def values(net: Net, node: int) -> list[object]:
    return [event.attributes["value"] for event in net.delivered(node)]


def test_results_are_flooded_as_messages_are(tmp_path: Path) -> None:
    net = net_with(tmp_path, "kelvin", [2])
    net.subscribe(0, "unit = 'K'")
    net.subscribe(3, "unit = 'C'")
    publish(net, 0, 1.5)
    assert values(net, 0) == [274.65]
    assert values(net, 3) == [1.5]
    # Along a line of four, Celsius takes three transmissions; Kelvin starts in the middle and takes three as well.
    assert net.sent("FloodedMessage") == 3 + 3


def test_by_broadcast_each_node_speaks_once_for_each_message(tmp_path: Path) -> None:
    net = net_with(tmp_path, "kelvin", [2], send_by="broadcast")
    net.subscribe(0, "unit = 'K'")
    publish(net, 0, 1.5)
    assert values(net, 0) == [274.65]
    assert net.sent("FloodedMessage") == 4 + 4


def test_a_processor_does_not_take_its_own_results_and_a_chain_of_equals_ends(tmp_path: Path) -> None:
    net = net_with(tmp_path, "increment", [1, 2], max_stages=3)
    net.subscribe(3, "unit = 'C'")
    publish(net, 0, 0.0)
    assert max(values(net, 3), key=str) == 3.0
    assert net.rows(Kind.DROP, reason="too_many_processors")


def test_a_processor_that_fails_is_reported_and_the_flood_goes_on(tmp_path: Path) -> None:
    net = net_with(tmp_path, "broken", [1])
    net.subscribe(3, "unit = 'C'")
    publish(net, 0, 1.5)
    assert values(net, 3) == [1.5]
    assert len(net.rows(Kind.DROP, reason="processor_failed")) == 1


def test_an_aggregate_takes_the_newest_of_each_source(tmp_path: Path) -> None:
    net = net_with(tmp_path, "mean", [1], inputs=2)
    net.subscribe(3, "topic = 'mean'")
    publish(net, 0, 1.0)
    publish(net, 0, 2.0)
    assert values(net, 3) == []
    publish(net, 2, 4.0)
    assert values(net, 3) == [3.0]


@pytest.mark.parametrize("remaining_s", [0.0, -1.0, float("nan")])
def test_a_message_past_its_lease_is_dropped_by_name(remaining_s: float) -> None:
    protocol, port = isolate_protocol("processor_flooding")
    protocol.on_link_up(0.0, Link(1, "radio", 0.01))
    protocol.on_message(1.0, 1, FloodedMessage(Event(EventId(1, 1), {}), 1, remaining_s), "radio")
    [note] = port.take()
    assert "lease_over" in str(note)


def test_a_processor_with_a_filter_that_cannot_be_read_is_not_installed() -> None:
    protocol, port = isolate_protocol("processor_flooding")
    assert isinstance(protocol, ProcessorFlooding)
    protocol.on_processor(0.0, Processor("p", "topic = "))
    assert port.take() == [Note(Fact("drop", reason="processor_filter_invalid"))]
    protocol.on_publish(1.0, Event(EventId(0, 1), {}))
    assert port.take() == []


RADIO, WIRE = Link(1, "radio", 0.01), Link(1, "wire", 0.001)


def sent_after(
    protocol: Protocol, port: RecordingPort, token: int, failure: Failure | None
) -> list[tuple[int, str | None]]:
    """To whom and over what something goes out after an outcome was told."""
    protocol.on_sent(2.0, token, failure)
    return [(effect.target, effect.via) for effect in port.take() if isinstance(effect, Send)]


def flooding(*links: Link, **settings: object) -> tuple[Protocol, RecordingPort]:
    """A node that has just sent its first message, with the token 1."""
    protocol, port = isolate_protocol("processor_flooding", 0, None, 1, **settings)
    for link in links:
        protocol.on_link_up(0.0, link)
    protocol.on_publish(1.0, Event(EventId(0, 1), {}))
    return protocol, port


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_what_a_link_could_not_deliver_is_sent_again_as_often_as_asked(retries: int) -> None:
    protocol, port = flooding(RADIO, retries=retries)
    assert [effect.target for effect in port.take() if isinstance(effect, Send)] == [1]
    for _ in range(retries):
        assert sent_after(protocol, port, 1, Failure.UNREACHABLE) == [(1, "radio")]
    assert sent_after(protocol, port, 1, Failure.UNREACHABLE) == []


def test_what_arrived_or_did_not_fit_in_a_queue_is_not_sent_again() -> None:
    for failure in (None, Failure.QUEUE_FULL):
        protocol, port = flooding(RADIO)
        port.take()
        assert sent_after(protocol, port, 1, failure) == []


def test_it_is_sent_again_over_another_link_if_there_is_one() -> None:
    protocol, port = flooding(RADIO, WIRE)
    assert [effect.via for effect in port.take() if isinstance(effect, Send)] == ["wire"]
    assert sent_after(protocol, port, 1, Failure.UNREACHABLE) == [(1, "radio")]


@pytest.mark.parametrize(("second", "kept"), [(None, True), (Failure.UNREACHABLE, False)])
def test_a_link_that_is_lost_for_a_failure_stays_until_the_retry_has_decided(
    second: Failure | None, kept: bool
) -> None:
    protocol, port = flooding(RADIO)
    protocol.on_sent(1.0, 1, Failure.UNREACHABLE)
    protocol.on_link_down(1.0, RADIO, Failure.UNREACHABLE)
    protocol.on_sent(1.1, 1, second)
    port.take()
    protocol.on_publish(3.0, Event(EventId(0, 2), {}))
    assert [effect.target for effect in port.take() if isinstance(effect, Send)] == ([1] if kept else [])


def test_nothing_is_sent_again_to_a_neighbor_that_was_lost_meanwhile() -> None:
    protocol, port = flooding(RADIO)
    protocol.on_link_down(1.0, RADIO, Failure.SILENT)
    port.take()
    assert sent_after(protocol, port, 1, Failure.UNREACHABLE) == []


def test_what_is_sent_again_has_less_time_left() -> None:
    protocol, port = flooding(RADIO)
    [first] = [effect.message for effect in port.take() if isinstance(effect, Send)]
    protocol.on_sent(2.5, 1, Failure.UNREACHABLE)
    [again] = [effect.message for effect in port.take() if isinstance(effect, Send)]
    assert isinstance(first, EventMessage)
    assert isinstance(again, EventMessage)
    assert again.remaining_s == pytest.approx(first.remaining_s - 1.5)
