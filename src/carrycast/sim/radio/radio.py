"""Radio models: the settings in `[radio]` of a scenario, from which a run creates its medium."""

from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from carrycast.core.model import NodeId
from carrycast.core.plugins import find_plugin, plugin_names
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.radio.medium import Medium, MediumUpcalls, Places, Scheduler

RADIOS = {
    "csma": "carrycast.sim.radio.dot11:CsmaRadio",
    "disk": "carrycast.sim.radio.disk_settings:DiskRadio",
    "ieee802154": "carrycast.sim.radio.ieee802154:Ieee802154Radio",
    "lora": "carrycast.sim.radio.lora:LoraRadio",
    "serial": "carrycast.sim.radio.serial:SerialRadio",
    "wifi": "carrycast.sim.radio.wifi_settings:WifiRadio",
}
"""The built-in radio models."""

DEFAULT_RADIO = "disk"


class RadioContext(NamedTuple):
    """The parts of a run that a medium may use."""

    interface: str
    """The name of the interface of all its frames."""
    nodes: int
    duration_s: float
    scheduler: Scheduler
    air: MediumUpcalls
    rng: Random
    """The only source of randomness that a medium may use."""
    places: Places | None
    """None if contacts are replayed, because then nodes have no positions."""
    contacts_within: Callable[[float], ContactPlan]
    """Computes the contacts within a distance. The run itself uses the contacts within `range_m`."""
    positions: Callable[[float], NDArray[np.float64]] | None = None
    """The positions of all nodes at a time, one row each; NaN where a node is absent."""
    fastest_mps: float = 0.0
    """The speed of the fastest node."""
    roles: Mapping[str, list[NodeId]] = {}
    """The nodes of each role."""


class Radio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A radio model. A subclass's fields are its settings; it needs `name`, `summary`, a `range_m` and `medium`."""

    name: ClassVar[str] = ""
    """The name in `[radio] model = "name"`."""
    summary: ClassVar[str] = ""
    needs_positions: ClassVar[bool] = False
    """Whether it needs positions: then a scenario cannot replay contacts."""

    range_m: float
    """Two nodes are linked up to this distance."""

    def check(self, nodes: int, roles: Collection[str]) -> None:
        """Raise a UserError for settings that do not fit the nodes and roles of a scenario."""

    def check_files(self) -> None:
        """Read the files that the settings name. A UserError names what is wrong."""

    def medium(self, context: RadioContext) -> Medium:
        """Create the medium that carries all frames of a run."""
        raise NotImplementedError(f"{type(self).__name__} makes no medium")


def radio_named(name: str) -> type[Radio]:
    """Find a radio model by its name; a UserError lists the known ones."""
    return find_plugin("radios", name)


def radio_names() -> list[str]:
    """The names of all radio models."""
    return plugin_names("radios")
