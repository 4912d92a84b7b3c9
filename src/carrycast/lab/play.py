"""Plays a scenario to live nodes in real time: link changes, movement, subscriptions, publications, requests.

What live nodes cannot play is refused before anything starts (`check_playable`).
"""

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
from carrycast.errors import UserError
from carrycast.lab.configs import LabNodes, link_delays
from carrycast.lab.links import LinkChange, compute_link_changes
from carrycast.lab.loopback.network import LoopbackNetwork
from carrycast.lab.metrics import collect_tables, compute_metrics
from carrycast.node import LiveNode
from carrycast.sim.mobility import Trajectories
from carrycast.sim.radio import DiskRadio
from carrycast.sim.scenario import (
    CutOff,
    LinkCut,
    LinkCuts,
    OracleDiscovery,
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

PLAYED_FAULTS = (LinkCut, LinkCuts, CutOff)
"""The faults that are played to live nodes."""


def check_playable(scenario: Scenario) -> None:
    """Raise a UserError that names the first setting of a scenario that live nodes cannot play."""
    for key, why in _find_refused_settings(scenario):
        raise UserError(f"{scenario.name}: {key}: {why}")


def _find_refused_settings(scenario: Scenario) -> Iterator[tuple[str, str]]:
    radio = scenario.radio_model()
    if not isinstance(radio, DiskRadio):
        yield "radio.model", "links between live nodes are ideal and carry no collisions; say disk, or simulate it"
    elif not scenario.has_no_radio:
        yield from _find_radio_limits("radio", radio)
    for place, wire in enumerate(scenario.wires):
        yield from _find_radio_limits(f"wires.{place}", wire.radio())
    if isinstance(scenario.discovery, OracleDiscovery):
        yield "discovery.mode", "nobody tells live nodes of their links; say beacon, or none if the router finds them"
    for place, fault in enumerate(scenario.faults):
        if not isinstance(fault, PLAYED_FAULTS):
            kind = fault.__struct_config__.tag
            yield f"faults.{place}", f"{kind} is not played to live nodes; link_cut, link_cuts and cut_off are"
    for place, request in enumerate(scenario.request):
        if request.attributes:
            yield f"request.{place}.attributes", "a live node asks without attributes; leave them out"
    absent = {
        "applications": (bool(scenario.applications), "are not played to live nodes; leave them out"),
        "command": (bool(scenario.command), "is not played to live nodes; leave it out"),
        "service": (scenario.service is not None, "a live node takes the time that it takes; leave it out"),
        "energy": (scenario.energy is not None, "a live node does not know its energy; leave it out"),
        "computer.memory_bytes": (
            scenario.computer.memory_bytes is not None,
            "live nodes have the memory of the machine; leave it out",
        ),
    }
    for key, (given, why) in absent.items():
        if given:
            yield key, why


def _find_radio_limits(where: str, radio: DiskRadio) -> Iterator[tuple[str, str]]:
    if radio.rate_bps is not None:
        yield f"{where}.rate_bps", "links between live nodes have a delay and no rate; leave it out"
    if radio.loss > 0:
        yield f"{where}.loss", "links between live nodes lose nothing while they are up; leave it out"


PROGRESS_INTERVAL_S = 5.0
"""The time between two reports of progress."""
POSITION_INTERVAL_S = 0.2
"""The time between two updates of the nodes' positions: 4 m at 20 m/s, far less than any radio's range."""

Action: TypeAlias = Callable[[], object]
ReportProgress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Emulation:
    """The result of an emulated run."""

    scenario: str
    protocol: str
    seed: int
    duration_s: float
    metrics: Metrics
    late_s: float
    """The greatest delay of an action behind its schedule. On a machine that is too slow it is large."""
    delivered: frozenset[tuple[str, NodeId]]
    """The events that were delivered, each with the node."""
    traces: tuple[Trace, ...]

    def summary(self) -> dict[str, object]:
        """The object that `carrycast emulate --json` prints."""
        names = ("scenario", "protocol", "seed", "duration_s", "late_s", "metrics")
        return {name: getattr(self, name) for name in names}


def emulate(scenario: Scenario, seed: int, report: ReportProgress) -> Emulation:
    """Run a scenario in real time. A UserError names what live nodes cannot do."""
    check_playable(scenario)
    with tempfile.TemporaryDirectory(prefix="carrycast-lab-") as folder:
        return asyncio.run(_Lab(scenario, seed, Path(folder), report).run())


class _Lab:
    """One emulated run."""

    def __init__(self, scenario: Scenario, seed: int, folder: Path, report: ReportProgress) -> None:
        self._scenario = scenario
        self._seed = seed
        self._report = report
        nodes, duration_s = scenario.nodes, scenario.duration_s
        plan, self._trajectories = compute_movement(scenario, seed)
        self._roles = draw_roles(scenario.roles, nodes, seed, scenario.name)
        faults = draw_faults(scenario.faults, self._roles, nodes, duration_s, seed)
        self._changes = compute_link_changes(scenario, plan, faults, seed)
        self._configs = LabNodes(scenario, seed, self._roles, self._trajectories, folder).make_configs()
        self._published = 0
        self._delivered: list[tuple[str, NodeId]] = []
        self._ids: dict[SubscriptionId, SubscriptionId] = {}
        self._late_s = 0.0

    async def run(self) -> Emulation:
        """Start the nodes, play the scenario, stop the nodes, and compute the metrics."""
        scenario = self._scenario
        network = LoopbackNetwork(self._configs, link_delays(scenario))
        for change in self._changes:
            if change.time_s == 0:
                _apply_link_change(network, change)
        self._report(f"{scenario.nodes} nodes start")
        async with network:
            _remove_unlinked_peers(network, self._changes)
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
            compute_metrics(scenario, self._roles, tables),
            round(self._late_s, 6),
            frozenset(self._delivered),
            traces,
        )

    async def _play(self, schedule: list[tuple[float, Action]]) -> None:
        """Carry out each action at its time from the start of the run, so that delays do not accumulate."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        for time_s, action in [*schedule, (self._scenario.duration_s, lambda: None)]:
            early_s = begun_s + time_s - loop.time()
            if early_s > 0:
                await asyncio.sleep(early_s)
            self._late_s = max(self._late_s, loop.time() - begun_s - time_s)
            action()

    def _actions(self, network: LoopbackNetwork) -> Iterator[tuple[float, Action]]:
        """All actions on nodes with their times; actions due at the same time are in the simulator's order."""
        scenario, seed, nodes = self._scenario, self._seed, network.nodes
        for change in self._changes:
            if change.time_s > 0:
                yield change.time_s, partial(_apply_link_change, network, change)
        yield from self._position_updates(nodes)
        workload = draw_workload(
            scenario.subscribe,
            scenario.resolve_files().publish,
            self._roles,
            scenario.nodes,
            scenario.duration_s,
            seed,
            scenario.flow,
        )
        for subscribe in workload.subscribes:
            node = nodes[subscribe.subscription.id.subscriber]
            yield subscribe.time_s, partial(self._subscribe, node, subscribe)
            if subscribe.until_s is not None:
                yield subscribe.until_s, partial(self._unsubscribe, node, subscribe)
        for advertise in draw_advertisements(scenario.advertise, self._roles, scenario.nodes, seed):
            yield from _advertisement_actions(nodes[advertise.advertisement.id.advertiser], advertise)
        for publish in workload.publishes:
            yield publish.time_s, partial(self._publish, nodes[publish.event.id.source], publish)
        for ask in draw_requests(scenario.request, self._roles, scenario.nodes, scenario.duration_s, seed):
            yield ask.time_s, partial(_send_request, nodes[ask.request.id.requester], ask)
        for step in range(1, int(scenario.duration_s / PROGRESS_INTERVAL_S) + 1):
            yield step * PROGRESS_INTERVAL_S, partial(self._report_progress, step * PROGRESS_INTERVAL_S)

    def _position_updates(self, nodes: dict[NodeId, LiveNode]) -> Iterator[tuple[float, Action]]:
        if self._trajectories is not None and _needs_positions(self._configs[0].plan):
            for step in range(int(self._scenario.duration_s / POSITION_INTERVAL_S) + 1):
                yield (
                    step * POSITION_INTERVAL_S,
                    partial(_set_positions, nodes, self._trajectories, step * POSITION_INTERVAL_S),
                )

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

    def _report_progress(self, time_s: float) -> None:
        self._report(
            f"{time_s:g} of {self._scenario.duration_s:g} s: {self._published} published, "
            f"{len(self._delivered)} delivered"
        )


def _apply_link_change(network: LoopbackNetwork, change: LinkChange) -> None:
    (network.link if change.up else network.cut)(change.a, change.b, change.interface)
    _set_peers(network, change.a, change.b, change.interface, change.up)


def _remove_unlinked_peers(network: LoopbackNetwork, changes: list[LinkChange]) -> None:
    """Remove peers that are not linked at the start: datagrams to them would be discarded, at the same cost."""
    linked = {(change.a, change.b, change.interface) for change in changes if change.time_s == 0 and change.up}
    for a, b in combinations(network.nodes, 2):
        for interface in network.nodes[a].addresses:
            if (a, b, interface) not in linked:
                _set_peers(network, a, b, interface, False)


def _set_peers(network: LoopbackNetwork, a: NodeId, b: NodeId, interface: Interface, up: bool) -> None:
    """Add two running nodes to each other's peers, which get their broadcasts, or remove them."""
    for one, other in ((a, b), (b, a)):
        address = network.nodes[other].addresses.get(interface) if other in network.nodes else None
        if address is not None and interface in network.nodes[one].addresses:
            node = network.nodes[one]
            (node.add_peer if up else node.remove_peer)(address, interface)


def _needs_positions(plan: StackPlan) -> bool:
    needs = plan.protocol.needs | plan.settings.needs()
    if plan.router is not None and plan.router_settings is not None:
        needs |= plan.router.needs | plan.router_settings.needs()
    return bool(needs & {Capability.POSITION, Capability.VELOCITY})


def _set_positions(nodes: dict[NodeId, LiveNode], trajectories: Trajectories, time_s: float) -> None:
    for id, node in nodes.items():
        where, velocity = trajectories.position(id, time_s), trajectories.velocity(id, time_s)
        if where is None or velocity is None:
            node.move(None)
        else:
            node.move(Position(*where), Velocity(*velocity))


def _advertisement_actions(node: LiveNode, advertise: TimedAdvertisement) -> Iterator[tuple[float, Action]]:
    """The start of an advertisement, and its end if it has one."""
    withdrawals: list[Action] = []
    one = advertise.advertisement
    yield advertise.time_s, lambda: withdrawals.append(node.advertise(one.filter, one.stored))
    if advertise.until_s is not None:
        yield advertise.until_s, partial(_withdraw, withdrawals)


def _withdraw(withdrawals: list[Action]) -> None:
    withdrawals.pop()()


def _send_request(node: LiveNode, ask: TimedRequest) -> None:
    node.request(ask.request.filter, ask.request.patience_s, lambda event, hops: None, lambda complete: None)
