"""How the processor of a subscription begins: with a text, or with parameters, which may be drawn."""

import math
from collections.abc import Collection, Mapping
from random import Random

import msgspec

from carrycast.core.model.subscription import MAX_STATE_BYTES
from carrycast.errors import UserError
from carrycast.sim.scenario.draws import Draw, Drawable


def check_beginning(
    processor: str | None, state: str, parameters: Mapping[str, Drawable], processors: Collection[str], where: str
) -> None:
    """Refuse, at loading, a processor that nobody has, or one that could not begin."""
    if processor is None:
        if state or parameters:
            raise UserError(f"{where}: state and parameters are for a processor; name it, or leave them out")
        return
    if processor not in processors:
        there = ", ".join(processors) or "none"
        raise UserError(f"{where}.processor: there is no processor {processor!r}; [[processors]] has {there}")
    if state and parameters:
        raise UserError(f"{where}: state and parameters both say how the processor begins; give one of them")
    if len(state.encode()) > MAX_STATE_BYTES:
        raise UserError(f"{where}.state: is longer than {MAX_STATE_BYTES} bytes")
    for name, written in parameters.items():
        _check_parameter(written, f"{where}.parameters.{name}")


def first_state(state: str, parameters: Mapping[str, Drawable], rng: Random) -> bytes:
    """What the processor of one subscription begins with."""
    if not parameters:
        return state.encode()
    drawn = {name: Draw(written, "").value(rng) for name, written in parameters.items()}
    return msgspec.json.encode(drawn)


def _check_parameter(written: Drawable, where: str) -> None:
    Draw(written, where)
    values = written.get("choice") if isinstance(written, Mapping) else [written]
    for value in values if isinstance(values, list) else ():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{where}: JSON has no infinite numbers; give a finite one")
