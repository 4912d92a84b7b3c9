"""Several interfaces per node: broadcasts on each, unicasts over the cheapest, links that change one by one."""

import asyncio
import socket
from dataclasses import replace

import pytest

from carrycast.core.model import Event, Failure
from carrycast.core.protocol import BeaconSettings, Link
from carrycast.errors import WorkError
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, ReachAdapter, until
from carrycast.node.link.adapter import LinkAddress
from carrycast.node.link.config import InterfaceConfig, LinkSettings
from carrycast.node.link.frame import PROBE_BODY_BYTES, LinkFrame, LinkKind, pack, unpack
from carrycast.node.link.udp import UdpAdapter, UdpSettings
from carrycast.node.node import LiveNode
from tests.live.addresses import udp_address
from tests.live.conftest import MakeConfig, Run
from tests.live.talker import Talker, Word

RADIO, WIRE = "radio", "ethernet"
RADIO_LINK = LinkSettings(ack_timeout_s=0.05, retries=1, cost_s=0.001)
WIRE_LINK = LinkSettings(ack_timeout_s=0.05, retries=1, cost_s=0.0001)
BOTH = {RADIO: RADIO_LINK, WIRE: WIRE_LINK}


class Speaker(Talker):
    """Says what a published event says, as it says."""

    name = "talker"

    def on_publish(self, now: float, event: Event) -> None:
        attributes = event.attributes
        text, via = str(attributes["text"]), attributes.get("via")
        interface = None if via is None else str(via)
        if "to" in attributes:
            self.port.send(int(attributes["to"]), Word(text), interface, int(attributes.get("token", 0)))
        else:
            self.port.broadcast(Word(text), interface)


def speaker(node: int) -> Speaker:
    machine = Talker.all[node]
    assert isinstance(machine, Speaker)
    return machine


def both_linked(network: LoopbackNetwork, a: int = 1, b: int = 2) -> None:
    for interface in BOTH:
        network.link(a, b, interface)


def rows(node: LiveNode) -> list[dict[str, object]]:
    found: list[dict[str, object]] = node.trace.table().to_pylist()
    return found


def sent_words(node: LiveNode) -> list[object]:
    """The interface of each word that a node has sent, as the trace has it."""
    return [row["interface"] for row in rows(node) if (row["kind"], row["message"]) == ("send", "Word")]


def test_a_neighbor_over_two_interfaces_is_two_links_that_come_and_go_one_by_one(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id, Speaker, interfaces=BOTH) for id in (1, 2)) as network:
            network.link(1, 2, RADIO)
            await network.wait_until_discovered()
            network.link(1, 2, WIRE)
            await network.wait_until_discovered()
            assert network.nodes[1].neighbors == [2]
            assert network.nodes[1].links == [Link(2, RADIO, 0.001), Link(2, WIRE, 0.0001)]
            assert network.nodes[1].status().links == {"2/radio": 0.001, "2/ethernet": 0.0001}
            network.cut(1, 2, RADIO)
            await network.wait_until_discovered()
            assert network.nodes[1].neighbors == [2]
            assert speaker(1).notifications == [
                ("up", Link(2, RADIO, 0.001)),
                ("up", Link(2, WIRE, 0.0001)),
                ("down", Link(2, RADIO, 0.001)),
            ]

    run(story())


def test_a_broadcast_goes_out_on_every_interface_or_on_the_one_that_is_named(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id, Speaker, interfaces=BOTH) for id in (1, 2)) as network:
            both_linked(network)
            await network.wait_until_discovered()
            network.nodes[1].publish({"text": "all"})
            await until(lambda: len(speaker(2).heard) == 2)
            assert sorted(speaker(2).vias) == [WIRE, RADIO]
            network.nodes[1].publish({"text": "one", "via": RADIO})
            await until(lambda: len(speaker(2).heard) == 3)
            assert (speaker(2).heard[2], speaker(2).vias[2]) == ("one", RADIO)
            assert sent_words(network.nodes[1]) == [RADIO, WIRE, RADIO]
            network.nodes[1].publish({"text": "none", "via": "infrared"})
            assert network.nodes[1].drops == {"out_of_reach": 1}

    run(story())


def test_a_unicast_takes_the_cheapest_link_that_leads_there_or_the_one_that_is_named(
    config: MakeConfig, run: Run
) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id, Speaker, interfaces=BOTH) for id in (1, 2)) as network:
            both_linked(network)
            await network.wait_until_discovered()
            node, told = network.nodes[1], speaker(1).outcomes
            node.publish({"text": "cheapest", "to": 2, "token": 1})
            await until(lambda: told == [(1, None)])
            node.publish({"text": "named", "to": 2, "token": 2, "via": RADIO})
            await until(lambda: told[1:] == [(2, None)])
            network.cut(1, 2, WIRE)
            await network.wait_until_discovered()
            # The wire has heard the node before, but now only the radio has a link with it.
            node.publish({"text": "what is left", "to": 2, "token": 3})
            await until(lambda: told[2:] == [(3, None)])
            assert speaker(2).vias == [WIRE, RADIO, RADIO]
            node.publish({"text": "nowhere", "to": 2, "token": 4, "via": "infrared"})
            await until(lambda: told[3:] == [(4, "unreachable")])
            assert node.drops["out_of_reach"] == 1

    run(story())


def test_a_neighbor_that_does_not_acknowledge_is_removed_from_that_interface_until_it_answers_again(
    config: MakeConfig, run: Run
) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id, Speaker, interfaces=BOTH) for id in (1, 2)) as network:
            both_linked(network)
            await network.wait_until_discovered()
            speaker(1).notifications.clear()
            # Node 2 no longer hears node 1 over the wire, while its own beacons still arrive there.
            network.adapters[2, WIRE].reach.clear()
            network.nodes[1].publish({"text": "lost", "to": 2, "token": 7})
            await until(lambda: ("unreachable", 7) in speaker(1).notifications)
            assert speaker(1).notifications[:2] == [("unreachable", 7), ("down", Link(2, WIRE, 0.0001))]
            await until(lambda: network.nodes[1].drops["link_unproven"] > 1)
            assert len(speaker(1).notifications) == 2, "a beacon that nothing can answer makes no link"
            network.adapters[2, WIRE].reach.add(1)
            await until(lambda: len(speaker(1).notifications) == 3)
            assert speaker(1).notifications[2] == ("up", Link(2, WIRE, 0.0001))
            assert network.nodes[1].drops["unacknowledged"] == 1

    run(story())


def test_a_removed_neighbor_is_reached_over_another_interface(config: MakeConfig, run: Run) -> None:
    class Stubborn(Speaker):
        """Sends once more what could not be delivered."""

        def on_sent(self, now: float, token: int, failure: Failure | None) -> None:
            super().on_sent(now, token, failure)
            if failure:
                self.port.send(2, Word("again"), token=token + 1)

    async def story() -> None:
        async with LoopbackNetwork(config(id, Stubborn, interfaces=BOTH) for id in (1, 2)) as network:
            both_linked(network)
            await network.wait_until_discovered()
            network.adapters[2, WIRE].reach.clear()
            network.nodes[1].publish({"text": "lost", "to": 2, "token": 1})
            await until(lambda: len(speaker(1).outcomes) == 2)
            assert speaker(1).outcomes == [(1, "unreachable"), (2, None)]
            assert speaker(2).vias == [RADIO]

    run(story())


def test_a_node_with_one_interface_hears_a_node_over_both_of_its_own_and_repeats_nothing(
    config: MakeConfig, run: Run
) -> None:
    async def story() -> None:
        one, two = config(1, Speaker, interfaces=BOTH), config(2, Speaker)
        async with LiveNode(one) as sender, LiveNode(two) as receiver:
            for address in sender.addresses.values():
                receiver.add_peer(address)
            await until(lambda: len(sender.links) == 2 and receiver.neighbors == [1])
            for number in range(20):
                sender.publish({"text": str(number), "to": 2, "token": number, "via": list(BOTH)[number % 2]})
            await until(lambda: len(speaker(1).outcomes) == 20)
            assert sorted(map(int, speaker(2).heard)) == list(range(20))
            assert {failure for _, failure in speaker(1).outcomes} == {None}
            assert set(receiver.drops) <= {"link_repeated"}

    run(story())


def test_each_interface_may_be_in_a_group_of_its_own(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one, socket.socket(socket.AF_INET) as other:
            ports = []
            for opened in (one, other):
                opened.bind(("127.0.0.1", 0))
                ports.append(opened.getsockname()[1])
        interfaces = tuple(
            InterfaceConfig(name, adapter=UdpSettings(host="127.0.0.1", port=0, group=f"239.255.77.79:{port}"))
            for name, port in zip(BOTH, ports, strict=True)
        )
        first, second = (replace(config(id, Speaker), interfaces=interfaces) for id in (1, 2))
        async with LiveNode(first) as sender, LiveNode(second) as receiver:
            await until(lambda: len(sender.links) == len(receiver.links) == 2)
            sender.publish({"text": "by radio", "via": RADIO})
            await until(lambda: speaker(2).heard == ["by radio"])
            assert speaker(2).vias == [RADIO]

    run(story())


def test_a_second_interface_that_cannot_be_opened_closes_the_first(
    config: MakeConfig, run: Run, stranger: socket.socket
) -> None:
    async def story() -> None:
        made = config(1)
        taken = InterfaceConfig(WIRE, adapter=UdpSettings(host="127.0.0.1", port=stranger.getsockname()[1]))
        node = LiveNode(replace(made, interfaces=(*made.interfaces, taken)))
        with pytest.raises(WorkError, match="the port is already in use"):
            await node.start()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(udp_address(node))

    run(story())


class Slow(ReachAdapter):
    """Takes its time, and loses the probes that it is told to lose."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(UdpAdapter("127.0.0.1", 0))
        self.delay_s = delay_s
        self.loses_probes = False
        self._closed = False

    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        frame = unpack(datagram)
        assert isinstance(frame, LinkFrame)
        if not (self.loses_probes and frame.kind is LinkKind.PROBE):
            asyncio.get_running_loop().call_later(self.delay_s, self._send_late, datagram, address)
        return True

    def _send_late(self, datagram: bytes, address: LinkAddress) -> None:
        if not self._closed:
            super().send(datagram, address)

    def close(self) -> None:
        self._closed = True
        super().close()


def test_a_measured_cost_is_the_time_that_a_packet_takes_and_grows_with_losses(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        link = LinkSettings(ack_timeout_s=0.2, cost="measured", cost_s=0.001)
        one, two = config(1, Speaker, link=link), config(2, Speaker)
        slow, usual = Slow(0.04), Slow(0.0)
        for transport in (slow, usual):
            transport.reach |= {1, 2}
        async with LiveNode(one, {"udp": slow}) as node, LiveNode(two, {"udp": usual}) as other:
            node.add_peer(other.address)
            await until(lambda: len(speaker(1).notifications) >= 2)
            (up, at), (changed, measured) = speaker(1).notifications[:2]
            assert (up, at, changed) == ("up", Link(2, "udp", 0.001), "changed")
            assert isinstance(measured, Link)
            # Half of 40 ms there and nothing back.
            assert 0.02 <= measured.cost_s < 0.08
            assert node.links == [measured]
            assert speaker(2).notifications[-1] == ("up", Link(1, "udp", 0.0007)), "it measures nothing"
            slow.loses_probes = True
            await until(lambda: node.links[0].cost_s > 1.5 * measured.cost_s)
            first = next(row for row in rows(node) if row["kind"] == "link_changed")
            assert (first["peer"], first["interface"], first["value"]) == (2, "udp", measured.cost_s)

    run(story())


def test_an_echo_that_nobody_waits_for_is_dropped_by_name(
    config: MakeConfig, run: Run, stranger: socket.socket
) -> None:
    async def story() -> None:
        async with LiveNode(config(1)) as node:
            stranger.sendto(pack(LinkFrame(LinkKind.ECHO, 9, 1, 1, bytes(PROBE_BODY_BYTES))), udp_address(node))
            await until(lambda: node.drops["link_unexpected_echo"] == 1)
            stranger.sendto(pack(LinkFrame(LinkKind.PROBE, 9, 3, 4, bytes(PROBE_BODY_BYTES))), udp_address(node))
            echo = await asyncio.to_thread(stranger.recv, 1000)
            assert echo == pack(LinkFrame(LinkKind.ECHO, 1, 3, 4, bytes(PROBE_BODY_BYTES)))

    run(story())


def test_asp_breaks_a_path_at_once_when_a_neighbor_cannot_be_reached(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        # By their silence alone, neighbors would be missed after five seconds.
        beacons = BeaconSettings(period_s=0.05, missed=100)
        made = [config(id, "asp", interfaces=BOTH, beacons=beacons, validity_s=100.0) for id in range(4)]
        async with LoopbackNetwork(made) as network:
            both_linked(network, 0, 1)
            for a, b in ((1, 2), (0, 3), (3, 2)):
                network.link(a, b, RADIO)
            await network.wait_until_discovered()
            inbox = Inbox()
            network.nodes[2].subscribe("topic = 't'", inbox)
            source, station = network.nodes[0], network.nodes[1]
            events = [source.publish({"topic": "t", "n": 0})]
            await until(lambda: inbox.events == events)
            # The subscription travels back to the source, and from a worse path that was faster to the best one.
            await asyncio.sleep(0.3)
            events.append(source.publish({"topic": "t", "n": 1}))
            await until(lambda: inbox.events == events)
            assert inbox.hops == [2, 2]
            cut_s = asyncio.get_running_loop().time()
            network.cut(1, 2, RADIO)
            source.publish({"topic": "t", "n": 2})
            await until(lambda: 2 not in station.neighbors)
            await until(lambda: any(row["kind"] == "path_broken" for row in rows(source)))
            events.append(source.publish({"topic": "t", "n": 3}))
            await until(lambda: inbox.events == events)
            assert asyncio.get_running_loop().time() - cut_s < 4
            publications = [row for row in rows(source) if row["message"] == "Publication"]
            assert {row["interface"] for row in publications} == {WIRE}, "the cheaper of the two links to the station"

    run(story())
