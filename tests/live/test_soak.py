"""A network with many faults: every delivery is accounted for, no invariant is violated, and every drop has a
reason."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak import good, soak
from carrycast.analysis.explain.delivery_report import KILLED, NOBODY, NOT_HEARD, DeliveryReport, delivery_report
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.node import LiveNode
from tests.live.conftest import MakeConfig, Run


def test_a_few_seconds_of_harm_break_nothing(tmp_path: Path) -> None:
    found = soak(tmp_path, seconds=6.0, nodes=4, protocol="epidemic", seed=3)
    assert good(found), found
    assert int(str(found["pairs"])) > 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", ["epidemic", "drift", "spray_and_wait", "prophet"])
def test_a_minute_of_harm_breaks_nothing(tmp_path: Path, protocol: str) -> None:
    found = soak(tmp_path, seconds=60.0, nodes=6, protocol=protocol, seed=4)
    assert good(found), found


def told(nodes: list[LiveNode]) -> DeliveryReport:
    rows: list[dict[str, Any]] = [row for node in nodes for row in node.trace.table().to_pylist()]
    rows.sort(key=lambda row: row["time_s"])
    events = [row for node in nodes for row in node.trace.events().to_pylist()]
    subscriptions = [row for node in nodes for row in node.trace.subscriptions().to_pylist()]
    return delivery_report(rows, events, subscriptions, rows[-1]["time_s"])


def test_what_a_network_did_not_deliver_waits_or_was_dropped_by_name(config: MakeConfig, run: Run) -> None:
    async def story(protocol: str) -> DeliveryReport:
        async with LoopbackNetwork(config(id, protocol) for id in range(3)) as network:
            nodes = list(network.nodes.values())
            inbox = Inbox()
            network.nodes[2].subscribe("n >= 0", inbox)
            network.line()
            await network.wait_until_discovered()
            network.nodes[0].publish({"n": 1})
            await until(lambda: len(inbox.events) == 1)
            network.cut(1, 2)
            await network.wait_until_discovered()
            network.nodes[0].publish({"n": 2})
            await asyncio.sleep(0.3)
            network.cut(0, 1)
            await network.wait_until_discovered()
            network.nodes[0].publish({"n": 3})
            await asyncio.sleep(0.1)
            if protocol == "epidemic":
                # What is held in memory alone goes with its node; the relay has the second event as well.
                await network.crash(0)
            return told(nodes)

    async def both() -> None:
        carried = await story("epidemic")
        assert carried == DeliveryReport(3, 1, 1, {KILLED: 1})
        flooded = await story("flooding")
        assert flooded.exact
        assert (flooded.pairs, flooded.delivered, flooded.waiting) == (3, 1, 0)
        assert flooded.dropped.keys() <= {NOT_HEARD, NOBODY, "not_kept"}

    run(both())
