"""Settings that change while a node runs: which may, which are refused, and what they were to begin with.

A setting goes by the place it has in a scenario or a config: `discovery.period_s`, `protocol.buffer`. A machine names
those it can take up at any time (`retunable`); all others are refused, by name, and so is a value out of bounds.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from carrycast.core.model import Scalar
from carrycast.core.protocol.machine import Settings, StateMachine
from carrycast.core.protocol.plan import StackPlan
from carrycast.core.wire import Layer

PLACES = {"discovery": Layer.DISCOVERY, "router": Layer.ROUTING, "protocol": Layer.DISSEMINATION}


class Tuner:
    """The settings of one start of a node's stack, as they are now."""

    def __init__(
        self, plan: StackPlan, machine: Callable[[Layer], StateMachine | None], told: Callable[[Layer, Settings], bool]
    ) -> None:
        """`told` enters the machine's handler; False if it failed."""
        self._machine = machine
        self._told = told
        given = {Layer.DISCOVERY: plan.beacons, Layer.ROUTING: plan.router_settings, Layer.DISSEMINATION: plan.settings}
        self._begun: dict[Layer, Settings] = {layer: one for layer, one in given.items() if one is not None}
        self._now = dict(self._begun)

    def knows(self, name: str) -> bool:
        """Whether it is the place of a setting, changeable or not."""
        return name.partition(".")[0] in PLACES

    def set(self, name: str, value: Scalar) -> str:
        """Change one; what is wrong if that cannot be, else nothing."""
        return self._change(name, lambda begun: value)

    def reset(self, name: str) -> str:
        """As the configuration has it; what is wrong if that cannot be, else nothing."""
        return self._change(name, lambda begun: begun)

    def _change(self, name: str, chosen: Callable[[Any], Any]) -> str:
        place, _, key = name.partition(".")
        layer = PLACES.get(place)
        machine = None if layer is None else self._machine(layer)
        if layer is None or machine is None or layer not in self._now:
            return f"refused: this node has no {place} to tune"
        settings = self._now[layer]
        if key not in settings.__struct_fields__:
            return f"refused: {machine.name} has no setting {key}; it has {', '.join(settings.__struct_fields__)}"
        if key not in machine.retunable:
            may = ", ".join(sorted(machine.retunable)) or "none"
            return f"refused: {machine.name} cannot change {key} while it runs; what may change: {may}"
        value = chosen(getattr(self._begun[layer], key))
        try:
            changed = msgspec.convert({**msgspec.to_builtins(settings), key: value}, type(settings))
        except msgspec.ValidationError as error:
            return f"refused: {name}: {str(error).partition(' - at')[0]}"
        if changed != settings:
            if not self._told(layer, changed):
                return f"{machine.name} failed on {name}; the node's log has the reason"
            self._now[layer] = changed
        return ""
