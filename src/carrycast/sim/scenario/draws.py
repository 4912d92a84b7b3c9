"""Random values of a workload (attributes, parameters of filters) and random selections of nodes."""

import math
import re
from collections.abc import Collection, Mapping
from random import Random
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.core.matching import Filter, FilterError
from carrycast.core.model import MAX_ATTRIBUTES, Scalar, check_attributes
from carrycast.errors import UserError


class DrawnInteger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole number from low to high, both included."""

    integers: tuple[int, int]

    def __post_init__(self) -> None:
        if self.integers[0] > self.integers[1]:
            raise ValueError("integers = [low, high] with low <= high")


class DrawnUniform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number between low and high."""

    uniform: tuple[float, float]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.uniform[0]) and self.uniform[0] <= self.uniform[1] < math.inf):
            raise ValueError("uniform = [low, high] with low <= high")
        if not math.isfinite(self.uniform[1] - self.uniform[0]):
            raise ValueError("uniform = [low, high] with a finite distance between them")


class DrawnChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the given values."""

    choice: Annotated[list[Scalar], Meta(min_length=1)]


Drawable: TypeAlias = Scalar | dict[str, object]
"""In a scenario: a plain value, or a table with one of `integers`, `uniform`, `choice`."""

_KINDS: dict[str, type[DrawnInteger | DrawnUniform | DrawnChoice]] = {
    "integers": DrawnInteger,
    "uniform": DrawnUniform,
    "choice": DrawnChoice,
}


class Draw:
    """A value that may differ from draw to draw."""

    __slots__ = ("_rule",)

    def __init__(self, written: Drawable, where: str) -> None:
        self._rule: Scalar | DrawnInteger | DrawnUniform | DrawnChoice
        if not isinstance(written, dict):
            self._rule = written
            return
        if len(written) != 1 or next(iter(written)) not in _KINDS:
            raise UserError(f"{where}: a drawn value is a table with exactly one of {', '.join(_KINDS)}")
        try:
            self._rule = msgspec.convert(written, _KINDS[next(iter(written))])
        except msgspec.ValidationError as error:
            raise UserError(f"{where}: {error}") from None

    def extremes(self) -> list[Scalar]:
        """The values to check for validity: both ends of a range, or each choice. If they are valid, all are."""
        rule = self._rule
        if isinstance(rule, DrawnInteger):
            return list(rule.integers)
        if isinstance(rule, DrawnUniform):
            return list(rule.uniform)
        return rule.choice if isinstance(rule, DrawnChoice) else [rule]

    def count(self) -> float:
        """The number of different values."""
        rule = self._rule
        if isinstance(rule, DrawnInteger):
            return rule.integers[1] - rule.integers[0] + 1
        if isinstance(rule, DrawnUniform):
            return 1 if rule.uniform[0] == rule.uniform[1] else math.inf
        return len({(type(one), one) for one in rule.choice}) if isinstance(rule, DrawnChoice) else 1

    def value(self, rng: Random) -> Scalar:
        """Draw a value."""
        rule = self._rule
        if isinstance(rule, DrawnInteger):
            return rng.randint(*rule.integers)
        if isinstance(rule, DrawnUniform):
            return rng.uniform(*rule.uniform)
        if isinstance(rule, DrawnChoice):
            return rule.choice[rng.randrange(len(rule.choice))]
        return rule


def check_drawn_attributes(attributes: Mapping[str, Drawable], where: str) -> None:
    """Reject attributes for which a draw could give a value that events and subscriptions cannot have."""
    for name, written in attributes.items():
        for value in Draw(written, f"{where}.{name}").extremes():
            try:
                check_attributes({name: value})
            except ValueError as error:
                raise UserError(f"{where}: {error}") from None
    if len(attributes) > MAX_ATTRIBUTES:
        raise UserError(f"{where}: at most {MAX_ATTRIBUTES} attributes, not {len(attributes)}")


Selection: TypeAlias = str | int | list[int]
"""In a scenario: "all", a role's name, a share such as "50%", a number of nodes, or a list of node ids."""


def check_selection(selection: Selection, nodes: int, roles: Collection[str], where: str) -> None:
    """Reject a selection of nodes or roles that do not exist."""
    if isinstance(selection, list):
        for node in selection:
            if not 0 <= node < nodes:
                raise UserError(f"{where}: there is no node {node}; nodes are 0 to {nodes - 1}")
    elif isinstance(selection, int):
        if not 0 <= selection <= nodes:
            raise UserError(f"{where}: a number of nodes from 0 to {nodes}, not {selection}")
    elif selection != "all" and selection not in roles and _parse_share(selection) is None:
        names = ", ".join(["all", *sorted(roles)])
        raise UserError(f"{where}: {selection!r} is none of {names}, nor a share such as '50%'")


def select_nodes(selection: Selection, nodes: int, rng: Random) -> list[int]:
    """Return the selected nodes, sorted. For a number or a share, nodes are drawn at random."""
    if isinstance(selection, list):
        return sorted(set(selection))
    if selection == "all":
        return list(range(nodes))
    return sorted(rng.sample(range(nodes), selection_size(selection, nodes)))


def selection_size(selection: str | int, nodes: int) -> int:
    """The number of nodes that a number, a share or "all" selects out of `nodes`."""
    if isinstance(selection, int):
        return selection
    share = 1.0 if selection == "all" else _parse_share(selection)
    assert share is not None
    return round(share * nodes)


def resolve_selection(selection: Selection, roles: dict[str, list[int]], nodes: int, rng: Random) -> list[int]:
    """Return the nodes of a role if the selection names one, else the selected nodes."""
    if isinstance(selection, str) and selection in roles:
        return roles[selection]
    return select_nodes(selection, nodes, rng)


def _parse_share(text: str) -> float | None:
    if not text.endswith("%"):
        return None
    try:
        share = float(text[:-1]) / 100
    except ValueError:
        return None
    return share if 0 <= share <= 1 else None


def fill_template(template: str, values: Mapping[str, Scalar], where: str) -> str:
    """Replace each `{name}` in the template by its value, as a literal of the filter language."""

    def write_literal(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise UserError(f"{where}: {{{match[1]}}} is not among the drawn values ({', '.join(values) or 'none'})")
        value = values[match[1]]
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return repr(value)

    return re.sub(r"\{(\w+)\}", write_literal, template)


def count_filters(template: str, draws: Mapping[str, Drawable]) -> float:
    """Count the different filters that a template can produce from its draws."""
    named = placeholder_names(template)
    return math.prod(Draw(written, "").count() for name, written in draws.items() if name in named)


def placeholder_names(template: str) -> set[str]:
    """The names in braces in a template."""
    return {match[1] for match in re.finditer(r"\{(\w+)\}", template)}


def example_values(draws: Mapping[str, Drawable], where: str) -> dict[str, Scalar]:
    """Return one possible value of each draw. A UserError names a draw that is invalid."""
    return {name: Draw(written, f"{where}.{name}").value(Random(0)) for name, written in draws.items()}


def check_template(template: str, draws: Mapping[str, Drawable], where: str) -> None:
    """Reject a filter template that becomes invalid with some of its drawn values."""
    named = {match[1] for match in re.finditer(r"\{(\w+)\}", template)}
    check_drawn_attributes({name: written for name, written in draws.items() if name in named}, f"{where}.draw")
    values = example_values(draws, f"{where}.draw")
    check_filter(fill_template(template, values, f"{where}.filter"), f"{where}.filter")
    for name, written in draws.items():
        for value in Draw(written, "").extremes() if name in named else ():
            check_filter(fill_template(template, {**values, name: value}, ""), f"{where}.filter")


def check_filter(text: str, where: str) -> None:
    """Reject a filter that does not parse."""
    try:
        Filter(text)
    except FilterError as error:
        raise UserError(f"{where}: {error}") from None
