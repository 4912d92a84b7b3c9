"""The same nodes, links, subscriptions and publications, once simulated and once on loopback."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from carrycast.core.matching import Filter
from carrycast.core.model import Event, NodeId, SubscriptionId
from carrycast.core.protocol import BeaconSettings, UsesRouter
from carrycast.core.protocol.registry import protocol_named
from carrycast.core.stacks import make_stack_plan, select_protocol
from carrycast.errors import WorkError
from carrycast.lab.loopback.network import POLL_S, LoopbackNetwork, until
from carrycast.node.config import NodeConfig
from carrycast.node.runtime.host import HostFacts, find_capabilities
from carrycast.sim.testing import Net, examples
from carrycast.trace import Trace
from tests.live.conftest import MakeConfig

BEACONS = BeaconSettings(period_s=0.05, missed=5)
"""Quick, and with room for a loop that is held up for a fifth of a second."""

Subject = Mapping[str, object]
Edge = tuple[NodeId, NodeId]
Pair = tuple[int, int]
"""The number of an event, which both worlds give it as an attribute, and the node that got it."""

CERTAIN: dict[str, dict[str, object]] = {
    # Reports every ten seconds and retries every minute are for days, and a draw may fall differently in each world.
    # Reports are good for two seconds: one that waited for a loop that was held up is old, but not too old.
    "adaptive": {
        "tau": 1.0,
        "sigma": 0.0,
        "sample_s": 0.1,
        "update_min_s": 0.1,
        "update_max_s": 0.1,
        "missed_updates": 20.0,
        "retry_s": 0.2,
    },
    "semi_probabilistic": {"tau": 1.0, "update_s": 0.1, "missed_updates": 20.0, "retry_s": 3600.0},
    # How often somebody asks again depends on how long the loop is held up.
    "drift": {"answers": 1000},
    "gossip": {"p": 1.0},
    "asp": {"validity_s": 1000.0},
    # With few copies it matters who asks first.
    "spray_and_wait": {"copies": 1024},
    "prophet": {"exchange_s": 0.1},
}
REPORT_S = {"adaptive": 1.0, "semi_probabilistic": 1.5, "prophet": 1.0}
"""Who tells its neighbors every 0.1 s what it wants is given so long after links have changed: a new neighbor is heard
only once it has answered, and what is not sent to it by then is lost to it."""
SEED = 1
OFFERED = find_capabilities(store=False, facts=HostFacts())


class Phase(NamedTuple):
    """Some links come, some go; then some nodes publish."""

    link: Sequence[Edge] = ()
    cut: Sequence[Edge] = ()
    publish: Sequence[tuple[NodeId, dict[str, int | str]]] = ()


class Story(NamedTuple):
    """Node k has the k-th filter; without phases there are no links."""

    filters: Sequence[str]
    phases: Sequence[Phase]


def subjects() -> list[Subject]:
    """Every protocol and variant that a plain node can run, with settings that leave nothing to chance."""
    return [
        {**table, **CERTAIN.get(str(table["name"]), {})}
        for table in examples()
        if not issubclass(protocol_named(str(table["name"])), UsesRouter)
        and select_protocol(table, "examples")[1].needs() | protocol_named(str(table["name"])).needs <= OFFERED
    ]


def label(subject: Subject) -> str:
    """As the command line names it."""
    return "/".join(str(subject[key]) for key in ("name", "variant") if key in subject)


def net_of(edges: Iterable[Edge], subject: Subject) -> Net:
    """A simulated network in which all these links may be, and none is yet; it finds them by beacons."""
    edges = list(edges)
    beacons = {"mode": "beacon", "period_s": BEACONS.period_s, "missed": BEACONS.missed}
    settings = {key: value for key, value in subject.items() if key != "name"}
    net = Net.graph(edges, str(subject["name"]), {"discovery": beacons}, SEED, **settings)
    for a, b in edges:
        net.cut(a, b)
    return net


def config_of(config: MakeConfig, node: NodeId, subject: Subject) -> NodeConfig:
    """The same stack on a live node."""
    return replace(config(node), plan=make_stack_plan(subject, None, BEACONS, OFFERED, "test"))


class Account:
    """What a world says of a story: its traces, and what had been delivered by the end of each phase."""

    def __init__(self, delivered: list[set[Pair]], traces: list[Trace]) -> None:
        self.delivered = delivered
        self.traces = traces
        self.rows: list[dict[str, object]] = [row for trace in traces for row in trace.table().to_pylist()]
        events = [row for trace in traces for row in trace.events().to_pylist()]
        standing = [row for trace in traces for row in trace.subscriptions().to_pylist()]
        self._events = {row["event"]: json.loads(row["attributes"])["n"] for row in events}
        # Live nodes write a filter as they send it, in canonical form.
        self._subscriptions = {row["subscription"]: Filter(row["filter"]).text for row in standing}

    def of(self, *kinds: str) -> list[dict[str, object]]:
        """The rows of some kinds, with events and subscriptions by names that both worlds share."""
        return [
            {
                **row,
                "event": None if row["event"] is None else self._events[row["event"]],
                "subscription": None if row["subscription"] is None else self._subscriptions[row["subscription"]],
            }
            for row in self.rows
            if row["kind"] in kinds
        ]


def simulated(story: Story, subject: Subject) -> Account:
    """In the simulator."""
    edges = {edge: None for phase in story.phases for edge in phase.link}
    net = net_of(edges, subject)
    for node, filter in enumerate(story.filters):
        net.subscribe(node, filter)
    after: list[set[Pair]] = []
    for phase in story.phases:
        for a, b in phase.cut:
            net.cut(a, b)
        for a, b in phase.link:
            net.heal(a, b)
        net.run(2)
        for node, attributes in phase.publish:
            net.publish(node, attributes)
        net.run(2)
        after.append({(number(event), node) for node in range(len(story.filters)) for event in net.delivered(node)})
    net.stop()
    return Account(after, [net.simulation.trace])


async def live(story: Story, subject: Subject, config: MakeConfig, expected: Sequence[set[Pair]]) -> Account:
    """On loopback: a phase is over when what is expected of it is there, and nothing else may be."""
    delivered: list[Pair] = []
    after: list[set[Pair]] = []

    def inbox(subscription: SubscriptionId, event: Event, hops: int) -> None:
        delivered.append((number(event), subscription.subscriber))

    configs = [config_of(config, id, subject) for id in range(len(story.filters))]
    async with LoopbackNetwork(configs) as network:
        traces = [node.trace for node in network.nodes.values()]
        for id, filter in enumerate(story.filters):
            network.nodes[id].subscribe(filter, inbox)
        for phase, wanted in zip(story.phases, expected, strict=True):
            for a, b in phase.cut:
                network.cut(a, b)
            for a, b in phase.link:
                network.link(a, b)
            await settled(network, REPORT_S.get(str(subject["name"]), 0.0))
            for id, attributes in phase.publish:
                network.nodes[id].publish(attributes)
            with suppress(WorkError):
                await until(lambda wanted=wanted: set(delivered) >= wanted, 10.0)  # type: ignore[misc]  # bound at once
            assert set(delivered) == wanted, (set(delivered) - wanted, wanted - set(delivered))
            after.append(set(delivered))
    # Stopped: nothing more can come, and nothing came twice.
    assert sorted(delivered) == sorted(expected[-1])
    return Account(after, traces)


async def settled(network: LoopbackNetwork, quiet_s: float) -> None:
    """Until every node has known exactly its links for so long: a loop that is held up loses links that stand, and what
    is published before they are found again is lost to whoever is beyond them."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 20.0
    while True:
        await network.wait_until_discovered(within_s=10.0)
        since = loop.time()
        while network.is_discovered and loop.time() < since + quiet_s:
            await asyncio.sleep(POLL_S)
        if network.is_discovered:
            return
        assert loop.time() < deadline, "links come and go by themselves"


def number(event: Event) -> int:
    """What both worlds call an event."""
    value = event.attributes["n"]
    assert isinstance(value, int)
    return value
