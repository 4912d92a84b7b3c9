"""Plays a scenario to live nodes: links, subscriptions, publications and requests at their times, in real time."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TypeAlias

from carrycast.core.model import Event, NodeId, Position, SubscriptionId, Velocity
from carrycast.core.protocol import Capability, Interface, StackPlan
from carrycast.lab.configs import LabNodes, link_delays
from carrycast.lab.links import LinkChange, link_changes
from carrycast.lab.loopback.network import LoopbackNetwork
from carrycast.lab.metrics import collect_tables, emulation_metrics
from carrycast.lab.refusals import check_playable
from carrycast.node import LiveNode
from carrycast.sim.mobility import Trajectories
from carrycast.sim.scenario import (
    Scenario,
    TimedAdvertisement,
    TimedPublication,
    TimedRequest,
    TimedSubscription,
    compute_movement,
    draw_advertisements,
    draw_faults,
    draw_requests,
    draw_roles,
    draw_workload,
)
from carrycast.trace import Metrics, Trace

TELL_S = 5.0
"""Between two words of progress."""
MOVE_S = 0.2
"""Between two times at which nodes are told where they are: 4 m at 20 m/s, less than any radio's range by far."""

Act: TypeAlias = Callable[[], object]
Tell: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Emulation:
    """What came out."""

    scenario: str
    protocol: str
    seed: int
    duration_s: float
    metrics: Metrics
    late_s: float
    """By how much the worst deed came too late: a machine that is too slow shows here."""
    delivered: frozenset[tuple[str, NodeId]]
    """Which events were handed to applications of which nodes."""
    traces: tuple[Trace, ...]

    def summary(self) -> dict[str, object]:
        """As `carrycast emulate --json` prints it."""
        names = ("scenario", "protocol", "seed", "duration_s", "late_s", "metrics")
        return {name: getattr(self, name) for name in names}


def emulate(scenario: Scenario, seed: int, tell: Tell) -> Emulation:
    """Run it, which takes as long as the scenario says. A UserError says what live nodes cannot do."""
    check_playable(scenario)
    with tempfile.TemporaryDirectory(prefix="carrycast-lab-") as folder:
        return asyncio.run(_Lab(scenario, seed, Path(folder), tell).run())


class _Lab:
    """One run."""

    def __init__(self, scenario: Scenario, seed: int, folder: Path, tell: Tell) -> None:
        self._scenario = scenario
        self._seed = seed
        self._tell = tell
        nodes, duration_s = scenario.nodes, scenario.duration_s
        plan, self._trajectories = compute_movement(scenario, seed)
        self._roles = draw_roles(scenario.roles, nodes, seed, scenario.name)
        faults = draw_faults(scenario.faults, self._roles, nodes, duration_s, seed)
        self._changes = link_changes(scenario, plan, faults, seed)
        self._configs = LabNodes(scenario, seed, self._roles, self._trajectories, folder).configs()
        self._published = 0
        self._delivered: list[tuple[str, NodeId]] = []
        self._ids: dict[SubscriptionId, SubscriptionId] = {}
        self._late_s = 0.0

    async def run(self) -> Emulation:
        """From the first start to the last stop."""
        scenario = self._scenario
        network = LoopbackNetwork(self._configs, link_delays(scenario))
        for change in self._changes:
            if change.time_s == 0:
                _change(network, change)
        self._tell(f"{scenario.nodes} nodes start")
        async with network:
            _silence(network, self._changes)
            traces = tuple(node.trace for node in network.nodes.values())
            due = (action for action in self._actions(network) if action[0] <= scenario.duration_s)
            schedule = sorted(due, key=lambda action: action[0])
            zero_s = time.time()
            await self._play(schedule)
        tables = collect_tables(traces, zero_s, scenario.duration_s)
        return Emulation(
            scenario.name,
            self._configs[0].plan.protocol.name,
            self._seed,
            scenario.duration_s,
            emulation_metrics(scenario, self._roles, tables),
            round(self._late_s, 6),
            frozenset(self._delivered),
            traces,
        )

    async def _play(self, schedule: list[tuple[float, Act]]) -> None:
        """Each deed at its time, by the clock of the run: being late does not add up."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        for time_s, act in [*schedule, (self._scenario.duration_s, lambda: None)]:
            early_s = begun_s + time_s - loop.time()
            if early_s > 0:
                await asyncio.sleep(early_s)
            self._late_s = max(self._late_s, loop.time() - begun_s - time_s)
            act()

    def _actions(self, network: LoopbackNetwork) -> Iterator[tuple[float, Act]]:
        """All actions on nodes with their times; actions due at the same time are in the simulator's order."""
        scenario, seed, nodes = self._scenario, self._seed, network.nodes
        for change in self._changes:
            if change.time_s > 0:
                yield change.time_s, partial(_change, network, change)
        yield from self._moves(nodes)
        played = draw_workload(
            scenario.subscribe, scenario.resolved().publish, self._roles, scenario.nodes, scenario.duration_s, seed
        )
        for subscribe in played.subscribes:
            node = nodes[subscribe.subscription.id.subscriber]
            yield subscribe.time_s, partial(self._subscribe, node, subscribe)
            if subscribe.until_s is not None:
                yield subscribe.until_s, partial(self._unsubscribe, node, subscribe)
        for advertise in draw_advertisements(scenario.advertise, self._roles, scenario.nodes, seed):
            yield from _advertised(nodes[advertise.advertisement.id.advertiser], advertise)
        for publish in played.publishes:
            yield publish.time_s, partial(self._publish, nodes[publish.event.id.source], publish)
        for ask in draw_requests(scenario.request, self._roles, scenario.nodes, scenario.duration_s, seed):
            yield ask.time_s, partial(_ask, nodes[ask.request.id.requester], ask)
        for step in range(1, int(scenario.duration_s / TELL_S) + 1):
            yield step * TELL_S, partial(self._say, step * TELL_S)

    def _moves(self, nodes: dict[NodeId, LiveNode]) -> Iterator[tuple[float, Act]]:
        if self._trajectories is not None and _wants_positions(self._configs[0].plan):
            for step in range(int(self._scenario.duration_s / MOVE_S) + 1):
                yield step * MOVE_S, partial(_move, nodes, self._trajectories, step * MOVE_S)

    def _subscribe(self, node: LiveNode, subscribe: TimedSubscription) -> None:
        one = subscribe.subscription
        self._ids[one.id] = node.subscribe(
            one.filter,
            self._deliver,
            attributes=one.attributes,
            processor=one.processor,
            state=one.state,
            history=one.history,
        )

    def _unsubscribe(self, node: LiveNode, subscribe: TimedSubscription) -> None:
        node.unsubscribe(self._ids.pop(subscribe.subscription.id))

    def _publish(self, node: LiveNode, publish: TimedPublication) -> None:
        event = publish.event
        access = None if event.access is None else event.access.condition
        node.publish(event.attributes, event.payload, event.lease_s, access)
        self._published += 1

    def _deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        self._delivered.append((str(event.id), subscription.subscriber))

    def _say(self, time_s: float) -> None:
        self._tell(
            f"{time_s:g} of {self._scenario.duration_s:g} s: {self._published} published, "
            f"{len(self._delivered)} delivered"
        )


def _change(network: LoopbackNetwork, change: LinkChange) -> None:
    (network.link if change.up else network.cut)(change.a, change.b, change.interface)
    _speak(network, change.a, change.b, change.interface, change.up)


def _silence(network: LoopbackNetwork, changes: list[LinkChange]) -> None:
    """Who is out of reach at the beginning is not spoken to: it would hear nothing, and cost as much as who does."""
    linked = {(change.a, change.b, change.interface) for change in changes if change.time_s == 0 and change.up}
    for a, b in combinations(network.nodes, 2):
        for interface in network.nodes[a].addresses:
            if (a, b, interface) not in linked:
                _speak(network, a, b, interface, False)


def _speak(network: LoopbackNetwork, a: NodeId, b: NodeId, interface: Interface, up: bool) -> None:
    """Broadcasts of two nodes that run go to each other, or no longer do."""
    for one, other in ((a, b), (b, a)):
        address = network.nodes[other].addresses.get(interface) if other in network.nodes else None
        if address is not None and interface in network.nodes[one].addresses:
            node = network.nodes[one]
            (node.add_peer if up else node.remove_peer)(address, interface)


def _wants_positions(plan: StackPlan) -> bool:
    needs = plan.protocol.needs | plan.settings.needs()
    if plan.router is not None and plan.router_settings is not None:
        needs |= plan.router.needs | plan.router_settings.needs()
    return bool(needs & {Capability.POSITION, Capability.VELOCITY})


def _move(nodes: dict[NodeId, LiveNode], trajectories: Trajectories, time_s: float) -> None:
    for id, node in nodes.items():
        where, velocity = trajectories.position(id, time_s), trajectories.velocity(id, time_s)
        if where is None or velocity is None:
            node.move(None)
        else:
            node.move(Position(*where), Velocity(*velocity))


def _advertised(node: LiveNode, advertise: TimedAdvertisement) -> Iterator[tuple[float, Act]]:
    """Its beginning, and its end if it has one."""
    forgets: list[Act] = []
    one = advertise.advertisement
    yield advertise.time_s, lambda: forgets.append(node.advertise(one.filter, one.stored))
    if advertise.until_s is not None:
        yield advertise.until_s, partial(_forget, forgets)


def _forget(forgets: list[Act]) -> None:
    forgets.pop()()


def _ask(node: LiveNode, ask: TimedRequest) -> None:
    node.request(ask.request.filter, ask.request.patience_s, lambda event, hops: None, lambda complete: None)
