"""Discovery by beacons in the core: a Python object for each node passes the calls of the node's stack."""

from functools import partial
from random import Random

from carrycast import _native
from carrycast.core.model import Failure, NodeId
from carrycast.core.protocol import (
    Beacon,
    BeaconDiscovery,
    BeaconSettings,
    DiscoveryUpcalls,
    Host,
    Interface,
    Port,
    StackPlan,
)


class NativeDiscovery(BeaconDiscovery):
    """The links of a node are in the core, which receives its beacons and runs its timers."""

    def __init__(
        self,
        core: _native.Core,
        node: NodeId,
        settings: BeaconSettings,
        port: Port,
        host: Host,
        rng: Random,
        neighborhood: DiscoveryUpcalls,
        interfaces: tuple[Interface, ...],
    ) -> None:
        super().__init__(node, settings, port, host, rng, neighborhood, interfaces)
        self._core = core

    def on_start(self, now: float) -> None:
        self._core.start_beacons(self.node, now, self.host.incarnation, self.rng, self._interfaces)

    def on_stop(self, now: float) -> None:
        self._core.stop_beacons(self.node)

    def on_neighbor_failed(self, now: float, neighbor: NodeId, interface: Interface, cause: Failure) -> None:
        self._core.fail_neighbor(self.node, neighbor, interface, cause)

    def knows(self, neighbor: NodeId, interface: Interface) -> bool:
        return self._core.knows_neighbor(self.node, neighbor, interface)


def install_discovery(core: _native.Core, stack: StackPlan) -> None:
    """Let the stacks of a run use the core's discovery."""
    settings = stack.beacons
    assert settings is not None
    core.set_beacons(settings.period_s, settings.missed, settings.jitter, settings.believed_s, Beacon)
    stack.make_discovery = partial(NativeDiscovery, core)
