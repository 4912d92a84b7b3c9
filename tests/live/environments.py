"""Stories that run in both environments: the same nodes, links, subscriptions and publications, simulated and live."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from carrycast.core.matching import Filter
from carrycast.core.model import Event, NodeId, SubscriptionId
from carrycast.core.protocol import BeaconSettings, UsesRouter
from carrycast.core.protocol.registry import find_protocol
from carrycast.core.stacks import make_stack_plan, select_protocol
from carrycast.errors import WorkError
from carrycast.lab.loopback.network import POLL_S, LoopbackNetwork, until
from carrycast.node.config import NodeConfig
from carrycast.node.runtime.host import HostFacts, find_capabilities
from carrycast.sim.testing import Net, examples
from carrycast.trace import Trace
from tests.live.conftest import MakeConfig

BEACONS = BeaconSettings(period_s=0.05, missed=5)
"""Short periods; a link survives if the event loop is blocked for a fifth of a second."""

Subject = Mapping[str, object]
Edge = tuple[NodeId, NodeId]
Pair = tuple[int, int]
"""The number of an event, an attribute that is the same in both environments, and the node that received it."""

CERTAIN: dict[str, dict[str, object]] = {
    # The defaults, reports every ten seconds and retries every minute, are too slow for a test. Nothing is random here,
    # because random numbers differ between the environments. Reports are valid for two seconds, in case the event loop
    # is blocked.
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
    # The number of repeated requests depends on how long the event loop is blocked.
    "drift": {"answers": 1000},
    "gossip": {"p": 1.0},
    "asp": {"validity_s": 1000.0},
    # With few copies the result would depend on the order of requests.
    "spray_and_wait": {"copies": 1024},
    "prophet": {"exchange_s": 0.1},
    "maxprop": {"exchange_s": 0.1},
}
REPORT_S = {"adaptive": 1.0, "semi_probabilistic": 1.5, "prophet": 1.0}
"""How long a story waits after links have changed, for protocols that report their subscriptions every 0.1 s: a new
neighbor gets no events before its first report."""
SEED = 1
OFFERED = find_capabilities(store=False, facts=HostFacts())


class Phase(NamedTuple):
    """Some links are made and some are cut; then some nodes publish."""

    link: Sequence[Edge] = ()
    cut: Sequence[Edge] = ()
    publish: Sequence[tuple[NodeId, dict[str, int | str]]] = ()


class Story(NamedTuple):
    """Node k has the k-th filter; without phases there are no links."""

    filters: Sequence[str]
    phases: Sequence[Phase]


def subjects() -> list[Subject]:
    """Return every protocol and variant that a plain node can run, with settings that leave nothing to chance."""
    return [
        {**table, **CERTAIN.get(str(table["name"]), {})}
        for table in examples()
        if not issubclass(find_protocol(str(table["name"])), UsesRouter)
        and select_protocol(table, "examples")[1].needs() | find_protocol(str(table["name"])).needs <= OFFERED
    ]


def label(subject: Subject) -> str:
    """Return the name of a subject, as on the command line."""
    return "/".join(str(subject[key]) for key in ("name", "variant") if key in subject)


def make_net(edges: Iterable[Edge], subject: Subject) -> Net:
    """Make a simulated network in which these links are cut; nodes discover links by beacons."""
    edges = list(edges)
    beacons = {"mode": "beacon", "period_s": BEACONS.period_s, "missed": BEACONS.missed}
    settings = {key: value for key, value in subject.items() if key != "name"}
    net = Net.graph(edges, str(subject["name"]), {"discovery": beacons}, SEED, **settings)
    for a, b in edges:
        net.cut(a, b)
    return net


def make_config(config: MakeConfig, node: NodeId, subject: Subject) -> NodeConfig:
    """Make the configuration of a live node with the same stack."""
    return replace(config(node), plan=make_stack_plan(subject, None, BEACONS, OFFERED, "test"))


class StoryResult:
    """The result of a story in one environment: its traces, and the deliveries up to the end of each phase."""

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
        """Return the rows of some kinds, with names of events and subscriptions that are the same in both
        environments."""
        return [
            {
                **row,
                "event": None if row["event"] is None else self._events[row["event"]],
                "subscription": None if row["subscription"] is None else self._subscriptions[row["subscription"]],
            }
            for row in self.rows
            if row["kind"] in kinds
        ]


def simulate_story(story: Story, subject: Subject) -> StoryResult:
    """Run a story in the simulator."""
    edges = {edge: None for phase in story.phases for edge in phase.link}
    net = make_net(edges, subject)
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
        after.append(
            {(number(event), node) for node in range(len(story.filters)) for event in net.list_delivered(node)}
        )
    net.stop()
    return StoryResult(after, [net.simulation.trace])


async def run_live(story: Story, subject: Subject, config: MakeConfig, expected: Sequence[set[Pair]]) -> StoryResult:
    """Run a story on loopback. A phase ends when exactly the expected events are delivered."""
    delivered: list[Pair] = []
    after: list[set[Pair]] = []

    def inbox(subscription: SubscriptionId, event: Event, hops: int) -> None:
        delivered.append((number(event), subscription.subscriber))

    configs = [make_config(config, id, subject) for id in range(len(story.filters))]
    async with LoopbackNetwork(configs) as network:
        traces = [node.trace for node in network.nodes.values()]
        for id, filter in enumerate(story.filters):
            network.nodes[id].subscribe(filter, inbox)
        for phase, wanted in zip(story.phases, expected, strict=True):
            for a, b in phase.cut:
                network.cut(a, b)
            for a, b in phase.link:
                network.link(a, b)
            await wait_until_settled(network, REPORT_S.get(str(subject["name"]), 0.0))
            for id, attributes in phase.publish:
                network.nodes[id].publish(attributes)
            with suppress(WorkError):
                await until(lambda wanted=wanted: set(delivered) >= wanted, 10.0)  # type: ignore[misc]  # bound at once
            assert set(delivered) == wanted, (set(delivered) - wanted, wanted - set(delivered))
            after.append(set(delivered))
    # After the stop: no further deliveries, and no duplicates.
    assert sorted(delivered) == sorted(expected[-1])
    return StoryResult(after, traces)


async def wait_until_settled(network: LoopbackNetwork, quiet_s: float) -> None:
    """Wait until every node has known exactly its links for this long: a blocked event loop loses links, and events
    that are published before the links are found again do not arrive."""
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
    """Return the number of an event, which is the same in both environments."""
    value = event.attributes["n"]
    assert isinstance(value, int)
    return value
