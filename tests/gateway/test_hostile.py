"""Clients that mean no good: they are refused with the reason of the standard, cost little, and hold up nobody else."""

import random
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from carrycast.node.gateways.mqtt import gateway, properties as packet_type
from carrycast.node.gateways.mqtt.connection import LINGER_S, MAX_UNREAD_BYTES
from carrycast.node.gateways.mqtt.reason_codes import Reason
from carrycast.node.gateways.mqtt.topic_filters import parse_topic_subscription
from tests.gateway.world import WAIT_S, Broker, Raw, broker, connect, encode_string, packet, publish, subscribe, until

LIMITS = """
connect_s = 0.5
max_clients = 70
max_subscriptions = 5
max_queued = 10
receive_maximum = 5
max_packet_bytes = 20000
"""
ID = b"\x00\x01"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(tmp_path_factory.mktemp("node"), LIMITS) as opened:
        yield opened
        serves(opened)


def serves(node: Broker) -> None:
    """The node is well: a client comes in, publishes and gets what it wants."""
    with Raw(node.port, connect("well")) as client:
        assert client.read_connack()[1] == 0
        client.say(subscribe("well", 1))
        client.expect(packet_type.SUBACK)
        client.say(publish("well", b"x", 1, 1))
        assert {client.hear()[0] >> 4 for _ in range(2)} == {packet_type.PUBACK, packet_type.PUBLISH}  # type: ignore[index]


def first(node: Broker, *packets: bytes) -> int | None:
    """The reason with which a client that is let in and says this is disconnected."""
    with Raw(node.port, connect("guest"), *packets) as client:
        assert client.read_connack()[1] == 0
        return client.end()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (packet(0x36, encode_string("a"), ID, b"\0"), Reason.MALFORMED),
        (packet(0x30, encode_string("a/#"), b"\0"), Reason.TOPIC_INVALID),
        (packet(0x30, encode_string("a"), b"\x03\x23\x00\x00"), Reason.TOPIC_ALIAS_INVALID),
        (packet(0x30, encode_string(""), b"\x03\x23\x00\x07"), Reason.PROTOCOL_ERROR),
        (packet(0x30, b"x" * 30_000), Reason.PACKET_TOO_LARGE),
        (b"\x30\xff\xff\xff\x7f", Reason.PACKET_TOO_LARGE),
        (b"\x30\xff\xff\xff\xff", Reason.MALFORMED),
        (connect("guest"), Reason.PROTOCOL_ERROR),
        (packet(0xF0, b"\x18\0"), Reason.PROTOCOL_ERROR),
        (packet(0x82, ID, b"\0", encode_string("$share/g/a"), b"\x04"), Reason.PROTOCOL_ERROR),
        (b"".join(publish("a", b"", 2, id) for id in range(1, 200)), Reason.RECEIVE_MAXIMUM_EXCEEDED),
        (packet(0x82, ID, b"\0", (encode_string("a") + b"\0") * 1001), Reason.QUOTA_EXCEEDED),
        (packet(0xE0, b"\x00\x05\x11\0\0\0\x09"), Reason.PROTOCOL_ERROR),
        (b"GET / HTTP/1.1\r\n\r\n", Reason.MALFORMED),
    ],
)
def test_who_breaks_a_rule_is_told_which(node: Broker, said: bytes, reason: Reason) -> None:
    assert first(node, said) == reason
    assert node.drops(f"mqtt_{reason.name.lower()}") > 0


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", None),
        (publish("a", b"x"), None),
        (packet(0x10, encode_string("HTTP"), b"\x05\x02\0\0\0", encode_string("x")), None),
        (packet(0x10, encode_string("MQIsdp"), b"\x02\x02\0\0", encode_string("x")), b"\x20\x02\x00\x01"),
        (packet(0x10, encode_string("MQIsdp"), b"\x04\x02\0\0", encode_string("x")), b"\x20\x02\x00\x01"),
        (packet(0x10, encode_string("MQTT"), b"\x85\x02\0\0\0", encode_string("x")), b"\x20\x02\x00\x01"),
        (connect("", 4, clean=False), b"\x20\x02\x00\x02"),
        (connect("x" * 300, 4), b"\x20\x02\x00\x02"),
        (connect("x", 5, properties={"authentication_method": "x"}), b"\x20\x03\x00\x8c\x00"),
    ],
)
def test_who_does_not_introduce_itself_is_shown_out(node: Broker, said: bytes, answer: bytes | None) -> None:
    with Raw(node.port, said) as client:
        heard = client.hear()
        assert heard == (None if answer is None else (answer[0], answer[2:]))
        assert answer is None or client.hear() is None


def test_a_client_without_a_name_gets_one(node: Broker) -> None:
    with Raw(node.port, connect("")) as client:
        _, reason, properties = client.read_connack()
        assert (reason, properties["receive_maximum"], properties["maximum_packet_size"]) == (0, 5, 20_000)
        assert properties["assigned_client_identifier"].startswith("auto-")


def test_half_packets_and_silence_end_a_connection(node: Broker) -> None:
    with (
        Raw(node.port) as silent,
        Raw(node.port, connect("x")[:7]) as half,
        Raw(node.port, connect("y", keep_alive_s=0)) as slow,
        Raw(node.port, connect("z", keep_alive_s=1)) as still,
        Raw(node.port, connect("idle", keep_alive_s=0)) as idle,
    ):
        for one in (slow, still, idle):
            one.read_connack()
        slow.say(publish("a", b"x" * 100)[:50])
        assert silent.hear() is None
        assert half.hear() is None
        assert slow.end() == Reason.KEEP_ALIVE_TIMEOUT
        assert still.end() == Reason.KEEP_ALIVE_TIMEOUT
        idle.say(packet(0xC0))
        idle.expect(packet_type.PINGRESP)


def test_who_only_holds_a_place_makes_room_for_others(node: Broker) -> None:
    holders = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(3 * gateway.MAX_UNIDENTIFIED)]
    try:
        serves(node)
        assert node.drops("mqtt_flood") > 0
    finally:
        for holder in holders:
            holder.close()


def test_more_clients_than_are_served_are_refused_and_room_is_used_again(node: Broker) -> None:
    clients: list[Raw] = []
    try:
        reasons = []
        for number in range(72):
            clients.append(Raw(node.port, connect(f"many-{number}")))
            reasons.append(clients[-1].read_connack()[1])
        assert reasons == [0] * 70 + [Reason.QUOTA_EXCEEDED] * 2
        with Raw(node.port, connect("old", 4)) as old:
            assert old.expect(packet_type.CONNACK)[1] == b"\x00\x03"
        # Who is there already may come back.
        clients.append(Raw(node.port, connect("many-0")))
        assert clients[-1].read_connack()[1] == 0
    finally:
        for client in clients:
            client.close()
    until(lambda: node.run(lambda: len(node.node.gateways["mqtt"]._connections)) == 0)  # type: ignore[attr-defined]
    serves(node)


def test_a_list_of_wishes_is_bounded_and_each_is_answered(node: Broker) -> None:
    with Raw(node.port, connect("greedy")) as client:
        client.read_connack()
        wishes = b"".join(encode_string(f"many/{number}") + b"\0" for number in range(20))
        before = node.subscriptions
        client.say(packet(0x82, ID, b"\0", wishes))
        reasons = client.expect(packet_type.SUBACK)[1][-20:]
        assert reasons == bytes([0] * 5 + [Reason.QUOTA_EXCEEDED] * 15)
        assert node.subscriptions == before + 5
        client.say(packet(0x82, ID, b"\0", encode_string("$filter/" + "(" * 3000 + "/x"), b"\0"))
        assert client.expect(packet_type.SUBACK)[1][-1] == Reason.TOPIC_FILTER_INVALID
        client.say(packet(0x82, ID, b"\0", encode_string("x" * 10_000), b"\0"))
        assert client.expect(packet_type.SUBACK)[1][-1] == Reason.TOPIC_FILTER_INVALID
        client.say(packet(0x82, ID, b"\0", encode_string("$filter/a = 1) or (b = 2/x"), b"\0"))
        assert client.expect(packet_type.SUBACK)[1][-1] == Reason.TOPIC_FILTER_INVALID
    until(lambda: node.subscriptions == before)


def test_deep_and_wide_json_is_carried_and_bounded(node: Broker) -> None:
    with Raw(node.port, connect("json")) as client:
        client.read_connack()
        client.say(subscribe("json", 0))
        client.expect(packet_type.SUBACK)
        dropped = node.drops("mqtt_attributes")
        payloads = [
            b'{"a":' * 3000 + b"1" + b"}" * 3000,
            b"[" * 9000,
            b'{"a":1e999,"b":123456789012345678901234567890}',
            b"{" + b",".join(b'"k%d":%d' % (number, number) for number in range(1000)) + b"}",
            b'{"topic":"other","mqtt.qos":2,"":1,"x\\u0000y":2}',
            b'{"a":"' + b"\xff" * 10 + b'"}',
        ]
        for payload in payloads:
            client.say(publish("json", payload))
            assert client.message()[:2] == ("json", payload)
        assert node.drops("mqtt_attributes") > dropped


def test_a_client_that_does_not_read_loses_messages_by_name_and_nobody_else_does(node: Broker) -> None:
    payload = bytes(10_000)
    with Raw(node.port, connect("slow")) as slow, Raw(node.port, connect("quick")) as quick:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for one in (slow, quick):
            one.read_connack()
            one.say(subscribe("flood", 0), subscribe("flood/once", 1, 2))
            one.expect(packet_type.SUBACK)
            one.expect(packet_type.SUBACK)
        with Raw(node.port, connect("writer")) as writer:
            writer.read_connack()
            for _ in range(4 * MAX_UNREAD_BYTES // len(payload)):
                writer.say(publish("flood", payload))
                assert quick.message()[1] == payload
            for number in range(20):
                writer.say(publish("flood/once", payload, 1, number + 1))
                writer.expect(packet_type.PUBACK)
                quick.ack(packet_type.PUBACK, quick.message()[3])
        assert node.drops("client_slow") > 10
    serves(node)


def test_a_client_that_is_shown_out_and_reads_on_troubles_nobody(node: Broker) -> None:
    with Raw(node.port, connect("slow")) as slow, Raw(node.port, connect("writer")) as writer:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        for one in (slow, writer):
            one.read_connack()
        slow.say(subscribe("flood"))
        slow.expect(packet_type.SUBACK)
        for _ in range(100):
            writer.say(publish("flood", bytes(10_000)))
        writer.say(packet(0xC0))
        writer.expect(packet_type.PINGRESP)
        slow.say(connect("slow"))
        assert slow.end() == Reason.PROTOCOL_ERROR
        time.sleep(LINGER_S + 0.2)
        node.check()


def test_a_publisher_that_does_not_read_its_answers_is_read_no_further(node: Broker) -> None:
    with Raw(node.port, connect("deaf")) as deaf:
        deaf.read_connack()
        # Else the system may take all answers in its place, as much as it has room.
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.socket.settimeout(0.3)
        wrong = subscribe("$filter/" + "x" * 90) * 100
        sent = 0
        with suppress(TimeoutError):
            while sent < 20_000:
                deaf.socket.sendall(wrong)
                sent += 1
        assert 10 < sent < 20_000
        serves(node)


def test_a_long_flood_of_mutated_packets_leaves_the_node_well(node: Broker) -> None:
    rng = random.Random(7)
    real = connect("guest") + subscribe("a/#", 1) + publish("a/b", b'{"x": 1}', 2, 3) + packet(0x62, b"\x00\x03")
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(500):
        data = bytearray(real)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with socket.create_connection(("127.0.0.1", node.port), timeout=WAIT_S) as one:
            one.sendall(bytes(data))
    serves(node)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun < 50_000


def test_conditions_end_at_the_first_slash_outside_of_quotes() -> None:
    assert (
        parse_topic_subscription("$filter/a = 'x/y' and \"n/m\" > 1/t/#").filter
        == "\"n/m\" > 1 and a = 'x/y' and topic matches 't/#'"
    )
    assert parse_topic_subscription("it's/+").filter == "topic matches 'it''s/+'"
    wanted = parse_topic_subscription("$share/g/$filter/a = 1/t", "b = 2")
    assert (wanted.group, wanted.filter) == ("g", "a = 1 and b = 2 and topic = 't'")
