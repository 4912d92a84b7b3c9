"""Five nodes on loopback in a line, with links that change."""

import asyncio
import time

import pytest

from carrycast.core.model import NodeId
from carrycast.errors import WorkError
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.link.config import UDP
from carrycast.trace import Kind
from tests.live.addresses import udp_address
from tests.live.conftest import MakeConfig, Run


def subscribed(network: LoopbackNetwork, filter: str) -> dict[NodeId, Inbox]:
    inboxes = {id: Inbox() for id in network.nodes}
    for id, node in network.nodes.items():
        node.subscribe(filter, inboxes[id])
    return inboxes


def test_flooding_reaches_the_end_of_a_line_hop_by_hop(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id) for id in range(5)) as network:
            network.line()
            await network.wait_until_discovered()
            inboxes = subscribed(network, "speed > 30")
            wanted = network.nodes[0].publish({"speed": 31})
            network.nodes[0].publish({"speed": 30})
            await until(lambda: all(inbox.events == [wanted] for inbox in inboxes.values()))
            assert [inboxes[id].hops for id in range(5)] == [[0], [1], [2], [3], [4]]

    run(story())


def test_gossip_with_certainty_reaches_everybody_once(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id, "gossip", p=1.0) for id in range(5)) as network:
            network.line()
            await network.wait_until_discovered()
            inboxes = subscribed(network, "n >= 0")
            events = [network.nodes[id].publish({"n": id}) for id in range(5)]
            await until(lambda: all(sorted(inbox.events) == sorted(events) for inbox in inboxes.values()))

    run(story())


def test_flooding_does_not_cross_a_gap_but_epidemic_does(config: MakeConfig, run: Run) -> None:
    async def story(protocol: str, crosses: bool) -> None:
        async with LoopbackNetwork(config(id, protocol) for id in range(3)) as network:
            network.link(0, 1)
            await network.wait_until_discovered()
            inboxes = subscribed(network, "n = 1")
            event = network.nodes[0].publish({"n": 1})
            await until(lambda: inboxes[1].events == [event])
            network.cut(0, 1)
            network.link(1, 2)
            await network.wait_until_discovered()
            if crosses:
                await until(lambda: inboxes[2].events == [event])
            # A second event shows that the link carries, so what has not come by now does not come.
            later = network.nodes[1].publish({"n": 1})
            await until(lambda: later in inboxes[2].events)
            assert inboxes[2].events == ([event, later] if crosses else [later])

    run(story("flooding", crosses=False))
    run(story("epidemic", crosses=True))


def test_epidemic_brings_hundreds_of_events_over_one_contact(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id, "epidemic") for id in range(2)) as network:
            inboxes = subscribed(network, "n >= 0")
            events = [network.nodes[0].publish({"n": n}, payload=bytes(200)) for n in range(900)]
            network.link(0, 1)
            await until(lambda: len(inboxes[1].events) == len(events), within_s=10)
            assert sorted(inboxes[1].events) == sorted(events)

    run(story())


def test_links_are_found_and_lost_as_the_reach_list_changes(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id) for id in range(2)) as network:
            for _ in range(2):
                network.link(0, 1)
                await network.wait_until_discovered()
                network.cut(0, 1)
                await network.wait_until_discovered()
            rows = network.nodes[0].trace.table().to_pylist()
            links = [(row["kind"], row["peer"]) for row in rows if row["kind"].startswith("link")]
            assert links == [("link_up", 1), ("link_down", 1)] * 2
            assert network.adapters[0, UDP].lost > 0

    run(story())


def test_the_trace_tells_the_same_story_as_the_listeners(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id) for id in range(2)) as network:
            network.line()
            await network.wait_until_discovered()
            inboxes = subscribed(network, "n = 1")
            event = network.nodes[0].publish({"n": 1}, payload=b"abc")
            await until(lambda: inboxes[1].events == [event])
            sender, receiver = network.nodes[0], network.nodes[1]
        sent = [row for row in sender.trace.table().to_pylist() if row["event"] == str(event)]
        received = [row for row in receiver.trace.table().to_pylist() if row["event"] == str(event)]
        assert [row["kind"] for row in sent][:3] == ["publish", "deliver", "send"]
        assert [row["kind"] for row in received][:2] == ["receive", "deliver"]
        assert sent[2]["size_bytes"] == received[0]["size_bytes"] > 3
        assert (received[0]["class"], received[0]["interface"], received[0]["peer"]) == ("data", "udp", 0)
        assert sent[0]["time_s"] <= received[0]["time_s"] <= received[1]["time_s"]
        assert sender.trace.events().to_pylist()[0]["event"] == str(event)
        assert [row["kind"] for row in receiver.trace.table().to_pylist()][-1] == "stop"
        assert receiver.trace.subscriptions().num_rows == 1

    run(story())


def test_a_stopped_node_leaves_no_task_no_timer_and_no_socket(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id, "epidemic") for id in range(2)) as network:
            network.line()
            await network.wait_until_discovered()
            network.nodes[0].publish({"n": 1}, lease_s=60)
            node = network.nodes[0]
            await network.stop(0)
            assert "timer_left" not in node.drops
            assert asyncio.all_tasks() == {asyncio.current_task()}
            # The port is free again.
            endpoint, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                asyncio.DatagramProtocol, local_addr=udp_address(node)
            )
            endpoint.close()

    run(story())


def test_nodes_that_are_held_up_together_keep_their_links(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id) for id in range(3)) as network:
            network.line()
            await network.wait_until_discovered()
            for _ in range(5):
                await asyncio.sleep(0.1)
                time.sleep(0.4)  # Nobody runs; three beacons are 0.15 s.
            await asyncio.sleep(0.2)
            kinds = [row["kind"] for node in network.nodes.values() for row in node.trace.table().to_pylist()]
            assert kinds.count(Kind.LINK_DOWN) == 0

    run(story())


def test_time_in_which_nothing_could_happen_is_not_waited_for(run: Run) -> None:
    async def story() -> None:
        looked = 0

        def slow() -> bool:
            nonlocal looked
            looked += 1
            time.sleep(0.3)
            return looked == 4

        await until(slow, within_s=0.5)
        with pytest.raises(WorkError, match=r"not so within 0\.05 s"):
            await until(lambda: False, within_s=0.05)

    run(story())
