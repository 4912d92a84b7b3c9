"""Topic holders on live nodes: the six schemes over changing links, from their files, and compared with the
simulator."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from carrycast.core.model import Area, EventId, NodeId, Position, Scalar
from carrycast.core.model.roads import Road, RoadMap
from carrycast.core.stacks import make_stack_plan
from carrycast.errors import UserError, WorkError
from carrycast.lab.loopback.network import Inbox, LoopbackNetwork, until
from carrycast.node.config import NodeConfig, load_config
from carrycast.node.node import LiveNode
from carrycast.node.runtime.host import HostFacts, Whereabouts, find_capabilities
from carrycast.protocols.topic_holder.rules import home_nodes, home_place, topic_key
from carrycast.protocols.topic_holder.settings import SCHEMES
from carrycast.sim.testing import Net
from tests.live.conftest import BEACONS, MakeConfig, Run

QUICK: dict[str, object] = {
    "refresh_s": 0.1,
    "timeout_s": 0.6,
    "advertise_s": 0.1,
    "list_wait_s": 1.0,
    "capture_m": 60.0,
}
ROUTERS: dict[str, dict[str, object]] = {
    # Live nodes count their starts over restarts of the process, so each looks like one that has started anew.
    "aodv": {"name": "aodv", "reboot_wait": False, "node_traversal_s": 0.02},
    "gpsr": {"name": "gpsr", "beacon_s": 0.05},
}
PLACES = {1: 0.0, 2: 100.0, 3: 200.0, 4: 300.0, 5: 205.0}
AREA = Area(301.0, 10.0)
ROADS = RoadMap(
    name="one",
    width_m=301.0,
    height_m=10.0,
    lane_m=4.0,
    safety_m=50.0,
    roads=(Road(id="a", nodes=("w", "e"), places=(Position(0.0, 5.0), Position(301.0, 5.0)), lanes=1),),
)
EVERYBODY = {"all": tuple(PLACES)}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def holder_config(config: MakeConfig, node: NodeId, scheme: str, **settings: object) -> NodeConfig:
    """A node of the line, with all that any of the schemes may ask for."""
    there = Position(PLACES[node], 0.0)
    facts = HostFacts(Whereabouts(there), directory=EVERYBODY, area=AREA, roads=ROADS)
    table = {"name": "topic_holder", "variant": scheme, **QUICK, **settings}
    router = ROUTERS[str(SCHEMES[scheme]["router"])]
    plan = make_stack_plan(table, router, BEACONS, find_capabilities(store=False, facts=facts), "test")
    return replace(config(node), plan=plan, position=there, directory=EVERYBODY, area=AREA, roads=ROADS)


async def published_until_there(network: LoopbackNetwork, inbox: Inbox, attributes: Mapping[str, Scalar]) -> EventId:
    """Routers may lose what is under way when a link goes, so who wants to be heard says it again."""
    for _ in range(30):
        event = network.nodes[1].publish(attributes, lease_s=60.0)
        with contextlib.suppress(WorkError):
            await until(lambda event=event: event in inbox.events, 0.5)  # type: ignore[misc]  # bound at once
            return event
    raise AssertionError(f"{attributes} never came: {[node.drops for node in network.nodes.values()]}")


@every_scheme
@pytest.mark.parametrize("fan_out", ["unicast", "tree"])
def test_events_find_their_subscribers_while_links_come_and_go(
    scheme: str, fan_out: str, config: MakeConfig, run: Run
) -> None:
    # A line 1 - 2 - 3 - 4, and node 5 as another way from 2 to 4 when node 3 is cut off.
    async def story() -> None:
        configs = [holder_config(config, node, scheme, fan_out=fan_out) for node in PLACES]
        async with LoopbackNetwork(configs) as network:
            inboxes = {node: Inbox() for node in (3, 4)}
            for node, inbox in inboxes.items():
                network.nodes[node].subscribe("topic = 'jam' and speed < 20", inbox)
            for a, b in ((1, 2), (2, 3), (3, 4)):
                network.link(a, b)
            await network.wait_until_discovered()
            await published_until_there(network, inboxes[4], {"topic": "jam", "speed": 1})
            network.cut(3, 4)
            network.link(2, 5)
            network.link(5, 4)
            await network.wait_until_discovered()
            await published_until_there(network, inboxes[4], {"topic": "jam", "speed": 2})
            network.cut(2, 5)
            network.link(3, 4)
            await network.wait_until_discovered()
            await published_until_there(network, inboxes[4], {"topic": "jam", "speed": 3})
            await published_until_there(network, inboxes[3], {"topic": "jam", "speed": 4})
            for inbox in inboxes.values():
                assert len(set(inbox.events)) == len(inbox.events)

    run(story())


def held_in_the_west() -> str:
    """A topic whose holder is none of nodes 3 to 5, whether a node or a place is it."""
    for name in (f"t{number}" for number in range(1000)):
        key = topic_key(name)
        if home_nodes(key, 0, 1, sorted(PLACES), 0)[0] < 3 and home_place(key, 0, AREA).x_m < 130:
            return name
    raise AssertionError("no such topic")


@every_scheme
def test_a_subscriber_that_a_policy_excludes_is_not_even_sent_the_event(
    scheme: str, config: MakeConfig, run: Run
) -> None:
    topic = held_in_the_west()

    async def story() -> None:
        async with LoopbackNetwork(holder_config(config, node, scheme) for node in (1, 2, 3, 4)) as network:
            major, minor = Inbox(), Inbox()
            network.nodes[3].subscribe(f"topic = '{topic}'", major, attributes={"rank": "major"})
            network.nodes[4].subscribe(f"topic = '{topic}'", minor, attributes={"rank": "minor"})
            network.line()
            await network.wait_until_discovered()
            plain = await published_until_there(network, minor, {"topic": topic})
            secrets: list[EventId] = []
            while len(set(major.events) & set(secrets)) < 3:
                secrets.append(network.nodes[1].publish({"topic": topic}, access="rank = 'major'", lease_s=60.0))
                await asyncio.sleep(0.1)
                assert len(secrets) < 100
            await asyncio.sleep(0.2)
            rows = network.nodes[4].trace.table().to_pylist()
            came = {row["event"] for row in rows if row["kind"] == "receive"}
            assert str(plain) in came
            assert not came & set(map(str, secrets)), "neither to deliver nor to carry: it is at the end of the line"

    run(story())


CONFIG = """
name = "{name}"
map = "highway"
[listen]
host = "127.0.0.1"
port = 0
[discovery]
period_s = 0.05
peers = [{peers}]
[position]
x_m = {x_m}
y_m = 500
[directory]
cars = ["car-1", "car-2"]
[protocol]
name = "topic_holder"
variant = "{scheme}"
refresh_s = 0.1
advertise_s = 0.1
[router]
name = "{router}"
{settings}
"""
WRITTEN = {"aodv": "reboot_wait = false", "gpsr": "beacon_s = 0.05"}


def written(folder: Path, scheme: str, number: int, *peers: str) -> Path:
    path = folder / f"car-{number}.toml"
    router = str(SCHEMES[scheme]["router"])
    names = ", ".join(f'"{peer}"' for peer in peers)
    text = CONFIG.format(
        name=path.stem, peers=names, x_m=100 * number, scheme=scheme, router=router, settings=WRITTEN[router]
    )
    path.write_text(text)
    return path


@every_scheme
def test_two_nodes_from_their_files_talk_over_udp(scheme: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with LiveNode(load_config(written(tmp_path, scheme, 1))) as one:
            address = one.status().address
            async with LiveNode(load_config(written(tmp_path, scheme, 2, address))) as two:
                inbox = Inbox()
                two.subscribe("topic = 'jam'", inbox)
                published = set()
                for _ in range(100):
                    published.add(one.publish({"topic": "jam"}, lease_s=60.0))
                    await asyncio.sleep(0.1)
                    if inbox.events:
                        break
                assert set(inbox.events) & published, (one.drops, two.drops)

    run(story())


@pytest.mark.parametrize(
    ("scheme", "left_out", "told"),
    [
        ("broker_aodv", '[directory]\ncars = ["car-1", "car-2"]\n', "directory"),
        ("broker_gpsr", "[position]\nx_m = 100\ny_m = 500\n", "position"),
        ("rendezvous_gpsr", 'map = "highway"\n', "area"),
        ("rendezvous_gpsr_map", 'map = "highway"\n', "map"),
    ],
)
def test_a_node_without_what_its_scheme_reads_is_refused_in_one_line(
    scheme: str, left_out: str, told: str, tmp_path: Path
) -> None:
    path = written(tmp_path, scheme, 1)
    text = path.read_text()
    assert left_out in text
    path.write_text(text.replace(left_out, ""))
    with pytest.raises(UserError, match=told) as refusal:
        load_config(path)
    assert "\n" not in str(refusal.value)
    assert str(path) in str(refusal.value)


STATIC = {0: 0.0, 1: 100.0, 2: 200.0, 3: 300.0, 4: 400.0}
FILTERS = ["topic = 'jam'", "topic = 'jam' and speed > 30", "topic in ('jam', 'ice')", "topic = 'ice'", "topic = 'jam'"]
SAID: list[tuple[NodeId, dict[str, Scalar]]] = [
    (0, {"n": 1, "topic": "jam", "speed": 50}),
    (4, {"n": 2, "topic": "ice"}),
    (2, {"n": 3, "topic": "jam", "speed": 10}),
    (1, {"n": 4, "speed": 99}),
]


def simulated(scheme: str, settings: dict[str, object]) -> set[tuple[int, NodeId]]:
    tables: dict[str, object] = {"discovery": {"mode": "none"}, "radio": {"range_m": 120.0}}
    router = ROUTERS[str(SCHEMES[scheme]["router"])]
    positions = [(x_m, 0.0) for x_m in STATIC.values()]
    net = Net(5, "topic_holder", {"variant": scheme, **settings}, {**tables, "router": router}, positions=positions)
    for node, filter in enumerate(FILTERS):
        net.subscribe(node, filter)
    net.run(3)
    for _ in range(2):
        for node, attributes in SAID:
            net.publish(node, attributes)
        net.run(3)
    return {(int(event.attributes["n"]), node) for node in range(5) for event in net.list_delivered(node)}


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if not scheme.endswith("_map")])
def test_both_worlds_deliver_the_same(scheme: str, config: MakeConfig, run: Run) -> None:
    expected = simulated(scheme, QUICK)
    by_hand = {(1, 0), (1, 1), (1, 2), (1, 4), (2, 2), (2, 3), (3, 0), (3, 2), (3, 4)}
    assert expected == by_hand
    delivered: set[tuple[int, NodeId]] = set()

    async def story() -> None:
        everybody = {"all": tuple(STATIC)}
        area = Area(401.0, 1.0)
        configs = []
        for node, x_m in STATIC.items():
            there = Position(x_m, 0.0)
            facts = HostFacts(Whereabouts(there), directory=everybody, area=area)
            router = ROUTERS[str(SCHEMES[scheme]["router"])]
            table = {"name": "topic_holder", "variant": scheme, **QUICK}
            plan = make_stack_plan(table, router, BEACONS, find_capabilities(store=False, facts=facts), "test")
            configs.append(replace(config(node), plan=plan, position=there, directory=everybody, area=area))
        async with LoopbackNetwork(configs) as network:
            for node, filter in enumerate(FILTERS):
                network.nodes[node].subscribe(
                    filter, lambda id, event, hops: delivered.add((int(event.attributes["n"]), id.subscriber))
                )
            network.line()
            await network.wait_until_discovered()
            await asyncio.sleep(1.0)
            for _ in range(30):
                for node, attributes in SAID:
                    network.nodes[node].publish(attributes)
                await asyncio.sleep(0.5)
                if delivered >= expected:
                    break
            await asyncio.sleep(0.3)

    run(story())
    assert delivered == expected
