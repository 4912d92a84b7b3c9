"""The context of a node: the attributes that policy conditions refer to, and its clock."""

from collections.abc import Mapping

from carrycast.core.model import Scalar, WallTime
from carrycast.core.protocol import Capability, Host


def observed_attributes(host: Host, now: float, given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """What the host can tell, under names of its own; what was given or told goes before it."""
    found: dict[str, Scalar] = {}
    if Capability.ENERGY in host.offers:
        found["battery"] = host.energy(now)
    if Capability.LOAD in host.offers:
        found["load"] = host.load(now)
    if Capability.POSITION in host.offers and (there := host.position(now)) is not None:
        found |= {"x_m": there.x_m, "y_m": there.y_m}
    if Capability.VELOCITY in host.offers and (moving := host.velocity(now)) is not None:
        found["speed_mps"] = (moving.x_mps**2 + moving.y_mps**2) ** 0.5
    return {**found, **given}


def wall_time(host: Host, now: float) -> WallTime | None:
    """The date and the time of day, if the node has a calendar."""
    return host.calendar(now) if Capability.CALENDAR in host.offers else None


def merge_context(attributes: Mapping[str, Scalar], before: Mapping[str, Scalar], most: int) -> dict[str, Scalar]:
    """What an event tells of a node, besides what was told before; bounded, names of policies' own left out."""
    told = {name: value for name, value in attributes.items() if not name.startswith("policy.")}
    merged = {**before, **told}
    return merged if len(merged) <= most else dict(before)
