"""The baseline of ASP: every message is flooded, and so are the results of processors."""

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


def make_net(base: Path, name: str, nodes: list[int], inputs: int = 1, **settings: object) -> Net:
    """Make a line of four nodes, some of which run a processor on temperatures in Celsius."""
    (base / "functions.py").write_text(FUNCTIONS)
    entry = {"id": name, "function": f"functions.py:{name}", "nodes": nodes, "filter": "unit = 'C'", "inputs": inputs}
    places = [(100.0 * node, 0.0) for node in range(4)]
    return Net(4, "processor_flooding", settings, {"base": str(base), "processors": [entry]}, positions=places)


def publish(net: Net, node: int, value: float) -> None:
    net.publish(node, {"topic": "t", "unit": "C", "value": value})
    net.run(1)


def list_values(net: Net, node: int) -> list[object]:
    return [event.attributes["value"] for event in net.list_delivered(node)]


def test_results_are_flooded_like_messages(tmp_path: Path) -> None:
    net = make_net(tmp_path, "kelvin", [2])
    net.subscribe(0, "unit = 'K'")
    net.subscribe(3, "unit = 'C'")
    publish(net, 0, 1.5)
    assert list_values(net, 0) == [274.65]
    assert list_values(net, 3) == [1.5]
    # Along a line of four, Celsius takes three transmissions; Kelvin starts in the middle and takes three as well.
    assert net.count_sent("FloodedMessage") == 3 + 3


def test_with_broadcast_each_node_transmits_a_message_once(tmp_path: Path) -> None:
    net = make_net(tmp_path, "kelvin", [2], send_by="broadcast")
    net.subscribe(0, "unit = 'K'")
    publish(net, 0, 1.5)
    assert list_values(net, 0) == [274.65]
    assert net.count_sent("FloodedMessage") == 4 + 4


def test_a_processor_does_not_process_its_own_results_and_chains_end(tmp_path: Path) -> None:
    net = make_net(tmp_path, "increment", [1, 2], max_stages=3)
    net.subscribe(3, "unit = 'C'")
    publish(net, 0, 0.0)
    assert max(list_values(net, 3), key=str) == 3.0
    assert net.rows(Kind.DROP, reason="too_many_processors")


def test_a_processor_that_fails_is_reported_and_the_flood_continues(tmp_path: Path) -> None:
    net = make_net(tmp_path, "broken", [1])
    net.subscribe(3, "unit = 'C'")
    publish(net, 0, 1.5)
    assert list_values(net, 3) == [1.5]
    assert len(net.rows(Kind.DROP, reason="processor_failed")) == 1


def test_an_aggregate_uses_the_newest_of_each_source(tmp_path: Path) -> None:
    net = make_net(tmp_path, "mean", [1], inputs=2)
    net.subscribe(3, "topic = 'mean'")
    publish(net, 0, 1.0)
    publish(net, 0, 2.0)
    assert list_values(net, 3) == []
    publish(net, 2, 4.0)
    assert list_values(net, 3) == [3.0]


@pytest.mark.parametrize("remaining_s", [0.0, -1.0, float("nan")])
def test_an_expired_message_is_dropped_with_a_reason(remaining_s: float) -> None:
    protocol, port = isolate_protocol("processor_flooding")
    protocol.on_link_up(0.0, Link(1, "radio", 0.01))
    protocol.on_message(1.0, 1, FloodedMessage(Event(EventId(1, 1), {}), 1, remaining_s), "radio")
    [note] = port.take()
    assert "lease_over" in str(note)


def test_a_processor_with_a_malformed_filter_is_not_installed() -> None:
    protocol, port = isolate_protocol("processor_flooding")
    assert isinstance(protocol, ProcessorFlooding)
    protocol.on_processor(0.0, Processor("p", "topic = "))
    assert port.take() == [Note(Fact("drop", reason="processor_filter_invalid"))]
    protocol.on_publish(1.0, Event(EventId(0, 1), {}))
    assert port.take() == []


RADIO, WIRE = Link(1, "radio", 0.01), Link(1, "wire", 0.001)


def list_sends_after(
    protocol: Protocol, port: RecordingPort, token: int, failure: Failure | None
) -> list[tuple[int, str | None]]:
    """Report the outcome of a send, and return the target and interface of each send that follows."""
    protocol.on_sent(2.0, token, failure)
    return [(effect.target, effect.via) for effect in port.take() if isinstance(effect, Send)]


def make_node(*links: Link, **settings: object) -> tuple[Protocol, RecordingPort]:
    """Make a node that has just sent its first message, with the token 1."""
    protocol, port = isolate_protocol("processor_flooding", 0, None, 1, **settings)
    for link in links:
        protocol.on_link_up(0.0, link)
    protocol.on_publish(1.0, Event(EventId(0, 1), {}))
    return protocol, port


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_failed_message_is_retransmitted_as_often_as_configured(retries: int) -> None:
    protocol, port = make_node(RADIO, retries=retries)
    assert [effect.target for effect in port.take() if isinstance(effect, Send)] == [1]
    for _ in range(retries):
        assert list_sends_after(protocol, port, 1, Failure.UNREACHABLE) == [(1, "radio")]
    assert list_sends_after(protocol, port, 1, Failure.UNREACHABLE) == []


def test_a_message_that_arrived_or_met_a_full_queue_is_not_retransmitted() -> None:
    for failure in (None, Failure.QUEUE_FULL):
        protocol, port = make_node(RADIO)
        port.take()
        assert list_sends_after(protocol, port, 1, failure) == []


def test_a_message_is_retransmitted_over_another_link_if_there_is_one() -> None:
    protocol, port = make_node(RADIO, WIRE)
    assert [effect.via for effect in port.take() if isinstance(effect, Send)] == ["wire"]
    assert list_sends_after(protocol, port, 1, Failure.UNREACHABLE) == [(1, "radio")]


@pytest.mark.parametrize(("second", "kept"), [(None, True), (Failure.UNREACHABLE, False)])
def test_a_link_lost_because_of_a_failure_is_retained_until_the_retransmission_ends(
    second: Failure | None, kept: bool
) -> None:
    protocol, port = make_node(RADIO)
    protocol.on_sent(1.0, 1, Failure.UNREACHABLE)
    protocol.on_link_down(1.0, RADIO, Failure.UNREACHABLE)
    protocol.on_sent(1.1, 1, second)
    port.take()
    protocol.on_publish(3.0, Event(EventId(0, 2), {}))
    assert [effect.target for effect in port.take() if isinstance(effect, Send)] == ([1] if kept else [])


def test_messages_to_a_lost_neighbor_are_not_retransmitted() -> None:
    protocol, port = make_node(RADIO)
    protocol.on_link_down(1.0, RADIO, Failure.SILENT)
    port.take()
    assert list_sends_after(protocol, port, 1, Failure.UNREACHABLE) == []


def test_a_retransmission_has_a_shorter_remaining_lease() -> None:
    protocol, port = make_node(RADIO)
    [first] = [effect.message for effect in port.take() if isinstance(effect, Send)]
    protocol.on_sent(2.5, 1, Failure.UNREACHABLE)
    [again] = [effect.message for effect in port.take() if isinstance(effect, Send)]
    assert isinstance(first, EventMessage)
    assert isinstance(again, EventMessage)
    assert again.remaining_s == pytest.approx(first.remaining_s - 1.5)
