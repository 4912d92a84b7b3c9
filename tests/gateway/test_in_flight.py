"""Messages on their way to a client while its subscriptions, its connections and its groups change beneath them."""

from pathlib import Path

import pytest

from carrycast.node.gateways.mqtt import properties as packet_type
from tests.gateway.world import Broker, Raw, broker, connect, encode_string, packet, publish, subscribe, until

LASTING = {"session_expiry_interval_s": 1000}
BYE_FOR_GOOD = packet(0xE0, b"\x00\x05\x11\0\0\0\0")
"""DISCONNECT with a session expiry of 0."""


def connect_persistent(node: Broker, id: str = "me", *then: bytes, **options: object) -> Raw:
    client = Raw(node.port, connect(id, clean=False, properties={**LASTING, **options}), *then)
    assert client.read_connack()[1] == 0
    return client


def subscribe_client(client: Raw, topics: str, qos: int = 1) -> None:
    client.say(subscribe(topics, qos))
    client.expect(packet_type.SUBACK)


def write(node: Broker, topic: str, *payloads: bytes, qos: int = 1) -> None:
    with Raw(node.port, connect("writer")) as writer:
        writer.read_connack()
        for id, payload in enumerate(payloads, start=1):
            writer.say(publish(topic, payload, qos, id))
            writer.expect(packet_type.PUBACK if qos == 1 else packet_type.PUBREC)


def check_nothing_more(client: Raw) -> None:
    """The next that a client hears is the answer to what it asks now."""
    client.say(packet(0xC0))
    client.expect(packet_type.PINGRESP)


def disconnect_and_wait(node: Broker, client: Raw) -> None:
    """The client hangs up, and the node has noticed."""
    client.close()
    until(lambda: node.run(lambda: node.node.gateways["mqtt"]._sessions.clients) == 0)  # type: ignore[attr-defined]


def test_who_subscribes_anew_gets_what_comes_then_whatever_is_on_its_way_from_before(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        client = connect_persistent(node)
        subscribe_client(client, "a")
        write(node, "a", b"old")
        old = client.message()
        client.say(packet(0xA2, b"\x00\x02\x00", encode_string("a")))
        client.expect(packet_type.UNSUBACK)
        subscribe_client(client, "a")
        write(node, "a", b"new")
        new = client.message()
        assert (old[1], new[1]) == (b"old", b"new")
        # The word that the old one has arrived says nothing of the new one.
        client.ack(packet_type.PUBACK, old[3])
        check_nothing_more(client)
        disconnect_and_wait(node, client)
        client = connect_persistent(node)
        assert client.message() == (*new[:4], True)
        client.close()


def test_a_member_of_a_group_is_served_on_when_the_last_that_lasts_has_left(tmp_path: Path) -> None:
    with broker(tmp_path) as node, Raw(node.port, connect("brief")) as brief:
        brief.read_connack()
        other = connect_persistent(node, "other")
        for member in (brief, other):
            subscribe_client(member, "$share/g/a")
        write(node, "a", b"1", b"2")
        got = brief.message()
        other.ack(packet_type.PUBACK, other.message()[3])
        check_nothing_more(other)
        other.say(BYE_FOR_GOOD)
        assert other.end() is None
        brief.ack(packet_type.PUBACK, got[3])
        check_nothing_more(brief)
        write(node, "a", b"3")
        assert brief.message()[1] == b"3"


def test_no_more_comes_again_at_a_time_than_a_client_takes(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        client = connect_persistent(node)
        subscribe_client(client, "a", 2)
        write(node, "a", *(b"%d" % number for number in range(5)), qos=2)
        sent = [client.message() for _ in range(5)]
        disconnect_and_wait(node, client)
        client = connect_persistent(node, receive_maximum=2)
        for got in sent[:2]:
            assert client.message() == (*got[:4], True)
        check_nothing_more(client)
        for number, got in enumerate(sent):
            client.ack(packet_type.PUBREC, got[3])
            client.expect(packet_type.PUBREL)
            client.ack(packet_type.PUBCOMP, got[3])
            if number + 2 < len(sent):
                assert client.message() == (*sent[number + 2][:4], True)
        check_nothing_more(client)
        client.close()


def test_a_client_that_is_gone_again_at_once_still_gets_a_message_of_qos_2_under_its_id(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        client = connect_persistent(node)
        subscribe_client(client, "a", 2)
        write(node, "a", b"1", b"2", qos=2)
        sent = [client.message() for _ in range(2)]
        disconnect_and_wait(node, client)
        # It leaves before its subscription could bring anything.
        disconnect_and_wait(node, connect_persistent(node, "me", packet(0xE0)))
        client = connect_persistent(node)
        assert [client.message() for _ in range(2)] == [(*got[:4], True) for got in sent]
        client.close()


def test_what_is_on_its_way_is_delivered_though_its_subscription_has_ended(tmp_path: Path) -> None:
    """[MQTT-3.10.4-3]"""
    with broker(tmp_path) as node:
        client = connect_persistent(node)
        subscribe_client(client, "a")
        write(node, "a", b"x")
        got = client.message()
        client.say(packet(0xA2, b"\x00\x02\x00", encode_string("a")))
        client.expect(packet_type.UNSUBACK)
        disconnect_and_wait(node, client)
        client = connect_persistent(node)
        assert client.message() == (*got[:4], True)
        client.ack(packet_type.PUBACK, got[3])
        check_nothing_more(client)
        disconnect_and_wait(node, client)
        client = connect_persistent(node)
        check_nothing_more(client)
        client.close()


@pytest.mark.parametrize("killed", [False, True])
def test_a_session_of_which_nothing_is_to_be_left_leaves_nothing_in_the_store(tmp_path: Path, killed: bool) -> None:
    """One that was kept, and whose client comes back to it for the last time."""
    with broker(tmp_path) as node:
        standing = node.subscriptions
        client = connect_persistent(node)
        subscribe_client(client, "a", 2)
        client.say(publish("b", b"x", 2, 7))
        client.expect(packet_type.PUBREC)
        disconnect_and_wait(node, client)
        client = Raw(node.port, connect("me", clean=False))
        assert client.read_connack()[0]
        client.ack(packet_type.PUBREL, 7)
        client.expect(packet_type.PUBCOMP)
        if not killed:
            disconnect_and_wait(node, client)
            disconnect_and_wait(node, connect_persistent(node))
        node.restart()
        assert node.subscriptions == standing
        client, reader = connect_persistent(node), connect_persistent(node, "reader")
        subscribe_client(reader, "b")
        # Another message, under an id that was used before.
        client.say(publish("b", b"y", 2, 7))
        client.expect(packet_type.PUBREC)
        assert reader.message()[1] == b"y"
        for one in (client, reader):
            one.close()


def test_the_id_of_a_retained_message_of_qos_2_goes_to_no_other_when_the_node_is_killed(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        with Raw(node.port, connect("writer"), publish("a", b"kept", 2, 1, retain=True)) as writer:
            writer.read_connack()
            writer.expect(packet_type.PUBREC)
        client = connect_persistent(node)
        subscribe_client(client, "a", 2)
        kept = client.message()
        assert kept[1] == b"kept"
        # The client has it, and its PUBREC is lost with the node.
        client.close()
        node.restart()
        write(node, "a", b"new", qos=2)
        client = connect_persistent(node)
        assert client.expect(packet_type.PUBREL)[1] == kept[3].to_bytes(2, "big")
        new = client.message()
        assert new[1] == b"new"
        assert new[3] != kept[3]
        client.ack(packet_type.PUBCOMP, kept[3])
        client.ack(packet_type.PUBREC, new[3])
        client.expect(packet_type.PUBREL)
        client.ack(packet_type.PUBCOMP, new[3])
        check_nothing_more(client)
        client.close()
        node.restart()
        client = connect_persistent(node)
        check_nothing_more(client)
        client.close()


def test_what_a_group_gave_to_one_whose_session_ended_goes_to_nobody_else(tmp_path: Path) -> None:
    """[MQTT-4.8.2-5], also when none of the others is there at that moment."""
    with broker(tmp_path) as node:
        one, other = connect_persistent(node, "one"), connect_persistent(node, "other")
        for member in (one, other):
            subscribe_client(member, "$share/g/a", 2)
        other.say(packet(0xE0))
        assert other.end() is None
        write(node, "a", b"1", qos=2)
        assert one.message()[1] == b"1"
        one.say(BYE_FOR_GOOD)
        assert one.end() is None
        write(node, "a", b"2", qos=2)
        other = connect_persistent(node, "other")
        assert other.message()[1] == b"2"
        other.close()


def test_an_event_whose_topic_mqtt_does_not_allow_is_dropped_once_and_does_not_come_again(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        client = connect_persistent(node)
        subscribe_client(client, "a/#")
        for topic in ("a/#", "a/b"):
            node.run(lambda topic=topic: node.node.publish({"topic": topic}))  # type: ignore[misc]
        got = client.message()
        assert got[0] == "a/b"
        assert node.drops("mqtt_topic") == 1
        client.ack(packet_type.PUBACK, got[3])
        until(lambda: node.run(lambda: node.node.status().waiting["clients"]) == 0)
        node.restart()
        client = connect_persistent(node)
        check_nothing_more(client)
        assert node.drops("mqtt_topic") == 0
        client.close()
