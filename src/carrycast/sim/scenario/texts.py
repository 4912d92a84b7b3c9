"""Filters of a scenario: drawn values go where their names stand in braces."""

import math
import re
from collections.abc import Mapping
from random import Random

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import Scalar
from carrycast.errors import UserError
from carrycast.sim.scenario.draws import Draw, Drawable, check_drawn_attributes


def filled(template: str, values: Mapping[str, Scalar], where: str) -> str:
    """The text with each `{name}` replaced by its value, as a literal of the filter language."""

    def literal(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise UserError(f"{where}: {{{match[1]}}} is not among the drawn values ({', '.join(values) or 'none'})")
        value = values[match[1]]
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return repr(value)

    return re.sub(r"\{(\w+)\}", literal, template)


def variety(template: str, draws: Mapping[str, Drawable]) -> float:
    """How many different texts a template makes of what is drawn."""
    named = names_in(template)
    return math.prod(Draw(written, "").count() for name, written in draws.items() if name in named)


def names_in(template: str) -> set[str]:
    """The drawn values that a template names."""
    return {match[1] for match in re.finditer(r"\{(\w+)\}", template)}


def example(draws: Mapping[str, Drawable], where: str) -> dict[str, Scalar]:
    """Some value of each draw; a UserError says which is none."""
    return {name: Draw(written, f"{where}.{name}").value(Random(0)) for name, written in draws.items()}


def check_template(template: str, draws: Mapping[str, Drawable], where: str) -> None:
    """Refuse, at loading, a filter that some of its drawn values make one that cannot be read."""
    named = {match[1] for match in re.finditer(r"\{(\w+)\}", template)}
    check_drawn_attributes({name: written for name, written in draws.items() if name in named}, f"{where}.draw")
    values = example(draws, f"{where}.draw")
    check_filter(filled(template, values, f"{where}.filter"), f"{where}.filter")
    for name, written in draws.items():
        for value in Draw(written, "").extremes() if name in named else ():
            check_filter(filled(template, {**values, name: value}, ""), f"{where}.filter")


def check_filter(text: str, where: str) -> None:
    """Refuse, at loading, a filter that cannot be read."""
    try:
        Filter(text)
    except FilterError as error:
        raise UserError(f"{where}: {error}") from None
