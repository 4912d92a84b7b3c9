"""What publications of a scenario can hold, and which filters can select any of it: decided before a run.

Only what is certain is said. A value that is drawn from an interval may be any of the interval, a filter with very many
possible drawn values counts as one that may match, and so does a file with very many different events.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from carrycast.core.matching import Filter
from carrycast.core.matching.satisfiability import Satisfiability, check_satisfiability
from carrycast.core.matching.terms import (
    And,
    Between,
    Compare,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Matches,
    Node,
    Not,
    Operator,
    Or,
    ValueKind,
)
from carrycast.core.model import Scalar
from carrycast.sim.scenario.draws import Drawable
from carrycast.sim.scenario.event_files import read_events
from carrycast.sim.scenario.texts import filled, names_in
from carrycast.sim.scenario.workload import PublishEntry

MOST_FILTERS = 256
"""That a template makes of its draws and that are tried one by one: milliseconds each at worst."""
MOST_ROWS = 4096
"""Different events of a file that are tried one by one."""

KINDS = {ValueKind.BOOLEAN: "a truth value", ValueKind.NUMBER: "a number", ValueKind.STRING: "a string"}


class Content(NamedTuple):
    """Attributes that an event of a publication may have: for each name a condition that its value meets."""

    conditions: Mapping[str, Node]
    kinds: Mapping[str, frozenset[ValueKind]]

    @classmethod
    def of(cls, attributes: Mapping[str, Drawable]) -> "Content":
        """What attributes may be, as a scenario writes them."""
        conditions = {name: _condition(name, written) for name, written in attributes.items()}
        return cls(conditions, {name: compared_kinds(node)[name] for name, node in conditions.items()})

    def may_match(self, filter: Filter) -> bool:
        """Whether some such event may match."""
        absent = [IsNull(name, negated=False) for name in attributes_of(filter.node) if name not in self.conditions]
        return check_satisfiability([filter.node, *self.conditions.values(), *absent]).answer is not Satisfiability.NO


def contents_of(entry: PublishEntry, nodes: int) -> list[Content] | None:
    """What the events of a publication may hold; None if there are too many possibilities.

    Files are those of a resolved scenario.
    """
    if entry.file is None:
        return [Content.of(entry.attributes)]
    rows: dict[tuple[tuple[str, str, Scalar], ...], dict[str, Scalar]] = {}
    for event in read_events(Path(entry.file), nodes):
        key = tuple((name, type(one).__name__, one) for name, one in sorted(event.attributes.items()))
        rows[key] = event.attributes
        if len(rows) > MOST_ROWS:
            return None
    return [Content.of({**entry.attributes, **row}) for row in rows.values()]


def filters_of(template: str, draws: Mapping[str, Drawable]) -> list[Filter] | None:
    """Every filter that a template makes of its draws; None if they are too many to try."""
    values: list[Sequence[Scalar]] = []
    named = [name for name in draws if name in names_in(template)]
    total = 1
    for name in named:
        drawn = _all_values(draws[name])
        total *= MOST_FILTERS + 1 if drawn is None else len(drawn)
        if drawn is None or total > MOST_FILTERS:
            return None
        values.append(drawn)
    return [Filter(filled(template, dict(zip(named, chosen, strict=True)), "")) for chosen in product(*values)]


def compared_kinds(node: Node) -> dict[str, frozenset[ValueKind]]:
    """For each attribute that a filter compares with a constant, the kinds of these constants."""
    found: dict[str, frozenset[ValueKind]] = {}
    for leaf in _leaves(node):
        if isinstance(leaf, Compare):
            kinds = {leaf.literal.kind}
        elif isinstance(leaf, Between):
            kinds = {leaf.low.kind, leaf.high.kind}
        elif isinstance(leaf, In):
            kinds = {literal.kind for literal in leaf.literals}
        elif isinstance(leaf, Like | Matches):
            kinds = {ValueKind.STRING}
        else:
            continue
        found[leaf.attribute] = found.get(leaf.attribute, frozenset()) | kinds
    return found


def attributes_of(node: Node) -> set[str]:
    """The attributes that a filter names."""
    return {leaf.attribute for leaf in _leaves(node)}


def kind_of(value: Scalar) -> ValueKind:
    """What a value compares with."""
    if isinstance(value, bool):
        return ValueKind.BOOLEAN
    return ValueKind.STRING if isinstance(value, str) else ValueKind.NUMBER


def _leaves(node: Node) -> Iterator[Compare | Between | In | Like | Matches | IsNull]:
    if isinstance(node, And | Or):
        for operand in node.operands:
            yield from _leaves(operand)
    elif isinstance(node, Not):
        yield from _leaves(node.operand)
    elif not isinstance(node, Constant):
        yield node


def _condition(name: str, written: Drawable) -> Node:
    values = _all_values(written)
    if values is not None:
        equal = [Compare(name, Operator.EQ, Literal(kind_of(value), value)) for value in values]
        return equal[0] if len(equal) == 1 else Or(tuple(equal))
    assert isinstance(written, dict)
    low, high = _ends(written)
    return Between(name, Literal(ValueKind.NUMBER, low), Literal(ValueKind.NUMBER, high), negated=False)


def _all_values(written: Drawable) -> Sequence[Scalar] | None:
    """Every value of a draw; None if they are too many to be tried."""
    if not isinstance(written, dict):
        return [written]
    if isinstance(choice := written.get("choice"), list):
        return list({(type(one), one): one for one in choice}.values())
    low, high = _ends(written)
    if low == high:
        return [low]
    if "integers" in written and high - low < MOST_FILTERS:
        return range(int(low), int(high) + 1)
    return None


def _ends(written: Mapping[str, object]) -> tuple[float, float]:
    ((_, ends),) = written.items()
    assert isinstance(ends, list | tuple), "draws are checked before"
    return ends[0], ends[1]
