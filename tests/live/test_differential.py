"""One story, two worlds: what the simulator delivers is what live nodes on loopback deliver."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from driftcast.loopback.network import LoopbackNetwork, until
from driftcast.model import Event, SubscriptionId
from driftcast.testing import Net
from tests.live.conftest import MakeConfig, Run

NODES = 5
FILTERS = ["speed > 30", "road = 'A1'", "speed > 30 or road = 'A1'", "true", "road is null"]
LINKS = [(0, 1), (1, 2), (2, 3), (3, 4)]
Pair = tuple[int, int]
"""The number of an event, which both worlds give it as an attribute, and the node that got it."""


class Phase(NamedTuple):
    """Some links come, some go; then some nodes publish."""

    link: Sequence[tuple[int, int]] = ()
    cut: Sequence[tuple[int, int]] = ()
    publish: Sequence[tuple[int, dict[str, int | str]]] = ()


STORY = [
    Phase(link=LINKS, publish=[(0, {"n": 1, "speed": 31}), (4, {"n": 2, "road": "A1"})]),
    Phase(cut=[(2, 3)], publish=[(0, {"n": 3, "speed": 50, "road": "A1"}), (4, {"n": 4, "speed": 10})]),
    Phase(link=[(1, 3)], publish=[(2, {"n": 5, "road": "B2", "speed": 99})]),
    Phase(cut=[(0, 1), (3, 4)], publish=[(1, {"n": 6, "speed": 31}), (0, {"n": 7, "road": "A1"})]),
    Phase(link=[(0, 4), (3, 4)], publish=[(3, {"n": 8})]),
]


def simulated(protocol: str) -> list[set[Pair]]:
    """What has been delivered by the end of each phase in the simulator, which finds links by beacons as well."""
    beacons = {"mode": "beacon", "period_s": 0.05, "missed": 3}
    net = Net.graph([*LINKS, (1, 3), (0, 4)], protocol, {"discovery": beacons})
    for a, b in [*LINKS, (1, 3), (0, 4)]:
        net.cut(a, b)
    for node, filter in enumerate(FILTERS):
        net.subscribe(node, filter)
    after: list[set[Pair]] = []
    for phase in STORY:
        for a, b in phase.cut:
            net.cut(a, b)
        for a, b in phase.link:
            net.heal(a, b)
        net.run(2)
        for node, attributes in phase.publish:
            net.publish(node, attributes)
        net.run(2)
        after.append({(_number(event), node) for node in range(NODES) for event in net.delivered(node)})
    return after


@pytest.mark.parametrize("protocol", ["flooding", "epidemic"])
def test_both_worlds_deliver_the_same(protocol: str, config: MakeConfig, run: Run) -> None:
    expected = simulated(protocol)
    assert expected[-1] > expected[0] > set()
    delivered: list[Pair] = []

    def inbox(subscription: SubscriptionId, event: Event, hops: int) -> None:
        delivered.append((_number(event), subscription.subscriber))

    async def story() -> None:
        async with LoopbackNetwork(config(id, protocol) for id in range(NODES)) as network:
            for id, filter in enumerate(FILTERS):
                network.nodes[id].subscribe(filter, inbox)
            for phase, wanted in zip(STORY, expected, strict=True):
                for a, b in phase.cut:
                    network.cut(a, b)
                for a, b in phase.link:
                    network.link(a, b)
                await network.discovered()
                for id, attributes in phase.publish:
                    network.nodes[id].publish(attributes)
                await until(lambda wanted=wanted: set(delivered) >= wanted)  # type: ignore[misc]  # bound at once
                assert set(delivered) == wanted
        # Stopped: nothing more can come, and nothing came twice.
        assert sorted(delivered) == sorted(expected[-1])

    run(story())


def test_the_two_protocols_differ_in_this_story() -> None:
    flooding, epidemic = simulated("flooding")[-1], simulated("epidemic")[-1]
    assert epidemic > flooding


def _number(event: Event) -> int:
    number = event.attributes["n"]
    assert isinstance(number, int)
    return number
