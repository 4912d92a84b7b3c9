"""MQTT clients of different nodes: messages cross the network, wait for meetings, and are retained at every node."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from carrycast.lab.loopback.network import LoopbackNetwork, until
from carrycast.node.gateways.mqtt import properties as packet_type
from carrycast.node.gateways.mqtt.fields import FieldReader
from carrycast.node.gateways.mqtt.properties import decode_properties, encode_properties
from carrycast.node.node import LiveNode
from tests.cli.console import call
from tests.gateway.world import Raw, connect, encode_string, make_config, packet, publish, subscribe
from tests.live.keyed import Operator

FLOODING = 'name = "flooding"'
EPIDEMIC = 'name = "epidemic"'
TREE = 'name = "tree"\n[directory]\nbroker = ["n1", "n2"]'


def port(node: LiveNode) -> int:
    return int(node.gateways["mqtt"].address.rpartition(":")[2])


def write(port: int, topic: str, payload: bytes, retain: bool = False) -> None:
    with Raw(port, connect("writer")) as client:
        client.read_connack()
        client.say(publish(topic, payload, 1, 1, retain=retain))
        client.expect(packet_type.PUBACK)


def reader(port: int, topics: str) -> Raw:
    client = Raw(port, connect("reader"))
    client.read_connack()
    client.say(subscribe(topics, 1))
    client.expect(packet_type.SUBACK)
    return client


@pytest.mark.parametrize("protocol", [FLOODING, EPIDEMIC, TREE])
def test_clients_of_two_nodes_hear_each_other(tmp_path: Path, protocol: str) -> None:
    async def story() -> None:
        configs = [make_config(tmp_path, protocol=protocol, name=name) for name in ("n1", "n2")]
        async with LoopbackNetwork(configs) as network:
            network.line()
            await network.wait_until_discovered()
            one, two = (network.nodes[config.node] for config in configs)
            client = await asyncio.to_thread(reader, port(two), "$filter/speed > 30/cars/#")
            if protocol == TREE:
                # What brokers tell each other of subscriptions takes a moment.
                await asyncio.sleep(0.5)
            await asyncio.to_thread(write, port(one), "cars/a", b'{"speed": 29}')
            await asyncio.to_thread(write, port(one), "cars/b", b'{"speed": 31}')
            assert (await asyncio.to_thread(client.message))[:2] == ("cars/b", b'{"speed": 31}')
            client.close()

    asyncio.run(story())


def test_clients_of_nodes_with_keys_hear_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        for words in (("new", "n1.key"), ("new", "n2.key"), ("network", "net.key")):
            assert call("keys", words[0], str(tmp_path / words[1])).status == 0
        keys = '[keys]\nidentity = "{}.key"\nnetwork = "net.key"'
        configs = [make_config(tmp_path, keys.format(name), EPIDEMIC, name) for name in ("n1", "n2")]
        async with LoopbackNetwork(configs) as network:
            network.line()
            await network.wait_until_discovered()
            one, two = (network.nodes[config.node] for config in configs)
            client = await asyncio.to_thread(reader, port(two), "cars/#")
            await asyncio.to_thread(write, port(one), "cars/a", b"x" * 60_000)
            assert (await asyncio.to_thread(client.message))[:2] == ("cars/a", b"x" * 60_000)
            table = "\n".join(f"{n},{n % 97},A{n % 7}" for n in range(15_000)).encode()
            await asyncio.to_thread(write, port(one), "cars/table", table)
            assert (await asyncio.to_thread(client.message))[:2] == ("cars/table", table)
            client.close()

    asyncio.run(story())


def test_what_is_retained_elsewhere_is_there_when_the_nodes_have_met(tmp_path: Path) -> None:
    async def story() -> None:
        configs = [make_config(tmp_path, protocol=EPIDEMIC, name=name) for name in ("n1", "n2")]
        async with LoopbackNetwork(configs) as network:
            one, two = (network.nodes[config.node] for config in configs)
            await asyncio.to_thread(write, port(one), "r/old", b"1", True)
            await asyncio.to_thread(write, port(one), "r/gone", b"1", True)
            await asyncio.to_thread(write, port(one), "r/gone", b"", True)
            await asyncio.to_thread(write, port(two), "r/old", b"2", True)
            network.line()
            await network.wait_until_discovered()
            await until(lambda: min(node.status().counts.get("delivered", 0) for node in (one, two)) >= 4, 20)
            for node in (one, two):
                client = await asyncio.to_thread(reader, port(node), "r/#")
                assert (await asyncio.to_thread(client.message))[:2] == ("r/old", b"2")
                client.close()

    asyncio.run(story())


@pytest.mark.parametrize("protocol", [EPIDEMIC, TREE])
def test_a_node_that_comes_late_is_told_what_others_retain(tmp_path: Path, protocol: str) -> None:
    async def story() -> None:
        # Over a tree, whoever is to answer for what was before says that it keeps it.
        top = 'keeps = ["mqtt.retain"]' if protocol == TREE else ""
        configs = [
            make_config(tmp_path, protocol=protocol, name="n1", top=top),
            make_config(tmp_path, protocol=protocol, name="n2"),
        ]
        async with LoopbackNetwork(configs) as network:
            one, two = (network.nodes[config.node] for config in configs)
            await asyncio.to_thread(write, port(one), "r/old", b"1", True)
            network.line()
            await network.wait_until_discovered()
            got: tuple[str, bytes, int, int, bool] | None = None
            for _ in range(20):
                client = await asyncio.to_thread(reader, port(two), "r/#")
                client.socket.settimeout(1.0)
                # Brokers learn who keeps what as the tree grows.
                with suppress(TimeoutError):
                    got = await asyncio.to_thread(client.message)
                client.close()
                if got is not None:
                    break
            assert got is not None
            assert got[:2] == ("r/old", b"1")

    asyncio.run(story())


def test_a_node_whose_certificate_allows_little_serves_what_it_allows(tmp_path: Path) -> None:
    """It did not start: it wanted to keep whatever anybody retains."""

    async def story() -> None:
        config = Operator().keyed(
            make_config(tmp_path, protocol=EPIDEMIC, name="n1"), subscribe="topic matches 'cars/#'"
        )
        async with LiveNode(config) as node:
            await asyncio.to_thread(write, port(node), "cars/a", b"1", True)
            client = await asyncio.to_thread(reader, port(node), "cars/#")
            assert (await asyncio.to_thread(client.message))[:2] == ("cars/a", b"1")
            client.close()

    asyncio.run(story())


def test_what_waits_for_a_client_of_another_node_expires_from_its_arrival(tmp_path: Path) -> None:
    """It was told the whole time again, however long the message had waited [MQTT-3.3.2-6]."""

    def client(port: int) -> Raw:
        found = Raw(port, connect("me", clean=False, properties={"session_expiry_interval_s": 100}))
        found.read_connack()
        return found

    def ask(port: int) -> None:
        with client(port) as one:
            one.say(subscribe("a", 1))
            one.expect(packet_type.SUBACK)

    def tell(port: int) -> None:
        with Raw(port, connect("writer")) as one:
            one.read_connack()
            one.say(
                packet(0x32, encode_string("a"), b"\0\1", encode_properties({"message_expiry_interval_s": 100}), b"x")
            )
            one.expect(packet_type.PUBACK)

    def told(port: int) -> int:
        with client(port) as one:
            _, body = one.expect(packet_type.PUBLISH)
            reader = FieldReader(body)
            reader.read_string()
            reader.read_two_byte_integer()
            expiry_s: int = decode_properties(reader, packet_type.PUBLISH)["message_expiry_interval_s"]
            return expiry_s

    async def story() -> None:
        configs = [make_config(tmp_path, protocol=EPIDEMIC, name=name) for name in ("n1", "n2")]
        async with LoopbackNetwork(configs) as network:
            network.line()
            await network.wait_until_discovered()
            one, two = (network.nodes[config.node] for config in configs)
            await asyncio.to_thread(ask, port(two))
            await asyncio.to_thread(tell, port(one))
            await asyncio.sleep(2.5)
            assert await asyncio.to_thread(told, port(two)) in (97, 98)

    asyncio.run(story())
