"""Changes of settings at run time, and their reset to the configured values.

A setting is named by its path in a scenario or configuration: `discovery.period_s`, `protocol.buffer`. A state machine
lists the settings that can change at run time (`retunable`); others, and values out of bounds, are refused.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from carrycast.core.model import Scalar
from carrycast.core.protocol.machine import Settings, StateMachine
from carrycast.core.protocol.stack import StackPlan
from carrycast.core.wire import Layer

PLACES = {"discovery": Layer.DISCOVERY, "router": Layer.ROUTING, "protocol": Layer.DISSEMINATION}


class Tuner:
    """The current settings of a node's stack."""

    def __init__(
        self, plan: StackPlan, machine: Callable[[Layer], StateMachine | None], apply: Callable[[Layer, Settings], bool]
    ) -> None:
        """`apply` runs the machine's handler; False if it failed."""
        self._machine = machine
        self._apply = apply
        given = {Layer.DISCOVERY: plan.beacons, Layer.ROUTING: plan.router_settings, Layer.DISSEMINATION: plan.settings}
        self._configured: dict[Layer, Settings] = {layer: one for layer, one in given.items() if one is not None}
        self._now = dict(self._configured)

    def knows(self, name: str) -> bool:
        """Whether a name is the path of a setting, changeable or not."""
        return name.partition(".")[0] in PLACES

    def set(self, name: str, value: Scalar) -> str:
        """Change a setting; returns the error, or an empty text."""
        return self._change(name, lambda configured: value)

    def reset(self, name: str) -> str:
        """Restore the configured value; returns the error, or an empty text."""
        return self._change(name, lambda configured: configured)

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
        value = chosen(getattr(self._configured[layer], key))
        try:
            changed = msgspec.convert({**msgspec.to_builtins(settings), key: value}, type(settings))
        except msgspec.ValidationError as error:
            return f"refused: {name}: {str(error).partition(' - at')[0]}"
        if changed != settings:
            if not self._apply(layer, changed):
                return f"{machine.name} failed on {name}; the node's log has the reason"
            self._now[layer] = changed
        return ""
