"""Receive Maximum counts a message of QoS 2 until PUBCOMP, in both directions [MQTT 5, 4.9]. What is refused is
answered with its reason, and the connection stays."""

import logging
from pathlib import Path

import pytest

from carrycast.node.gateways.mqtt import properties as packet_type
from carrycast.node.gateways.mqtt.properties import MAX_USER_PROPERTIES, encode_properties
from carrycast.node.gateways.mqtt.reason_codes import Reason
from tests.gateway.world import Raw, broker, connect, encode_string, packet, publish, subscribe, until

KEPT = {"session_expiry_interval_s": 1000}
MOST = "receive_maximum = 3"


def ping(client: Raw) -> None:
    """What was said before is served, and the connection stands."""
    client.say(packet(0xC0))
    client.expect(packet_type.PINGRESP)


def test_a_publication_of_qos_2_counts_until_it_is_complete(tmp_path: Path) -> None:
    with broker(tmp_path, MOST) as node, Raw(node.port, connect("me")) as client:
        assert client.read_connack()[2]["receive_maximum"] == 3
        for id in (1, 2, 3):
            client.say(publish("a", b"x", 2, id))
            client.expect(packet_type.PUBREC)
        # The same once more is no other.
        client.say(publish("a", b"x", 2, 3, again=True))
        client.expect(packet_type.PUBREC)
        client.ack(packet_type.PUBREL, 1)
        client.expect(packet_type.PUBCOMP)
        client.say(publish("a", b"x", 1, 4))
        client.expect(packet_type.PUBACK)
        client.say(publish("a", b"x", 2, 5))
        client.expect(packet_type.PUBREC)
        client.say(publish("a", b"x", 2, 6))
        assert client.end() == Reason.RECEIVE_MAXIMUM_EXCEEDED
        assert node.drops("mqtt_receive_maximum_exceeded") == 1


def test_a_publication_that_is_refused_counts_no_longer(tmp_path: Path) -> None:
    table = f'{MOST}\n[mqtt.anonymous]\npublish = ["a"]\n'
    with broker(tmp_path, table) as node, Raw(node.port, connect("me")) as client:
        client.read_connack()
        for id in range(1, 11):
            client.say(publish("b", b"x", 2, id))
            assert client.expect(packet_type.PUBREC)[1][2:] == bytes((Reason.NOT_AUTHORIZED,))
            client.say(publish("b", b"x", 1, id))
            client.expect(packet_type.PUBACK)


def test_what_was_published_before_counts_no_more_over_a_new_connection(tmp_path: Path) -> None:
    """The client counts from the beginning there [MQTT 5, 4.9]."""
    hello = connect("me", clean=False, properties=KEPT)
    with broker(tmp_path, MOST) as node:
        with Raw(node.port, hello) as client:
            client.read_connack()
            for id in (1, 2, 3):
                client.say(publish("a", b"x", 2, id))
                client.expect(packet_type.PUBREC)
        with Raw(node.port, hello) as client:
            assert client.read_connack()[0]
            for id in (4, 5, 6):
                client.say(publish("a", b"x", 2, id))
                client.expect(packet_type.PUBREC)
            for id in range(1, 7):
                client.ack(packet_type.PUBREL, id)
                assert client.expect(packet_type.PUBCOMP)[1] == id.to_bytes(2, "big")
            # One that comes again over this connection counts in it.
            for id in (7, 8, 9):
                client.say(publish("a", b"x", 2, id))
                client.expect(packet_type.PUBREC)
        with Raw(node.port, hello) as client:
            client.read_connack()
            for id in (7, 8, 9):
                client.say(publish("a", b"x", 2, id, again=True))
                client.expect(packet_type.PUBREC)
            client.say(publish("a", b"x", 1, 10))
            assert client.end() == Reason.RECEIVE_MAXIMUM_EXCEEDED


def test_a_message_of_qos_2_to_a_client_counts_until_it_is_complete(tmp_path: Path) -> None:
    with broker(tmp_path) as node, Raw(node.port, connect("me", properties={"receive_maximum": 2})) as client:
        client.read_connack()
        client.say(subscribe("a", 2))
        client.expect(packet_type.SUBACK)
        with Raw(node.port, connect("writer")) as writer:
            writer.read_connack()
            for id in range(1, 6):
                writer.say(publish("a", b"%d" % id, 2, id))
                writer.expect(packet_type.PUBREC)
        got = [client.message() for _ in range(2)]
        for one in got:
            client.ack(packet_type.PUBREC, one[3])
            client.expect(packet_type.PUBREL)
        ping(client)
        client.ack(packet_type.PUBCOMP, got[0][3])
        got.append(client.message())
        ping(client)
        client.ack(packet_type.PUBCOMP, got[1][3])
        got.append(client.message())
        assert [one[1] for one in got] == [b"1", b"2", b"3", b"4"]
        ping(client)


@pytest.mark.parametrize(
    "topics",
    ["$filter/speed > 30", "$filter/speed > 30/", "$filter/", "$filter", "$share/g/$filter/speed > 30", "$share/g"],
)
def test_a_subscription_without_a_topic_is_refused_with_its_reason_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topics: str
) -> None:
    with broker(tmp_path) as node, caplog.at_level(logging.WARNING, "carrycast.node"):
        with Raw(node.port, connect("me")) as client:
            client.read_connack()
            for _ in range(2):
                client.say(subscribe(topics))
                body = client.expect(packet_type.SUBACK)[1]
                assert body[-1] == Reason.TOPIC_FILTER_INVALID
                assert topics.encode() in body, "the reason is told in words"
            ping(client)
        with Raw(node.port, connect("old", 4)) as client:
            client.expect(packet_type.CONNACK)
            client.say(packet(0x82, b"\0\1", encode_string(topics), b"\0"))
            assert client.expect(packet_type.SUBACK)[1][-1] == 0x80, "MQTT 3.1.1 has no other answer"
            ping(client)
        assert node.drops("mqtt_subscription") == 3
        told = [one for one in caplog.messages if one.startswith(f"the subscription {topics!r} of the MQTT client")]
        assert [one.split("client ")[1].split(" is")[0] for one in told] == ["'me'", "'old'"]


def test_a_publication_with_too_many_user_properties_is_answered(tmp_path: Path) -> None:
    def said(qos: int, id: int, count: int) -> bytes:
        properties = encode_properties({"user_property": [("a", "b")] * count})
        return packet(0x30 | qos << 1, encode_string("a"), id.to_bytes(2, "big") if qos else b"", properties, b"x")

    with broker(tmp_path) as node, Raw(node.port, connect("me")) as client:
        client.read_connack()
        client.say(said(1, 1, MAX_USER_PROPERTIES))
        assert client.expect(packet_type.PUBACK)[1] == b"\0\1"
        for count in (MAX_USER_PROPERTIES + 1, 10 * MAX_USER_PROPERTIES):
            client.say(said(1, 2, count))
            assert client.expect(packet_type.PUBACK)[1] == bytes((0, 2, Reason.QUOTA_EXCEEDED))
            client.say(said(2, 3, count))
            assert client.expect(packet_type.PUBREC)[1] == bytes((0, 3, Reason.QUOTA_EXCEEDED))
            client.say(said(0, 0, count))
            ping(client)
        until(lambda: node.drops("mqtt_refused") == 6)
