"""The codec against paho-mqtt, which reads and writes the other end, and against bytes that nobody meant."""

import random
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from carrycast.node.gateways.mqtt import codec, properties as packet_type
from carrycast.node.gateways.mqtt.codec import MAX_TOPIC_FILTERS, decode_packet
from carrycast.node.gateways.mqtt.fields import MAX_VARIABLE, FieldReader, PacketSplitter, encode_variable_byte_integer
from carrycast.node.gateways.mqtt.packets import (
    AckPacket,
    ApplicationMessage,
    AuthPacket,
    ConnectPacket,
    DisconnectPacket,
    PingreqPacket,
    PublishPacket,
    SubscribePacket,
    UnsubscribePacket,
)
from carrycast.node.gateways.mqtt.properties import decode_properties, encode_properties
from carrycast.node.gateways.mqtt.reason_codes import PacketError, Reason
from tests.gateway.world import connect, encode_string, packet

V311, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
VERSIONS = st.sampled_from([V311, V5])
PLAIN = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
TEXTS = st.text(PLAIN, max_size=20)
TOPICS = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=20)
IDS = st.integers(1, 65_535)
SPEC = settings(max_examples=60, deadline=None)

# Of each of our properties, what paho calls it, and values that it may have.
NAMES: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "payload_format_indicator": ("PayloadFormatIndicator", st.integers(0, 1)),
    "message_expiry_interval_s": ("MessageExpiryInterval", st.integers(0, 2**32 - 1)),
    "content_type": ("ContentType", TEXTS),
    "response_topic": ("ResponseTopic", TOPICS),
    "correlation_data": ("CorrelationData", st.binary(max_size=20)),
    "topic_alias": ("TopicAlias", IDS),
    "user_property": ("UserProperty", st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5)),
}


def written(version: MQTTProtocolVersion, act: Callable[[Client], object]) -> list[tuple[int, bytes]]:
    """The packets that paho writes."""
    here, there = socket.socketpair()
    with here, there:
        client = Client(CallbackAPIVersion.VERSION2, "me", protocol=version)
        client._sock = here
        act(client)
        client._sock = None
        here.close()
        data = b""
        while part := there.recv(1 << 20):
            data += part
    return list(PacketSplitter(1 << 20).feed(data))


def single(version: MQTTProtocolVersion, act: Callable[[Client], object]) -> Any:
    [(head, body)] = written(version, act)
    return decode_packet(head, body, version)


@SPEC
@given(VERSIONS, TOPICS, st.binary(max_size=300), st.integers(0, 2), st.booleans(), IDS, st.data())
def test_what_paho_publishes_is_read(
    version: MQTTProtocolVersion, topic: str, payload: bytes, qos: int, retain: bool, id: int, data: st.DataObject
) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(NAMES)))) if version == V5 else set()
    values = {name: data.draw(NAMES[name][1]) for name in names}
    said = Properties(PacketTypes.PUBLISH)
    for name, value in values.items():
        setattr(said, NAMES[name][0], value)
    info = MQTTMessageInfo(id)
    found = single(
        version,
        lambda client: client._send_publish(
            id, topic.encode(), payload, qos, retain, bool(qos), info, said if version == V5 else None
        ),
    )
    assert found == PublishPacket(ApplicationMessage(topic, payload, qos, retain, values), id if qos else 0, bool(qos))


@SPEC
@given(VERSIONS, st.booleans(), st.integers(0, 65_535), TEXTS, st.binary(max_size=20), TOPICS, st.integers(0, 2))
def test_what_paho_says_when_it_connects_is_read(
    version: MQTTProtocolVersion, clean: bool, keep_alive_s: int, user: str, password: bytes, topic: str, qos: int
) -> None:
    def act(client: Client) -> None:
        client._clean_session, client._clean_start = clean, clean
        client._keepalive, client._username, client._password = keep_alive_s, user.encode(), password
        later = Properties(PacketTypes.WILLMESSAGE)
        later.WillDelayInterval = 7
        client.will_set(topic, b"gone", qos, True, later if version == V5 else None)
        if version == V5:
            said = Properties(PacketTypes.CONNECT)
            said.SessionExpiryInterval = 60
            client._connect_properties = said
        client._send_connect(keep_alive_s)

    will = ApplicationMessage(topic, b"gone", qos, True, {"will_delay_interval_s": 7} if version == V5 else {})
    properties = {"session_expiry_interval_s": 60} if version == V5 else {}
    assert single(version, act) == ConnectPacket(version, "me", clean, keep_alive_s, will, user, password, properties)


@SPEC
@given(VERSIONS, st.lists(st.tuples(TOPICS, st.integers(0, 2)), min_size=1, max_size=5))
def test_what_paho_subscribes_to_is_read(version: MQTTProtocolVersion, wishes: list[tuple[str, int]]) -> None:
    found = single(version, lambda client: client._send_unsubscribe(False, [one.encode() for one, _ in wishes]))
    assert isinstance(found, UnsubscribePacket)
    assert found.filters == [one for one, _ in wishes]
    asked: Any = [
        (one.encode(), SubscribeOptions(qos, qos > 0, qos > 1, qos) if version == V5 else qos) for one, qos in wishes
    ]
    found = single(version, lambda client: client._send_subscribe(False, asked))
    assert isinstance(found, SubscribePacket)
    assert [(one.filter, one.qos) for one in found.subscriptions] == wishes
    if version == V5:
        options = [(one.no_local, one.retain_as_published, one.retain_handling) for one in found.subscriptions]
        assert options == [(qos > 0, qos > 1, qos) for _, qos in wishes]


@SPEC
@given(VERSIONS, IDS)
def test_the_short_packets_of_paho_are_read(version: MQTTProtocolVersion, id: int) -> None:
    assert single(version, lambda client: client._send_puback(id)) == AckPacket(packet_type.PUBACK, id)
    assert single(version, lambda client: client._send_pubrec(id)) == AckPacket(packet_type.PUBREC, id)
    assert single(version, lambda client: client._send_pubrel(id)) == AckPacket(packet_type.PUBREL, id)
    assert single(version, lambda client: client._send_pubcomp(id)) == AckPacket(packet_type.PUBCOMP, id)
    assert single(version, lambda client: client._send_pingreq()) == PingreqPacket()
    assert single(version, lambda client: client._send_disconnect()) == DisconnectPacket()


@SPEC
@given(st.data())
def test_paho_reads_the_properties_that_are_written_and_they_are_read_back(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(NAMES)), unique=True))
    values = {name: data.draw(NAMES[name][1]) for name in names}
    encoded = encode_properties(values)
    theirs = Properties(PacketTypes.PUBLISH)
    assert theirs.unpack(encoded)[1] == len(encoded)
    for name, value in values.items():
        assert getattr(theirs, NAMES[name][0]) == value
    assert len(theirs.pack()) == len(encoded)
    assert decode_properties(FieldReader(encoded), packet_type.PUBLISH) == values


@SPEC
@given(st.integers(0, MAX_VARIABLE))
def test_a_number_of_variable_length_is_read_back(number: int) -> None:
    reader = FieldReader(encode_variable_byte_integer(number))
    assert (reader.read_variable_byte_integer(), reader.remaining) == (number, 0)


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 400), max_size=50))
def test_packets_are_found_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(packet(0x30, body) for body in bodies)
    frames, at = PacketSplitter(1000), 0
    found: list[tuple[int, bytes]] = []
    for size in [*cuts, len(stream)]:
        found += frames.feed(stream[at : at + size])
        at += size
    assert found == [(0x30, body) for body in bodies]
    assert not frames.has_incomplete_packet


ID = b"\x00\x01"
MALFORMED = Reason.MALFORMED
PROTOCOL = Reason.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("head", "body", "reason"),
    [
        (0x36, encode_string("a") + ID + b"\0", MALFORMED),  # QoS 3
        (0x38, encode_string("a") + b"\0", MALFORMED),  # QoS 0 that comes again
        (0x30, b"\x00", MALFORMED),
        (0x30, b"\x00\x09a", MALFORMED),
        (0x30, encode_string("a/+") + b"\0", Reason.TOPIC_INVALID),
        (0x30, encode_string("") + b"\0", Reason.TOPIC_INVALID),
        (0x30, b"\x00\x01\xff\0", MALFORMED),
        (0x30, b"\x00\x03\xed\xa0\x80\0", MALFORMED),  # a lone surrogate
        (0x30, encode_string("a\0b") + b"\0", MALFORMED),
        (0x32, encode_string("a") + b"\0\0\0", PROTOCOL),  # packet id 0
        (0x30, encode_string("a") + encode_properties({"subscription_identifier": [1]}), PROTOCOL),
        (0x30, encode_string("a") + encode_properties({"response_topic": "a/#"}), PROTOCOL),
        (0x30, encode_string("a") + encode_properties({"session_expiry_interval_s": 1}), PROTOCOL),
        (0x30, encode_string("a") + b"\x02\x01\x02", PROTOCOL),  # a payload format that does not exist
        (0x30, encode_string("a") + b"\x04\x01\x01\x01\x01", PROTOCOL),  # twice
        (0x30, encode_string("a") + b"\x01\x7f", MALFORMED),  # a property that does not exist
        (0x30, encode_string("a") + b"\x05\x01", MALFORMED),
        (0x30, encode_string("a") + b"\x80\x00", MALFORMED),  # a length that is longer than it must be
        (0x30, encode_string("a") + b"\xff\xff\xff\xff\x01", MALFORMED),
        (0x60, ID, MALFORMED),  # PUBREL without its flags
        (0x40, b"\0\0", PROTOCOL),
        (0x40, b"\0", MALFORMED),
        (0x40, ID + b"\0\0\0", MALFORMED),
        (0x80, ID + b"\0" + encode_string("a") + b"\0", MALFORMED),
        (0x82, ID + b"\0", MALFORMED),  # no topic filter
        (0x82, ID + b"\0" + encode_string("a"), MALFORMED),
        (0x82, ID + b"\0" + encode_string("a") + b"\x03", MALFORMED),
        (0x82, ID + b"\0" + encode_string("a") + b"\x30", PROTOCOL),
        (0x82, ID + b"\0" + encode_string("a") + b"\x40", MALFORMED),
        (0x82, ID + b"\x02\x0b\x00" + encode_string("a") + b"\0", PROTOCOL),  # subscription id 0
        (0x82, ID + b"\0" + (encode_string("a") + b"\0") * (MAX_TOPIC_FILTERS + 1), Reason.QUOTA_EXCEEDED),
        (0xA2, ID + b"\0", MALFORMED),
        (0xA2, ID + b"\0" + encode_string("a") * (MAX_TOPIC_FILTERS + 1), Reason.QUOTA_EXCEEDED),
        (0xC0, b"x", MALFORMED),
        (0xE0, b"\0\x02\x11", MALFORMED),
        (0x20, b"\0\0", PROTOCOL),
        (0xD0, b"", PROTOCOL),
        (0x00, b"", PROTOCOL),
    ],
)
def test_what_the_standard_forbids_is_refused_with_its_reason(head: int, body: bytes, reason: Reason) -> None:
    with pytest.raises(PacketError) as refused:
        decode_packet(head, body, 5)
    assert refused.value.reason is reason


@pytest.mark.parametrize(
    ("version", "flags", "rest", "reason"),
    [
        (5, 0x01, b"\0", MALFORMED),
        (5, 0x08, b"\0", MALFORMED),  # the QoS of a will that is not there
        (5, 0x1C, b"\0", MALFORMED),
        (4, 0x40, b"", MALFORMED),  # a password without a user
        (5, 0x80, b"\0" + encode_string("me"), MALFORMED),
        (5, 0x02, b"\0" + encode_string("me") + b"x", MALFORMED),
        (5, 0x02, b"\x03\x21\x00\x00" + encode_string("me"), PROTOCOL),  # receive maximum 0
        (5, 0x02, b"\x02\x17\x02" + encode_string("me"), PROTOCOL),
        (5, 0x02, b"\x03\x16\x00\x00" + encode_string("me"), PROTOCOL),  # authentication data without a method
        (5, 0x06, b"\0" + encode_string("me") + b"\0" + encode_string("a/#") + b"\0\0", Reason.TOPIC_INVALID),
        (3, 0x02, encode_string("me"), Reason.UNSUPPORTED_VERSION),
        (6, 0x02, b"\0" + encode_string("me"), Reason.UNSUPPORTED_VERSION),
    ],
)
def test_a_wrong_introduction_is_refused(version: int, flags: int, rest: bytes, reason: Reason) -> None:
    with pytest.raises(PacketError) as refused:
        decode_packet(0x10, encode_string("MQTT") + bytes((version, flags)) + b"\0\0" + rest, 0)
    assert refused.value.reason is reason


def test_lengths_that_are_wrong_end_the_stream() -> None:
    for stream, reason in (
        (b"\x30\xff\xff\xff\xff\x01", MALFORMED),
        (b"\x30\x80\x00", MALFORMED),
        (b"\x30\xff\xff\xff\x7f", Reason.PACKET_TOO_LARGE),
        (b"\x30\x7f", Reason.PACKET_TOO_LARGE),
    ):
        with pytest.raises(PacketError) as refused:
            list(PacketSplitter(100).feed(stream))
        assert refused.value.reason is reason


def test_a_hundred_thousand_changed_packets_are_read_or_refused() -> None:
    """Real packets with some of their bytes changed, cut or doubled: a packet or a PacketError, never anything else."""
    rng = random.Random(16)
    properties = encode_properties(
        {"user_property": [("a", "b")], "message_expiry_interval_s": 7, "correlation_data": b"xy", "topic_alias": 3}
    )
    real = [
        connect("me", 5, properties={"session_expiry_interval_s": 9}, user=("u", "p")),
        connect("me", 4),
        packet(0x34, encode_string("a/b"), ID, properties, b'{"speed": 31}'),
        packet(0x30, encode_string("a/b"), b"hello"),
        packet(0x82, ID, encode_properties({"subscription_identifier": [300]}), encode_string("a/+/#"), b"\x2d"),
        packet(0xA2, ID, b"\0", encode_string("a"), encode_string("b")),
        packet(0x62, ID, b"\x92\0"),
        packet(0xE0, b"\x04\x05\x11\0\0\0\x09"),
        packet(0xF0, b"\x18\0"),
    ]
    outcomes: dict[str, int] = {}
    for _ in range(100_000):
        data = bytearray(rng.choice(real))
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(len(data))
            change = rng.random()
            if change < 0.7:
                data[at] = rng.randrange(256)
            elif change < 0.85:
                del data[at:]
                data = data or bytearray(b"\0")
            else:
                data[at:at] = data[at : at + rng.randrange(8)]
        outcome = "half"
        try:
            for head, body in PacketSplitter(1000).feed(bytes(data)):
                outcome = type(decode_packet(head, body, rng.choice((0, 4, 5)))).__name__
        except PacketError as error:
            outcome = error.reason.name
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert {
        "half",
        "MALFORMED",
        "PROTOCOL_ERROR",
        "PublishPacket",
        "SubscribePacket",
        "PACKET_TOO_LARGE",
    } <= outcomes.keys()


def test_auth_is_known_to_mqtt_5_alone() -> None:
    assert decode_packet(0xF0, b"\x18\0", 5) == AuthPacket()
    with pytest.raises(PacketError):
        decode_packet(0xF0, b"\x18\0", 4)


def test_answers_are_written_as_the_standard_has_them() -> None:
    assert codec.encode_connack(4, True, 0) == b"\x20\x02\x01\x00"
    assert codec.encode_connack(5, False, 0x87) == b"\x20\x03\x00\x87\x00"
    assert codec.encode_ack(4, packet_type.PUBREL, 258, 0x92) == b"\x62\x02\x01\x02"
    assert codec.encode_ack(5, packet_type.PUBREL, 258, 0x92) == b"\x62\x03\x01\x02\x92"
    assert codec.encode_suback(4, 1, [0, 1, 0x80]) == b"\x90\x05\x00\x01\x00\x01\x80"
    assert codec.encode_unsuback(4, 1, [0]) == b"\xb0\x02\x00\x01"
    assert codec.encode_unsuback(5, 1, [0x11]) == b"\xb0\x04\x00\x01\x00\x11"
    assert codec.encode_disconnect(0x8B) == b"\xe0\x02\x8b\x00"
    assert codec.PINGRESP_PACKET == b"\xd0\x00"
    assert codec.encode_publish(4, ApplicationMessage("a", b"x", 1, True), 7, True) == b"\x3b\x06\x00\x01a\x00\x07x"
