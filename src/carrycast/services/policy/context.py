"""The context of a node: the attributes that policy conditions refer to, and its clock."""

from collections.abc import Mapping

from carrycast.core.model import Scalar, WallTime
from carrycast.core.protocol import Capability, Host


def read_attributes(host: Host, now: float, given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Read the attributes that the host can measure. Given attributes of the same name take precedence."""
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


def read_wall_time(host: Host, now: float) -> WallTime | None:
    """Read the date and time of day; None if the node has no calendar."""
    return host.calendar(now) if Capability.CALENDAR in host.offers else None


def merge_context(attributes: Mapping[str, Scalar], before: Mapping[str, Scalar], most: int) -> dict[str, Scalar]:
    """Merge the attributes of a context event into the known ones, except those of policy management. The event is
    ignored if the result would have more than `most` attributes."""
    reported = {name: value for name, value in attributes.items() if not name.startswith("policy.")}
    merged = {**before, **reported}
    return merged if len(merged) <= most else dict(before)
