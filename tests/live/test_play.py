"""Live nodes whose links follow a contact plan, and nodes that crash."""

import asyncio

import numpy as np
import pytest

from carrycast.errors import UserError
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.sim.contacts.plan import ContactPlan
from tests.live.conftest import MakeConfig, Run


def plan_of(nodes: int, duration_s: float, *contacts: tuple[int, int, float, float]) -> ContactPlan:
    columns = [np.array(column) for column in zip(*contacts, strict=True)] or [np.zeros(0, np.int64)] * 4
    a, b, start_s, end_s = columns
    return ContactPlan.of(nodes, duration_s, a, b, start_s.astype(np.float64), end_s.astype(np.float64))


FERRY = plan_of(3, 60.0, (0, 1, 0.0, 30.0), (1, 2, 35.0, 60.0))
"""Node 1 is with node 0 first, then with node 2, for good."""


def test_an_event_crosses_with_the_ferry_of_a_plan(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        # Any three ids: the plan counts nodes in the order in which the network has them.
        async with LoopbackNetwork(config(id, "epidemic") for id in (7, 5, 9)) as network:
            inbox = Inbox()
            network.nodes[9].subscribe("n = 1", inbox)
            begun_s = asyncio.get_running_loop().time()
            playing = asyncio.create_task(network.play(FERRY, pace=30.0))
            await until(lambda: network.nodes[7].neighbors == [5])
            event = network.nodes[7].publish({"n": 1})
            await until(lambda: network.nodes[7].neighbors == [] and network.nodes[9].neighbors == [5], 10)
            await playing
            assert asyncio.get_running_loop().time() - begun_s >= 60 / 30
            await until(lambda: inbox.events == [event])
            assert inbox.hops == [2]
            await network.wait_until_discovered()
            assert network.nodes[9].neighbors == [5], "what is open at the end of a plan stays open"

    run(story())


def test_contacts_that_end_and_begin_at_one_moment_do_so_in_that_order(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id) for id in range(2)) as network:
            await network.play(plan_of(2, 2.0, (0, 1, 0.0, 1.0), (0, 1, 1.0, 2.0)), pace=1000.0)
            await network.wait_until_discovered()
            assert network.nodes[0].neighbors == [1]
            await network.play(plan_of(2, 0.01), pace=1.0)
            assert network.nodes[0].neighbors == [1], "a plan without contacts says nothing of it"

    run(story())


@pytest.mark.parametrize("pace", [0.0, -1.0, float("inf"), float("nan")])
def test_what_is_no_pace_is_refused(config: MakeConfig, run: Run, pace: float) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id) for id in range(3)) as network:
            with pytest.raises(UserError, match="is no pace"):
                await network.play(FERRY, pace)

    run(story())


def test_a_plan_of_more_nodes_than_there_are_is_refused(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork([config(1), config(2)]) as network:
            with pytest.raises(UserError, match="the plan has 3 nodes, but the network only 2"):
                await network.play(FERRY)

    run(story())


def test_a_node_that_crashes_says_nothing_and_comes_back_at_its_address(config: MakeConfig, run: Run) -> None:
    async def story() -> None:
        async with LoopbackNetwork(config(id) for id in range(2)) as network:
            network.line()
            await network.wait_until_discovered()
            lost = network.nodes[1]
            await network.crash(1)
            told = [row["kind"] for row in lost.trace.table().to_pylist()]
            assert "crash" in told
            assert "stop" not in told
            assert lost.drops["timer_left"] == 0
            assert network.nodes[0].neighbors == [1], "it has not been missed yet"
            again = await network.start(1)
            assert again.address == lost.address
            await network.wait_until_discovered()

    run(story())
