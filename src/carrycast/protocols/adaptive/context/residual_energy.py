"""Residual energy."""

from carrycast.core.protocol import Capability
from carrycast.protocols.adaptive.context.attribute import HostAttribute, Surroundings


class ResidualEnergy(HostAttribute):
    """[004 §3] What is left of the battery: a carrier must stay alive long enough to meet others."""

    name = "residual_energy"
    summary = "the share of the battery that is left"
    needs = frozenset({Capability.ENERGY})

    def observe(self, around: Surroundings) -> float | None:
        return min(1.0, max(0.0, around.host.energy(around.now)))
