"""What the stacks of a run have in common."""

from carrycast.core.protocol.discovery import BeaconDiscovery, BeaconSettings
from carrycast.core.protocol.host import Capability
from carrycast.core.protocol.machine import Protocol, Router, Settings
from carrycast.core.wire import Codec, Layer


class StackPlan:
    """Which machines with which settings; the same for every node of a run."""

    def __init__(
        self,
        protocol: type[Protocol],
        settings: Settings,
        router: type[Router] | None = None,
        router_settings: Settings | None = None,
        beacons: BeaconSettings | None = None,
    ) -> None:
        self.protocol = protocol
        self.settings = settings
        self.router = router
        self.router_settings = router_settings
        self.beacons = beacons
        self.codecs: dict[Layer, Codec] = {
            Layer.DISSEMINATION: Codec(Layer.DISSEMINATION, protocol.name, protocol.messages)
        }
        self.overhears = False
        """Whether the router wants to hear what is meant for others."""
        if router is not None and router_settings is not None:
            self.overhears = Capability.OVERHEARING in router.needs | router_settings.needs()
        if router is not None:
            self.codecs[Layer.ROUTING] = Codec(Layer.ROUTING, router.name, router.messages)
        if beacons is not None:
            self.codecs[Layer.DISCOVERY] = Codec(Layer.DISCOVERY, BeaconDiscovery.name, BeaconDiscovery.messages)
