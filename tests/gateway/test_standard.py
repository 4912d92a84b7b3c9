"""Single statements of the standard, each against a running node, by a client of bare bytes."""

import time
from pathlib import Path

import pytest

from carrycast.node.gateways.mqtt import properties as packet_type
from carrycast.node.gateways.mqtt.fields import FieldReader
from carrycast.node.gateways.mqtt.properties import decode_properties
from carrycast.node.gateways.mqtt.publisher import MqttPublisher
from carrycast.node.gateways.mqtt.reason_codes import Reason
from tests.gateway.world import (
    Raw,
    broker,
    connect,
    encode_binary,
    encode_string,
    make_config,
    packet,
    publish,
    subscribe,
)


def test_a_farewell_is_no_longer_than_the_client_takes(tmp_path: Path) -> None:
    """[MQTT-3.1.2-24]"""
    with broker(tmp_path) as node:
        for most, told in ((30, False), (300, True)):
            with Raw(node.port, connect("small", properties={"maximum_packet_size": most})) as client:
                client.read_connack()
                client.say(packet(0x30, encode_string("a/#"), b"\0"))
                _, body = client.expect(packet_type.DISCONNECT)
                assert body[0] == Reason.TOPIC_INVALID
                assert len(body) + 2 <= most
                assert (len(body) > 2) == told


def test_a_will_that_is_to_be_retained_is_refused_where_nothing_is(tmp_path: Path) -> None:
    """[MQTT-3.2.2-13]"""
    will = [b"\0", encode_string("gone"), encode_binary(b"x")]
    with broker(tmp_path, "max_retained = 0") as node:
        with Raw(
            node.port, packet(0x10, encode_string("MQTT"), b"\x05\x26\0\0\0", encode_string("me"), *will)
        ) as client:
            assert client.read_connack()[1] == Reason.RETAIN_NOT_SUPPORTED
        with Raw(
            node.port, packet(0x10, encode_string("MQTT"), b"\x05\x06\0\0\0", encode_string("me"), *will)
        ) as client:
            assert client.read_connack()[1] == 0


def test_a_message_of_qos_0_that_is_too_long_is_left_out_by_name(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        with Raw(node.port, connect("small", properties={"maximum_packet_size": 100})) as client:
            client.read_connack()
            client.say(publish("a", bytes(200), 1, 1, retain=True))
            client.expect(packet_type.PUBACK)
            # The retained one, and one that comes then.
            client.say(subscribe("a"))
            client.expect(packet_type.SUBACK)
            client.say(publish("a", bytes(200)), publish("a", b"short"))
            assert client.message()[1] == b"short"
        assert node.drops("mqtt_too_large") == 2


def test_who_does_not_want_its_own_messages_is_not_given_its_own_retained_ones(tmp_path: Path) -> None:
    """[MQTT-3.8.3-3]"""
    with broker(tmp_path) as node, Raw(node.port, connect("me")) as client, Raw(node.port, connect("you")) as other:
        for one, topic in ((client, "r/mine"), (other, "r/yours")):
            one.read_connack()
            one.say(publish(topic, b"x", 1, 1, retain=True))
            one.expect(packet_type.PUBACK)
        client.say(subscribe("r/#", 0b100))
        client.expect(packet_type.SUBACK)
        assert client.message()[0] == "r/yours"
        client.say(packet(0xC0))
        client.expect(packet_type.PINGRESP)


def test_a_publisher_that_the_node_lets_wait_is_not_taken_for_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = True
    monkeypatch.setattr(MqttPublisher, "is_busy", property(lambda publishing: busy))
    with broker(tmp_path, "connect_s = 0.3") as node, Raw(node.port, connect("me", keep_alive_s=1)) as client:
        client.read_connack()
        # While the node is busy it does not read on, so that the rest of the second cannot come.
        second = publish("a", b"x", 1, 2)
        client.say(publish("a", b"x", 1, 1), second[:5])
        time.sleep(3.0)
        busy = False
        client.expect(packet_type.PUBACK)
        client.say(second[5:])
        assert client.expect(packet_type.PUBACK)[1] == b"\x00\x02"


def test_a_user_that_may_no_longer_subscribe_gets_nothing_of_a_session_from_before(tmp_path: Path) -> None:
    users = '[mqtt.users.{}]\npassword = "p"\nsubscribe = {}\n'
    before = users.format("me", '["#"]') + users.format("you", '["#"]')
    after = users.format("me", '["b"]') + users.format("you", '["#"]')
    hello = connect("me", clean=False, properties={"session_expiry_interval_s": 1000}, user=("me", "p"))
    with broker(tmp_path, before) as node:
        with Raw(node.port, hello) as client:
            client.read_connack()
            for id, topics in enumerate(("a", "b", "$share/g/a"), start=1):
                client.say(subscribe(topics, 1, id))
                client.expect(packet_type.SUBACK)
        node.restart(config=make_config(tmp_path, after))
        with (
            Raw(node.port, hello) as client,
            Raw(node.port, connect("you", user=("you", "p"))) as writer,
        ):
            assert client.read_connack()[0]
            writer.read_connack()
            writer.say(publish("a", b"secret", 1, 1), publish("b", b"open", 1, 2))
            assert client.message()[:2] == ("b", b"open")
            client.say(packet(0xC0))
            client.expect(packet_type.PINGRESP)


def test_who_has_unsubscribed_is_given_no_more_of_what_is_retained(tmp_path: Path) -> None:
    """[MQTT-3.10.4-2]"""
    with broker(tmp_path) as node, Raw(node.port, connect("me", properties={"receive_maximum": 1})) as client:
        client.read_connack()
        for id in (1, 2, 3):
            client.say(publish(f"r/{id}", b"x", 1, id, retain=True))
            client.expect(packet_type.PUBACK)
        client.say(subscribe("r/#", 1))
        client.expect(packet_type.SUBACK)
        got = client.message()
        client.say(packet(0xA2, b"\x00\x05\x00", encode_string("r/#")))
        client.expect(packet_type.UNSUBACK)
        # The second waits already, which may come.
        client.ack(packet_type.PUBACK, got[3])
        client.ack(packet_type.PUBACK, client.message()[3])
        client.say(packet(0xC0))
        client.expect(packet_type.PINGRESP)


def test_each_condition_is_read_on_its_own(tmp_path: Path) -> None:
    """Else one with a bracket too many would turn 'all must hold' into something else."""
    with broker(tmp_path) as node, Raw(node.port, connect("me")) as client:
        client.read_connack()
        for topics, conditions in (
            ("a", ["x = 1) or (y = 1"]),
            ("a", ["x = 1", "y = 1) or (z = 1"]),
            ("$filter/x = 1) or (y = 1/a", ["z = 1"]),
        ):
            client.say(subscribe(topics, properties={"user_property": [("filter", one) for one in conditions]}))
            assert client.expect(packet_type.SUBACK)[1][-1] == Reason.TOPIC_FILTER_INVALID


def test_nobody_publishes_what_the_node_says_of_itself(tmp_path: Path) -> None:
    with broker(tmp_path) as node, Raw(node.port, connect("me")) as client:
        client.read_connack()
        for id, topic in enumerate(("$SYS", "$SYS/broker/uptime"), start=1):
            client.say(publish(topic, b"x", 1, id))
            assert client.expect(packet_type.PUBACK)[1][2:] == bytes((Reason.NOT_AUTHORIZED,))


def test_who_comes_back_as_somebody_else_shares_with_those_who_may_see_the_same(tmp_path: Path) -> None:
    users = '[mqtt.anonymous]\nsubscribe = ["a"]\n[mqtt.users.major]\npassword = "p"\nattributes = {rank = "major"}\n'
    kept = {"session_expiry_interval_s": 1000}
    with broker(tmp_path, users) as node:
        standing = node.subscriptions
        with Raw(node.port, connect("me", clean=False, properties=kept), subscribe("$share/g/a", 1)) as client:
            client.read_connack()
            client.expect(packet_type.SUBACK)
        with Raw(node.port, connect("me", clean=False, properties=kept, user=("major", "p"))) as client:
            assert client.read_connack()[0]
            node.run(lambda: node.node.publish({"topic": "a"}, b"secret", access="rank = 'major'"))
            assert client.message()[1] == b"secret"
            client.say(packet(0xA2, b"\x00\x05\x00", encode_string("$share/g/a")))
            client.expect(packet_type.UNSUBACK)
            assert node.subscriptions == standing


def test_a_client_that_asks_for_no_reasons_in_words_is_told_the_code_alone(tmp_path: Path) -> None:
    """[MQTT-3.1.2-29]"""
    with broker(tmp_path) as node:
        for wanted, told in ((1, True), (0, False)):
            with Raw(node.port, connect("me", properties={"request_problem_information": wanted})) as client:
                client.read_connack()
                client.say(subscribe("$filter/speed > 30"))
                _, body = client.expect(packet_type.SUBACK)
                assert body[-1] == Reason.TOPIC_FILTER_INVALID
                assert ("reason_string" in decode_properties(FieldReader(body, 2), packet_type.SUBACK)) == told
