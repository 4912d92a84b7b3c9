"""Warnings about workloads in which events have no receiver or subscriptions match no event."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from carrycast.core.matching import (
    And,
    Between,
    Compare,
    Constant,
    Filter,
    In,
    IsNull,
    Like,
    Literal,
    Matches,
    Node,
    Not,
    Operator,
    Or,
    Satisfiability,
    ValueKind,
    check_satisfiability,
)
from carrycast.core.model import Scalar
from carrycast.sim.scenario.draws import (
    Drawable,
    Selection,
    example_values,
    fill_template,
    placeholder_names,
    selection_size,
)
from carrycast.sim.scenario.event_files import read_events
from carrycast.sim.scenario.scenario import Scenario
from carrycast.sim.scenario.workload import PublishEntry

MOST_ALIKE = 3
"""Warnings of one kind that are listed; the others are only counted."""
MOST_TRIES = 20_000
"""The most pairs of a possible event and a possible filter to compare, some seconds at worst. Larger workloads get no
such warnings."""


MOST_FILTERS = 256
"""The most filters of one template to try one by one, milliseconds each at worst."""


MOST_ROWS = 4096
"""The most different events of a file to try one by one."""


KINDS = {ValueKind.BOOLEAN: "a truth value", ValueKind.NUMBER: "a number", ValueKind.STRING: "a string"}


class Content(NamedTuple):
    """The possible attributes of the events of a publication: for each name, a condition that its value meets."""

    conditions: Mapping[str, Node]
    kinds: Mapping[str, frozenset[ValueKind]]

    @classmethod
    def of(cls, attributes: Mapping[str, Drawable]) -> "Content":
        """Make the conditions from the attributes of a scenario entry."""
        conditions = {name: _make_condition(name, written) for name, written in attributes.items()}
        return cls(conditions, {name: compared_kinds(node)[name] for name, node in conditions.items()})

    def may_match(self, filter: Filter) -> bool:
        """Whether some event with these attributes may match a filter."""
        absent = [IsNull(name, negated=False) for name in find_attributes(filter.node) if name not in self.conditions]
        return check_satisfiability([filter.node, *self.conditions.values(), *absent]).answer is not Satisfiability.NO


def list_contents(entry: PublishEntry, nodes: int) -> list[Content] | None:
    """List the possible contents of the events of a publication; None if there are too many.

    The file name of the entry must be resolved (`Scenario.resolve_files`).
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


def list_filters(template: str, draws: Mapping[str, Drawable]) -> list[Filter] | None:
    """List every filter that a template makes of its draws; None if there are too many to try."""
    values: list[Sequence[Scalar]] = []
    named = [name for name in draws if name in placeholder_names(template)]
    total = 1
    for name in named:
        drawn = _list_values(draws[name])
        total *= MOST_FILTERS + 1 if drawn is None else len(drawn)
        if drawn is None or total > MOST_FILTERS:
            return None
        values.append(drawn)
    return [Filter(fill_template(template, dict(zip(named, chosen, strict=True)), "")) for chosen in product(*values)]


class _Consumer(NamedTuple):
    """A receiver of events: a subscription, a request, or a processor."""

    at: str
    filter: str
    draws: Mapping[str, Drawable]
    filters: Sequence[Filter] | None
    """All filters that the draws can produce; None if there are too many."""
    attributes: Mapping[str, Drawable] | None
    """The attributes that access policies check; None if no policy applies."""
    from_s: float
    to_s: float | None
    nodes: frozenset[int]
    """Two of its possible nodes, or the only one: more are not needed."""
    knows_producers: bool
    """Whether all events that it can receive come from `[[publish]]`."""


class _Producer(NamedTuple):
    """One `[[publish]]`."""

    at: str
    contents: Sequence[Content] | None
    """None if its events may have any content."""
    access: str | None
    from_s: float
    to_s: float
    nodes: frozenset[int]


_Pairs = Mapping[tuple[str, str], int | None]
"""For each publication and consumer, the reason why no event reaches the consumer; None if one may."""


def limit_warnings(alike: Sequence[str]) -> Iterator[str]:
    """Yield the first few warnings of one kind, and a line that counts the others."""
    yield from alike[:MOST_ALIKE]
    if len(alike) > MOST_ALIKE:
        yield f"{alike[0].split('[')[0]}: {len(alike) - MOST_ALIKE} more entries like {alike[0].split(':')[0]}"


def find_workload_warnings(scenario: Scenario, roles: Mapping[str, Sequence[int]] | None) -> Iterator[str]:
    """Find publications without a receiver and subscriptions without events. Reads event files; draws nothing."""

    def size_of(selection: Selection) -> int:
        """The number of nodes that a selection chooses."""
        if isinstance(selection, list):
            return len(selection)
        if isinstance(selection, str) and selection in scenario.roles:
            return scenario.nodes if roles is None else len(roles[selection])
        return selection_size(selection, scenario.nodes)

    def nodes_of(selection: Selection) -> frozenset[int]:
        """At most two of the nodes that a selection may choose: it only matters whether there is none, one or more."""
        if isinstance(selection, list):
            return frozenset(sorted(set(selection))[:2])
        if isinstance(selection, str) and roles is not None and selection in roles:
            return frozenset(roles[selection][:2])
        return frozenset(range(min(scenario.nodes, 2)) if size_of(selection) else ())

    yield from _warn_empty_selections(scenario, nodes_of)
    consumers = list(_list_consumers(scenario, nodes_of))
    producers = []
    for place, entry in enumerate(scenario.resolve_files().publish):
        yield from _warn_missing_events(scenario, entry, f"publish[{place}]", size_of(entry.nodes))
        producers.append(_make_producer(scenario, entry, f"publish[{place}]", nodes_of(entry.nodes)))
    if not producers:
        return
    if not any(consumer.nodes for consumer in consumers):
        if not scenario.applications:
            yield "subscribe: nobody subscribes to anything, so nothing is delivered"
        return
    mistyped = {consumer.at: said for consumer in consumers if (said := _find_mistyped(consumer, producers))}
    yield from limit_warnings([line for lines in mistyped.values() for line in lines])
    filters = sum(1 if one.filters is None else len(one.filters) for one in consumers)
    contents = sum(1 if one.contents is None else len(one.contents) for one in producers)
    if filters * contents <= MOST_TRIES:
        pairs = {(one.at, other.at): _find_obstacle(one, other) for one in producers for other in consumers}
        yield from _warn_unserved_consumers(consumers, producers, mistyped, pairs)
        yield from _warn_unwanted_publications(scenario, consumers, producers, mistyped, pairs)
    yield from _warn_empty_window(scenario, producers)


def _warn_empty_selections(scenario: Scenario, nodes_of: Callable[[Selection], frozenset[int]]) -> Iterator[str]:
    entries: list[tuple[str, Selection]] = []
    entries += [(f"subscribe[{place}]", entry.nodes) for place, entry in enumerate(scenario.subscribe)]
    entries += [(f"publish[{place}]", entry.nodes) for place, entry in enumerate(scenario.publish)]
    entries += [(f"request[{place}]", entry.nodes) for place, entry in enumerate(scenario.request)]
    yield from limit_warnings([f"{at}.nodes: selects no node" for at, selection in entries if not nodes_of(selection)])


def _warn_missing_events(scenario: Scenario, entry: PublishEntry, at: str, nodes: int) -> Iterator[str]:
    """Warn of publications that never happen, or only after the end of the run."""
    end_s = min(scenario.duration_s, scenario.duration_s if entry.to_s is None else entry.to_s)
    if entry.count == 0:
        yield f"{at}.count: 0, so nothing is published"
    if entry.every_s is not None and 0 < nodes * (end_s - entry.from_s) < entry.every_s:
        yield f"{at}.every_s: a period of {entry.every_s:g} s is so long that most runs publish nothing"
    if entry.file is None:
        return
    events = read_events(Path(entry.file), scenario.nodes)
    late = sum(entry.from_s + event.time_s > end_s for event in events)
    name = Path(entry.file).name
    if late:
        yield f"{at}.file: {late} of {len(events)} events in {name} are due after {end_s:g} s, the end"
    if not nodes and any(event.node is None for event in events):
        yield f"{at}.file: events in {name} that name no node are left out, since {at}.nodes selects none"


def _make_producer(scenario: Scenario, entry: PublishEntry, at: str, nodes: frozenset[int]) -> _Producer:
    end_s = min(scenario.duration_s, scenario.duration_s if entry.to_s is None else entry.to_s)
    from_s = entry.from_s
    if entry.file is not None:
        times_s = [entry.from_s + event.time_s for event in read_events(Path(entry.file), scenario.nodes)]
        from_s, end_s = min(times_s, default=from_s), min(end_s, max(times_s, default=end_s))
        # A file may name nodes of its own.
        nodes = frozenset(range(min(scenario.nodes, 2)))
    return _Producer(at, list_contents(entry, scenario.nodes), entry.access, from_s, end_s, nodes)


def _list_consumers(scenario: Scenario, nodes_of: Callable[[Selection], frozenset[int]]) -> Iterator[_Consumer]:
    def knows_producers(processor: str | None) -> bool:
        """Whether only `[[publish]]` makes events for a consumer: no application does, and no processor but its own."""
        return not scenario.applications and all(one.id == processor for one in scenario.processors)

    for place, one in enumerate(scenario.subscribe):
        # With history, a subscription also gets earlier events. Clients that are born stay beyond the last birth.
        from_s, to_s = 0.0 if one.history else one.at_s, None if one.births_per_s is not None else one.until_s
        at, nodes = f"subscribe[{place}]", nodes_of(one.nodes)
        made = list_filters(one.filter, one.draw)
        yield _Consumer(
            at, one.filter, one.draw, made, one.attributes, from_s, to_s, nodes, knows_producers(one.processor)
        )
    for place, asked in enumerate(scenario.request):
        at, nodes = f"request[{place}]", nodes_of(asked.nodes)
        made = list_filters(asked.filter, asked.draw)
        yield _Consumer(at, asked.filter, asked.draw, made, asked.attributes, 0.0, None, nodes, knows_producers(None))
    for place, runs in enumerate(scenario.processors):
        at, nodes = f"processors[{place}]", nodes_of(runs.nodes)
        yield _Consumer(at, runs.filter, {}, [Filter(runs.filter)], None, 0.0, None, nodes, knows_producers(runs.id))


def _find_mistyped(consumer: _Consumer, producers: Sequence[_Producer]) -> list[str]:
    """Warn of attributes that a filter compares with constants of another type than publications have."""
    if not consumer.knows_producers or any(producer.contents is None for producer in producers):
        return []
    given: dict[str, frozenset[ValueKind]] = {}
    for producer in producers:
        for content in producer.contents or ():
            for name, kinds in content.kinds.items():
                given[name] = given.get(name, frozenset()) | kinds
    said = []
    # Draws of one placeholder usually have one type, so one example suffices; `_find_drawn_kinds` covers mixed types.
    text = fill_template(consumer.filter, example_values(consumer.draws, ""), "")
    for name, kinds in compared_kinds(Filter(text).node).items():
        if name in given and not kinds & given[name] and not _find_drawn_kinds(consumer) & given[name]:
            compared, real = (" or ".join(KINDS[kind] for kind in sorted(one)) for one in (kinds, given[name]))
            said.append(
                f"{consumer.at}.filter: compares {name} with {compared}, but publications give {real}; "
                "that is never true"
            )
    return said


def _find_drawn_kinds(consumer: _Consumer) -> frozenset[ValueKind]:
    """Find the types of the values that the filter draws from lists of mixed types."""
    found: frozenset[ValueKind] = frozenset()
    for name, kinds in Content.of(consumer.draws).kinds.items():
        if len(kinds) > 1 and name in placeholder_names(consumer.filter):
            found |= kinds
    return found


def _warn_unserved_consumers(
    consumers: Sequence[_Consumer], producers: Sequence[_Producer], mistyped: Mapping[str, object], pairs: _Pairs
) -> Iterator[str]:
    """Warn of consumers that no published event can reach."""
    said = []
    for consumer in consumers:
        if not consumer.nodes or not consumer.knows_producers or consumer.at in mistyped:
            continue
        reason = _find_common_reason([pairs[producer.at, consumer.at] for producer in producers])
        if reason is not None:
            said.append(f"{consumer.at}: {_IN_VAIN[reason]}")
    yield from limit_warnings(said)


def _warn_unwanted_publications(
    scenario: Scenario,
    consumers: Sequence[_Consumer],
    producers: Sequence[_Producer],
    mistyped: Mapping[str, object],
    pairs: _Pairs,
) -> Iterator[str]:
    """Warn of publications that reach no consumer. With applications nothing is certain: they subscribe in the run."""
    if scenario.applications:
        return
    said = []
    for producer in producers:
        if any(consumer.at in mistyped and _overlaps(producer, consumer) for consumer in consumers):
            # The mistyped filter is probably meant for this publication, and has its own warning.
            continue
        reason = _find_common_reason([pairs[producer.at, consumer.at] for consumer in consumers if consumer.nodes])
        if reason is not None and producer.nodes:
            said.append(f"{producer.at}: {_FOR_NOBODY[reason]}")
    yield from limit_warnings(said)


_CONTENT, _ACCESS, _TIME, _SELF = range(4)
"""The reasons why no event of a publication reaches a consumer, in the order in which they are checked."""
_IN_VAIN = {
    _CONTENT: "no publication can match its filter, so it gets nothing",
    _ACCESS: "no access policy of the publications that match its filter allows its attributes, so it gets nothing",
    _TIME: "no publication that matches its filter is made while it stands, so it gets nothing",
    _SELF: "its only node is the only publisher, and nobody gets what it published itself",
}
_FOR_NOBODY = {
    _CONTENT: "no subscription can match its events, so nobody gets them",
    _ACCESS: "its access policy allows no subscription that matches, so nobody gets its events",
    _TIME: "no subscription that matches stands while it publishes, so nobody gets its events",
    _SELF: "its only node is the only subscriber, and nobody gets what it published itself",
}


def _find_common_reason(pairs: Sequence[int | None]) -> int | None:
    """Return the last reason of all pairs; None if one of the pairs has none."""
    reasons = [pair for pair in pairs if pair is not None]
    return max(reasons) if len(reasons) == len(pairs) and reasons else None


def _find_obstacle(producer: _Producer, consumer: _Consumer) -> int | None:
    """Return the reason why no event of a publication can reach a consumer; None if one may."""
    filters = consumer.filters
    tried = [] if filters is None or producer.contents is None else product(producer.contents, filters)
    if filters is not None and producer.contents is not None and not any(one.may_match(other) for one, other in tried):
        return _CONTENT
    asked = producer.access is not None and consumer.attributes is not None
    if asked and not Content.of(consumer.attributes or {}).may_match(Filter(producer.access or "")):
        return _ACCESS
    if not _overlaps(producer, consumer):
        return _TIME
    if consumer.at.startswith("subscribe") and len(producer.nodes | consumer.nodes) == 1:
        return _SELF
    return None


def _overlaps(producer: _Producer, consumer: _Consumer) -> bool:
    """Whether a consumer is active at some time of a publication."""
    before_end = consumer.to_s is None or producer.from_s < consumer.to_s
    return consumer.from_s <= producer.to_s and before_end


def _warn_empty_window(scenario: Scenario, producers: Sequence[_Producer]) -> Iterator[str]:
    """Warn of a measurement window in which nothing is published."""
    from_s, to_s = scenario.measure.from_s, scenario.measure.to_s
    if scenario.applications or scenario.processors:
        return
    if not any(from_s <= one.to_s and (to_s is None or one.from_s <= to_s) for one in producers):
        yield "measure: nothing is published between from_s and to_s, so no event counts"


def compared_kinds(node: Node) -> dict[str, frozenset[ValueKind]]:
    """Return, for each attribute that a filter compares with constants, the types of these constants."""
    found: dict[str, frozenset[ValueKind]] = {}
    for leaf in _walk_leaves(node):
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


def find_attributes(node: Node) -> set[str]:
    """Return the attributes that a filter names."""
    return {leaf.attribute for leaf in _walk_leaves(node)}


def find_kind(value: Scalar) -> ValueKind:
    """Return the type of a value in the filter language."""
    if isinstance(value, bool):
        return ValueKind.BOOLEAN
    return ValueKind.STRING if isinstance(value, str) else ValueKind.NUMBER


def _walk_leaves(node: Node) -> Iterator[Compare | Between | In | Like | Matches | IsNull]:
    if isinstance(node, And | Or):
        for operand in node.operands:
            yield from _walk_leaves(operand)
    elif isinstance(node, Not):
        yield from _walk_leaves(node.operand)
    elif not isinstance(node, Constant):
        yield node


def _make_condition(name: str, written: Drawable) -> Node:
    values = _list_values(written)
    if values is not None:
        equal = [Compare(name, Operator.EQ, Literal(find_kind(value), value)) for value in values]
        return equal[0] if len(equal) == 1 else Or(tuple(equal))
    assert isinstance(written, dict)
    low, high = _read_bounds(written)
    return Between(name, Literal(ValueKind.NUMBER, low), Literal(ValueKind.NUMBER, high), negated=False)


def _list_values(written: Drawable) -> Sequence[Scalar] | None:
    """List every value of a draw; None if there are too many to try."""
    if not isinstance(written, dict):
        return [written]
    if isinstance(choice := written.get("choice"), list):
        return list({(type(one), one): one for one in choice}.values())
    low, high = _read_bounds(written)
    if low == high:
        return [low]
    if "integers" in written and high - low < MOST_FILTERS:
        return range(int(low), int(high) + 1)
    return None


def _read_bounds(written: Mapping[str, object]) -> tuple[float, float]:
    ((_, ends),) = written.items()
    assert isinstance(ends, list | tuple), "draws are checked before"
    return ends[0], ends[1]
