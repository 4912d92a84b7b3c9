"""Sessions over connections and restarts: what QoS 1 and 2 promise, when the node is killed at any moment."""

import logging
import time
from pathlib import Path

import pytest

from carrycast.node.gateways.mqtt import properties as packet_type
from carrycast.node.gateways.mqtt.reason_codes import Reason
from carrycast.node.security.commands import certify, make_key_pair
from carrycast.node.security.key_files import KeyKind
from carrycast.node.storage.store import NodeStore
from tests.gateway.world import EPIDEMIC, Raw, broker, connect, packet, publish, subscribe, until

LASTING = {"session_expiry_interval_s": 1000}


def connect_persistent(port: int, id: str = "me", **options: object) -> tuple[Raw, bool]:
    """A client that comes back to its session, and whether there was one."""
    client = Raw(port, connect(id, clean=False, properties={**LASTING, **options}))
    present, reason, _ = client.read_connack()
    assert reason == 0
    return client, present


def test_a_message_of_qos_1_comes_again_over_a_crash_until_it_is_acknowledged(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        client, present = connect_persistent(node.port)
        assert not present
        client.say(subscribe("a/#", qos=1))
        client.expect(packet_type.SUBACK)
        with Raw(node.port, connect("writer")) as writer:
            writer.read_connack()
            writer.say(publish("a/1", b"one", 1, 10), publish("a/2", b"two", 1, 11))
            for _ in range(2):
                writer.expect(packet_type.PUBACK)
        one, two = client.message(), client.message()
        assert [(got[0], got[1], got[4]) for got in (one, two)] == [("a/1", b"one", False), ("a/2", b"two", False)]
        client.ack(packet_type.PUBACK, one[3])
        # An answer to a later packet: the acknowledgement was taken in.
        client.say(packet(0xC0))
        client.expect(packet_type.PINGRESP)
        until(lambda: node.run(lambda: node.node.status().waiting["clients"]) == 1)
        node.restart()
        client, present = connect_persistent(node.port)
        assert present
        got = client.message()
        assert (got[0], got[1], got[4]) == ("a/2", b"two", True)
        client.close()


def test_qos_2_to_a_client_is_once_over_connections_and_crashes(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        client, _ = connect_persistent(node.port)
        client.say(subscribe("a", qos=2))
        client.expect(packet_type.SUBACK)
        with Raw(node.port, connect("writer")) as writer:
            writer.read_connack()
            for id in (1, 2, 3):
                writer.say(publish("a", str(id).encode(), 2, id))
                writer.expect(packet_type.PUBREC)
                writer.ack(packet_type.PUBREL, id)
                writer.expect(packet_type.PUBCOMP)
        got = [client.message() for _ in range(3)]
        ids = [one[3] for one in got]
        assert len(set(ids)) == 3
        # The first is done, the second is the client's but not released, the third was never answered.
        client.ack(packet_type.PUBREC, ids[0])
        client.expect(packet_type.PUBREL)
        client.ack(packet_type.PUBCOMP, ids[0])
        client.ack(packet_type.PUBREC, ids[1])
        client.expect(packet_type.PUBREL)
        client.close()
        for crash in (False, True):
            if crash:
                node.restart()
            client, present = connect_persistent(node.port)
            assert present
            assert client.expect(packet_type.PUBREL)[1] == ids[1].to_bytes(2, "big")
            assert client.message() == ("a", b"3", 2, ids[2], True)
            client.close()
        client, _ = connect_persistent(node.port)
        client.expect(packet_type.PUBREL)
        client.ack(packet_type.PUBCOMP, ids[1])
        client.ack(packet_type.PUBREC, client.message()[3])
        client.expect(packet_type.PUBREL)
        client.ack(packet_type.PUBCOMP, ids[2])
        client.say(packet(0xC0))
        client.expect(packet_type.PINGRESP)
        client.close()
        node.restart(crash=False)
        client, _ = connect_persistent(node.port)
        client.say(packet(0xC0))
        client.expect(packet_type.PINGRESP)
        client.close()


def test_qos_2_from_a_client_is_published_once_over_connections_and_crashes(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        reader, _ = connect_persistent(node.port, "reader")
        reader.say(subscribe("a", qos=1))
        reader.expect(packet_type.SUBACK)
        client, _ = connect_persistent(node.port)
        client.say(publish("a", b"x", 2, 7))
        client.expect(packet_type.PUBREC)
        client.close()
        client, present = connect_persistent(node.port)
        assert present
        client.say(publish("a", b"x", 2, 7, again=True))
        client.expect(packet_type.PUBREC)
        node.restart()
        client, present = connect_persistent(node.port)
        assert present
        client.say(publish("a", b"x", 2, 7, again=True))
        client.expect(packet_type.PUBREC)
        client.ack(packet_type.PUBREL, 7)
        client.expect(packet_type.PUBCOMP)
        # The id is free again: another message may have it.
        client.say(publish("a", b"y", 2, 7))
        client.expect(packet_type.PUBREC)
        reader, _ = connect_persistent(node.port, "reader")
        assert [reader.message()[1] for _ in range(2)] == [b"x", b"y"]
        client.ack(packet_type.PUBREL, 9)
        assert client.expect(packet_type.PUBCOMP)[1] == b"\x00\x09" + bytes((Reason.PACKET_ID_NOT_FOUND,))
        for one in (client, reader):
            one.close()


def test_a_session_ends_when_its_time_is_over_or_when_its_client_says_so(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        standing = node.subscriptions
        client = Raw(node.port, connect("brief", clean=False, properties={"session_expiry_interval_s": 1}))
        client.read_connack()
        client.say(subscribe("a", qos=1))
        client.expect(packet_type.SUBACK)
        assert node.subscriptions == standing + 1
        client.close()
        until(lambda: node.subscriptions == standing)
        client, _ = connect_persistent(node.port)
        client.say(subscribe("a", qos=1))
        client.expect(packet_type.SUBACK)
        # DISCONNECT with a session expiry of 0.
        client.say(packet(0xE0, b"\x00\x05\x11\0\0\0\0"))
        until(lambda: node.subscriptions == standing)
        _, present = connect_persistent(node.port)
        assert not present


def test_a_second_connection_takes_a_session_over(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        first, _ = connect_persistent(node.port)
        first.say(subscribe("a", qos=1))
        first.expect(packet_type.SUBACK)
        second, present = connect_persistent(node.port)
        assert present
        assert first.end() == Reason.TAKEN_OVER
        second.say(publish("a", b"x", 1, 1))
        kinds_heard = {second.hear()[0] >> 4 for _ in range(2)}  # type: ignore[index]
        assert kinds_heard == {packet_type.PUBACK, packet_type.PUBLISH}
        second.close()


def test_no_more_is_on_its_way_than_a_client_takes(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        client, _ = connect_persistent(node.port, receive_maximum=3)
        client.say(subscribe("a", qos=1))
        client.expect(packet_type.SUBACK)
        with Raw(node.port, connect("writer")) as writer:
            writer.read_connack()
            for id in range(1, 11):
                writer.say(publish("a", str(id).encode(), 1, id))
                writer.expect(packet_type.PUBACK)
        first = [client.message() for _ in range(3)]
        client.say(packet(0xC0))
        client.expect(packet_type.PINGRESP)
        for got in first:
            client.ack(packet_type.PUBACK, got[3])
        rest = []
        for _ in range(7):
            rest.append(client.message())
            client.ack(packet_type.PUBACK, rest[-1][3])
        assert [int(got[1]) for got in first + rest] == list(range(1, 11))
        client.close()


def test_a_node_that_stops_says_so_and_publishes_no_will(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        client, _ = connect_persistent(node.port)
        client.say(subscribe("a", qos=1))
        client.expect(packet_type.SUBACK)
        node.restart(crash=False)
        assert client.end() == Reason.SHUTTING_DOWN
        client.close()
        client, present = connect_persistent(node.port)
        assert present
        client.close()


def test_a_node_stops_while_sessions_end_and_groups_lose_members(tmp_path: Path) -> None:
    """A session that was kept and is to end with this connection, in a group with others."""
    with broker(tmp_path) as node:
        standing = node.subscriptions
        client, _ = connect_persistent(node.port)
        client.say(subscribe("a", qos=1), subscribe("$share/g/a", qos=1, id=2))
        for _ in range(2):
            client.expect(packet_type.SUBACK)
        client.close()
        client = Raw(node.port, connect("me", clean=False, properties={"session_expiry_interval_s": 0}))
        assert client.read_connack()[0]
        other = Raw(node.port, connect("other"), subscribe("$share/g/a", qos=1))
        other.read_connack()
        other.expect(packet_type.SUBACK)
        node.restart(crash=False)
        assert (client.end(), other.end()) == (Reason.SHUTTING_DOWN, Reason.SHUTTING_DOWN)
        assert node.subscriptions == standing
        for one in (client, other):
            one.close()


def test_sessions_that_are_kept_are_bounded_and_hold_up_nobody_who_keeps_none(tmp_path: Path) -> None:
    with broker(tmp_path, "max_sessions = 2\nmax_retained = 0") as node:
        for name in ("one", "two"):
            connect_persistent(node.port, name)[0].close()
        until(lambda: node.run(lambda: node.node.gateways["mqtt"]._sessions.clients) == 0)  # type: ignore[attr-defined]
        with Raw(node.port, connect("three", clean=False, properties=LASTING)) as third:
            assert third.read_connack()[1] == Reason.QUOTA_EXCEEDED
        with Raw(node.port, connect("four")) as plain:
            _, reason, told = plain.read_connack()
            assert (reason, told["retain_available"]) == (0, 0)
            plain.say(publish("a", b"x", retain=True))
            assert plain.end() == Reason.RETAIN_NOT_SUPPORTED
        assert connect_persistent(node.port, "two")[1]


def test_what_is_longer_than_a_client_takes_is_left_out_by_name(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        client = Raw(node.port, connect("small", properties={"maximum_packet_size": 100}))
        client.read_connack()
        client.say(subscribe("a", qos=1))
        client.expect(packet_type.SUBACK)
        client.say(publish("a", b"x" * 200, 1, 1), publish("a", b"short", 1, 2))
        heard = [client.hear() for _ in range(3)]
        assert [one[0] >> 4 for one in heard if one].count(packet_type.PUBLISH) == 1
        assert node.drops("mqtt_too_large") == 1
        client.close()


def test_a_group_hands_on_what_a_member_that_left_has_not_acknowledged(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        members = [connect_persistent(node.port, name)[0] for name in ("one", "two")]
        for member in members:
            member.say(subscribe("$share/g/a", qos=1))
            member.expect(packet_type.SUBACK)
        with Raw(node.port, connect("writer")) as writer:
            writer.read_connack()
            for id in range(1, 5):
                writer.say(publish("a", str(id).encode(), 1, id))
                writer.expect(packet_type.PUBACK)
        mine = [members[0].message()[1] for _ in range(2)]
        theirs = [members[1].message() for _ in range(2)]
        members[1].close()
        handed = [members[0].message() for _ in range(2)]
        assert sorted(mine + [got[1] for got in handed]) == [b"1", b"2", b"3", b"4"]
        assert {got[1] for got in handed} == {got[1] for got in theirs}
        members[0].close()
        # Nobody is there: what comes waits for whoever is back first, over a restart.
        time.sleep(0.1)
        node.restart()
        back, present = connect_persistent(node.port, "two")
        assert present
        assert sorted(back.message()[1] for _ in range(4)) == [b"1", b"2", b"3", b"4"]
        back.close()


def test_a_message_of_qos_2_that_a_group_gave_to_one_goes_to_no_other(tmp_path: Path) -> None:
    with broker(tmp_path) as node:
        members = {name: connect_persistent(node.port, name)[0] for name in ("one", "two")}
        for member in members.values():
            member.say(subscribe("$share/g/a", qos=2))
            member.expect(packet_type.SUBACK)
        with Raw(node.port, connect("writer")) as writer:
            writer.read_connack()
            for id in (1, 2):
                writer.say(publish("a", str(id).encode(), 2, id))
                writer.expect(packet_type.PUBREC)
        got = {name: member.message() for name, member in members.items()}
        for crash in (False, True):
            for member in members.values():
                member.close()
            if crash:
                node.restart()
            # Whoever comes first gets its own, and nothing of the other's.
            for name in ("two", "one"):
                members[name], present = connect_persistent(node.port, name)
                assert present
                assert members[name].message() == (*got[name][:4], True)
                members[name].say(packet(0xC0))
                members[name].expect(packet_type.PINGRESP)
        for member in members.values():
            member.close()


def test_questions_for_retained_messages_are_bounded_and_those_that_are_not_asked_are_counted(tmp_path: Path) -> None:
    """A node without neighbors keeps each question open; the 65th is not asked, and its subscriber is served."""
    with broker(tmp_path, protocol='name = "epidemic"') as node, Raw(node.port, connect("reader")) as reader:
        reader.read_connack()
        reader.say(b"".join(subscribe(f"r/{id}", id=id) for id in range(1, 71)))
        for _ in range(70):
            reader.expect(packet_type.SUBACK)
        assert node.drops("mqtt_retained_not_asked") > 0


def test_retained_messages_outlive_a_crash_and_the_oldest_make_room(tmp_path: Path) -> None:
    with broker(tmp_path, "max_retained = 3", protocol='name = "flooding"') as node:
        with Raw(node.port, connect("writer")) as writer:
            writer.read_connack()
            for id, topic in enumerate(("a", "b", "c", "c", "d"), start=1):
                writer.say(publish(f"r/{topic}", str(id).encode(), 1, id, retain=True))
                writer.expect(packet_type.PUBACK)
        assert node.drops("mqtt_retained_full") == 1
        node.restart()
        with Raw(node.port, connect("reader")) as reader:
            reader.read_connack()
            reader.say(subscribe("r/#"))
            reader.expect(packet_type.SUBACK)
            got = {reader.message()[:2] for _ in range(3)}
            assert got == {("r/b", b"2"), ("r/c", b"4"), ("r/d", b"5")}


@pytest.mark.parametrize(
    "protocol", ['name = "flooding"', 'name = "epidemic"', 'name = "tree"\n[directory]\nbroker = ["n1"]']
)
def test_protocols_that_keep_nothing_are_served_too(tmp_path: Path, protocol: str) -> None:
    with broker(tmp_path, protocol=protocol) as node, Raw(node.port, connect("me")) as client:
        client.read_connack()
        client.say(subscribe("a", qos=2))
        client.expect(packet_type.SUBACK)
        client.say(publish("a", b"x", 2, 1))
        heard = {client.hear()[0] >> 4 for _ in range(2)}  # type: ignore[index]
        assert heard == {packet_type.PUBREC, packet_type.PUBLISH}


def test_users_have_passwords_topics_and_what_they_are(tmp_path: Path) -> None:
    users = """
[mqtt.users.sensor]
password = "s"
publish = ["sensors/#"]
subscribe = []
[mqtt.users.major]
password = "m"
attributes = {rank = "major"}
[mqtt.users.private]
password = "p"
"""
    with broker(tmp_path, users) as node:
        for user in (None, ("sensor", "wrong"), ("nobody", "s"), ("sensor", "")):
            with Raw(node.port, connect("x", user=user)) as client:
                assert client.read_connack()[1] == Reason.BAD_CREDENTIALS
        assert node.drops("mqtt_credentials") == 4
        with Raw(node.port, connect("old", 4, user=("sensor", "wrong"))) as client:
            assert client.expect(packet_type.CONNACK)[1] == b"\x00\x04"
        readers = {}
        for name, password in (("major", "m"), ("private", "p")):
            readers[name] = Raw(node.port, connect(name, user=(name, password)))
            readers[name].read_connack()
            readers[name].say(subscribe("sensors/#", 1))
            readers[name].expect(packet_type.SUBACK)
        with Raw(node.port, connect("s", user=("sensor", "s"))) as sensor:
            sensor.read_connack()
            sensor.say(subscribe("sensors/#"))
            assert sensor.expect(packet_type.SUBACK)[1][-1] == Reason.NOT_AUTHORIZED
            sensor.say(publish("other", b"x", 1, 1))
            assert sensor.expect(packet_type.PUBACK)[1] == b"\x00\x01" + bytes((Reason.NOT_AUTHORIZED,))
            sensor.say(publish("sensors/1", b"x", 1, 2))
            assert sensor.expect(packet_type.PUBACK)[1] == b"\x00\x02"
            assert node.drops("mqtt_not_allowed") == 1
        assert [readers[name].message()[1] for name in readers] == [b"x", b"x"]
        node.run(lambda: node.node.publish({"topic": "sensors/2"}, b"secret", access="rank = 'major'"))
        node.run(lambda: node.node.publish({"topic": "sensors/2"}, b"open"))
        assert readers["major"].message()[1] == b"secret"
        assert readers["private"].message()[1] == b"open"
        with Raw(node.port, connect("major", user=("private", "p"))) as thief:
            assert thief.read_connack()[1] == Reason.NOT_AUTHORIZED
        for reader in readers.values():
            reader.close()


@pytest.mark.guarantee("publishing-refused")
def test_a_client_is_told_that_the_certificate_of_the_node_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not authorized, which no client takes for a reason to try again."""
    for name, kind in (("n1.key", KeyKind.IDENTITY), ("operator.key", KeyKind.OPERATOR)):
        make_key_pair(tmp_path / name, kind)
    certify(tmp_path / "n1.key.pub", tmp_path / "operator.key", tmp_path / "n1.cert", "n1", days=1)
    keys = '[keys]\nidentity = "n1.key"\ncertificate = "n1.cert"\noperator = "operator.key.pub"\n'
    with broker(tmp_path, protocol=f"{EPIDEMIC}\n{keys}") as node, Raw(node.port, connect("x")) as client:
        client.read_connack()
        client.say(publish("a", b"x", 1, 1))
        assert client.expect(packet_type.PUBACK)[1][:2] == b"\x00\x01"
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 2 * 86_400)
        client.say(publish("a", b"x", 1, 2))
        assert client.expect(packet_type.PUBACK)[1] == b"\x00\x02" + bytes((Reason.NOT_AUTHORIZED,))
        assert node.drops("mqtt_refused") == 1


def test_a_session_in_the_store_that_cannot_be_read_is_forgotten_and_logged_and_the_others_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(tmp_path) as node:
        for id in ("me", "you"):
            connect_persistent(node.port, id)[0].close()
        owner = node.node.node
    store = NodeStore(tmp_path / "n1.db", owner)
    store.application("gateway mqtt").put(b"sme", b"\xc1 is no MessagePack")
    store.commit()
    store.close()
    for logged in (True, False):
        caplog.clear()
        with caplog.at_level(logging.ERROR, "carrycast.node"), broker(tmp_path) as node:
            told = [one for one in caplog.messages if one.startswith("an MQTT session in the store cannot be read")]
            assert len(told) == logged, "it is gone from the store too"
            if not logged:
                for id, kept in (("me", False), ("you", True)):
                    client, present = connect_persistent(node.port, id)
                    assert present == kept
                    client.close()
