"""A stock client library, unchanged: paho-mqtt with MQTT 3.1.1 and 5, plain and through its own helpers."""

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import publish as paho_publish, subscribe as paho_subscribe
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from carrycast.node.commands import SubscribeArguments, publish as carrycast_publish, subscribe as carrycast_subscribe
from tests.gateway.world import WAIT_S, Broker, broker, until

V311, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
BOTH = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(tmp_path_factory.mktemp("node")) as opened:
        yield opened


class Talker:
    """A paho client with what it has heard."""

    def __init__(self, port: int, version: MQTTProtocolVersion, id: str = "", **options: Any) -> None:
        known = {"clean_session": options.pop("clean", True)} if version == V311 else {}
        self.client = Client(CallbackAPIVersion.VERSION2, id, protocol=version, **known)
        self.heard: queue.Queue[MQTTMessage] = queue.Queue()
        self.done: dict[int, Any] = {}
        self.connected: queue.Queue[tuple[Any, Any]] = queue.Queue()
        will = options.pop("will", None)
        if will is not None:
            self.client.will_set(**will)
        self.client.on_message = lambda client, data, message: self.heard.put(message)
        self.client.on_connect = lambda client, data, flags, reason, properties: self.connected.put((flags, reason))
        self.client.on_subscribe = lambda client, data, mid, reasons, properties: self.done.__setitem__(mid, reasons)
        self.client.on_unsubscribe = lambda client, data, mid, reasons, properties: self.done.__setitem__(mid, reasons)
        self.client.connect("127.0.0.1", port, **options)
        self.client.loop_start()
        self.flags, self.reason = self.connected.get(timeout=WAIT_S)

    def subscribe(self, *arguments: Any, **options: Any) -> list[Any]:
        result, mid = self.client.subscribe(*arguments, **options)
        assert result == MQTTErrorCode.MQTT_ERR_SUCCESS
        assert mid is not None
        until(lambda: mid in self.done)
        return list(self.done[mid])

    def unsubscribe(self, topics: str) -> None:
        mid = self.client.unsubscribe(topics)[1]
        assert mid is not None
        until(lambda: mid in self.done)

    def publish(self, *arguments: Any, **options: Any) -> None:
        self.client.publish(*arguments, **options).wait_for_publish(WAIT_S)

    def next(self) -> MQTTMessage:
        return self.heard.get(timeout=WAIT_S)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def lose(self) -> None:
        """As if the machine had gone."""
        self.client.loop_stop()
        opened = self.client.socket()
        assert opened is not None
        opened.close()


@contextmanager
def talker(port: int, version: MQTTProtocolVersion, id: str = "", **options: Any) -> Iterator[Talker]:
    made = Talker(port, version, id, **options)
    try:
        yield made
    finally:
        made.close()


def said(kind: int, **values: Any) -> Properties:
    properties = Properties(kind)
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_one_client_publishes_another_gets(node: Broker, version: MQTTProtocolVersion, qos: int) -> None:
    topic = f"plain/{version}/{qos}"
    with talker(node.port, version) as reader, talker(node.port, version) as writer:
        assert [one.value for one in reader.subscribe(f"plain/{version}/+", qos=qos)] == [qos]
        payloads = [b"", b"\x00\xff" * 10, "grüße".encode(), b"x" * 60_000]
        for payload in payloads:
            writer.publish(topic, payload, qos=qos)
        heard = [reader.next() for _ in payloads]
        assert [(one.topic, one.payload, one.qos) for one in heard] == [(topic, payload, qos) for payload in payloads]
        reader.unsubscribe(f"plain/{version}/+")
        writer.publish(topic, b"late", qos=qos)
        reader.subscribe(f"after/{version}/{qos}", qos=qos)
        writer.publish(f"after/{version}/{qos}", b"first")
        assert reader.next().payload == b"first"


@BOTH
def test_the_helpers_of_the_library_work(node: Broker, version: MQTTProtocolVersion) -> None:
    topic = f"helpers/{version}"
    reached: dict[str, Any] = {"hostname": "127.0.0.1", "port": node.port, "protocol": version}
    paho_publish.single(f"{topic}/kept", b"a", qos=1, retain=True, **reached)
    messages: Any = [(f"{topic}/kept", b"b", 2, True), {"topic": f"{topic}/other", "payload": b"c", "retain": True}]
    paho_publish.multiple(messages, **reached)
    # These two set a clean session by default, which the library itself refuses with MQTT 5.
    reading: dict[str, Any] = {**reached, "clean_session": True if version == V311 else None}
    found = paho_subscribe.simple(f"{topic}/#", qos=1, msg_count=2, **reading)
    assert isinstance(found, list)
    assert {one.topic: one.payload for one in found} == {f"{topic}/kept": b"b", f"{topic}/other": b"c"}
    assert all(one.retain for one in found)
    got: list[object] = []

    def on_message(client: Client, data: object, message: MQTTMessage) -> None:
        got.append(message.payload)
        client.disconnect()

    paho_subscribe.callback(on_message, f"{topic}/other", **reading)
    assert got == [b"c"]


@BOTH
def test_a_condition_selects_by_content(node: Broker, version: MQTTProtocolVersion) -> None:
    base = f"cars/{version}"
    with talker(node.port, version) as reader, talker(node.port, version) as writer:
        if version == V5:
            asked = said(PacketTypes.SUBSCRIBE, UserProperty=("filter", "speed > 30 and place.road = 'A1/B'"))
            reader.subscribe(f"{base}/#", options=SubscribeOptions(qos=1), properties=asked)
        else:
            reader.subscribe(f"$filter/speed > 30 and place.road = 'A1/B'/{base}/#", qos=1)
        for speed, road in ((31, "A2"), (29, "A1/B"), (32.5, "A1/B")):
            writer.publish(f"{base}/x", json.dumps({"speed": speed, "place": {"road": road}}), qos=1)
        assert json.loads(reader.next().payload)["speed"] == 32.5
        assert reader.heard.empty()
        reader.subscribe(f"$filter/value >= 20/{base}/temperature")
        writer.publish(f"{base}/temperature", "19.5")
        writer.publish(f"{base}/temperature", "20.5")
        assert reader.next().payload == b"20.5"


@BOTH
def test_a_wrong_condition_or_topic_filter_is_refused_alone(node: Broker, version: MQTTProtocolVersion) -> None:
    with talker(node.port, version) as reader:
        wrong = [("$filter/speed >/x", 0), ("fine", 1), ("$filter/no slash", 0), ("$share/group", 0)]
        codes = [reason.value for reason in reader.subscribe(wrong)]
        refused = 0x8F if version == V5 else 0x80
        assert codes == [refused, 1, refused, refused]


def test_properties_of_mqtt_5_arrive_as_they_were_sent(node: Broker) -> None:
    pairs = [("k", "31"), ("k", "007"), ("ü", "x" * 5000), ("speed", "31")]
    sent = said(
        PacketTypes.PUBLISH,
        UserProperty=pairs,
        ContentType="text/plain",
        ResponseTopic="answers/7",
        CorrelationData=b"\x00\x01",
        PayloadFormatIndicator=1,
        MessageExpiryInterval=100,
    )
    with talker(node.port, V5) as reader, talker(node.port, V5) as writer:
        asked = said(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=7, UserProperty=("filter", "speed = 31"))
        reader.subscribe("properties", options=SubscribeOptions(qos=1), properties=asked)
        writer.publish("properties", b"hello", qos=1, properties=sent)
        got: Any = reader.next().properties
        assert got.UserProperty == pairs
        assert (got.ContentType, got.ResponseTopic, got.CorrelationData) == ("text/plain", "answers/7", b"\x00\x01")
        assert got.PayloadFormatIndicator == 1
        assert got.SubscriptionIdentifier == [7]
        assert 90 <= got.MessageExpiryInterval <= 100


def test_what_would_be_too_long_with_its_attributes_is_carried_without_them(node: Broker) -> None:
    dropped = node.drops("mqtt_attributes")
    payload = json.dumps({f"name-{number}": "x" * 100 for number in range(130)})
    sent = said(PacketTypes.PUBLISH, UserProperty=[(f"k{number}", "y" * 3000) for number in range(13)])
    with talker(node.port, V5) as both:
        both.subscribe("bulky/#", qos=1)
        both.publish("bulky/1", payload, qos=1, properties=sent)
        got: Any = both.next()
        assert (got.payload.decode(), got.properties.UserProperty) == (payload, sent.UserProperty)  # type: ignore[attr-defined]
    assert node.drops("mqtt_attributes") == dropped + 1


def test_options_of_a_subscription_are_kept(node: Broker) -> None:
    with talker(node.port, V5) as both, talker(node.port, V5) as writer:
        both.subscribe("options/own", options=SubscribeOptions(qos=1, noLocal=True))
        both.subscribe("options/kept", options=SubscribeOptions(qos=1, retainAsPublished=True))
        both.publish("options/own", b"mine", qos=1)
        writer.publish("options/own", b"theirs", qos=1)
        writer.publish("options/kept", b"kept", qos=1, retain=True)
        heard = [both.next(), both.next()]
        assert [(one.payload, one.retain) for one in heard] == [(b"theirs", False), (b"kept", True)]
        both.subscribe("options/kept", options=SubscribeOptions(qos=1, retainHandling=1))
        both.subscribe("options/kept", options=SubscribeOptions(qos=1, retainHandling=2))
        writer.publish("options/own", b"end", qos=1)
        assert both.next().payload == b"end"


@BOTH
def test_a_retained_message_is_there_for_who_comes_later_until_it_is_taken_away(
    node: Broker, version: MQTTProtocolVersion
) -> None:
    topic = f"retained/{version}"
    with talker(node.port, version) as writer:
        writer.publish(topic, b"1", qos=1, retain=True)
        writer.publish(topic, b"2", qos=1, retain=True)
        with talker(node.port, version) as reader:
            reader.subscribe(f"$filter/value > 1/retained/{version}")
            got = reader.next()
            assert (got.payload, got.retain) == (b"2", True)
            writer.publish(topic, b"3", qos=1, retain=True)
            got = reader.next()
            assert (got.payload, got.retain) == (b"3", False)
        writer.publish(topic, b"", qos=1, retain=True)
        with talker(node.port, version) as reader:
            reader.subscribe(topic)
            writer.publish(topic, b"new")
            assert reader.next().payload == b"new"


@BOTH
def test_a_will_is_published_when_its_client_is_lost_and_not_when_it_leaves(
    node: Broker, version: MQTTProtocolVersion
) -> None:
    topic = f"wills/{version}"
    with talker(node.port, version) as reader:
        reader.subscribe(topic, qos=1)
        will = {"topic": topic, "payload": b"gone", "qos": 1}
        with talker(node.port, version, will=will):
            pass
        lost = Talker(node.port, version, will={**will, "payload": b"lost"})
        lost.lose()
        assert reader.next().payload == b"lost"


def test_a_will_waits_for_its_delay_and_a_client_that_is_back_in_time_cancels_it(node: Broker) -> None:
    def person(id: str, delay_s: int, clean: bool) -> Talker:
        later = said(PacketTypes.WILLMESSAGE, WillDelayInterval=delay_s)
        will = {"topic": "delayed", "payload": id, "qos": 1, "properties": later}
        lasting = said(PacketTypes.CONNECT, SessionExpiryInterval=60)
        return Talker(node.port, V5, id, will=will, clean_start=clean, properties=lasting)

    with talker(node.port, V5) as reader:
        reader.subscribe("delayed", qos=1)
        person("back", 2, True).lose()
        person("away", 1, True).lose()
        back = person("back", 1, False)
        assert back.flags.session_present
        assert reader.next().payload == b"away"
        back.close()
        assert reader.heard.empty()


@BOTH
def test_what_comes_while_a_lasting_client_is_away_waits_for_it(node: Broker, version: MQTTProtocolVersion) -> None:
    id, topic = f"lasting-{version}", f"lasting/{version}"
    options: dict[str, Any] = {"clean": False}
    if version == V5:
        options = {"clean_start": False, "properties": said(PacketTypes.CONNECT, SessionExpiryInterval=60)}
    with talker(node.port, version, id, **options) as first:
        assert not first.flags.session_present
        first.subscribe(topic, qos=2)
    with talker(node.port, version) as writer:
        for number in range(300):
            writer.publish(topic, str(number), qos=1 + number % 2)
    with talker(node.port, version, id, **options) as again:
        assert again.flags.session_present
        # In order for each QoS: the library gives a message of QoS 2 out when its dialogue is over.
        numbers = [int(again.next().payload) for _ in range(300)]
        assert [number for number in numbers if number % 2 == 0] == list(range(0, 300, 2))
        assert [number for number in numbers if number % 2] == list(range(1, 300, 2))
    fresh: dict[str, Any] = {"clean": True} if version == V311 else {"clean_start": True}
    with talker(node.port, version, id, **fresh) as new:
        assert not new.flags.session_present


def test_clients_that_share_a_subscription_get_each_message_once(node: Broker) -> None:
    with talker(node.port, V5) as one, talker(node.port, V311) as two, talker(node.port, V5) as writer:
        for member in (one, two):
            member.subscribe("$share/workers/$filter/n >= 0/jobs/#", qos=1)
        for number in range(40):
            writer.publish("jobs/x", json.dumps({"n": number - 1}), qos=1)
        until(lambda: one.heard.qsize() + two.heard.qsize() == 39)
        numbers = [json.loads(member.next().payload)["n"] for member in (one, two) for _ in range(member.heard.qsize())]
        assert sorted(numbers) == list(range(39))
        two.close()
        writer.publish("jobs/x", b'{"n": 40}', qos=1)
        assert json.loads(one.next().payload)["n"] == 40


@BOTH
def test_events_of_carrycast_and_messages_of_mqtt_are_the_same(node: Broker, version: MQTTProtocolVersion) -> None:
    with talker(node.port, version) as client:
        client.subscribe("road/#", qos=1)
        carrycast_publish(node.control, {"topic": "road/A1", "speed": 31, "icy": True})
        carrycast_publish(node.control, {"topic": "road/A2", "speed": 7}, b"raw")
        carrycast_publish(node.control, {"speed": 7})
        got = client.next()
        assert (got.topic, json.loads(got.payload)) == ("road/A1", {"speed": 31, "icy": True})
        raw: Any = client.next()
        assert raw.payload == b"raw"
        if version == V5:
            assert raw.properties.UserProperty == [("speed", "7")]
        before = node.subscriptions
        found: list[Any] = []
        wanted = SubscribeArguments("speed > 40")
        reader = threading.Thread(target=lambda: found.extend(carrycast_subscribe(node.control, wanted, 1, WAIT_S)))
        reader.start()
        until(lambda: node.subscriptions > before)
        client.publish("road/A3", b'{"speed": 41}', qos=1)
        reader.join(WAIT_S)
        assert found[0].attributes["topic"] == "road/A3"
        assert (found[0].attributes["speed"], found[0].payload) == (41, b'{"speed": 41}')


@BOTH
def test_the_node_says_how_it_is(node: Broker, version: MQTTProtocolVersion) -> None:
    with talker(node.port, version) as reader:
        reader.subscribe([("$SYS/broker/#", 1), ("$filter/value = 0/$SYS/carrycast/neighbors", 0)])
        told: dict[str, str] = {}
        while len(told) < 8:
            got = reader.next()
            told[got.topic] = bytes(got.payload).decode()
        assert told["$SYS/broker/version"].startswith("carrycast ")
        assert int(told["$SYS/broker/clients/connected"]) == 1
        assert told["$SYS/carrycast/neighbors"] == "0"
        reader.publish("$SYS/broker/version", b"mine", qos=0)
        until(lambda: node.drops("mqtt_sys") > 0)


def test_a_short_name_of_a_topic_is_understood_and_given(node: Broker) -> None:
    with talker(node.port, V5, properties=said(PacketTypes.CONNECT, TopicAliasMaximum=5)) as reader:
        reader.subscribe("long/#", qos=1)
        with talker(node.port, V5) as writer:
            writer.publish("long/name", b"1", properties=said(PacketTypes.PUBLISH, TopicAlias=3))
            writer.publish("", b"2", properties=said(PacketTypes.PUBLISH, TopicAlias=3))
            assert [reader.next().payload, reader.next().payload] == [b"1", b"2"]


def test_a_message_whose_time_is_over_is_not_brought(tmp_path: Path) -> None:
    lasting = said(PacketTypes.CONNECT, SessionExpiryInterval=60)
    with broker(tmp_path, protocol='name = "flooding"') as node:
        with talker(node.port, V5, "sleeper", properties=lasting) as sleeper:
            sleeper.subscribe("brief", qos=1)
        with talker(node.port, V5) as writer:
            writer.publish("brief", b"brief", qos=1, properties=said(PacketTypes.PUBLISH, MessageExpiryInterval=1))
            writer.publish("brief", b"long", qos=1, properties=said(PacketTypes.PUBLISH, MessageExpiryInterval=100))
        time.sleep(1.2)
        with talker(node.port, V5, "sleeper", clean_start=False, properties=lasting) as sleeper:
            assert sleeper.next().payload == b"long"
        assert node.drops("lease_over") == 1
