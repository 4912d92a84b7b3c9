"""Radio models: the settings in `[radio]` of a scenario, and the medium that a run makes of them."""

from collections.abc import Callable, Iterable
from random import Random
from typing import ClassVar, NamedTuple, TypeAlias

import msgspec

from carrycast.core.model import NodeId
from carrycast.core.plugins import find_plugin, plugin_names
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.radio.medium import Medium, MediumUpcalls, Scheduler

RADIOS = {
    "csma": "carrycast.sim.radio.dot11:CsmaRadio",
    "disk": "carrycast.sim.radio.disk_settings:DiskRadio",
}
"""The built-in radio models."""

DEFAULT_RADIO = "disk"

Places: TypeAlias = Callable[[Iterable[NodeId]], list[tuple[float, float]]]
"""Where nodes are now, in meters."""


class RadioContext(NamedTuple):
    """What a medium is given of a run."""

    interface: str
    """The name of the interface that all its frames have."""
    nodes: int
    duration_s: float
    scheduler: Scheduler
    air: MediumUpcalls
    rng: Random
    """The only source of randomness that a medium may use."""
    places: Places | None
    """None where contacts are replayed, and nobody knows where nodes are."""
    contacts_within: Callable[[float], ContactPlan]
    """Which nodes come within a distance of each other when. The run itself follows the contacts within `range_m`."""


class Radio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A radio model. A subclass's fields are its settings; it needs `name`, `summary`, a `range_m` and `medium`."""

    name: ClassVar[str] = ""
    """As in `[radio] model = "name"`."""
    summary: ClassVar[str] = ""
    needs_positions: ClassVar[bool] = False
    """Whether it must know where nodes are: then a scenario cannot replay contacts."""

    range_m: float
    """Two nodes are linked up to this distance."""

    def medium(self, context: RadioContext) -> Medium:
        """The medium that carries all frames of a run."""
        raise NotImplementedError(f"{type(self).__name__} makes no medium")


def radio_named(name: str) -> type[Radio]:
    """A radio model; a UserError names those there are."""
    return find_plugin("radios", name)


def radio_names() -> list[str]:
    """Every radio model there is."""
    return plugin_names("radios")
