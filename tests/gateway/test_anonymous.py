"""Clients without a user have the rights that the table [mqtt.anonymous] grants, and no others."""

import logging
from pathlib import Path

import pytest

from carrycast.core.matching.topics import parse_topic_filter
from carrycast.node.gateways.mqtt import properties as packet_type
from carrycast.node.gateways.mqtt.config import NOTHING_GRANTED, find_rights, read_mqtt_section
from carrycast.node.gateways.mqtt.reason_codes import Reason
from tests.gateway.world import Raw, broker, connect, encode_string, packet, publish, subscribe

USER = '[mqtt.users.sensor]\npassword = "s"\npublish = ["sensors/#"]\nsubscribe = ["sensors/#"]\n'
GRANTED = '[mqtt.anonymous]\npublish = ["public/#"]\nsubscribe = ["news/#", "$SYS/broker/uptime"]\n'
TOPICS = ("sensors/1", "a", "#", "+/1", "$share/g/a", "$filter/x > 1/a", "$SYS/#", "$SYS/broker/uptime")


def answer_to_subscribe(client: Raw, topics: str) -> int:
    client.say(subscribe(topics, 1))
    return client.expect(packet_type.SUBACK)[1][-1]


def answer_to_publish(client: Raw, topic: str, qos: int = 1, retain: bool = False) -> int:
    client.say(publish(topic, b"x", qos, 7, retain=retain))
    body = client.expect(packet_type.PUBACK if qos == 1 else packet_type.PUBREC)[1]
    return body[2] if len(body) > 2 else 0


def connect_with_will(topic: str, retain: bool = False) -> bytes:
    flags = 0b110 | retain << 5
    return packet(
        0x10,
        encode_string("MQTT"),
        bytes((5, flags)),
        b"\0\0",
        b"\0",
        encode_string("w"),
        b"\0",
        encode_string(topic),
        b"\0\1x",
    )


@pytest.mark.parametrize(
    "table",
    ["anonymous = true\n" + USER, "anonymous = true\n", "[mqtt.anonymous]\n" + USER, "[mqtt.anonymous]\n"],
    ids=["true beside users", "true alone", "an empty table beside users", "an empty table"],
)
def test_a_client_without_a_user_has_no_right_by_default(tmp_path: Path, table: str) -> None:
    with broker(tmp_path, table) as node, Raw(node.port, connect("me")) as client:
        assert client.read_connack()[1] == Reason.SUCCESS
        for topics in TOPICS:
            assert answer_to_subscribe(client, topics) == Reason.NOT_AUTHORIZED, topics
        for qos in (1, 2):
            for retain in (False, True):
                assert answer_to_publish(client, "sensors/1", qos, retain) == Reason.NOT_AUTHORIZED
        client.say(publish("sensors/1", b"x"), packet(0xC0))
        client.expect(packet_type.PINGRESP)
        assert node.drops("mqtt_not_allowed") == 5
        for retain in (False, True):
            with Raw(node.port, connect_with_will("sensors/1", retain)) as other:
                assert other.read_connack()[1] == Reason.NOT_AUTHORIZED
        with Raw(node.port, connect("old", 4)) as old:
            assert old.expect(packet_type.CONNACK)[1] == b"\0\0"
            old.say(packet(0x82, b"\0\1", encode_string("#"), b"\1"))
            assert old.expect(packet_type.SUBACK)[1][-1] == 0x80
            old.say(packet(0x32, encode_string("a"), b"\0\1", b"x"))
            assert old.hear() is None, "what is not kept is not acknowledged"


def test_a_client_without_a_user_has_the_rights_that_are_granted_and_no_others(tmp_path: Path) -> None:
    with (
        broker(tmp_path, GRANTED + USER) as node,
        Raw(node.port, connect("me")) as client,
        Raw(node.port, connect("s", user=("sensor", "s"))) as sensor,
    ):
        client.read_connack()
        sensor.read_connack()
        assert answer_to_publish(client, "public/1") == Reason.SUCCESS
        assert answer_to_publish(client, "sensors/1") == Reason.NOT_AUTHORIZED
        assert answer_to_subscribe(client, "news/#") == 1
        assert answer_to_subscribe(client, "$SYS/broker/uptime") == 1
        for topics in ("#", "public/1", "sensors/#", "$SYS/#"):
            assert answer_to_subscribe(client, topics) == Reason.NOT_AUTHORIZED, topics
        # The user's own are as they were.
        assert answer_to_publish(sensor, "sensors/2") == Reason.SUCCESS
        assert answer_to_publish(sensor, "public/2") == Reason.NOT_AUTHORIZED
        assert answer_to_subscribe(sensor, "sensors/#") == 1
        with Raw(node.port, connect("x", user=("nobody", "x"))) as other:
            assert other.read_connack()[1] == Reason.BAD_CREDENTIALS
        with Raw(node.port, connect_with_will("public/will")) as other:
            assert other.read_connack()[1] == Reason.SUCCESS


def test_where_there_are_no_users_a_name_gives_no_more_rights_than_none(tmp_path: Path) -> None:
    with broker(tmp_path, GRANTED) as node, Raw(node.port, connect("me", user=("root", "x"))) as client:
        assert client.read_connack()[1] == Reason.SUCCESS
        assert answer_to_subscribe(client, "news/1") == 1
        assert answer_to_subscribe(client, "#") == Reason.NOT_AUTHORIZED


def test_what_anonymous_clients_are_counts_for_access_rules(tmp_path: Path) -> None:
    table = '[mqtt.anonymous]\nsubscribe = ["a"]\nattributes = {rank = "guest"}\n'
    with broker(tmp_path, table) as node, Raw(node.port, connect("me")) as client:
        client.read_connack()
        assert answer_to_subscribe(client, "a") == 1
        node.run(lambda: node.node.publish({"topic": "a"}, b"secret", access="rank = 'major'"))
        node.run(lambda: node.node.publish({"topic": "a"}, b"open", access="rank = 'guest'"))
        assert client.message()[1] == b"open"


def test_an_operator_is_told_that_nothing_is_granted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "carrycast.node"):
        with broker(tmp_path, GRANTED):
            pass
        assert NOTHING_GRANTED not in caplog.messages
        with broker(tmp_path, "anonymous = true"):
            pass
        assert NOTHING_GRANTED in caplog.messages


@pytest.mark.parametrize(
    ("table", "user", "may"),
    [
        ({}, None, True),
        ({}, "from when there were users", True),
        ({"anonymous": True}, None, False),
        ({"anonymous": {"subscribe": ["a"]}}, None, True),
        ({"anonymous": {"subscribe": ["a"]}}, "from when there were users", True),
        ({"users": {"me": {"password": "p"}}}, None, False),
        ({"users": {"me": {"password": "p"}}}, "me", True),
        ({"users": {"me": {"password": "p"}}}, "no longer named", False),
        ({"users": {"me": {"password": "p"}}, "anonymous": {"subscribe": ["a"]}}, "no longer named", False),
    ],
)
def test_a_session_from_before_a_restart_has_the_rights_of_the_present_configuration(
    table: dict[str, object], user: str | None, may: bool
) -> None:
    rights = find_rights(read_mqtt_section(table, "n.toml"), user)
    assert rights.may_subscribe(parse_topic_filter("a")) is may
