"""Other brokers connect as bridges: by the bytes that they send, and a mosquitto as it comes."""

import logging
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from carrycast.node.gateways.mqtt import properties as packet_type
from tests.gateway.world import WAIT_S, Broker, Raw, broker, encode_string, packet, until

STATE = "$SYS/broker/connection/there.carrycast/state"
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed (apt-get install mosquitto)")


def introduce(client_id: str = "there", name: str = "MQTT", version: int = 0x84, clean: bool = True) -> bytes:
    """As a bridge of mosquitto does, with its will under `$SYS`."""
    flags = 0b00101100 | clean << 1
    head = [encode_string(name), bytes((version, flags)), b"\0\x3c", encode_string(client_id)]
    return packet(0x10, *head, encode_string(STATE), encode_string("0"))


def say_message(topic: str, payload: bytes, qos: int = 1, id: int = 1, retain: bool = False) -> bytes:
    return packet(0x30 | qos << 1 | retain, encode_string(topic), id.to_bytes(2, "big") if qos else b"", payload)


def ask_for(topics: str, qos: int = 1) -> bytes:
    return packet(0x82, b"\0\1", encode_string(topics), bytes((qos,)))


def heard_message(client: Raw) -> tuple[str, bytes, bool]:
    """Topic, payload and whether it is marked as retained, of the next message to a client of version 3.1.1."""
    head, body = client.expect(packet_type.PUBLISH)
    end = 2 + int.from_bytes(body[:2], "big")
    return body[2:end].decode(), body[end + (2 if head & 6 else 0) :], bool(head & 1)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Broker]:
    with broker(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(("name", "version"), [("MQTT", 0x84), ("MQIsdp", 0x83), ("MQTT", 4), ("MQIsdp", 3)])
def test_every_version_that_a_bridge_speaks_is_accepted_with_its_will(node: Broker, name: str, version: int) -> None:
    with Raw(node.port, introduce(name=name, version=version)) as bridge:
        assert bridge.expect(packet_type.CONNACK)[1] == b"\0\0"
    # Its will is discarded by name, as it is lost without a word.
    until(lambda: node.drops("mqtt_sys") == 1)


def test_a_user_that_may_publish_everything_may_leave_a_will_under_sys(tmp_path: Path) -> None:
    with broker(tmp_path, '[mqtt.users.me]\npassword = "p"\n') as node:
        flags = 0b11101110
        head = [
            encode_string("MQTT"),
            bytes((0x84, flags)),
            b"\0\0",
            encode_string("there"),
            encode_string(STATE),
            encode_string("0"),
        ]
        with Raw(node.port, packet(0x10, *head, encode_string("me"), encode_string("p"))) as bridge:
            assert bridge.expect(packet_type.CONNACK)[1] == b"\0\0"


@pytest.mark.parametrize("version", [0x84, 4])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_published_under_sys_is_acknowledged_and_discarded(node: Broker, version: int, qos: int) -> None:
    with Raw(node.port, introduce(version=version)) as bridge:
        bridge.expect(packet_type.CONNACK)
        bridge.say(ask_for("$SYS/broker/connection/#"))
        bridge.expect(packet_type.SUBACK)
        bridge.say(say_message(STATE, b"1", qos, 7, retain=True))
        if qos:
            assert bridge.expect(packet_type.PUBACK if qos == 1 else packet_type.PUBREC)[1] == b"\0\7"
        if qos == 2:
            bridge.ack(packet_type.PUBREL, 7)
            assert bridge.expect(packet_type.PUBCOMP)[1] == b"\0\7"
        bridge.say(packet(0xC0))
        bridge.expect(packet_type.PINGRESP)
        assert node.drops("mqtt_sys") == 1
        assert node.drops("mqtt_not_allowed") == 0


def test_a_bridge_is_not_given_back_what_it_brought_and_retained_stays_retained(node: Broker) -> None:
    with Raw(node.port, introduce()) as bridge, Raw(node.port, introduce("client", version=4)) as client:
        for one in (bridge, client):
            one.expect(packet_type.CONNACK)
            one.say(ask_for("a/#"))
            one.expect(packet_type.SUBACK)
        bridge.say(say_message("a/1", b"mine", retain=True))
        bridge.expect(packet_type.PUBACK)
        assert heard_message(client) == ("a/1", b"mine", False)
        client.say(say_message("a/2", b"yours", retain=True))
        assert heard_message(bridge) == ("a/2", b"yours", True)
        # In groups, which are no business of bridges, a message goes to one alone.
        bridge.say(ask_for("$share/g/b"))
        assert bridge.expect(packet_type.SUBACK)[1][-1] == 1


def test_a_message_that_is_refused_for_good_does_not_hold_up_a_bridge(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = '[mqtt.anonymous]\npublish = ["open/#"]\nsubscribe = ["#"]\n'
    with broker(tmp_path, table) as node, caplog.at_level(logging.WARNING, "carrycast.node"):
        with Raw(node.port, introduce(), say_message("closed", b"x"), say_message("open/1", b"y", id=2)) as bridge:
            bridge.expect(packet_type.CONNACK)
            assert [bridge.expect(packet_type.PUBACK)[1] for _ in range(2)] == [b"\0\1", b"\0\2"]
        assert node.drops("mqtt_not_allowed") == node.drops("mqtt_bridge_discarded") == 1
        assert any("'closed' of the MQTT client 'there' is rejected" in told for told in caplog.messages)
        with Raw(node.port, introduce(version=4), say_message("closed", b"x")) as client:
            client.expect(packet_type.CONNACK)
            assert client.hear() is None, "to any other client, acknowledged means kept"


def test_a_message_that_is_too_long_does_not_hold_up_a_bridge(node: Broker) -> None:
    picture = Random(1).randbytes(100_000)
    with Raw(node.port, introduce(), say_message("a", picture), say_message("a", b"y", id=2)) as bridge:
        bridge.expect(packet_type.CONNACK)
        assert [bridge.expect(packet_type.PUBACK)[1] for _ in range(2)] == [b"\0\1", b"\0\2"]
    assert node.drops("mqtt_refused") == node.drops("mqtt_bridge_discarded") == 1


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_is_longer_than_any_packet_does_not_hold_up_a_bridge(
    node: Broker, qos: int, caplog: pytest.LogCaptureFixture
) -> None:
    film = Random(1).randbytes(1_000_000)
    with Raw(node.port, introduce()) as bridge, Raw(node.port, introduce("client", version=4)) as client:
        bridge.expect(packet_type.CONNACK)
        client.expect(packet_type.CONNACK)
        client.say(ask_for("a/#"))
        client.expect(packet_type.SUBACK)
        with caplog.at_level(logging.WARNING, "carrycast.node"):
            bridge.say(say_message("a/1", film, qos, 7, retain=True), say_message("a/2", b"y", id=8))
            if qos:
                assert bridge.expect(packet_type.PUBACK if qos == 1 else packet_type.PUBREC)[1] == b"\0\7"
            if qos == 2:
                bridge.ack(packet_type.PUBREL, 7)
        assert heard_message(client)[:2] == ("a/2", b"y"), "and nothing of the other, not even its beginning"
    assert node.drops("mqtt_packet_too_large") == node.drops("mqtt_bridge_discarded") == 1
    assert any("'a/1' of the MQTT client 'there' is rejected" in told for told in caplog.messages)


def test_a_packet_that_is_too_long_ends_the_connection_of_any_other_client_and_is_logged(
    node: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "carrycast.node"), Raw(node.port, introduce(version=4)) as client:
        client.expect(packet_type.CONNACK)
        client.say(say_message("a", bytes(300_000)))
        assert client.hear() is None
    assert node.drops("mqtt_packet_too_large") == 1
    assert any("the MQTT client 'there'" in told and "262144 bytes" in told for told in caplog.messages)


@pytest.mark.parametrize("version", [0x84, 4])
def test_a_bridge_stays_where_nothing_is_retained(tmp_path: Path, version: int) -> None:
    with broker(tmp_path, "max_retained = 0") as node, Raw(node.port, introduce(version=version)) as bridge:
        assert bridge.expect(packet_type.CONNACK)[1] == b"\0\0"
        bridge.say(say_message(STATE, b"1", retain=True), say_message("a", b"x", id=2, retain=True))
        assert [bridge.expect(packet_type.PUBACK)[1] for _ in range(2)] == [b"\0\1", b"\0\2"]
        bridge.say(ask_for("a"), packet(0xC0))
        bridge.expect(packet_type.SUBACK)
        bridge.expect(packet_type.PINGRESP)


# A mosquitto as it comes.


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def mosquitto(folder: Path, bridged: int, more: str = "") -> Iterator[tuple[int, Path]]:
    """A mosquitto on loopback that bridges everything both ways, and the file of its log."""
    assert MOSQUITTO is not None
    port, log = free_port(), folder / "mosquitto.log"
    settings = f"""
listener {port} 127.0.0.1
allow_anonymous true
log_dest stderr
log_type all
connection carrycast
address 127.0.0.1:{bridged}
topic # both 1
restart_timeout 1
{more}
"""
    (folder / "mosquitto.conf").write_text(settings)
    with log.open("wb") as said:
        process = subprocess.Popen([MOSQUITTO, "-c", folder / "mosquitto.conf"], stderr=said)
    try:
        until(lambda: "running" in log.read_text(errors="replace"))
        yield port, log
    finally:
        process.terminate()
        process.wait(WAIT_S)


def until_bridged(log: Path, times: int = 1) -> None:
    """Until the bridge has connected so often, and its subscriptions stand."""
    until(lambda: log.read_text(errors="replace").count("Received SUBACK") >= times)


@needs_mosquitto
@pytest.mark.parametrize(
    "more",
    ["", "bridge_protocol_version mqttv31", "bridge_protocol_version mqttv50", "try_private false"],
    ids=["as it comes", "3.1", "5", "not as a bridge"],
)
def test_a_default_mosquitto_bridge_stays_and_brings_messages_both_ways(
    node: Broker, tmp_path: Path, more: str
) -> None:
    with mosquitto(tmp_path, node.port, more) as (port, log):
        until_bridged(log)
        with (
            Raw(port, introduce("reader", version=4), ask_for("to/#")) as reader,
            Raw(node.port, introduce("writer", version=4), ask_for("from/#")) as writer,
        ):
            for one in (reader, writer):
                one.expect(packet_type.CONNACK)
                one.expect(packet_type.SUBACK)
            for number in range(20):
                writer.say(say_message("to/1", b"%d" % number, id=number + 1))
                writer.expect(packet_type.PUBACK)
                assert heard_message(reader)[:2] == ("to/1", b"%d" % number)
                reader.say(say_message("from/1", b"%d" % number, id=number + 1))
                # The answer and the message come from two brokers, in any order.
                assert heard_message(writer)[:2] == ("from/1", b"%d" % number)
                reader.expect(packet_type.PUBACK)
        said = log.read_text(errors="replace")
        assert said.count("Received CONNACK") == 1, said
        assert "error" not in said.lower(), said
        echoed = [line for line in said.splitlines() if "Received PUBLISH from local." in line and "from/1" in line]
        assert bool(echoed) == (more == "try_private false"), said
    assert node.drops("mqtt_sys") > 0
    assert node.drops("mqtt_protocol_error") == node.drops("mqtt_malformed") == 0


@needs_mosquitto
def test_a_mosquitto_bridge_is_back_after_the_node_was_away(tmp_path: Path) -> None:
    with broker(tmp_path, f"port = {free_port()}") as node, mosquitto(tmp_path, node.port) as (port, log):
        until_bridged(log)
        node.restart()
        until_bridged(log, 2)
        with Raw(node.port, introduce("reader", version=4), ask_for("#")) as reader:
            reader.expect(packet_type.CONNACK)
            reader.expect(packet_type.SUBACK)
            with Raw(port, introduce("writer", version=4), say_message("a", b"x")) as writer:
                writer.expect(packet_type.CONNACK)
                writer.expect(packet_type.PUBACK)
                assert heard_message(reader)[:2] == ("a", b"x")
        assert log.read_text(errors="replace").count("Received CONNACK") == 2
